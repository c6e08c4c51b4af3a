"""SAFE, driven by scripted replies: atomic steps, verdicts, retries, the forced end."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from kgqa.errors import ConfigError
from kgqa.experiment.composing import compose_experiment
from kgqa.methods.safe import Safe, read_step
from kgqa.methods.steps.safe_verdict import CORRECT, read_verdict
from kgqa.testing import drive
from kgqa.types import Answer, Completion, Passage, Question
from tests import method_world
from tests.composed import built_method

REED = Passage.of("Reed Lake", "Reed Lake is a novel by Ada Holm.")
HOLM = Passage.of("Ada Holm", "Ada Holm was born in Gorm.")
QUESTION = Question("q", "Where was the author of Reed Lake born?", ("Gorm",), (REED, HOLM))
AUTHOR = " According to Passage 1, Ada Holm wrote Reed Lake. (Attribution)"
BORN = " According to Passage 2, Ada Holm was born in Gorm. (Attribution)"
FINAL = " ####ANSWER: Gorm (Final Answer)"


def verdict(error_type: str, guidance: str = "Go on.") -> str:
    return json.dumps({"error_type": error_type, "diagnosis": "Because.", "guidance": guidance})


RIGHT = verdict(CORRECT)
SAFE: Safe = built_method("safe")


class World(method_world.World):
    def __init__(self, *replies: str | Completion) -> None:
        super().__init__(replies)

    def answer(self, question: Question = QUESTION, **changes: Any) -> Answer:
        return drive(replace(SAFE, **changes).answer(question), self)

    @property
    def stages(self) -> list[str]:
        return [call.prompt.name.removeprefix("safe/") for call in self.generations]


def test_steps_without_feedback_reach_the_answer() -> None:
    world = World(AUTHOR, BORN, FINAL)
    answer = world.answer(feedback="none")
    assert world.stages == ["step", "step", "step"]
    assert [call.prompt.prefill for call in world.generations] == ["Step 1:", "Step 2:", "Step 3:"]
    assert (answer.text, set(answer.evidence)) == ("Gorm", {REED.id, HOLM.id})
    assert answer.figures == {"steps": 3, "retries": 0}
    assert not answer.flags


def test_another_evaluator_has_to_be_named() -> None:
    """The reader would judge itself, and nothing would say so."""
    own = ("method=safe", "method.feedback=model", "engine=scripted")
    with pytest.raises(
        ConfigError, match=r"^method.feedback=model requires its own model: set roles.feedback=P"
    ):
        _ = compose_experiment(own).method
    assert isinstance(compose_experiment((*own, "roles.feedback=qwen3_4b")).method, Safe)
    assert isinstance(compose_experiment(("method=safe", "engine=scripted")).method, Safe)


@pytest.mark.parametrize(("feedback", "role"), [("self", "reader"), ("model", "feedback")])
def test_feedback_decides_the_role_of_the_judge(feedback: str, role: str) -> None:
    world = World(AUTHOR, RIGHT, FINAL, RIGHT)
    world.answer(feedback=feedback)
    roles = [
        (stage, call.role) for stage, call in zip(world.stages, world.generations, strict=True)
    ]
    assert roles == [("step", "reader"), ("judge", role)] * 2


def test_passages_of_a_prompt_have_numbers() -> None:
    world = World(AUTHOR, BORN, FINAL)
    world.answer(feedback="none", passages=2)
    prompt = world.generations[0].prompt.messages[-1].content
    context = prompt.rpartition("Title: Passage 1: ")[2]
    assert re.match(
        r"(Reed Lake|Ada Holm)\n.*\n\nTitle: Passage 2: (Reed Lake|Ada Holm)\n", context
    )


def test_rejected_step_is_retried_then_accepted() -> None:
    world = World(
        AUTHOR, verdict("Off-topic", "Say where she was born."), BORN, RIGHT, FINAL, RIGHT
    )
    answer = world.answer()
    retry = world.generations[2].prompt
    assert retry.prefill == "Step 1:"
    assert "Rejected attempt at step 1: According to Passage 1" in retry.messages[0].content
    assert "Guidance: Say where she was born." in retry.messages[0].content
    final = world.generations[4].prompt.messages[0].content
    assert "Step 1: According to Passage 2" in final
    # what was rejected is no part of the chain
    assert "Ada Holm wrote" not in final
    assert [
        answer.figures[name] for name in ("errors, off-topic", "errors at step 1", "retries")
    ] == [1, 1, 1]
    world = World(AUTHOR, verdict("Redundancy"), AUTHOR, verdict("Redundancy"), FINAL, RIGHT)
    answer = world.answer(max_retries=1)
    assert (world.stages, answer.flags) == (["step", "judge"] * 3, {"unresolved_step": 1})
    assert [attempt["accepted"] for attempt in answer.notes["attempts"]] == [
        False,
        True,
        True,
    ]  # the tries are equal
    retried, following = (world.generations[place].prompt.messages[0].content for place in (2, 4))
    assert "Rejected attempt at step 1" in retried
    # as a step, and not as a rejected attempt
    assert following.count("Ada Holm wrote Reed Lake") == 1
    assert "Warning: step 1 above was judged wrong" in following
    assert "Error type: Redundancy" in following


def test_accepted_steps_are_noted_with_cited_passages() -> None:
    answer = World(AUTHOR, verdict("Off-topic"), BORN, RIGHT, FINAL, RIGHT).answer()
    [(text, id_)] = answer.notes["cited"]
    assert "Passage" not in text
    assert "Attribution" not in text
    assert (id_,) == answer.evidence


def test_retry_with_equal_prompt_ends_corrections() -> None:
    off = verdict("Off-topic", "Say where she was born.")
    replies = (AUTHOR, off, AUTHOR, off, FINAL, RIGHT)
    world = World(*replies)
    answer = world.answer()
    assert world.stages == ["step", "judge", "step", "judge", "step", "judge"]
    assert (answer.text, answer.flags["fixed_point"], answer.flags["unresolved_step"]) == (
        "Gorm",
        1,
        1,
    )
    world = World(*replies[:4], AUTHOR, off, AUTHOR, off, FINAL, RIGHT)
    assert "fixed_point" not in world.answer(repeats="continue").flags
    assert world.stages.count("step") == 5


def test_the_released_loop_differs_in_four_places() -> None:
    rejected = verdict("Redundancy")
    world = World(AUTHOR, rejected, AUTHOR, rejected, FINAL, RIGHT)
    world.answer(max_retries=2, count_first_try=True)
    assert [call.prompt.prefill for call in world.generations[::2]] == [
        "Step 1:",
        "Step 1:",
        "Step 2:",
    ]
    guided = verdict(CORRECT, "Submit ####ANSWER: town.")
    world = World(AUTHOR, guided, " Gorm (Final Answer)", RIGHT)
    answer = world.answer(guided_answer="conclude")
    assert world.stages == ["step", "judge", "conclude", "judge"]
    assert (answer.text, answer.flags) == ("Gorm", {"guided_answer": 1})
    assert "####ANSWER: Gorm (Final Answer)" in world.generations[-1].prompt.messages[0].content
    wrong = verdict("Wrong Conclusion")
    world = World(FINAL, wrong, BORN, RIGHT, " ####ANSWER: Torvane (Final Answer)", RIGHT)
    answer = world.answer(max_retries=0, rejected_answer="continue")
    assert (answer.text, answer.figures["steps"]) == ("Torvane", 3)
    world = World(FINAL, wrong, BORN, RIGHT)
    assert world.answer(max_retries=0, rejected_answer="continue", max_steps=2).text == "Gorm"
    answer = World(AUTHOR, "fine", FINAL, RIGHT).answer(unparsable="reject", max_retries=0)
    assert answer.flags == {"unparsable_verdict": 1, "unresolved_step": 1}


@pytest.mark.parametrize(
    "reply",
    [
        # a small model begins its answer on a line of its own
        pytest.param("\nGorm\n\nStep 3: According to", id="own line"),
        pytest.param("\n#### ANSWER: Gorm (Final Answer)\n", id="Figure 13"),
        pytest.param("Step 3: ####ANSWER: Gorm (Final Answer)", id="step"),
        pytest.param(
            "####ANSWER: Gorm (Final Answer)\n####ANSWER: Torvane (Final Answer)", id="two answers"
        ),
        pytest.param("Gorm (Final Answer)\n\n####ANSWER: Torvane", id="two forms"),
        pytest.param("Final answer: Gorm", id="final answer"),
        pytest.param(
            Completion(
                "The steps lead to this.\n\n####ANSWER: Gorm (Final Answer)", flags=("no_prefill",)
            ),
            id="no prefill",
        ),
        pytest.param(Completion("Gorm", flags=("no_prefill",)), id="no prefill, bare"),
    ],
)
def test_at_the_bound_an_answer_is_forced(reply: str | Completion) -> None:
    world = World(AUTHOR, RIGHT, BORN, RIGHT, reply)
    answer = world.answer(max_steps=2)
    assert (world.stages, world.generations[-1].stop) == (
        ["step", "judge", "step", "judge", "conclude"],
        (),
    )
    assert (answer.text, answer.flags) == ("Gorm", {"forced_answer": 1})


def test_verdict_call_is_repeated_once() -> None:
    world = World(FINAL, "fine", "still fine")
    answer = world.answer()
    assert world.stages == ["step", "judge", "judge"]
    # greedy: the same prompt would get the same reply
    assert world.generations[1].prompt != world.generations[2].prompt
    assert (answer.text, answer.flags) == ("Gorm", {"unparsable_verdict": 1, "no_passage_cited": 1})
    early = verdict("Premature Conclusion")
    world = World(FINAL, early, FINAL, RIGHT)
    assert world.answer(labels="released").figures["errors, premature conclusion"] == 1
    assert "Premature Conclusion" in world.generations[1].prompt.messages[0].content
    world = World(FINAL, early, early)
    assert world.answer().flags["unparsable_verdict"] == 1
    assert "Premature Conclusion" not in world.generations[1].prompt.messages[0].content


def test_ten_passages_include_gold_in_a_fixed_order() -> None:
    passages = tuple(Passage.of(f"T{number}", f"text {number}") for number in range(20))
    gold = frozenset(passage.id for passage in passages[15:19])
    one = Question("one", "?", ("a",), passages, support=gold)
    sample = SAFE.sample_passages(one)
    assert (len(sample), len(gold & {passage.id for passage in sample})) == (10, 4)
    assert sample == SAFE.sample_passages(one)
    assert sample != SAFE.sample_passages(replace(one, id="two"))
    assert len(SAFE.sample_passages(QUESTION)) == 2


@pytest.mark.parametrize(
    ("text", "kind", "answer"),
    [
        pytest.param("A. (Attribution)", "attribution", None, id="A. Attribution"),
        pytest.param("So C. (logical).", "logical", None, id="So C. logical."),
        pytest.param(
            "####ANSWER: 5 May. (Logical)", "final answer", "5 May.", id="ANSWER 5 May. Logical"
        ),
        pytest.param("## answer: (the) Gorm", "final answer", "(the) Gorm", id="answer the Gorm"),
        pytest.param("####ANSWER:", "final answer", "", id="ANSWER"),
        pytest.param("I think so.", "", None, id="I think so."),
        pytest.param("", "", None, id=""),
    ],
)
def test_step_has_a_kind_and_an_answer(text: str, kind: str, answer: str | None) -> None:
    step = read_step(text)
    assert (step.kind, step.answer) == (kind, answer)


@pytest.mark.parametrize(
    ("name", "error_type"),
    [
        pytest.param("off topic", "Off-topic", id="off topic"),
        pytest.param(
            "PREMATURE  ATTRIBUTION", "Premature Attribution", id="PREMATURE  ATTRIBUTION"
        ),
        pytest.param("Correct", CORRECT, id="Correct"),
        pytest.param("correct (no error)", CORRECT, id="correct no error"),
        pytest.param("Incorrect", None, id="Incorrect"),
        pytest.param("Unsupported claim", None, id="Unsupported claim"),
        pytest.param("", None, id=""),
    ],
)
def test_verdict_names_an_error_type(name: str, error_type: str | None) -> None:
    result = read_verdict(f"Verdict: {verdict(name)} done")
    assert (result.error_type if result else None) == error_type
