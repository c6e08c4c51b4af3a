"""SAFE's loop of steps and verdicts, beside two releases of its program: order of calls, steps and answer."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from kgqa.calls import Call, CountTokens, Generate
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.methods.safe import Safe
from kgqa.testing import drive
from kgqa.types import Completion, Passage, Question
from tests.conformance.support import load, needs_data

pytestmark = needs_data
HEAD, ROWS = load("safe_loop")
END_MARKER = (
    "the first release ends only with a marker in the guidance, which the paper does not have"
)
LABEL = "released, every label that holds the word 'correct' is correct, so 'Incorrect' is, too"
ABORTS = "the second release stops with an error at a verdict that it cannot read"
INTENDED = {  # by release and scenario
    ("ada459b", 'G label "Incorrect"'): LABEL,
    ("ada459b", "J answer given, judged correct, guidance without END marker"): END_MARKER,
    ("ada459b", "retained: step 1 stays rejected"): END_MARKER,
    (
        "ada459b_self_feedback",
        "J answer given, judged correct, guidance without END marker",
    ): END_MARKER,
    ("ada459b_self_feedback", "retained: step 1 stays rejected"): END_MARKER,
    ("ea7513b", "D verdict of step1 unparsable always"): ABORTS,
    ("ea7513b", 'G label "Incorrect"'): LABEL,
}


@cache
def released() -> Safe:
    method: Safe = build(compose(["experiment=safe_released"])["method"], "method")
    return method


def without_number(step: str) -> str:
    return re.sub(r"^Step \d+:\s*", "", step).strip()


def run(row: dict[str, Any]) -> tuple[list[tuple[str, int, int]], list[str], str | None]:
    """Return kgqa's calls (kind, step, try), its steps and its answer, None where an answer had to be forced."""
    passages = tuple(Passage.of(title, text) for title, text in HEAD["passages"])
    support = frozenset(passage.id for passage in passages)
    calls, tries = list[tuple[str, int, int]](), Counter[int]()

    def reply(call: Call[Any]) -> Any:
        if isinstance(call, CountTokens):
            return 1
        assert isinstance(call, Generate)
        kind = {"safe/step": "step", "safe/judge": "judge", "safe/conclude": "forced"}[
            call.prompt.name
        ]
        asked = call.prompt.messages[0].content.rpartition("Question:")[2]
        step = (
            calls[-1][1]
            if kind == "judge"
            else len(re.findall(r"^Step \d+:", asked, re.MULTILINE)) + 1
        )
        tries[step] += kind != "judge"
        calls.append((kind, step, tries[step]))
        replies = row["replies"][kind][str(step)]
        text = replies[min(tries[step], len(replies)) - 1]
        return Completion(
            text.removeprefix("####ANSWER:") if kind == "forced" else without_number(text)
        )

    method = replace(released(), max_steps=row["max_steps"], max_retries=row["max_retries"])
    answer = drive(method.answer(Question("q", HEAD["question"], ("x",), passages, support)), reply)
    steps = [attempt["text"] for attempt in answer.notes["attempts"] if attempt["accepted"]]
    # the programs leave this call, and the answer, to a second program
    if "forced_answer" in answer.flags:
        return calls[:-1], steps, None
    return calls, steps, answer.text


@pytest.mark.parametrize("release", ["ada459b", "ada459b_self_feedback", "ea7513b"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_the_loop_is_the_released_one(row: dict[str, Any], release: str) -> None:
    theirs = row[release]
    calls = [(call["kind"], call["step"], call["try"]) for call in theirs["calls"]]
    is_same = run(row) == (
        calls,
        [without_number(step) for step in theirs["kept"] or ()],
        theirs["answer"],
    )
    assert is_same == ((release, row["name"]) not in INTENDED)
