"""How token probabilities become option probabilities."""

from __future__ import annotations

import hashlib
import math

import pytest

from kgqa.calls import labels
from kgqa.engines.labels import Spelling, continuation, spell
from kgqa.errors import EngineError

LETTERS = " ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz."


def by_character(text: str) -> list[int]:
    return [LETTERS.index(letter) for letter in text]


def whole_labels(text: str) -> list[int]:
    """Every label is a token, with and without its blank, but two-letter labels starting with Z are two."""
    if text.strip().startswith("Z") and len(text.strip()) == 2:
        return [1000 + ord(text[-2]), 2000 + ord(text[-1])]
    return [sum(ord(letter) * 256**place for place, letter in enumerate(text))]


def chances(path: tuple[int, ...]) -> list[float]:
    """A toy language model over `LETTERS`."""
    digits = hashlib.sha256(repr(path).encode()).digest() * 2
    weights = [1 + digits[token] for token in range(len(LETTERS))]
    return [weight / sum(weights) for weight in weights]


def asked(spelling: Spelling) -> list[float]:
    found = []
    for place, token in spelling.pairs:
        path = tuple(spelling.tokens[step] for step in reversed(spelling.ancestry(place)))
        found.append(math.log(chances(path)[token]))
    return found


def longest_match(option: str, options: tuple[str, ...], ahead: int) -> float:
    """Probability that a text of the toy model starts with the option and with no longer one, by trying all texts."""

    def total(path: tuple[int, ...], matched: str) -> float:
        text = "".join(LETTERS[token] for token in path)
        for form in options:
            if text in (form, f" {form}"):
                matched = form
        if len(path) == ahead:
            return float(matched == option)
        return sum(chance * total((*path, token), matched) for token, chance in enumerate(chances(path)))

    return total((), "")


@pytest.mark.parametrize("count", [1, 5, 21, 31, 41, 52, 155])
def test_options_get_all_the_probability_between_them(count: int) -> None:
    spelling = spell(labels(count), by_character)
    logprobs, mass = spelling.score(asked(spelling))
    assert len(logprobs) == count
    assert math.isclose(sum(map(math.exp, logprobs)), 1)
    assert 0 < mass <= 1


def test_a_label_counts_with_and_without_a_leading_blank() -> None:
    spelling = spell(("A", "B"), whole_labels)
    assert not spelling.tokens
    given = dict(zip(spelling.pairs, map(math.log, (0.1, 0.2, 0.3, 0.05)), strict=True))
    logprobs, mass = spelling.score(list(given.values()))
    assert math.isclose(mass, 0.65)
    assert math.isclose(math.exp(logprobs[0]), 0.3 / 0.65)


def test_labels_of_several_tokens_are_followed_token_by_token() -> None:
    options = ("B", "CA", "CB")
    spelling = spell(options, by_character)
    logprobs, mass = spelling.score(asked(spelling))
    for option, logprob in zip(options, logprobs, strict=True):
        expected = sum(
            math.prod(chances(tuple(path[:end]))[path[end]] for end in range(len(path)))
            for path in (by_character(option), by_character(f" {option}"))
        )
        assert math.isclose(math.exp(logprob) * mass, expected)


def test_a_label_that_begins_another_gets_only_what_does_not_go_on_to_it() -> None:
    options = ("A", "AB", "B")
    spelling = spell(options, by_character)
    logprobs, mass = spelling.score(asked(spelling))
    expected = [longest_match(option, options, ahead=3) for option in options]
    assert [math.exp(logprob) * mass for logprob in logprobs] == pytest.approx(expected)


def test_one_token_labels_and_split_ones_live_side_by_side() -> None:
    spelling = spell(("A", "ZA", "ZB"), whole_labels)
    assert spelling.longest == 2
    assert len(spelling.tokens) == 1  # "Z", reached with and without a blank alike
    assert spelling.depths == [1]


def test_labels_that_the_tokenizer_cannot_tell_apart_are_refused() -> None:
    with pytest.raises(EngineError, match="cannot tell option 'a' from 'A'"):
        spell(("A", "a"), lambda text: by_character(text.upper()))


def test_a_blank_that_a_tokenizer_adds_at_the_start_is_not_part_of_a_label() -> None:
    def sentencepiece(text: str) -> list[int]:
        return [ord(letter) for letter in f"▁{text}"]

    assert continuation(sentencepiece)("B") == [ord("B")]
