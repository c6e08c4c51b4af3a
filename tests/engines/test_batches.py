"""engine.batch=true: waves of calls through a Batch API, paid once and for half the price."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

import kgqa
from kgqa.engines import batches
from kgqa.engines.openai.batch_transport import OpenAIBatches
from kgqa.errors import ConfigError, EngineError, InvalidScores
from kgqa.runtime.display import QUIET
from kgqa.types import Completion
from tests.batch_server import USAGE, BatchServer, serve_batches
from tests.engines.asking import ask, texts, write
from tests.engines.openai_calls import engine

CALLS = [write(f"question {number}") for number in range(5)]
REPLIES = [f"re: question {number}" for number in range(5)]
Server = tuple[str, BatchServer]


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(batches, "POLL", 0.02)
    monkeypatch.setenv("KGQA_HOME", str(tmp_path / "home"))


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def server() -> Iterator[Server]:
    with serve_batches() as (address, state):
        yield address, state


def ask_in_batches(address: str, calls: list[Any] = CALLS) -> list[Any]:
    opened = engine(base_url=address, batch=True, batch_wait=0.05)
    try:
        return ask(opened, calls)
    finally:
        opened.close()


def drop_after_submit(server: Server) -> None:
    """Submit a batch, and stop before its results are there."""
    address, state = server
    opened = engine(base_url=address, batch=True, batch_wait=0.05)
    for call in CALLS:
        opened.submit(call, SimpleQueue[Any]().put)
    assert state.submitted.wait(30)
    opened.close()


def notes(tmp_path: Path) -> Path:
    (file,) = (tmp_path / "home" / "batches").glob("*.jsonl")
    return file


def test_wave_is_one_batch(server: Server) -> None:
    address, state = server
    state.is_open.set()
    assert texts(ask_in_batches(address)) == REPLIES
    assert (len(state.batches), state.direct) == (1, 0)


def test_dropped_run_finds_its_batch(server: Server) -> None:
    drop_after_submit(server)
    address, state = server
    state.is_open.set()
    assert texts(ask_in_batches(address)) == REPLIES
    assert set(state.paid.values()) == {1}


def test_batch_without_a_noted_id_is_found(server: Server, tmp_path: Path) -> None:
    """As after a kill between the server's acceptance and the note."""
    drop_after_submit(server)
    address, state = server
    first, *_ = notes(tmp_path).read_bytes().splitlines(keepends=True)
    # a kill can also cut the line
    notes(tmp_path).write_bytes(first + b'{"wave": "')
    state.is_open.set()
    assert texts(ask_in_batches(address)) == REPLIES
    assert set(state.paid.values()) == {1}


def test_batch_behind_many_others_is_found(server: Server, tmp_path: Path) -> None:
    """The vendor lists 100 batches at once, the newest first."""
    drop_after_submit(server)
    address, state = server
    first, *_ = notes(tmp_path).read_bytes().splitlines(keepends=True)
    notes(tmp_path).write_bytes(first)
    others = [f"other_{number}" for number in range(250)]
    state.batches |= {name: {"id": name, "metadata": None} for name in others}
    state.is_open.set()
    assert texts(ask_in_batches(address)) == REPLIES
    assert set(state.paid.values()) == {1}


def test_two_processes_submit_a_request_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two engines, as of two processes in different folders: both have read the notes before one submits."""
    address, state = server
    submit = OpenAIBatches.submit

    async def submit_slowly(*arguments: Any) -> str:
        await asyncio.sleep(0.5)
        return await submit(*arguments)

    monkeypatch.setattr(OpenAIBatches, "submit", submit_slowly)
    state.is_open.set()
    opened = [engine(base_url=address, batch=True, batch_wait=0.05) for _ in range(2)]
    replies = SimpleQueue[Any]()
    for each in opened:
        for call in CALLS:
            each.submit(call, replies.put)
    answers = [replies.get(timeout=30) for _ in range(2 * len(CALLS))]
    for each in opened:
        each.close()
    assert sorted(texts(answers)) == sorted(2 * REPLIES)
    assert list(state.paid.values()) == [1] * len(CALLS)


def test_wave_that_never_arrived_is_sent(server: Server, tmp_path: Path) -> None:
    drop_after_submit(server)
    address, state = server
    first, *_ = notes(tmp_path).read_bytes().splitlines(keepends=True)
    notes(tmp_path).write_bytes(first)
    state.batches.clear()
    state.is_open.set()
    assert texts(ask_in_batches(address)) == REPLIES


def test_only_new_calls_are_in_the_next_batch(server: Server) -> None:
    drop_after_submit(server)
    address, state = server
    state.is_open.set()
    more = write("question 5")
    assert texts(ask_in_batches(address, [*CALLS, more])) == [*REPLIES, "re: question 5"]
    assert (len(state.batches), set(state.paid.values())) == (2, {1})


def test_failed_request_is_sent_again(server: Server) -> None:
    address, state = server
    state.is_open.set()
    state.faults = [500]
    replies = ask_in_batches(address)
    (failed,) = (number for number, reply in enumerate(replies) if isinstance(reply, EngineError))
    assert texts(ask_in_batches(address)) == REPLIES
    assert sorted(state.paid.values()) == [1, 1, 1, 1, 2]
    assert isinstance(replies[failed - 1], Completion)


def test_failed_batch_is_sent_again(server: Server) -> None:
    address, state = server
    state.is_open.set()
    state.failures = ["Enqueued token limit reached"]
    errors = ask_in_batches(address)
    assert all("Enqueued token limit reached" in str(error) for error in errors)
    assert texts(ask_in_batches(address)) == REPLIES
    assert len(state.batches) == 2


def test_failed_batch_fails_only_its_calls(server: Server) -> None:
    drop_after_submit(server)
    address, state = server
    state.failures = ["Enqueued token limit reached"]
    opened = engine(base_url=address, batch=True, batch_wait=0.05)
    replies = SimpleQueue[Any]()
    for call in [*CALLS, write("question 5")]:
        opened.submit(call, replies.put)
    assert isinstance(replies.get(timeout=30), EngineError)
    state.is_open.set()
    others = [replies.get(timeout=30) for _ in CALLS]
    opened.close()
    assert sorted(texts(others)) == REPLIES


@pytest.mark.parametrize(
    "line",
    [b'{"wave": "', b"5\n", b"{}\n", b'{"wave": "x", "ids": 7}\n', b"\xff\0\n", b"[" * 5000],
    ids=["cut", "number", "empty object", "wrong type", "no text", "deep"],
)
def test_damaged_line_of_the_notes_is_skipped(server: Server, tmp_path: Path, line: bytes) -> None:
    drop_after_submit(server)
    address, state = server
    with notes(tmp_path).open("ab") as file:
        file.write(line)
    state.is_open.set()
    more = write("question 5")
    assert texts(ask_in_batches(address, [more])) == ["re: question 5"]
    assert texts(ask_in_batches(address, [*CALLS, more])) == [*REPLIES, "re: question 5"]
    assert (len(state.batches), set(state.paid.values())) == (2, {1})


def test_rejected_key_is_left_out_of_the_next_batch(server: Server) -> None:
    address, state = server
    state.is_open.set()
    state.faults = [400]
    (reply,) = ask_in_batches(
        address, [write("question 0", schema='{"type": "object", "properties": {}}')]
    )
    assert isinstance(reply, Completion), reply
    assert (reply.text, reply.flags) == ("re: question 0", ("unconstrained",))
    assert len(state.batches) == 2


def test_samples_without_a_seed_are_different_requests(server: Server) -> None:
    address, state = server
    state.is_open.set()
    state.rejected, state.faults = "seed", [400, 400]
    samples = [write("question 0", temperature=1.0, seed=seed) for seed in (1, 2)]
    replies = ask_in_batches(address, samples)
    assert [reply.flags for reply in replies] == [("no_seed",), ("no_seed",)]
    # with and without their seeds
    assert list(state.paid.values()) == [1, 1, 1, 1]


def test_unreadable_reply_is_requested_again(server: Server) -> None:
    address, state = server
    state.is_open.set()
    state.unreadable = 1
    [reply] = ask_in_batches(address, CALLS[:1])
    assert isinstance(reply, Completion), reply
    assert (reply.text, len(state.batches)) == (REPLIES[0], 2)
    assert reply.usage.prompt_tokens == 2 * USAGE["prompt_tokens"]


def test_local_servers_have_no_batches() -> None:
    with pytest.raises(ConfigError, match="no Batch API"):
        engine(base_url="http://127.0.0.1:1/v1", server="vllm", batch=True)


BATCHES = ("engine.batch=true", "engine.batch_wait=1")
KEYS = ("dataset=demo", "limit=3", "model=gpt_4o_mini", "engine=openai")


@pytest.mark.slow
@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize(
    "method",
    [("method=no_context",), ("method=retrieve_read", "ranker=lexical")],
    ids=["no_context", "retrieve_read"],
)
def test_method_with_one_step_is_one_batch(server: Server, method: tuple[str, ...]) -> None:
    address, state = server
    state.is_open.set()
    # a busy machine can pause for seconds between two requests
    wait = "engine.batch_wait=5"
    kgqa.run(
        *KEYS, *BATCHES, wait, *method, f"engine.base_url={address}", "limit=36", display=QUIET
    )
    assert (len(state.batches), len(state.paid)) == (1, 36)


@pytest.mark.slow
@pytest.mark.usefixtures("empty_folder")
def test_judge_calls_are_in_batches(server: Server) -> None:
    address, state = server
    state.is_open.set()
    with pytest.raises(InvalidScores, match="judge=three_way gave no verdict on any answer"):
        kgqa.run(
            *KEYS,
            *BATCHES,
            "judge=three_way",
            "method=no_context",
            f"engine.base_url={address}",
            display=QUIET,
        )
    # answers, verdicts, and the same verdicts again: the stand-in's cannot be read
    assert (len(state.batches), len(state.paid), state.direct) == (3, 9, 0)


@pytest.mark.usefixtures("empty_folder")
def test_cost_is_half_the_price(server: Server) -> None:
    address, state = server
    state.is_open.set()
    run = kgqa.run(
        *KEYS, *BATCHES, "method=no_context", f"engine.base_url={address}", display=QUIET
    )
    cost = run.metrics.cost
    # 1,000 prompt tokens at 0.15 USD and 500 at 0.60 USD per million, three times
    full = 3 * (1000 * 0.15 + 500 * 0.6) / 1e6
    assert cost.paid.usd == pytest.approx(full / 2)
    assert cost.method.usd == pytest.approx(full / 2)


@pytest.mark.slow
@pytest.mark.usefixtures("empty_folder")
def test_killed_run_pays_nothing_twice(server: Server) -> None:
    address, state = server
    keys = [*KEYS, *BATCHES, "method=no_context", f"engine.base_url={address}"]
    command = [sys.executable, "-m", "kgqa", "run", *keys]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ}
    )
    try:
        assert state.submitted.wait(120)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    state.is_open.set()
    run = kgqa.run(*keys, display=QUIET)
    assert all(row["error"] is None for row in run.predictions)
    assert list(state.paid.values()) == [1, 1, 1]
    assert run.metrics.cost.paid.calls == 3
