"""Retrieved passages that do not fit: the lowest-ranked are left out of the prompt, and counted."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kgqa.calls import Call, CountTokens, Generate, Search
from kgqa.errors import PromptTooLong
from kgqa.methods.steps.reader import ReadingLog, passages_text
from kgqa.prompting import render_dry_run_reply
from kgqa.testing import drive
from kgqa.types import Answer, Completion, Message, Passage, Prompt, Question
from tests.composed import built_method

FIFTY = tuple(Passage.of(f"Passage {rank}", "word " * 100) for rank in range(50))
QUESTION = Question("q", "Where was the author of Reed Lake born?", ("Gorm",))
ROOM = 1_800  # words: the examples and about ten passages
RETRIEVING = ("knowtrace", "era_cot", "ge_reasoning", "sg_prompt", "react", "self_ask", "iter_retgen")


class World:
    """A model that refuses prompts of more than `limit` words; each search finds the same fifty passages."""

    def __init__(self, limit: int = ROOM) -> None:
        self.limit = limit
        self.shown: list[list[int]] = []  # ranks, by accepted prompt that shows some
        self.asked = 0

    def __call__(self, call: Call[Any]) -> Any:
        if isinstance(call, Search):
            return FIFTY[: call.k]
        if isinstance(call, CountTokens):
            return len(call.text.split())
        assert isinstance(call, Generate)
        text = call.prompt.messages[0].content + call.prompt.prefill
        words = len(text.split())
        if words > self.limit:
            return PromptTooLong(words, self.limit)
        self.shown += [ranks] if (ranks := [int(rank) for rank in re.findall(r"Title: Passage (\d+)", text)]) else []
        self.asked += 1
        return Completion(render_dry_run_reply(call.prompt, self.asked))


@pytest.mark.parametrize("name", RETRIEVING)
def test_every_method_reads_the_best_of_fifty_passages_where_not_all_fit(name: str) -> None:
    world = World()
    method: Any = built_method(name, "passages=50")
    answer: Answer = drive(method.answer(QUESTION), world)
    assert answer.flags["passages_dropped"] >= 40
    assert len(answer.evidence) == 50
    assert world.shown
    for ranks in world.shown:
        assert set(ranks) == set(range(max(ranks) + 1))
    assert max(len(ranks) for ranks in world.shown) >= 5
    assert answer.figures["passage_tokens"] >= 102 * max(len(ranks) for ranks in world.shown)


def prompt(shown: tuple[Passage, ...]) -> Prompt:
    return Prompt("reader/answer", (Message("user", passages_text(shown)),))


def test_as_many_passages_are_shown_as_fit() -> None:
    for kept in (50, 49, 13, 1, 0):
        world, reading = World(limit=103 * kept), ReadingLog(Question("q", "Who?", ()))
        drive(reading.generate(prompt, FIFTY, 10), world)
        assert [ranks[-1] + 1 for ranks in world.shown] == ([kept] if kept else [])
        assert reading.flags["passages_dropped"] == 50 - kept
        assert reading.tokens == reading.last == 103 * kept
    with pytest.raises(PromptTooLong):
        drive(ReadingLog(Question("q", "Who?", ())).generate(prompt, FIFTY, 10), World(limit=-1))
