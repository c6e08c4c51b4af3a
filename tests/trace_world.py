"""A small question, its knowledge graph, and scripted replies to what `method=trace` asks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kgqa.calls import Call, Choose, CountTokens, Generate, Rank, Triples
from kgqa.methods.trace import Trace
from kgqa.prompting.demonstrations import ChainDemonstration, Selection
from kgqa.testing import drive
from kgqa.types import Answer, Choice, Completion, Passage, Question, Triple

ALDER = Passage.of(
    "Alder", "Alder wrote Birch. Alder lived in Cedar.", ("Alder wrote Birch.", " Alder lived in Cedar.")
)
BIRCH = Passage.of("Birch", "Birch appeared in 1901. It was praised by Dogwood.")
CEDAR = Passage.of("Cedar", "Cedar is a town.")
QUESTION = Question("q1", "When did Alder's book appear?", ("1901",), (ALDER, BIRCH, CEDAR), frozenset({BIRCH.id}))
GRAPH = {
    ALDER.id: (Triple("Alder", "wrote", "Birch", ALDER.id), Triple("Alder", "home", "Cedar", ALDER.id)),
    BIRCH.id: (Triple("Birch", "year", "1901", BIRCH.id),),
    CEDAR.id: (Triple("Cedar", "type", "town", CEDAR.id),),
}
WROTE, HOME, YEAR, TOWN = (str(triple) for triples in GRAPH.values() for triple in triples)
DEMONSTRATION = ChainDemonstration(
    "Who painted Elm?",
    (Selection(("<Elm; painter; Fir>", "<Elm; size; small>"), 0), Selection(("<Fir; age; 3>",), None)),
)
METHOD = Trace(
    context="triples", units="triples", candidates=20, ranker=True, selector=True, top=None, max_length=4, beam=5,
    branch=5, chains=5, min_probability=1e-4, adaptive_termination=True, query_order="question_first",
    query_labels=False, short_demonstrations="last_step", layout="figures", reader_layout=None,
    demonstrations="none", demonstration_count=1, few_shot=(DEMONSTRATION,), max_answer_tokens=25,
)  # fmt: skip
Probabilities = Callable[[list[str], list[str]], list[float]]


class World:
    """Answers a method's calls; `select(so_far, options)` gives the selector's probabilities."""

    def __init__(self, select: Probabilities, graph: dict[str, tuple[Triple, ...]] = GRAPH) -> None:
        self.select, self.graph = select, graph
        self.calls: list[Call[Any]] = []
        self.relevance = {WROTE: 4.0, HOME: 3.0, YEAR: 2.0, TOWN: 1.0}

    def __call__(self, call: Call[Any]) -> Any:
        self.calls.append(call)
        if isinstance(call, Triples):
            return self.graph[call.passage.id]
        if isinstance(call, Rank):
            return tuple(self.relevance.get(text, 0.0) for text in call.texts)
        if isinstance(call, Choose):
            return self.choose(call)
        if isinstance(call, Generate):
            return Completion("1901")
        assert isinstance(call, CountTokens)
        return len(call.text.split())

    def choose(self, call: Choose) -> Choice:
        so_far, options = shown(call)
        assert len(options) == len(call.options)
        probabilities = self.select(so_far, options)
        total = sum(probabilities)
        return Choice(tuple(math.log(p / total) if p else -math.inf for p in probabilities))

    def of(self, kind: type[Any]) -> list[Any]:
        return [call for call in self.calls if isinstance(call, kind)]

    def answer(self, question: Question = QUESTION, **changes: Any) -> Answer:
        return drive(replace(METHOD, **changes).answer(question), self)

    def context(self) -> str:
        [call] = self.of(Generate)
        content: str = call.prompt.messages[0].content
        return content.partition("Context:\n")[2].rpartition("\n\nQuestion:")[0]


def shown(call: Choose) -> tuple[list[str], list[str]]:
    """The chain so far and the options' texts, as the selection prompt's last message has them."""
    *lines, _question, _next = call.prompt.messages[-1].content.partition("Chain so far: ")[2].splitlines()
    so_far = [] if lines[0] == "empty" else [f"<{part.strip('<>')}>" for part in lines[0].split(">, <")]
    assert [line.split(". ")[0] for line in lines[2:]] == list(call.options)
    return so_far, [line.partition(". ")[2] for line in lines[2:]]


def weights(**by_state: dict[str, float]) -> Probabilities:
    """Probabilities by number of triples so far (`at0`, `at1`, …); an option that is not named gets nothing."""

    def select(so_far: list[str], options: list[str]) -> list[float]:
        row = by_state[f"at{len(so_far)}"]
        return [row.get(option, 0.0) for option in options]

    return select


STOP = "no further triple is needed"


def follow_the_book(so_far: list[str], options: list[str]) -> list[float]:
    """Takes WROTE, then YEAR, then stops, each nearly for sure."""
    wanted = ([WROTE, YEAR] + [STOP] * 9)[len(so_far)]
    return [0.99999 if option == wanted else 0.00001 / (len(options) - 1) for option in options]


def even(_so_far: list[str], options: list[str]) -> list[float]:
    return [1.0] * len(options)


def chains_of(answer: Answer) -> list[tuple[list[str], bool]]:
    return [
        ([f"<{'; '.join(triple[:-1])}>" for triple in chain["triples"]], chain["ended"])
        for chain in answer.notes["chains"]
    ]
