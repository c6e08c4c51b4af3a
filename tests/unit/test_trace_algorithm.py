"""TRACE's chains against a second implementation of Algorithm 1, on the same graph, scores and letter probabilities.

The second one is written from §3.3, Algorithm 1 and the figures of the released code: it counts in places of triples
and in probabilities where `kgqa.methods.trace` has texts and logarithms, and shares no code with it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from string import ascii_uppercase
from typing import Any

import pytest

from kgqa.calls import Call, Choose, Generate, Rank, Triples
from kgqa.testing import drive
from kgqa.types import Answer, Choice, Completion, Passage, Question, Triple
from tests.trace_world import METHOD, shown

PAPER = {"candidates": 20, "beam": 5, "chains": 5}  # §C.4
RELEASED = {"candidates": 20, "beam": 20, "chains": 5, "query_order": "triples_first", "query_labels": True}
SMALL = {"candidates": 4, "beam": 3, "branch": 2, "chains": 2, "max_length": 6}
NARROW = {"candidates": 1, "beam": 1, "branch": 1, "chains": 1}
SETTINGS: dict[str, dict[str, Any]] = {"paper": PAPER, "released": RELEASED, "small": SMALL, "narrow": NARROW}


@dataclass(frozen=True)
class Case:
    """A question's graph; what ranker and selector say of it are fixed tables of random numbers."""

    seed: int

    @property
    def passages(self) -> tuple[Passage, ...]:
        return tuple(Passage.of(f"Title {n}", f"Text {n}.") for n in range(4))

    @property
    def graph(self) -> list[tuple[str, int]]:
        """Triples as text, each with the number of its passage."""
        count = Random(f"size {self.seed}").randint(8, 40)
        return [(f"<Title {n % 4}; relation {n}; tail {n}>", n % 4) for n in sorted(range(count), key=lambda n: n % 4)]

    def relevance(self, query: str, text: str) -> float:
        return Random(f"{self.seed} {query} {text}").random()

    def letter(self, step: int, label: str) -> float:
        """How likely this label is at this step, not normalised; every third question has a selector that is sure."""
        return math.exp(Random(f"{self.seed} {step} {label}").gauss(0, 4 if self.seed % 3 else 12))


@dataclass(frozen=True)
class Path:
    places: tuple[int, ...]
    probability: float
    finished: bool


def algorithm_1(case: Case, settings: Mapping[str, Any]) -> list[Path]:
    """Part II, with adaptive termination and the released code's least probability: the last beam, best first."""
    triples = [text for text, _ in case.graph]
    beam = [Path((), 1.0, finished=False)]
    for step in range(settings.get("max_length", 4)):
        grown: list[Path] = []
        for path in beam:
            if path.finished:
                grown.append(path)
                continue
            so_far = " ".join(triples[place] for place in path.places)
            query = f"When? {so_far}".strip()
            if settings.get("query_labels"):
                query = f"knowledge triples: {so_far}\nquestion: When?"
            left = [place for place in range(len(triples)) if place not in path.places]
            left.sort(key=lambda place: case.relevance(query, triples[place]), reverse=True)
            offered: list[int | None] = [None, *left[: settings["candidates"]]]
            weights = [case.letter(step, ascii_uppercase[number]) for number in range(len(offered))]
            likely = sorted(zip(weights, offered, strict=True), key=lambda pair: pair[0], reverse=True)
            for weight, place in likely[: settings.get("branch", 5)]:
                share = weight / sum(weights)
                if share < settings.get("min_probability", 0.0001):
                    continue
                places = path.places if place is None else (*path.places, place)
                grown.append(Path(places, path.probability * share, place is None))
        beam = sorted(grown, key=lambda path: path.probability, reverse=True)[: settings["beam"]]
    return beam


def answered(case: Case, settings: Mapping[str, Any]) -> Answer:
    """By kgqa, asked the same things."""
    triples: dict[str, list[Triple]] = {passage.id: [] for passage in case.passages}
    for text, number in case.graph:
        head, relation, tail = text.strip("<>").split("; ")
        triples[case.passages[number].id].append(Triple(head, relation, tail, case.passages[number].id))

    def reply(call: Call[Any]) -> Any:
        if isinstance(call, Triples):
            return tuple(triples[call.passage.id])
        if isinstance(call, Rank):
            return tuple(case.relevance(call.query, text) for text in call.texts)
        if isinstance(call, Choose):
            step = len(shown(call)[0])
            weights = [case.letter(step, label) for label in call.options]
            return Choice(tuple(math.log(weight / sum(weights)) for weight in weights))
        return Completion("then") if isinstance(call, Generate) else 1

    question = Question("q", "When?", ("then",), case.passages)
    return drive(replace(METHOD, **settings).answer(question), reply)


@pytest.mark.parametrize("name", SETTINGS)
def test_chains_scores_and_order_are_those_of_algorithm_1(name: str) -> None:
    settings, lengths, stopped = SETTINGS[name], set[int](), 0
    for case in map(Case, range(40)):
        expected = algorithm_1(case, settings)[: settings["chains"]]
        answer = answered(case, settings)
        places = {text: place for place, (text, _) in enumerate(case.graph)}
        notes = answer.notes["chains"]
        built = [tuple(places[f"<{'; '.join(triple[:3])}>"] for triple in chain["triples"]) for chain in notes]
        assert built == [path.places for path in expected]
        assert [chain["ended"] for chain in notes] == [path.finished for path in expected]
        assert [math.exp(chain["score"]) for chain in notes] == pytest.approx([path.probability for path in expected])
        votes = Counter(case.passages[case.graph[place][1]].id for path in expected for place in path.places)
        assert list(answer.evidence) == [passage for passage, _ in votes.most_common()]
        lengths |= {len(path.places) for path in expected}
        stopped += sum(path.finished for path in expected)
    assert {0, settings.get("max_length", 4)} <= lengths  # chains that stop at once, and the longest, are among them
    assert stopped
