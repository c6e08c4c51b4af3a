"""Spell the options of a `Choose` in tokens, and turn token probabilities into option probabilities.

An option counts with and without a leading blank: after "Answer:" a model writes " B", after a line's end "B".
Most labels are one token. The others are followed token by token along a tree. If one option's tokens start another's
("A", "AB"), the shorter one gets only what does not continue to the longer, so that no probability counts twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kgqa.errors import EngineError

# Added to the options' logits: nothing else keeps a share that single precision could show, ratios stay as they are
BIAS = 80.0

Path = tuple[int, ...]  # tokens after the prompt
Conditional = Mapping[Path, float]  # log p(last token | the tokens before it), for each path that is needed


@dataclass(frozen=True)
class Spelling:
    """The token sequences of options.

    `options` has for each option the paths that complete it. `following` has for each path that continues, the empty
    one first, the next tokens whose log-probability is needed. A path comes after the shorter ones that it starts with.
    """

    options: tuple[tuple[Path, ...], ...]
    following: Mapping[Path, tuple[int, ...]]

    @property
    def longest(self) -> int:
        """Return the number of tokens of the longest option."""
        return max(map(len, self.following)) + 1

    def score(self, conditional: Conditional) -> tuple[tuple[float, ...], float]:
        """Return normalized log-probabilities of the options, and their sum before normalizing as a probability."""
        scores = [logsumexp([self._reach(path, conditional) for path in paths]) for paths in self.options]
        mass = logsumexp(scores)
        return tuple(score - mass for score in scores), math.exp(mass)

    def _reach(self, path: Path, conditional: Conditional) -> float:
        """Return the log-probability of a text that starts with the path and does not continue to a longer option."""
        total = sum(conditional[path[:end]] for end in range(1, len(path) + 1))
        if path not in self.following:
            return total
        # rounding can push the share past 1
        return total + math.log(max(1.0 - self._continue(path, conditional), 1e-12))

    def _continue(self, path: Path, conditional: Conditional) -> float:
        """Return the probability that a text which reached the path continues to a longer option."""
        ends = {each for paths in self.options for each in paths}
        longer = ((*path, token) for token in self.following[path])
        return sum(
            math.exp(conditional[each]) * (1.0 if each in ends else self._continue(each, conditional))
            for each in longer
        )


def spell(options: Sequence[str], tokenize: Callable[[str], Sequence[int]]) -> Spelling:
    """Return the tokens of the options, each with and without a leading blank.

    Raises:
        EngineError: two options are the same tokens, so that the model cannot distinguish them.
    """
    following: dict[Path, dict[int, None]] = {}
    owner: dict[Path, str] = {}
    completed = []
    for option in options:
        paths = tuple(dict.fromkeys(tuple(tokenize(form)) for form in (option, f" {option}")))
        for path in paths:
            if owner.setdefault(path, option) != option or not path:
                raise EngineError(f"the tokenizer cannot distinguish option {option!r} from {owner.get(path, '')!r}")
            for end, token in enumerate(path):
                following.setdefault(path[:end], {})[token] = None
        completed.append(paths)
    return Spelling(tuple(completed), {path: tuple(tokens) for path, tokens in following.items()})


def continuation(encode: Callable[[str], list[int]]) -> Callable[[str], list[int]]:
    """Return a tokenizer of texts inside a line. At the very start of a text some tokenizers add a blank."""

    def tokenize(text: str) -> list[int]:
        line, both = encode("\n"), encode(f"\n{text}")
        return both[len(line) :] if both[: len(line)] == line else encode(text)

    return tokenize


def logsumexp(values: Sequence[float]) -> float:
    """Return log(sum(exp(value))) without overflow."""
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))
