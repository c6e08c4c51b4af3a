"""How a run counts the tokens of texts."""

from __future__ import annotations

from threading import Barrier, current_thread
from typing import Any

from kgqa.calls import CountTokens
from kgqa.experiment.session import _count_tokens

CALLS = [CountTokens("one two"), CountTokens("one"), CountTokens("")]


class Counting:
    """An engine that counts words."""

    def __init__(self, *, streaming: bool) -> None:
        self.streaming = streaming
        self.threads = set[str]()
        self.together = Barrier(len(CALLS) if streaming else 1)

    def count_tokens(self, text: str) -> int:
        self.threads.add(current_thread().name)
        self.together.wait(60)
        return len(text.split())


def test_server_counts_in_parallel() -> None:
    engine: Any = Counting(streaming=True)
    assert _count_tokens(engine, CALLS) == [2, 1, 0]


def test_local_tokenizer_counts_in_one_thread() -> None:
    engine: Any = Counting(streaming=False)
    assert _count_tokens(engine, CALLS) == [2, 1, 0]
    assert engine.threads == {current_thread().name}
