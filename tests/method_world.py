"""The world of a method under test: a scripted model, passages to find, and words for tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kgqa.calls import Call, CountTokens, Generate, Rank, Search
from kgqa.prompting import render_dry_run_reply
from kgqa.types import Completion, Passage

Reply = str | Completion | Exception


class World:
    """Answers calls and keeps them: the replies in the order given, the first passages for each search."""

    def __init__(self, replies: Iterable[Reply] = (), passages: tuple[Passage, ...] = ()) -> None:
        self.replies, self.passages = list(replies), passages
        self.calls: list[Call[Any]] = []

    def __call__(self, call: Call[Any]) -> Any:
        self.calls.append(call)
        match call:
            case Search():
                return self.search(call)
            case CountTokens():
                return len(call.text.split())
            case Rank():
                return self.rank(call)
            case Generate():
                reply = self.write(call)
                return Completion(reply) if isinstance(reply, str) else reply
        return self.other(call)

    def search(self, call: Search) -> tuple[Passage, ...]:
        return self.passages[: call.k]

    def rank(self, call: Rank) -> tuple[float, ...]:
        return (0.0,) * len(call.texts)

    def write(self, call: Generate) -> Reply:
        return self.replies.pop(0)

    def other(self, call: Any) -> Any:
        raise AssertionError(call)

    def of(self, kind: type[Any]) -> list[Any]:
        return [call for call in self.calls if isinstance(call, kind)]

    @property
    def generations(self) -> list[Generate]:
        return self.of(Generate)

    def prompts(self, template: str = "") -> list[str]:
        """The first message of each prompt, of any template or of one."""
        return [
            call.prompt.messages[0].content
            for call in self.generations
            if template in ("", call.prompt.name)
        ]


class DryWorld(World):
    """Its model replies as that of a dry run."""

    def write(self, call: Generate) -> Reply:
        return Completion(render_dry_run_reply(call.prompt, len(self.generations)))
