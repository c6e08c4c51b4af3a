"""KnowTrace beside a second implementation of Algorithm 1 (§3.2), because its program is not public.

The scripted model is greedy: an exploration depends only on the graph, and a completion on its pair and passages. Both
are drawn by seed over six invented entities, with triples that repeat and completions without a triple.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kgqa.calls import Call, CountTokens, Generate, Search
from kgqa.methods.knowtrace import KnowTrace
from kgqa.testing import drive
from kgqa.types import Answer, Completion, Passage, Question
from tests.composed import built_method
from tests.conformance.support import u

ENTITIES = ["Reed Lake", "Ada Holm", "Gorm College", "Fauskenes", "Bosund", "Ulvik"]
RELATIONS = ["author", "school", "town", "river"]
ITERATIONS = 4  # L
SEEDS = [str(seed) for seed in range(60)]
Triple = tuple[str, str, str]
Pair = tuple[str, str]
Exploration = tuple[str, str] | list[Pair]  # thought and answer, or pairs


def draw(seed: str, *parts: str, among: list[str]) -> str:
    return among[int(u(seed, *parts) * len(among))]


def explore(seed: str, graph: frozenset[Triple]) -> Exploration:
    """Return what the model answers to a graph: {FLAG, P} of Equation 1."""
    state = json.dumps(sorted(graph))
    if u(seed, "flag", state) < 0.04 * len(graph):
        answer = draw(seed, "answer", state, among=ENTITIES)
        return f"It is {answer}.", answer
    numbers = [str(number) for number in range(1 + int(3 * u(seed, "pairs", state)))]
    pairs = [
        (
            draw(seed, "entity", state, n, among=ENTITIES),
            draw(seed, "relation", state, n, among=RELATIONS),
        )
        for n in numbers
    ]
    return list(dict.fromkeys(pairs))


def complete(seed: str, pair: Pair) -> list[Triple]:
    """Return the triples that the model reads for a pair: T of Equation 2."""
    count = int(3 * u(seed, "triples", *pair))
    return [
        (pair[0], pair[1], draw(seed, "object", *pair, str(n), among=ENTITIES))
        for n in range(count)
    ]


@dataclass
class Trace:
    """What a run of Algorithm 1 did."""

    graphs: list[frozenset[Triple]] = field(default_factory=list)  # before each exploration
    queries: list[list[str]] = field(default_factory=list)  # by iteration
    thought: str = ""
    answer: str = ""


def run_algorithm(seed: str) -> Trace:
    """Run Algorithm 1 line by line."""
    trace, graph = Trace(), frozenset[Triple]()  # line 1
    for _ in range(ITERATIONS):  # line 2
        trace.graphs.append(graph)
        text = explore(seed, graph)  # line 4
        if isinstance(text, tuple):  # line 5
            trace.thought, trace.answer = text  # line 7
            return trace  # line 8
        trace.queries.append([f"{entity} {relation}" for entity, relation in text])  # line 13
        expanded = graph.union(*(complete(seed, pair) for pair in text))  # lines 15 and 17
        if expanded == graph:
            # Every further iteration of a greedy model would repeat this one. kgqa ends here.
            return trace
        graph = expanded
    return trace


class Script:
    """The scripted model, in the forms that kgqa's prompts ask for."""

    def __init__(self, seed: str) -> None:
        self.seed, self.graphs, self.queries = seed, list[frozenset[Triple]](), list[str]()

    def __call__(self, call: Call[Any]) -> Any:
        if isinstance(call, CountTokens):
            return 1
        if isinstance(call, Search):
            self.queries.append(call.query)
            return (Passage.of(call.query, "A text."),)
        assert isinstance(call, Generate)
        text = call.prompt.messages[0].content
        if call.prompt.name == "knowtrace/explore":
            return Completion(self.write_exploration(text.rpartition("\nKnowledge:\n")[2]))
        entity, _, relation = text.rpartition("Entity: ")[2].strip().partition("\nRelation: ")
        triples = complete(self.seed, (entity, relation))
        return Completion("\n".join(f"<{'; '.join(triple)}>" for triple in triples) or "none")

    def write_exploration(self, memory: str) -> str:
        lines = [] if memory == "none" else memory.split("\n")
        self.graphs.append(frozenset(tuple(line.strip("<>").split("; ")) for line in lines))  # type: ignore[misc]
        text = explore(self.seed, self.graphs[-1])
        if isinstance(text, tuple):
            return f" Yes\nThought: {text[0]}\nAnswer: {text[1]}"
        return "\n".join(
            [" No\nExplore:", *(f"- {entity}; {relation}" for entity, relation in text)]
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_inference_is_algorithm_1(seed: str) -> None:
    method: KnowTrace = replace(
        built_method("knowtrace"), at_limit="empty", max_iterations=ITERATIONS
    )
    script = Script(seed)
    answer: Answer = drive(method.answer(Question("q", "Where?", ("x",))), script)
    expected = run_algorithm(seed)
    assert script.graphs == expected.graphs
    assert script.queries == [query for queries in expected.queries for query in queries]
    assert (answer.text, answer.notes["thought"]) == (expected.answer, expected.thought)


def test_scripts_end_in_every_way() -> None:
    traces = [run_algorithm(seed) for seed in SEEDS]
    answered = [trace for trace in traces if trace.answer]
    limited = [trace for trace in traces if not trace.answer and len(trace.graphs) == ITERATIONS]
    at_standstill = [
        trace for trace in traces if not trace.answer and len(trace.graphs) < ITERATIONS
    ]
    assert min(len(answered), len(limited), len(at_standstill)) >= 8
