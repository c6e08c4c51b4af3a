"""Runs against a server: one that fails keeps what was answered, one that reasons is counted, no key is written."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import zstandard

from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.run import FinishedRun
from kgqa.extras.viewer import table
from kgqa.report.run_report import notices
from kgqa.runtime.monitor import Heartbeat, read_heartbeats
from tests.e2e.conftest import Kgqa, Ran, lines_of
from tests.e2e.processes import finish, kill_after, replies_kept, started, wait_for_replies
from tests.engines.misbehaving import (
    Body,
    Conversation,
    Misbehaving,
    answer,
    late,
    prompt,
    refuse,
    reply,
    reset,
)

pytest.importorskip("aiohttp", reason="engine openai needs aiohttp")
SECRET = "sk-Tr0ub4dor-and-three"
RUN = (
    "run",
    "method=no_context",
    "limit=10",
    "model=gpt_4o_mini",
    "engine=openai",
    "ranker=lexical",
)
QUICK = (
    "engine.backoff=0.02",
    "engine.server_timeout=1.0",
    "engine.retries=2",
    "engine.concurrency=2",
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Misbehaving]:
    server = Misbehaving(always=late(0.1))
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    yield server
    server.stop()


def everything_written(folder: Path) -> bytes:
    content = b""
    for file in folder.rglob("*"):
        if file.is_file():
            content += file.read_bytes()
            if file.suffix == ".zst":
                with file.open("rb") as packed:
                    content += zstandard.ZstdDecompressor().stream_reader(packed).read()
    return content


@pytest.mark.slow
def test_run_stops_with_its_server_and_resumes(
    server: Misbehaving, kgqa: Kgqa, tmp_path: Path
) -> None:
    command = [*RUN, *QUICK, "engine.server_timeout=8.0"]
    running = started(command, tmp_path)
    wait_for_replies(tmp_path, 3)
    server.stop()
    until = time.monotonic() + 60
    beat: dict[str, Any] = {"ended": 0}
    while time.monotonic() < until and not 3 <= beat["ended"] < 10:
        (beat,) = json.loads(kgqa("runs", "--running", "--json").out)
    assert (
        beat
        | {"what": "run", "stage": "questions", "count": 10, "state": "running", "pid": running.pid}
        == beat
    )
    assert beat["tokens"] > 0
    assert beat["usd"] > 0
    out, err = running.communicate(timeout=60)
    assert running.returncode == 3
    assert f"kgqa: {server.url} has not answered any call for 8 s: no connection" in err
    assert "of 10 questions, and all replies in the call cache" in err
    assert f"kgqa: continue with: kgqa {' '.join(command)}\n" in err
    assert "Traceback" not in err
    log = lines_of(next(tmp_path.rglob("log.jsonl")))
    assert log[0]["command"] == f"kgqa {' '.join(command)}"
    assert (log[-1]["event"], log[-1]["outcome"], log[-1]["level"]) == ("end", "failed", "error")
    assert log[-1]["message"].startswith(f"ServerLost: {server.url} has not answered any call")
    assert any(line["event"] == "wait" for line in log)
    assert json.loads(kgqa("runs", "--running", "--json").out) == []
    replies = replies_kept(tmp_path)
    assert 3 <= replies < 10

    server.start()
    again = kgqa(*command)
    metrics = again.json("metrics.json")
    assert (metrics["questions"], metrics["failed"]) == (10, 0)
    assert metrics["cost"]["paid"]["calls"] == 10 - replies
    assert metrics["cost"]["method"]["calls"] == 10
    assert replies_kept(tmp_path) == 10
    # a call that was cut off while it was answered may be answered again, nothing else: at most one per connection
    assert len(server.answered) == 10
    assert sum(server.answered.values()) <= 12
    assert SECRET.encode() not in everything_written(tmp_path)
    assert SECRET not in out + err + again.out + again.err


@pytest.mark.slow
def test_sweep_stops_at_the_cell_that_lost_its_server(
    server: Misbehaving, kgqa: Kgqa, tmp_path: Path
) -> None:
    patient = (*QUICK, "engine.server_timeout=3")
    sweep = ("run", "-m", "method=no_context,all_documents", *RUN[2:], *patient, "sweep.name=lost")
    server.faults.extend([refuse(503)] * 1000)
    ran = kgqa(*sweep)
    assert ran.code == 3
    assert f"kgqa: {server.url} has not answered any call for 3 s" in ran.err
    assert [file.name for file in (tmp_path / "outputs/sweeps/lost/cells").glob("*.json")] == [
        "000.json"
    ]
    server.faults.clear()
    again = kgqa(*sweep)
    assert again.code == 0, again.err
    assert "cells: 2 done" in again.out


def test_budget_stops_a_run_and_a_higher_one_resumes(
    server: Misbehaving, kgqa: Kgqa, tmp_path: Path
) -> None:
    stop = kgqa(*RUN, *QUICK, "run_name=paid", "engine.concurrency=1", "engine.budget_tokens=100")
    assert stop.code == 2
    assert "kgqa: engine.budget_tokens=100 is spent" in stop.err
    assert "All replies are saved. Run the command again with a higher budget" in stop.err
    replies = replies_kept(tmp_path)
    assert 0 < replies < 10
    ran = kgqa(*RUN, *QUICK, "run_name=paid", "engine.concurrency=4", "engine.budget_tokens=100000")
    assert ran.json("metrics.json")["cost"]["paid"]["calls"] == 10 - replies
    assert set(server.answered.values()) == {1}
    assert ran.json("metrics.json")["context_tokens"] is None


def test_faults_are_errors_and_never_answers(
    server: Misbehaving, kgqa: Kgqa, tmp_path: Path
) -> None:
    faults = [
        refuse(400, f"bad request with {SECRET}"),
        refuse(500, f"broken with {SECRET}"),
        reset,
    ]
    failing: list[str] = []

    def fail(conversation: Conversation, body: Body) -> None:
        asked = body["messages"][-1]["content"]
        if asked not in failing and len(failing) < len(faults):
            failing.append(asked)
        if asked in failing:
            faults[failing.index(asked)](conversation, body)
        else:
            server.reply(conversation, body)

    server.always = fail
    ran = kgqa(*RUN, *QUICK, "max_failure_rate=0.5")
    assert ran.json("metrics.json")["failed"] == 3
    failed = [line for line in lines_of(ran.folder / "predictions.jsonl") if line["error"]]
    assert len(failed) == 3
    assert all(line["answer"] is None for line in failed)
    assert replies_kept(tmp_path) == 7
    with closing(sqlite3.connect(tmp_path / "outputs/.cache/calls.sqlite")) as cache:
        assert all(SECRET not in value for (value,) in cache.execute("SELECT value FROM calls"))
    assert SECRET.encode() not in everything_written(tmp_path)
    assert SECRET not in ran.out + ran.err
    # there was something to leave out
    assert b"[key]" in everything_written(tmp_path)
    log = [
        line for line in lines_of(ran.folder / "log.jsonl") if line["event"] in ("wait", "retry")
    ]
    assert any("[key]" in line["cause"] for line in log)


def test_replies_of_another_model_are_counted(kgqa: Kgqa, server: Misbehaving) -> None:
    server.always = lambda talk, body: talk.answer(
        200, reply(body, "Pellery") | {"model": "gpt-4o"}
    )
    command = ("run", "method=no_context", "limit=3", "model=gpt_4o_mini", f"server={server.url}")
    # the second time from the call cache
    for _ in range(2):
        ran = kgqa(*command, "run_name=mine")
        warning = (
            "warning: another model answered 3 calls: gpt-4o. The run is named after gpt_4o_mini."
        )
        assert ran.out.index(warning) < ran.out.index("EM ")
        assert Metrics.read(ran.folder).cost.method.flags["answered_by:gpt-4o"].calls == 3
        assert (
            "**Another model answered 3 calls: gpt-4o.**"
            in notices(FinishedRun.read(ran.folder))[0]
        )
        (ran.folder / "metrics.json").unlink()


def test_specified_finished_run_needs_no_server(server: Misbehaving, kgqa: Kgqa) -> None:
    command = (
        "run",
        "method=no_context",
        "limit=2",
        "engine=openai",
        f"engine.base_url={server.url}",
        *QUICK,
    )
    named = (
        *command,
        "ranker=lexical",
        "engine.server=hosted",
        "model=gpt_4o_mini",
        "engine.served_model=other",
    )
    first = kgqa(*named)
    assert first.code == 0, first.err
    server.stop()
    again = kgqa(*named)
    assert (again.code, again.folder) == (0, first.folder)
    assert "already complete" in again.out
    more = kgqa(*named, "limit=3")
    assert more.code == 3
    assert "has not answered any call for 1 s" in more.err


@pytest.mark.slow
def test_killed_run_is_shown_as_stopped_until_resumed(
    kgqa: Kgqa, server: Misbehaving, tmp_path: Path
) -> None:
    kill_after(3, [*RUN, *QUICK], tmp_path)
    (beat,) = read_heartbeats()
    beat.replace(updated=beat.updated - 600).write()
    (run,) = json.loads(kgqa("runs", "--running", "--json").out)
    assert run["state"] == "stopped"
    output = kgqa("runs", "--running").out
    assert "stopped: no heartbeat" in output
    assert f"Continue with: kgqa {' '.join([*RUN, *QUICK])}" in output
    assert kgqa(*RUN, *QUICK).code == 0
    Heartbeat(
        what="run", folder="a", command="", host="here", pid=1, started=1, updated=1
    ).write()  # an old one
    Path("outputs/.running/damaged.json").write_text("{", encoding="utf-8")
    assert "no running work in outputs/" in kgqa("runs", "--running").out


THINKING = (*RUN[:2], "limit=1", *RUN[3:], "model.thinking=low")
COUNTED: dict[str, Any] = {
    "completion_tokens": 125,
    "completion_tokens_details": {"reasoning_tokens": 100},
}


def test_answer_is_scored_and_reasoning_is_shown(kgqa: Kgqa, server: Misbehaving) -> None:
    server.always = answer({"content": "Pellery", "reasoning": "It lies in the north."}, **COUNTED)
    planned = [
        kgqa(*THINKING, f"model.thinking={word}", "dry_run=true").out for word in ("off", "low")
    ]
    rows = [
        next(line for line in out.splitlines() if line.startswith("reader ")).split()
        for out in planned
    ]
    generated = [int(row[-1].replace(",", "")) for row in rows]
    assert generated[1] == generated[0] + 1024
    assert not server.asked
    ran = kgqa(*THINKING)
    metrics = ran.json("metrics.json")
    assert metrics["scores"]["em"]["mean"] == 100
    cost = metrics["cost"]["method"]
    assert (cost["output_tokens"], cost["reasoning_tokens"]) == (125, 100)
    # a thought is paid as output
    assert cost["usd"] == pytest.approx((10 * 0.15 + 125 * 0.6) / 1e6, abs=1e-6)
    assert "125 generated, 100 for reasoning" in ran.out
    trace = kgqa("show", str(ran.folder), "2hop__demo_01").out
    assert "reasoning 'It lies in the north.', then 'Pellery'" in trace
    assert "100 of them reasoning" in trace

    # from the cache, thought and all
    again = kgqa(*THINKING, "run_name=again").json("metrics.json")["cost"]
    assert again["paid"]["calls"] == 0
    assert again["method"] == cost


@pytest.mark.slow
def test_two_processes_pay_each_call_once(server: Misbehaving, kgqa: Kgqa, tmp_path: Path) -> None:
    """With a server that says another thing each time it is called."""
    numbers = count(1)

    def answer_anew(conversation: Conversation, body: Body) -> None:
        server.answered[prompt(body)] += 1
        conversation.answer(200, reply(body, f"number {next(numbers)}"))

    server.always = answer_anew
    tracing = ("run", "method=trace", "limit=4", *RUN[3:], "demonstrations_ranker=lexical")
    commands = [[*tracing, f"run_name={name}"] for name in ("one", "two")]
    both = [started(command, tmp_path) for command in commands]
    first, second = (
        (finish(running, tmp_path) / "predictions.jsonl").read_text() for running in both
    )
    asked = sum(server.answered.values())
    assert asked >= 4
    assert set(server.answered.values()) == {1}
    assert first == second == kgqa(*commands[0]).text("predictions.jsonl")


def list_names(kgqa: Kgqa, runs: Sequence[Path]) -> list[set[str]]:
    """Return the names of runs in `kgqa runs`, in `kgqa compare` and in the viewer, without their common parts."""
    listed = re.findall(r"engine\.\w+=\S+", kgqa("runs").out)
    compared = re.findall(
        r"^[AB]  no_context · (.+?)  ", kgqa("compare", *map(str, runs)).out, re.MULTILINE
    )
    titles = [row.title for row in table.name_rows(table.read_rows(Path("outputs")))]
    return [{*listed}, {*compared}, {title.partition(" · ")[2] for title in titles}]


def test_runs_are_named_by_their_servers(
    server: Misbehaving, kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers, folders = [server, Misbehaving()], []
    for number, each in enumerate(servers):
        monkeypatch.setenv("OPENAI_BASE_URL", each.url)
        folders.append(kgqa(*RUN, f"engine.concurrency={number + 2}").folder)
    servers[1].stop()
    urls = {each.url for each in servers}
    names = {f"server 127.0.0.1:{each.port}" for each in servers}
    listed, compared, titles = list_names(kgqa, folders)
    assert (listed, compared, titles) == (
        {f"engine.deployment={url}" for url in urls},
        names,
        names,
    )


def test_runs_of_one_server_are_named_by_their_speed(server: Misbehaving, kgqa: Kgqa) -> None:
    numbers = ("2", "3")
    folders = [
        kgqa(*RUN, f"engine.concurrency={number}", f"run_name=r{number}").folder
        for number in numbers
    ]
    listed, compared, _ = list_names(kgqa, folders)
    assert listed == {f"engine.concurrency={number}" for number in numbers}
    assert compared == {f"concurrency {number}" for number in numbers}


@pytest.fixture
def moved(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Ran]]:
    """Run a command at a server with an address that no other run has."""
    servers: list[Misbehaving] = []

    def run_moved(*words: str) -> Ran:
        servers.append(Misbehaving())
        monkeypatch.setenv("OPENAI_BASE_URL", servers[-1].url)
        return kgqa(*RUN, *words)

    yield run_moved
    for server in servers:
        server.stop()


def test_named_server_can_move(moved: Callable[..., Ran]) -> None:
    first, second = (moved("engine.deployment=tower", *each) for each in ((), ("run_name=again",)))
    assert "10 calls, 0 % cached" in first.out
    assert "10 calls, 100 % cached" in second.out
    assert moved("engine.deployment=tower").folder == first.folder


def test_new_address_is_noted_with_the_earlier_name(moved: Callable[..., Ran]) -> None:
    first, second = moved(), moved()
    (name,) = re.findall(r"engine\.deployment=\S+", second.out)
    assert first.folder != second.folder
    assert f"another address than in {first.folder}. " in " ".join(second.out.split())
    third = moved(name)
    assert third.folder == first.folder
    assert "10 calls, 100 % cached" in third.out
    assert "note: the server" not in first.out + third.out


@pytest.mark.parametrize("words", [("seed=1",), ("engine.deployment=tower",)], ids=["seed", "name"])
def test_other_changes_are_no_new_address(
    moved: Callable[..., Ran], words: tuple[str, ...]
) -> None:
    moved()
    assert "note: the server" not in moved(*words).out
