"""Closing the engine of vLLM while its process is starting."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kgqa.engines.vllm import engine
from kgqa.engines.vllm.engine import Vllm, _Runtime

SECONDS = 30


class Process:
    """Stands for vLLM's process."""

    started = False
    socket = None

    def __init__(self, *_: object) -> None:
        pass

    async def start(self) -> None:
        type(self).started = True

    def stop(self) -> None:
        pass


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Process]]:
    monkeypatch.setattr(engine, "VllmProcess", Process)
    yield Process
    Process.started = False


def test_engine_that_closes_starts_no_process(process: type[Process]) -> None:
    is_converting, goes_on = Event(), Event()

    def write_options() -> tuple[dict[str, Any], dict[str, str]]:
        is_converting.set()
        goes_on.wait(SECONDS)
        return {}, {}

    fake = SimpleNamespace(_write_options=write_options, devices=None)
    runtime = _Runtime(cast(Vllm, fake))
    call = runtime.loop.submit(runtime.start())
    assert is_converting.wait(SECONDS)
    with ThreadPoolExecutor() as threads:
        closing = threads.submit(runtime.close)
        # the call is canceled, while a thread still converts weights
        wait([call], SECONDS)
        goes_on.set()
        closing.result(SECONDS)
    assert not process.started
