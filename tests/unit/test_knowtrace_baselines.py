"""KnowTrace's baselines: the sequence of calls of each, their ways to end, and what they do with odd replies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.calls import Call, CountTokens, Generate, Search
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.methods.react import read_action
from kgqa.methods.steps.replies import bullet_items, read_conclusion, text_after_label
from kgqa.prompting import render_dry_run_reply
from kgqa.testing import drive
from kgqa.types import Completion
from tests.baselines_world import HOLM, QUESTION, REED, World, method

NAMES = ("iter_retgen", "self_ask", "react", "sg_prompt", "ge_reasoning", "era_cot")


def test_iter_retgen_searches_by_the_whole_previous_generation_and_the_question() -> None:
    world = World(" Ada Holm wrote it.\nAnswer: unknown", " She was born in Gorm.\nAnswer: Gorm")
    answer = world.answer("iter_retgen")
    assert world.calls == [
        f"search {QUESTION.text}",
        "answer",
        f"search Ada Holm wrote it.\nAnswer: unknown {QUESTION.text}",
        "answer",
    ]
    assert (answer.text, answer.flags) == ("Gorm", {})
    assert "Title: Reed Lake" in world.prompts[0].prompt.messages[0].content.rpartition("Passages:")[2]
    assert set(answer.evidence) == {REED.id, HOLM.id}


def test_iter_retgen_reads_only_the_passages_of_its_iteration() -> None:
    world = World(" Ada Holm.\nAnswer: x", "\nAnswer: Gorm", passages=(REED, HOLM))
    world.answer("iter_retgen")
    second = world.prompts[1].prompt.messages[0].content.rpartition("Passages:")[2]
    assert "Title: Ada Holm" in second


def test_iter_retgen_flags_an_answer_without_marker() -> None:
    answer = World("Ada Holm.", "First.\nGorm").answer("iter_retgen")
    assert (answer.text, answer.flags) == ("Gorm", {"no_answer_marker": 1})


@pytest.mark.parametrize("threshold", [0, 10])
def test_scores_from_0_to_10_are_valid_thresholds(threshold: int) -> None:
    node = compose(["method=era_cot", f"method.threshold={threshold}"])["method"]
    assert build(node, "method").threshold == threshold


def test_self_ask_searches_for_each_follow_up_question() -> None:
    world = World(
        " Who wrote Reed Lake?\n",
        " Ada Holm\nFollow-up: Where was Ada Holm born?\n",
        " Gorm\nFinal answer: Gorm",
    )
    answer = world.answer("self_ask")
    assert world.calls == [
        f"search {QUESTION.text}",
        "ask",
        "search Who wrote Reed Lake?",
        "ask",
        "search Where was Ada Holm born?",
        "ask",
    ]
    assert answer.text == "Gorm"
    assert not answer.flags
    last = world.prompts[-1].prompt
    assert last.prefill == (
        "Follow-up: Who wrote Reed Lake?\nIntermediate answer: Ada Holm\n"
        "Follow-up: Where was Ada Holm born?\nIntermediate answer:"
    )
    assert "Title: Ada Holm" in last.messages[0].content  # all passages stand before the question


@pytest.mark.parametrize(
    ("replies", "flags"),
    [
        ([" Who?\n", " Ada\nFollow-up: Who?\n", " Gorm"], {"repeated_follow_up": 1}),
        ([" \n", " Gorm"], {"unreadable_reply": 1}),
        ([f" {n}?\n" if n == 0 else f" a\nFollow-up: {n}?\n" for n in range(5)] + [" Gorm"], {}),
    ],
)
def test_self_ask_concludes_where_it_cannot_ask_on(replies: list[str], flags: dict[str, int]) -> None:
    world = World(*replies)
    answer = world.answer("self_ask")
    assert answer.text == "Gorm"
    assert answer.flags == {"forced_answer": 1, **flags}
    assert world.prompts[-1].prompt.prefill.endswith("\nFinal answer:")


class Endless(World):
    """Answers every prompt so that the method goes on, as a dry run does."""

    def __call__(self, call: Call[Any]) -> Any:
        if isinstance(call, Generate):
            self.replies.append(render_dry_run_reply(call.prompt.name, len(self.prompts)))
        return super().__call__(call)


@pytest.mark.parametrize("name", ["knowtrace", *NAMES])
def test_a_reply_ends_where_a_small_model_would_begin_another_example(name: str) -> None:
    world = Endless()
    world.answer(name)
    shown = 0
    for call in world.prompts:
        text = call.prompt.messages[-1].content.partition("\n\n")[2]  # behind the instruction
        begins = text.partition(":")[0] + ":"
        if f"\n{begins}" in text:  # once more: there are examples
            shown += 1
            assert any(f"\n{begins}".startswith(stop) for stop in call.stop), f"{call.prompt.name}: {call.stop}"
    assert shown


def test_react_alternates_thought_action_and_observation() -> None:
    world = World(
        " I need the author.\nAction 1: Search[Reed Lake author]",
        " Ada Holm. Where was she born?\nAction 2: Search[Ada Holm born]",
        " In Gorm.\nAction 3: Finish[Gorm]",
    )
    answer = world.answer("react")
    assert world.calls == ["step", "search Reed Lake author", "step", "search Ada Holm born", "step"]
    assert answer.text == "Gorm"
    assert answer.evidence == (REED.id, HOLM.id)
    assert world.prompts[1].prompt.prefill == (
        "Thought 1: I need the author.\nAction 1: Search[Reed Lake author]\n"
        "Observation 1: Title: Reed Lake\nReed Lake is a novel by Ada Holm.\nThought 2:"
    )


def test_react_says_what_cannot_be_carried_out_and_goes_on() -> None:
    world = World(" Hm.", " look it up", " ok\nAction 2: Search[x]", " no\nAction 3: Search[x]", "\nGorm]")
    answer = world.answer("react", max_steps=3, at_limit="answer")
    assert answer.text == "Gorm"
    flags = {"prompted_action": 1, "unreadable_action": 1, "repeated_search": 1, "unfinished": 1, "forced_answer": 1}
    assert answer.flags == flags
    assert world.prompts[-1].prompt.prefill.endswith("Action 4: Finish[")


def test_react_that_does_not_finish_has_no_answer() -> None:
    world = World(" Hm.\nAction 1: Search[x]", " Hm.\nAction 2: Search[y]")
    answer = world.answer("react", max_steps=2)
    assert (answer.text, answer.flags) == ("", {"unfinished": 1, "empty_answer": 1})
    assert len(world.prompts) == 2


def test_react_asks_for_the_action_of_a_thought_that_came_without() -> None:
    world = World(
        " I need the author.\nThe author.\nThe author.", " Search[Reed Lake author]", " So.\nAction 2: Finish[x]"
    )
    answer = world.answer("react")
    assert world.calls == ["step", "step", "search Reed Lake author", "step"]
    assert world.prompts[1].prompt.prefill == "Thought 1: I need the author.\nAction 1:"
    assert answer.flags == {"prompted_action": 1}


def test_sg_prompt_retrieves_once_then_builds_one_graph_of_all_passages() -> None:
    world = World("<Reed Lake; by; Ada Holm>\n<Ada Holm; born in; Gorm>\n<oops; x>", " So.\nAnswer: Gorm")
    answer = world.answer("sg_prompt")
    assert world.calls == [f"search {QUESTION.text}", "extract", "answer"]
    assert answer.text == "Gorm"
    assert answer.flags == {"malformed_triple": 1}
    assert "<Ada Holm; born in; Gorm>" in world.prompts[1].prompt.messages[0].content


ODD = ("", "\n\n\n", "Die Antwort ist Gorm.", "la " * 200, '{"answer": ', "<a;b;c", "[](); \x00 ?1 <?1; ?1; ?1>")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reply", ODD, ids=repr)
def test_odd_replies_are_survived_and_flagged(name: str, reply: str) -> None:
    def odd(call: Call[Any]) -> Any:
        if isinstance(call, Search):
            return ()
        return len(call.text) if isinstance(call, CountTokens) else Completion(reply, "length")

    answer = drive(method(name).answer(QUESTION), odd)
    assert answer.flags["cut_reply"] >= 1
    assert answer.text in reply or answer.text == ""


READERS: list[Callable[[str], Any]] = [
    lambda text: text_after_label("Answer", text),
    lambda text: read_conclusion(text)[0],
    lambda text: "\n".join(bullet_items(text)[:1]),
    lambda text: read_action(text)[1],
]


@given(st.text())
def test_any_reply_can_be_read_and_nothing_is_made_up(text: str) -> None:
    for read in READERS:
        assert read(text) in text
