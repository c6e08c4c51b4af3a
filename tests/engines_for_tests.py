"""Small engines whose replies and timing a test decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from kgqa.calls import Generate, ModelCall, ModelReply
from kgqa.types import Completion, Json, Message, Prompt, Usage


def prompt(text: str) -> Prompt:
    return Prompt("test/prompt", (Message("user", text),))


def ask(text: str, role: str = "reader") -> Generate:
    return Generate(prompt(text), max_tokens=5, role=role)


def echo(call: ModelCall) -> Completion:
    return Completion(
        f"re: {call.prompt.messages[0].content}", usage=Usage(prompt_tokens=1, output_tokens=1)
    )


class SilentEngine:
    """What an engine has beside answers."""

    def identity(self) -> Mapping[str, Json]:
        return {"engine": "test"}

    def render(self, call: ModelCall) -> str:
        return call.prompt.messages[0].content

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def close(self) -> None:
        """Nothing to free."""


class Batches(SilentEngine):
    """A batch engine that records its calls, batch by batch."""

    streaming: ClassVar[bool] = False
    estimates_tokens: ClassVar[bool] = False

    def __init__(self, answer: Callable[[ModelCall], ModelReply] = echo, size: int = 4) -> None:
        self.batch_size = size
        self.asked: list[list[str]] = []
        self._answer = answer

    def answer(self, calls: Sequence[ModelCall]) -> Sequence[ModelReply | Exception]:
        self.asked.append([self.render(call) for call in calls])
        return [self._answer(call) for call in calls]
