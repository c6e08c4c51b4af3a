"""Two passages, a question and scripted replies to what KnowTrace's baselines ask."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kgqa.calls import Call, CountTokens, Generate, Search
from kgqa.testing import drive
from kgqa.types import Answer, Completion, Passage, Question
from tests.composed import built_method

QUESTION = Question("q", "Where was the author of Reed Lake born?", ("Gorm",))
REED = Passage.of("Reed Lake", "Reed Lake is a novel by Ada Holm.")
HOLM = Passage.of("Ada Holm", "Ada Holm was born in Gorm.")


def method(name: str, **changes: Any) -> Any:
    return replace(built_method(name), **changes)


class World:
    """Answers searches by title and prompts from one list, and keeps the calls as short words."""

    def __init__(self, *replies: str | Completion, passages: tuple[Passage, ...] = (REED, HOLM)) -> None:
        self.replies, self.passages = list(replies), passages
        self.calls: list[str] = []
        self.prompts: list[Generate] = []

    def __call__(self, call: Call[Any]) -> Any:
        match call:
            case Search():
                self.calls.append(f"search {call.query}")
                return tuple(p for p in self.passages if p.title in call.query) or self.passages[:1]
            case CountTokens():
                return len(call.text.split())
            case Generate():
                self.calls.append(call.prompt.name.rpartition("/")[2])
                self.prompts.append(call)
                reply = self.replies.pop(0)
                return reply if isinstance(reply, Completion) else Completion(reply)
        raise AssertionError(call)

    def answer(self, name: str, **changes: Any) -> Answer:
        answer: Answer = drive(method(name, **changes).answer(QUESTION), self)
        return answer
