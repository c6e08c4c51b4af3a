"""KGP with scripted replies: Algorithm 1, its agents, and what models write wrong."""

from __future__ import annotations

from typing import Any

import pytest

from kgqa.calls import Call, Generate, Neighbours, Rank, Search
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.errors import PromptTooLong
from kgqa.types import Completion, Passage, Question
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


def test_the_agent_is_a_role_of_its_own_and_sees_the_path() -> None:
    world = World()
    walk(world)
    agent = [call for call in world.made(Generate) if call.role == "agent"]
    assert [call.prompt.name for call in agent] == ["kgp/evidence", "kgp/evidence"]
    assert OPERA.text in agent[0].prompt.messages[0].content
    assert COMPOSER.text in agent[1].prompt.messages[0].content


def test_the_reader_sees_a_numbered_context_for_each_path() -> None:
    world = World()
    walk(world, "branching=1")
    (asked,) = world.asked("kgp/answer")
    assert f"1: {OPERA.text}\n{COMPOSER.text}\n2: {COMPOSER.text}\n{TOWN.text}" in asked


def test_a_third_hop_goes_on_from_the_end_of_each_path_and_never_back() -> None:
    answer = walk(World(), "branching=1", "hops=3")
    paths = answer.notes["traversal"]["paths"]
    assert paths == [[OPERA.id, COMPOSER.id, TOWN.id], [COMPOSER.id, TOWN.id, FJORD.id]]


def test_one_hop_reads_the_seeds_and_asks_no_agent() -> None:
    world = World()
    answer = walk(world, "hops=1")
    assert answer.notes["traversal"]["paths"] == [[OPERA.id], [COMPOSER.id]]
    assert not world.asked("kgp/evidence")


def test_the_budget_bounds_the_passages_visited_after_the_seeds() -> None:
    world = World()
    answer = walk(world, "branching=2", "budget=3")
    walked = answer.notes["traversal"]
    assert walked["paths"] == [[OPERA.id, COMPOSER.id], [OPERA.id, FJORD.id], [COMPOSER.id, TOWN.id]]
    assert [step["chosen"] for step in walked["steps"]] == [[COMPOSER.id, FJORD.id], [TOWN.id]]  # what was visited


def test_no_agent_is_asked_once_the_budget_is_spent() -> None:
    world = World()
    answer = walk(world, "branching=2", "budget=2")
    assert len(world.asked("kgp/evidence")) == 1
    assert answer.notes["traversal"]["paths"] == [[OPERA.id, COMPOSER.id], [OPERA.id, FJORD.id], [COMPOSER.id]]


def test_t5_is_given_instruction_question_and_evidence_as_plain_text() -> None:
    world = World()
    walk(world, "agent=t5", 'instruction="What is missing?"')
    call = world.made(Generate)[0]
    assert call.prompt.form == "completion"
    assert call.prompt.messages[0].content == f"What is missing? {QUESTION.text} {OPERA.text}"


def test_llama_is_given_instruction_input_and_output_on_lines_of_their_own() -> None:
    world = World()
    walk(world, "agent=llama", 'instruction="What is missing?"')
    call = world.made(Generate)[0]
    assert call.role == "agent"
    assert call.prompt.form == "completion"
    assert call.prompt.messages[0].content == (
        f"Instruction: What is missing?\nInput: {QUESTION.text} {OPERA.text}\nOutput:"
    )


def test_mdr_compares_question_and_path_with_the_neighbours_and_writes_nothing() -> None:
    world = World()
    answer = walk(world, "agent=mdr")
    assert world.made(Rank)[0].query == f"{QUESTION.text} {OPERA.text}"
    assert world.made(Rank)[0].scorer == "ranker"
    assert {call.prompt.name for call in world.made(Generate)} == {"kgp/answer"}
    assert answer.text == "Fauskenes"


def test_tfidf_collects_single_passages_round_by_round_among_the_neighbours_of_the_last() -> None:
    world = World()
    answer = walk(world, "agent=tfidf", "seeds=1", "rounds=[1,2]")
    assert answer.notes["traversal"]["paths"] == [[OPERA.id], [COMPOSER.id], [TOWN.id]]
    assert [call.texts for call in world.made(Rank)] == [(COMPOSER.text, FJORD.text), (TOWN.text,)]
    assert {(call.query, call.scorer) for call in world.made(Rank)} == {(QUESTION.text, "tfidf")}
    assert f"2: {COMPOSER.text}\n3: {TOWN.text}" in world.asked("kgp/answer")[0]
    assert [step["path"] for step in answer.notes["traversal"]["steps"]] == [[OPERA.id], [OPERA.id, COMPOSER.id]]


def test_tfidf_ends_where_no_neighbour_is_new() -> None:
    answer = walk(World(), "agent=tfidf")
    assert len(answer.evidence) == 4
    assert answer.flags == {"no_neighbours": 1}


def test_random_draws_the_same_again_for_one_seed_and_question() -> None:
    first, again = walk(World(), "agent=random", "branching=1"), walk(World(), "agent=random", "branching=1")
    assert first.notes == again.notes
    drawn = {str(walk(World(), "agent=random", "branching=1", f"seed={n}").notes) for n in range(20)}
    assert len(drawn) > 1


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
    config = compose(["method=kgp", f"method.agent={agent}", f"method.match={match}"])
    assert ("ranker" in build(config["method"], "method").uses) == needed


def test_the_whole_corpus_is_walked_through_without_a_pool() -> None:
    world = World()
    walk(world, "scope=corpus")
    assert world.made(Neighbours)[0].pool is None
    assert world.made(Search)[0].pool is None


def test_an_empty_reply_of_the_agent_is_counted_and_the_question_matched_instead() -> None:
    world = World(lambda call: Completion("  \n"))
    answer = walk(world)
    assert answer.flags["empty_evidence"] == 2
    assert world.made(Rank)[0].query == QUESTION.text


def test_evidence_that_repeats_the_path_is_counted() -> None:
    answer = walk(World(lambda call: Completion(OPERA.text)))
    assert answer.flags["repeated_evidence"] == 1


def test_evidence_cut_at_its_limit_is_counted_and_used() -> None:
    world = World(lambda call: Completion("Asbjarne Lyng", finish="length"))
    answer = walk(world)
    assert answer.flags["cut_reply"] == 2
    assert world.made(Rank)[0].query == "Asbjarne Lyng"


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


def test_an_empty_passage_is_matched_by_its_title() -> None:
    blank = Passage.of("Asbjarne Lyngholt", " ")
    world = World(edges={OPERA.id: (blank,)})
    walk(world)
    assert world.made(Rank)[0].texts == ("Asbjarne Lyngholt",)


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


def test_a_first_path_too_long_alone_is_the_questions_error() -> None:
    class Tiny(World):
        def read(self, call: Generate) -> Completion:
            raise PromptTooLong(4_000, 10)

    with pytest.raises(PromptTooLong):
        walk(Tiny())
