"""Spell the options of a `Choose` in tokens, and turn token probabilities into option probabilities.

An option counts with and without a leading blank: after "Answer:" a model writes " B", after a line's end "B".
Most labels are one token; the others are followed token by token along a tree. Where one option's tokens begin
another's ("A", "AB"), the shorter one gets only what does not go on to the longer, so that no probability counts twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kgqa.errors import EngineError

ROOT = -1  # the place right after the prompt
# Added to the options' logits: nothing else keeps a share that single precision could show, ratios stay as they are
BIAS = 80.0


@dataclass(frozen=True)
class Spelling:
    """The token sequences of some options as a tree.

    `tokens[i]` and `parents[i]` describe inner place i, a sequence that goes on; parents come before their children.
    `pairs` are the (place, next token) whose log-probability is needed, `reached[j]` the place that pair j
    leads to (None: no option goes on from there), and `options[o]` the pairs that complete option o.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    reached: tuple[int | None, ...]
    options: tuple[tuple[int, ...], ...]

    @property
    def depths(self) -> list[int]:
        """Return tokens between the prompt and each inner place, itself included."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        return depths

    @property
    def longest(self) -> int:
        """Return tokens of the longest option."""
        return max(self.depths, default=0) + 1

    def ancestry(self, place: int) -> list[int]:
        """Return the place and all places it goes through."""
        path = []
        while place != ROOT:
            path.append(place)
            place = self.parents[place]
        return path

    def score(self, conditional: Sequence[float]) -> tuple[tuple[float, ...], float]:
        """Return normalised log-probabilities of the options and their mass, from log p(next | place) of every pair."""
        arrival: dict[int, float] = {ROOT: 0.0}
        leftover = [0.0] * len(self.pairs)
        ends = {pair for pairs in self.options for pair in pairs}
        for pair, (place, _) in enumerate(self.pairs):
            if (inner := self.reached[pair]) is not None:
                arrival[inner] = arrival[place] + conditional[pair]
                if pair in ends:
                    leftover[pair] = _log1m(self._continue(inner, conditional, ends))
        total = [arrival[place] + conditional[j] + leftover[j] for j, (place, _) in enumerate(self.pairs)]
        scores = [logsumexp([total[pair] for pair in pairs]) for pairs in self.options]
        mass = logsumexp(scores)
        return tuple(score - mass for score in scores), math.exp(mass)

    def _continue(self, place: int, conditional: Sequence[float], ends: set[int]) -> float:
        """Return probability that a text which reached `place` goes on to a longer option."""
        share = 0.0
        for pair, (start, _) in enumerate(self.pairs):
            if start != place:
                continue
            inner = self.reached[pair]
            onward = 1.0 if pair in ends or inner is None else self._continue(inner, conditional, ends)
            share += math.exp(conditional[pair]) * onward
        return share


def spell(options: Sequence[str], tokenize: Callable[[str], Sequence[int]]) -> Spelling:
    """Return the tree of the options' tokens, each with and without a leading blank.

    Raises:
        EngineError: two options are the same tokens, so that the model cannot tell them apart.
    """
    tokens: list[int] = []
    parents: list[int] = []
    numbers: dict[tuple[int, int], int] = {}
    reached: list[int | None] = []
    owner: dict[int, str] = {}
    completed: list[tuple[int, ...]] = []
    for option in options:
        pairs = []
        for sequence in dict.fromkeys(tuple(tokenize(form)) for form in (option, f" {option}")):
            place, pair = ROOT, ROOT
            for depth, token in enumerate(sequence):
                pair = numbers.setdefault((place, token), len(numbers))
                if pair == len(reached):
                    reached.append(None)
                if depth + 1 < len(sequence):
                    place = _inner(pair, (place, token), (tokens, parents, reached))
            if owner.setdefault(pair, option) != option or not sequence:
                raise EngineError(f"the tokenizer cannot tell option {option!r} from {owner.get(pair, '')!r}")
            pairs.append(pair)
        completed.append(tuple(pairs))
    return Spelling(tuple(tokens), tuple(parents), tuple(numbers), tuple(reached), tuple(completed))


def continuation(encode: Callable[[str], list[int]]) -> Callable[[str], list[int]]:
    """Return the tokens of a text inside a line; at a text's very start some tokenizers put a blank of their own."""

    def tokenize(text: str) -> list[int]:
        line, both = encode("\n"), encode(f"\n{text}")
        return both[len(line) :] if both[: len(line)] == line else encode(text)

    return tokenize


def _inner(pair: int, step: tuple[int, int], tree: tuple[list[int], list[int], list[int | None]]) -> int:
    """Return the place that a pair leads to, made on first use."""
    tokens, parents, reached = tree
    known = reached[pair]
    if known is not None:
        return known
    reached[pair] = len(tokens)
    parents.append(step[0])
    tokens.append(step[1])
    return len(tokens) - 1


def logsumexp(values: Sequence[float]) -> float:
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))


def _log1m(share: float) -> float:
    """Return log(1 - share); rounding may push a share past 1, which stands for almost nothing left."""
    return math.log(max(1.0 - share, 1e-12))
