"""Spell the options of a `Choose` in tokens, and turn token probabilities into option probabilities.

An option counts with and without a leading blank: after "Answer:" a model writes " B", after the end of a line "B".
Most labels are one token. Longer ones are followed along a tree of tokens. If "A" is the start of "AB", its probability
excludes that of "AB".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kgqa.errors import EngineError

# Added to the logits of options: all other tokens vanish in single precision, and the ratios stay the same
BIAS = 80.0

Path = tuple[int, ...]  # tokens after the prompt
# log p(last token | the tokens before it), for each path that is needed
Conditional = Mapping[Path, float]


@dataclass(frozen=True)
class Spelling:
    """The token sequences of options.

    options: for each option the paths that complete it. following: for each path that continues, the next tokens. The
    empty path is the first one, and each path comes after its shorter starts.
    """

    options: tuple[tuple[Path, ...], ...]
    following: Mapping[Path, tuple[int, ...]]

    @property
    def longest(self) -> int:
        """Return the number of tokens of the longest option."""
        return max(map(len, self.following)) + 1

    def score(self, conditional: Conditional) -> tuple[tuple[float, ...], float]:
        """Return normalized log-probabilities of the options, and the sum of their probabilities before."""
        scores = [
            logsumexp([self._reach(path, conditional) for path in paths]) for paths in self.options
        ]
        mass = logsumexp(scores)
        return tuple(score - mass for score in scores), math.exp(mass)

    def _reach(self, path: Path, conditional: Conditional) -> float:
        """Return the log-probability of a text that starts with the path and does not continue to a longer option."""
        total = sum(conditional[path[:end]] for end in range(1, len(path) + 1))
        if path not in self.following:
            return total
        # rounding can raise the share above 1
        return total + math.log(max(1.0 - self._continue(path, conditional), 1e-12))

    def _continue(self, path: Path, conditional: Conditional) -> float:
        """Return the probability that a text which reached the path continues to a longer option."""
        ends = {each for paths in self.options for each in paths}
        longer = ((*path, token) for token in self.following[path])
        return sum(
            math.exp(conditional[each])
            * (1.0 if each in ends else self._continue(each, conditional))
            for each in longer
        )


def spell(options: Sequence[str], tokenize: Callable[[str], Sequence[int]]) -> Spelling:
    """Return the tokens of the options, each with and without a leading blank.

    Raises:
        EngineError: two options have the same tokens.
    """
    following: dict[Path, dict[int, None]] = {}
    owner: dict[Path, str] = {}
    completed = []
    for option in options:
        paths = tuple(dict.fromkeys(tuple(tokenize(form)) for form in (option, f" {option}")))
        for path in paths:
            if owner.setdefault(path, option) != option or not path:
                raise EngineError(
                    f"the tokenizer cannot distinguish option {option!r} from {owner.get(path, '')!r}"
                )
            for end, token in enumerate(path):
                following.setdefault(path[:end], {})[token] = None
        completed.append(paths)
    return Spelling(tuple(completed), {path: tuple(tokens) for path, tokens in following.items()})


def continuation(encode: Callable[[str], list[int]]) -> Callable[[str], list[int]]:
    """Return a tokenizer for texts inside a line. At the start of a text some tokenizers add a blank."""

    def tokenize(text: str) -> list[int]:
        line, both = encode("\n"), encode(f"\n{text}")
        return both[len(line) :] if both[: len(line)] == line else encode(text)

    return tokenize


def logsumexp(values: Sequence[float]) -> float:
    """Return log(sum(exp(value))) without overflow."""
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))
