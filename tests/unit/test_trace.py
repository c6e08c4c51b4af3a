"""TRACE's beam search step by step, with a scripted ranker, selector and reader."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kgqa.calls import Choose, Generate, Rank, Triples
from kgqa.datasets.demonstrations import load_chains, load_documents
from kgqa.errors import ConfigError, DataError
from kgqa.methods.trace import Trace
from kgqa.prompting.demonstrations import ChainDemonstration, Selection
from kgqa.testing import drive
from kgqa.types import Answer, Choice, Passage, Question, Triple
from tests import method_world

ALDER = Passage.of(
    "Alder",
    "Alder wrote Birch. Alder lived in Cedar.",
    ("Alder wrote Birch.", " Alder lived in Cedar."),
)
BIRCH = Passage.of("Birch", "Birch appeared in 1901. It was praised by Dogwood.")
CEDAR = Passage.of("Cedar", "Cedar is a town.")
QUESTION = Question(
    "q1", "When did Alder's book appear?", ("1901",), (ALDER, BIRCH, CEDAR), frozenset({BIRCH.id})
)
GRAPH = {
    ALDER.id: (
        Triple("Alder", "wrote", "Birch", ALDER.id),
        Triple("Alder", "home", "Cedar", ALDER.id),
    ),
    BIRCH.id: (Triple("Birch", "year", "1901", BIRCH.id),),
    CEDAR.id: (Triple("Cedar", "type", "town", CEDAR.id),),
}
WROTE, HOME, YEAR, TOWN = (str(triple) for triples in GRAPH.values() for triple in triples)
DEMONSTRATION = ChainDemonstration(
    "Who painted Elm?",
    (
        Selection(("<Elm; painter; Fir>", "<Elm; size; small>"), 0),
        Selection(("<Fir; age; 3>",), None),
    ),
)
METHOD = Trace(
    context="triples", units="triples", candidates=20, ranker=True, selector=True, top=None, max_length=4, beam=5,
    branch=5, chains=5, min_probability=1e-4, adaptive_termination=True, query_order="question_first",
    query_labels=False, short_demonstrations="last_step", layout="figures", reader_layout=None,
    demonstrations="none", demonstration_count=1, few_shot=(DEMONSTRATION,), max_answer_tokens=25,
)  # fmt: skip
Probabilities = Callable[[list[str], list[str]], list[float]]


class World(method_world.World):
    """`select(so_far, options)` gives the selector's probabilities."""

    def __init__(self, select: Probabilities, graph: dict[str, tuple[Triple, ...]] = GRAPH) -> None:
        super().__init__(["1901"])
        self.select, self.graph = select, graph
        self.relevance = {WROTE: 4.0, HOME: 3.0, YEAR: 2.0, TOWN: 1.0}

    def rank(self, call: Rank) -> tuple[float, ...]:
        return tuple(self.relevance.get(text, 0.0) for text in call.texts)

    def other(self, call: Any) -> Any:
        return self.graph[call.passage.id] if isinstance(call, Triples) else self.choose(call)

    def choose(self, call: Choose) -> Choice:
        so_far, options = read_selection(call)
        assert len(options) == len(call.options)
        probabilities = self.select(so_far, options)
        total = sum(probabilities)
        return Choice(tuple(math.log(p / total) if p else -math.inf for p in probabilities))

    def answer(self, question: Question = QUESTION, **changes: Any) -> Answer:
        return drive(replace(METHOD, **changes).answer(question), self)

    def context(self) -> str:
        [content] = self.prompts()
        return content.partition("Context:\n")[2].rpartition("\n\nQuestion:")[0]


def read_selection(call: Choose) -> tuple[list[str], list[str]]:
    """The chain so far and the options' texts, as the selection prompt's last message has them."""
    *lines, _question, _next = (
        call.prompt.messages[-1].content.partition("Chain so far: ")[2].splitlines()
    )
    so_far = (
        [] if lines[0] == "empty" else [f"<{part.strip('<>')}>" for part in lines[0].split(">, <")]
    )
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


def test_reader_gets_the_chain_of_the_selector() -> None:
    world = World(follow_the_book)
    answer = world.answer()
    assert (answer.text, chains_of(answer)) == ("1901", [([WROTE, YEAR], True)])
    assert world.context() == f"{WROTE}\n{YEAR}"
    assert (answer.evidence, answer.context_tokens) == (
        (ALDER.id, BIRCH.id),
        len(f"{WROTE} {YEAR}".split()),
    )
    assert not answer.flags


def test_chain_score_sums_log_probabilities() -> None:
    select = weights(
        at0={WROTE: 0.65, HOME: 0.35},
        at1={YEAR: 0.5, TOWN: 0.3, STOP: 0.2},
        at2={STOP: 0.8, HOME: 0.2},
    )
    answer = World(select).answer(max_length=3, beam=4, chains=4)
    # step 1: WROTE .65, HOME .35
    # step 2: WROTE YEAR .325, WROTE TOWN .195, HOME YEAR .175, WROTE stop .13; dropped: HOME TOWN .105, HOME stop .07
    # step 3: stop .26, stop .156, stop .175 (HOME is used, so stopping is certain), the ended one .13;
    #         dropped: WROTE YEAR HOME .065, WROTE TOWN HOME .039
    assert chains_of(answer) == [
        ([WROTE, YEAR], True),
        ([HOME, YEAR], True),
        ([WROTE, TOWN], True),
        ([WROTE], True),
    ]
    scores = [math.exp(chain["score"]) for chain in answer.notes["chains"]]
    assert scores == pytest.approx([0.26, 0.175, 0.156, 0.13])


def test_reader_gets_the_best_chains_of_the_beam() -> None:
    select = weights(at0={WROTE: 0.6, HOME: 0.3, YEAR: 0.1}, at1={STOP: 1.0})
    answer = World(select).answer(beam=3, chains=2)
    assert chains_of(answer) == [([WROTE], True), ([HOME], True)]


@pytest.mark.parametrize("candidates", [1, 2, 3])
def test_selector_gets_the_best_candidates(candidates: int) -> None:
    world = World(even)
    world.answer(candidates=candidates, max_length=1)
    [call] = world.of(Choose)
    assert read_selection(call)[1] == [STOP, *[WROTE, HOME, YEAR][:candidates]]


def test_ranker_query_has_question_and_chain() -> None:
    paper, released = World(follow_the_book), World(follow_the_book)
    paper.answer()
    released.answer(query_order="triples_first", query_labels=True)
    text = QUESTION.text
    assert [call.query for call in paper.of(Rank)] == [
        text,
        f"{text} {WROTE}",
        f"{text} {WROTE} {YEAR}",
    ]
    assert [call.query for call in released.of(Rank)[:2]] == [
        f"knowledge triples: \nquestion: {text}", f"knowledge triples: {WROTE}\nquestion: {text}",
    ]  # fmt: skip


def test_repeated_triples_and_equal_chains_are_merged() -> None:
    select = weights(at0={WROTE: 0.6, YEAR: 0.4}, at1={WROTE: 0.5, YEAR: 0.5}, at2={STOP: 1.0})
    assert chains_of(World(select).answer())[0] == ([WROTE, YEAR], True)
    twin = Triple("Birch", "year", "1901", CEDAR.id)
    same = weights(at0={YEAR: 0.5}, at1={WROTE: 1.0}, at2={STOP: 1.0})
    answer = World(same, {**GRAPH, CEDAR.id: (twin,)}).answer(max_length=2)
    assert (chains_of(answer), answer.evidence) == ([([YEAR, WROTE], False)], (BIRCH.id, ALDER.id))


@pytest.mark.parametrize("context", ["triples", "documents"])
def test_empty_graph_is_flagged(context: str) -> None:
    world = World(even, dict.fromkeys(GRAPH, ()))
    answer = world.answer(context=context)
    assert not world.of(Choose) + world.of(Rank)
    assert "Context" not in world.of(Generate)[0].prompt.messages[0].content
    assert (answer.flags, answer.evidence, answer.context_tokens) == ({"no_chain": 1}, (), 0)


def test_prompts_have_the_chosen_layout_and_examples() -> None:
    world, plain = World(follow_the_book), World(follow_the_book)
    world.answer(reader_layout="released")
    plain.answer()
    assert [call.prompt for call in world.of(Choose)] == [call.prompt for call in plain.of(Choose)]
    assert world.of(Generate)[-1].prompt.name == "trace/answer_released"
    assert "<" not in world.of(Generate)[-1].prompt.messages[-1].content
    assert plain.of(Generate)[-1].prompt.name == "reader/answer"
    world = World(follow_the_book)
    world.answer(demonstrations="fixed")
    first, second, third = (
        call.prompt.messages[0].content.split("\n\n")[1] for call in world.of(Choose)
    )
    assert "Chain so far: empty" in first
    assert first.endswith("Next: B")
    assert "Chain so far: <Elm; painter; Fir>" in second
    assert second.endswith("Next: A")
    assert third == second


def test_without_ranker_all_triples_are_options() -> None:
    world = World(follow_the_book)
    world.answer(ranker=False, candidates=1)
    assert not world.of(Rank)
    assert read_selection(world.of(Choose)[0])[1] == [STOP, WROTE, HOME, YEAR, TOWN]
    graph = {**GRAPH, CEDAR.id: tuple(Triple(f"h{i}", "r", "t", CEDAR.id) for i in range(725))}
    with pytest.raises(DataError, match=r"method.ranker=false: 728 candidates, 727 can be labeled"):
        World(even, graph).answer(ranker=False)


def test_without_selector_the_ranker_decides() -> None:
    world = World(even)
    answer = world.answer(selector=False, max_length=2, branch=2, beam=2, chains=2)
    assert not world.of(Choose)
    assert chains_of(answer) == [([WROTE, HOME], False), ([HOME, WROTE], False)]
    total = sum(math.exp(score) for score in world.relevance.values())
    rest = total - math.exp(4.0)
    assert math.exp(answer.notes["chains"][0]["score"]) == pytest.approx(
        math.exp(4 + 3) / total / rest
    )
    world = World(even)
    answer = world.answer(adaptive_termination=False, max_length=3, demonstrations="fixed")
    assert {len(units) for units, _ in chains_of(answer)} == {3}
    texts = [message.content for call in world.of(Choose) for message in call.prompt.messages]
    assert [text for text in texts if STOP in text] == []
    assert [text for text in texts if "A. <" not in text] == []
    assert {len(call.prompt.messages) for call in world.of(Choose)} == {2}


def test_documents_are_ordered_by_votes() -> None:
    select = weights(
        at0={TOWN: 0.5, YEAR: 0.3, WROTE: 0.2}, at1={HOME: 0.6, STOP: 0.4}, at2={STOP: 1.0}
    )
    world = World(select)
    answer = world.answer(context="documents", max_length=2, beam=3, chains=3)
    # TOWN HOME .3, TOWN .2, YEAR HOME .18: CEDAR and ALDER have two votes each, CEDAR is seen first
    assert answer.evidence == (CEDAR.id, ALDER.id, BIRCH.id)
    titles = [line for line in world.context().splitlines() if line.startswith("Title: ")]
    assert titles == ["Title: Cedar", "Title: Alder", "Title: Birch"]
    world = World(even)
    answer = world.answer(units="sentences", max_length=1)
    assert not world.of(Triples)
    assert read_selection(world.of(Choose)[0])[1] == [
        "no further sentence is needed", "Alder wrote Birch.", "Alder lived in Cedar.", "Birch appeared in 1901.",
        "It was praised by Dogwood.", "Cedar is a town.",
    ]  # fmt: skip
    assert [chain["triples"] for chain in answer.notes["chains"]][1] == [
        ["Alder wrote Birch.", ALDER.id]
    ]


def test_incompatible_values_are_rejected() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"chains": 6},
            r"method.chains=6: more than method.beam=5, .* Set method.chains=5, or method.beam=6",
        ),
        ({"ranker": False, "selector": False}, r"method.ranker=false"),
        ({"ranker": False, "top": 10}, r"method.ranker=false"),
        (
            {"demonstrations": "fixed", "demonstration_count": 2},
            r"method.demonstration_count=2: .* only 1 chains",
        ),
    ]
    for changes, message in cases:
        with pytest.raises(ConfigError, match=message):
            replace(METHOD, **changes)
    assert (len(load_documents("iirc")), len(load_chains("iirc"))) == (24, 24)
