"""KGP with scripted replies: Algorithm 1, its agents, and what models write wrong."""

from __future__ import annotations

from typing import Any

import pytest

from kgqa.calls import Call, Generate, Rank, Search
from kgqa.errors import PromptTooLong
from kgqa.types import Completion, Question
from tests.composed import built_method
from tests.unit.kgp_world import COMPOSER, FJORD, OPERA, QUESTION, TOWN, World, walk


def test_each_seed_grows_by_the_neighbours_that_match_the_evidence() -> None:
    world = World()
    answer = walk(world, "branching=1")
    traversal = answer.notes["traversal"]
    assert traversal["seeds"] == [OPERA.id, COMPOSER.id]
    assert traversal["paths"] == [[OPERA.id, COMPOSER.id], [COMPOSER.id, TOWN.id]]
    assert answer.text == "Fauskenes"
    assert answer.evidence == (OPERA.id, COMPOSER.id, TOWN.id)
    assert answer.figures == {"seeds": 2, "steps": 2, "paths": 2, "visited": 3, "neighbours": 2.0}
    assert not answer.flags


@pytest.mark.parametrize(("overrides", "scorer"), [((), "tfidf"), (("match=encoder",), "ranker")])
@pytest.mark.parametrize("agent", ["llm", "t5", "llama"])
def test_evidence_is_compared_with_the_texts_of_the_neighbours(
    agent: str, overrides: tuple[str, ...], scorer: Any
) -> None:
    world = World()
    walk(world, f"agent={agent}", *overrides)
    assert world.made(Rank)[0] == Rank("Asbjarne Lyngholt was born in Oslo.", (COMPOSER.text, FJORD.text), scorer)


def test_the_reader_sees_a_numbered_context_for_each_path() -> None:
    world = World()
    walk(world, "branching=1")
    (asked,) = world.asked("kgp/answer")
    assert f"1: {OPERA.text}\n{COMPOSER.text}\n2: {COMPOSER.text}\n{TOWN.text}" in asked


def test_a_third_hop_goes_on_from_the_end_of_each_path_and_never_back() -> None:
    answer = walk(World(), "branching=1", "hops=3")
    paths = answer.notes["traversal"]["paths"]
    assert paths == [[OPERA.id, COMPOSER.id, TOWN.id], [COMPOSER.id, TOWN.id, FJORD.id]]


def test_the_budget_bounds_the_passages_visited_after_the_seeds() -> None:
    world = World()
    answer = walk(world, "branching=2", "budget=3")
    walked = answer.notes["traversal"]
    assert walked["paths"] == [[OPERA.id, COMPOSER.id], [OPERA.id, FJORD.id], [COMPOSER.id, TOWN.id]]
    assert [step["chosen"] for step in walked["steps"]] == [[COMPOSER.id, FJORD.id], [TOWN.id]]  # what was visited


def test_tfidf_collects_single_passages_round_by_round_among_the_neighbours_of_the_last() -> None:
    world = World()
    answer = walk(world, "agent=tfidf", "seeds=1", "rounds=[1,2]")
    assert answer.notes["traversal"]["paths"] == [[OPERA.id], [COMPOSER.id], [TOWN.id]]
    assert [call.texts for call in world.made(Rank)] == [(COMPOSER.text, FJORD.text), (TOWN.text,)]
    assert {(call.query, call.scorer) for call in world.made(Rank)} == {(QUESTION.text, "tfidf")}
    assert f"2: {COMPOSER.text}\n3: {TOWN.text}" in world.asked("kgp/answer")[0]
    assert [step["path"] for step in answer.notes["traversal"]["steps"]] == [[OPERA.id], [OPERA.id, COMPOSER.id]]


@pytest.mark.parametrize(
    ("agent", "match", "needed"),
    [
        *((agent, "tfidf", False) for agent in ("llm", "t5", "llama", "tfidf", "random")),
        *((agent, "encoder", False) for agent in ("tfidf", "random")),
        *((agent, "encoder", True) for agent in ("llm", "t5", "llama")),
        ("mdr", "tfidf", True),
    ],
)
def test_a_ranker_is_needed_where_an_encoder_compares(agent: str, match: str, needed: bool) -> None:
    assert ("ranker" in built_method("kgp", f"agent={agent}", f"match={match}").uses) == needed


def test_an_empty_reply_of_the_agent_is_counted_and_the_question_matched_instead() -> None:
    world = World(lambda call: Completion("  \n"))
    answer = walk(world)
    assert answer.flags["empty_evidence"] == 2
    assert world.made(Rank)[0].query == QUESTION.text


def test_seeds_without_neighbours_are_read_alone() -> None:
    answer = walk(World(edges={}))
    assert answer.flags == {"no_neighbours": 2}
    assert answer.notes["traversal"]["paths"] == [[OPERA.id], [COMPOSER.id]]
    assert answer.text == "Fauskenes"


def test_a_question_without_passages_is_answered_without_context() -> None:
    class Nothing(World):
        def __call__(self, call: Call[Any]) -> Any:
            return () if isinstance(call, Search) else super().__call__(call)

    world = Nothing()
    answer = walk(world, question=Question("q", QUESTION.text, ("Fauskenes",)))
    assert answer.flags == {"no_seeds": 1}
    assert answer.evidence == ()
    assert "Contexts" not in world.asked("kgp/answer")[0]


def test_the_last_paths_are_left_out_where_the_prompt_is_too_long() -> None:
    class Short(World):
        def read(self, call: Generate) -> Completion:
            if "2: " in call.prompt.messages[0].content:
                raise PromptTooLong(4_000, 2_500)
            return Completion(" Fauskenes")

    world = Short()
    answer = walk(world, "branching=1")
    assert answer.flags == {"context_cut": 1}
    assert len(world.asked("kgp/answer")) == 2
