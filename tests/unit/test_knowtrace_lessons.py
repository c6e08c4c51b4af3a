"""What KnowTrace learns from its own replies (§3.3, Algorithm 2): P⁺ and T⁺, and FA as their other side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kgqa.cache.key import cache_key
from kgqa.calls import Call, CountTokens, Generate, Search
from kgqa.methods.knowtrace import COMPLETER, EXPLORER
from kgqa.testing import drive
from kgqa.types import Answer, Completion, Lesson, Passage, Question
from tests.unit.test_knowtrace import (
    ASK_AUTHOR,
    ASK_SCHOOL,
    AUTHOR,
    CONCLUDE,
    METHOD,
    SCHOOL,
    World,
    two_hops,
)

# Table 5, in the forms of our prompts
RIOTING = "The rioting being a dividing factor in Birmingham"
TOY = Question("toy", "Where was the person who wrote about the rioting educated?", ("University of Glasgow",))
EXPLORED = [
    f" No\nExplore:\n- {RIOTING}; who wrote about this topic\n- Birmingham; where Birmingham is located",
    " No\nExplore:\n- James Watt; which school James Watt attended",
    f" Yes\nThought: James Watt wrote about {RIOTING}. He studied there.\nAnswer: University of Glasgow",
]
COMPLETED = [
    f" <James Watt; wrote; {RIOTING}>\n<James Watt; is; an industrialist>\n<{RIOTING}; refers to; Priestley Riots>",
    " <Birmingham; is located in; the West Midlands region of England>",
    " <James Watt; was educated at; University of Glasgow>",
]
PAGE = Passage.of("A page", "What it says.")


def toy(explored: list[str], completed: list[str]) -> Answer:
    replies = {"knowtrace/explore": list(explored), "knowtrace/complete": list(completed)}

    def world(call: Call[Any]) -> Any:
        if isinstance(call, Search):
            return (PAGE,)
        if isinstance(call, CountTokens):
            return len(call.text.split())
        assert isinstance(call, Generate)
        return Completion(replies[call.prompt.name].pop(0))

    return drive(METHOD.answer(TOY), world)


def test_of_the_papers_example_the_town_and_the_industrialist_are_dropped() -> None:
    lessons = toy(EXPLORED, COMPLETED).lessons
    assert lessons == (
        Lesson(0, EXPLORER, f"No\nExplore:\n- {RIOTING}; who wrote about this topic"),
        Lesson(1, COMPLETER, f"<James Watt; wrote; {RIOTING}>"),
        Lesson(2, COMPLETER, ""),
        Lesson(3, EXPLORER, EXPLORED[1].strip()),
        Lesson(4, COMPLETER, COMPLETED[2].strip()),
        Lesson(5, EXPLORER, EXPLORED[2].strip()),
    )


def test_a_reply_of_which_all_is_kept_is_learnt_as_it_was_written() -> None:
    odd = " No\nWhat to look up:\n* Reed Lake : who wrote it\n"
    world = World([odd, ASK_SCHOOL, CONCLUDE], [f"1. {AUTHOR}", SCHOOL])
    kept = [lesson.kept for lesson in world.answer().lessons]
    assert kept[1] == f"1. {AUTHOR}"
    assert kept[3] == SCHOOL.partition("\n")[0]


def test_what_is_no_pair_beside_kept_ones_is_not_learnt() -> None:
    muddled = f"{ASK_AUTHOR}\n- and what else"
    assert World([muddled, ASK_SCHOOL, CONCLUDE], [AUTHOR, SCHOOL]).answer().lessons[0].kept == ASK_AUTHOR.strip()


def test_an_answer_that_was_forced_is_no_lesson_and_neither_is_what_could_not_be_read() -> None:
    world = World([ASK_AUTHOR, "perhaps", " Ada Holm went to Gorm College.\nAnswer: Gorm College"], [AUTHOR])
    assert [lesson.call for lesson in world.answer().lessons] == [0, 1]


def test_a_thought_without_an_answer_is_counted_and_left_out() -> None:
    world = World(["perhaps", " Ada Holm went there.", " Gorm College"])
    assert world.answer().lessons == ()


def test_calls_are_numbered_as_the_trace_has_them() -> None:
    """Rewriting the graph as a text is a reply, too; a pair for which nothing is found asks for none."""
    both = f"{ASK_AUTHOR}\n- Nowhere | what is there"
    world = World([both, ASK_SCHOOL, CONCLUDE], [AUTHOR, SCHOOL])
    answer = world.answer(memory="texts")
    asked = [call.prompt.name.partition("/")[2] for call in world.calls if isinstance(call, Generate)]
    assert asked == ["explore", "complete", "rewrite", "explore", "complete", "rewrite", "explore"]
    assert [lesson.call for lesson in answer.lessons] == [0, 1, 3, 4, 6]


def test_each_operation_has_a_role_of_its_own_and_the_readers_keys() -> None:
    """So an adapter can be given to either, and what was cached before there were roles is found."""
    world = two_hops()
    world.answer(memory="texts")
    asked = [call for call in world.calls if isinstance(call, Generate)]
    roles = {call.prompt.name.partition("/")[2]: call.role for call in asked}
    assert roles == {"explore": EXPLORER, "complete": COMPLETER, "rewrite": "reader"}
    for call in asked:
        assert cache_key({}, call) == cache_key({}, replace(call, role="reader"))
