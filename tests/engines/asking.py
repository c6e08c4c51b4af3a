"""What the engine tests ask, and how."""

from __future__ import annotations

from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any

from kgqa.calls import Choose, Generate, ModelCall, ModelReply, labels
from kgqa.types import Completion, Message, Prompt

CONTEXT = 4096  # of the engines under test
COUNTS = (5, 21, 31, 41, 155)
FACTS = " ".join(
    f"The {number}th house belongs to the {number + 7}th family." for number in range(26)
)  # > one chunk
TOWNS = ("France", "Spain", "Italy", "Japan", "Peru", "Egypt", "Norway", "Cuba")


def write(text: str, max_tokens: int = 12, **decoding: Any) -> Generate:
    return Generate(Prompt("test/write", (Message("user", text),)), max_tokens, **decoding)


def choose(text: str, count: int, prefill: str = "") -> Choose:
    return Choose(Prompt("test/choose", (Message("user", text),), prefill), labels(count))


def texts(replies: list[Any]) -> list[str]:
    assert all(isinstance(reply, Completion) for reply in replies), replies
    return [reply.text for reply in replies]


def largest_difference(one: Any, other: Any) -> float:
    assert len(one.logprobs) == len(other.logprobs)
    return float(max(abs(a - b) for a, b in zip(one.logprobs, other.logprobs, strict=True)))


def ask(engine: Any, calls: Sequence[ModelCall]) -> list[ModelReply | Exception]:
    """All calls at once, whichever way the engine takes them; replies in the order of the calls."""
    if not engine.streaming:
        return list(engine.answer(calls))
    delivered: SimpleQueue[tuple[int, ModelReply | Exception]] = SimpleQueue()
    for place, call in enumerate(calls):
        engine.submit(call, lambda reply, place=place: delivered.put((place, reply)))
    replies = dict(delivered.get(timeout=300) for _ in calls)
    return [replies[place] for place in range(len(calls))]
