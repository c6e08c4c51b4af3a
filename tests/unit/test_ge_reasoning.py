"""GE-Reasoning: the question's graph, its sub-questions, and how sure an answer has to be."""

from __future__ import annotations

from typing import Any

import pytest

from kgqa.testing import drive
from tests.baselines_world import QUESTION, World, method

PLAIN: dict[str, Any] = {"rewrite": False, "threshold": 0}
GRAPH = "<Reed Lake; author; ?1>\n<?1; born in; ?2>"


def test_each_triple_is_asked_for_and_what_is_sure_enough_goes_on() -> None:
    world = World(
        GRAPH, " Who wrote Reed Lake?", " Ada Holm\n", " 9", " Where was Ada Holm born?", " Gorm.", " 6.",
        " The author is from Gorm.\nAnswer: Gorm",
    )  # fmt: skip
    answer = world.answer("ge_reasoning")
    assert world.calls == [
        "parse",
        *("ask", "search Who wrote Reed Lake?", "fill", "confidence"),
        *("ask", "search Where was Ada Holm born?", "fill", "confidence"),
        "answer",
    ]
    assert answer.text == "Gorm"
    assert not answer.flags
    shown = world.prompts[-1].prompt.messages[0].content.rpartition("Triples:")[2]
    assert shown == (
        "\n<Reed Lake; author; Ada Holm>\n<Ada Holm; born in; Gorm>\n"
        "Sub-questions:\nWho wrote Reed Lake? Ada Holm\nWhere was Ada Holm born? Gorm"
    )
    assert answer.notes["fills"] == [("Who wrote Reed Lake?", "Ada Holm", 9), ("Where was Ada Holm born?", "Gorm", 6)]


@pytest.mark.parametrize(("reply", "flag"), [(" 5", "unsure_fill"), (" surely", "unreadable_score")])
def test_what_is_not_sure_enough_is_left_out(reply: str, flag: str) -> None:
    world = World("<Reed Lake; author; ?1>", " Who wrote Reed Lake?", " Ada Holm", reply, "\nAnswer: Gorm")
    answer = world.answer("ge_reasoning")
    assert answer.flags == {flag: 1, "unfilled": 1}
    final = world.prompts[-1].prompt.messages[0].content.rpartition("Question:")[2]
    assert "<Reed Lake; author; ?1>" in final
    assert "Ada Holm" not in final


def test_where_no_sub_question_is_written_the_triples_own_words_are_searched() -> None:
    world = World("<Reed Lake; author; ?1>", "", " Ada Holm", " 8", "\nAnswer: Gorm")
    answer = world.answer("ge_reasoning")
    assert "search Reed Lake author" in world.calls
    assert answer.flags == {"empty_question": 1}


def test_what_the_passages_do_not_tell_is_not_judged() -> None:
    world = World("<Reed Lake; author; ?1>", " Who wrote it?", "unknown", "\nAnswer: Gorm")
    assert world.answer("ge_reasoning").flags == {"unfilled": 1}


def test_ge_reasoning_parses_the_question_first_and_fills_its_graph_by_retrieval() -> None:
    world = World(
        "<Reed Lake; author; ?1>\n<?1; born in; ?2>", " Ada Holm\n", " Gorm.", " The author is from Gorm.\nAnswer: Gorm"
    )
    answer = world.answer("ge_reasoning", **PLAIN)
    assert world.calls == ["parse", "search Reed Lake author", "fill", "search Ada Holm born in", "fill", "answer"]
    assert answer.text == "Gorm"
    assert answer.notes["filled_graph"] == [("Reed Lake", "author", "Ada Holm"), ("Ada Holm", "born in", "Gorm")]
    assert not answer.flags


def test_ge_reasoning_fills_independent_triples_side_by_side() -> None:
    widths: list[int] = []
    world = World("<Reed Lake; author; ?1>\n<Ada Holm; born in; ?2>", "Ada Holm", "Gorm", "\nAnswer: Gorm")
    drive(method("ge_reasoning", **PLAIN).answer(QUESTION), world, widths)
    assert widths == [2]


def test_ge_reasoning_asks_the_next_triple_where_the_first_does_not_tell() -> None:
    world = World("<?1; wrote; Reed Lake>\n<?1; born in; Gorm>", "unknown", "Ada Holm", "\nAnswer: Gorm")
    answer = world.answer("ge_reasoning", **PLAIN)
    assert world.calls == ["parse", "search wrote Reed Lake", "fill", "search born in Gorm", "fill", "answer"]
    assert answer.notes["filled_graph"] == [("Ada Holm", "wrote", "Reed Lake"), ("Ada Holm", "born in", "Gorm")]
    assert not answer.flags


def test_ge_reasoning_answers_with_what_it_could_not_fill() -> None:
    answer = World("<Reed Lake; author; ?1>", "unknown", "\nAnswer: Gorm").answer("ge_reasoning", **PLAIN)
    assert answer.text == "Gorm"
    assert answer.flags == {"unfilled": 1}
