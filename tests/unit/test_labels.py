"""How token probabilities become option probabilities."""

from __future__ import annotations

import hashlib
import math

import pytest

from kgqa.calls import labels
from kgqa.engines.labels import Path, Spelling, continuation, spell
from kgqa.errors import EngineError

LETTERS = " ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz."


def by_character(text: str) -> list[int]:
    return [LETTERS.index(letter) for letter in text]


def chances(path: Path) -> list[float]:
    """A toy language model over `LETTERS`."""
    digits = hashlib.sha256(repr(path).encode()).digest() * 2
    weights = [1 + digits[token] for token in range(len(LETTERS))]
    return [weight / sum(weights) for weight in weights]


def conditional(spelling: Spelling) -> dict[Path, float]:
    following = spelling.following.items()
    return {
        (*path, each): math.log(chances(path)[each])
        for path, tokens in following
        for each in tokens
    }


def longest_match(option: str, options: tuple[str, ...], ahead: int) -> float:
    """Probability that a text of the toy model starts with the option and with no longer one, by trying all texts."""

    def total(path: Path, matched: str) -> float:
        text = "".join(LETTERS[token] for token in path)
        matched = next((form for form in options if text in (form, f" {form}")), matched)
        if len(path) == ahead:
            return float(matched == option)
        return sum(
            chance * total((*path, token), matched) for token, chance in enumerate(chances(path))
        )

    return total((), "")


@pytest.mark.parametrize("count", [1, 52, 155])
def test_options_share_all_probability(count: int) -> None:
    spelling = spell(labels(count), by_character)
    logprobs, mass = spelling.score(conditional(spelling))
    assert len(logprobs) == count
    assert math.isclose(sum(map(math.exp, logprobs)), 1)
    assert 0 < mass <= 1


def test_labels_count_with_and_without_leading_blank() -> None:
    spelling = spell(("A", "B"), lambda text: [ord(text[-1]) + 1000 * len(text)])
    assert (spelling.longest, len(spelling.following)) == (1, 1)
    shares = zip(spelling.following[()], (0.1, 0.2, 0.3, 0.05), strict=True)
    probabilities: dict[Path, float] = {(token,): math.log(share) for token, share in shares}
    logprobs, mass = spelling.score(probabilities)
    assert math.isclose(mass, 0.65)
    assert math.isclose(math.exp(logprobs[0]), 0.3 / 0.65)
    with pytest.raises(EngineError, match="cannot distinguish option 'a' from 'A'"):
        spell(("A", "a"), lambda text: by_character(text.upper()))
    assert continuation(lambda text: [ord(letter) for letter in f"▁{text}"])("B") == [ord("B")]


@pytest.mark.parametrize("options", [("B", "CA", "CB"), ("A", "AB", "B")])
def test_label_excludes_mass_of_longer_labels(
    options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.unit.test_labels.LETTERS", " ABC.")  # few texts to try
    spelling = spell(options, by_character)
    assert spelling.longest == 3
    logprobs, mass = spelling.score(conditional(spelling))
    expected = [longest_match(option, options, ahead=3) for option in options]
    assert [math.exp(logprob) * mass for logprob in logprobs] == pytest.approx(expected)
