"""Whole runs against a server that fails them: what was answered is kept, and nothing secret is written anywhere."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.run import FinishedRun
from kgqa.engines.openai.detection import _detect
from kgqa.report.run_report import notices
from tests.e2e.conftest import Kgqa
from tests.e2e.processes import replies_kept, started, wait_for_replies
from tests.engines.misbehaving import Body, Conversation, Misbehaving, late, refuse, reset

pytest.importorskip("aiohttp", reason="engine openai needs aiohttp")
SECRET = "sk-Tr0ub4dor-and-three"
RUN = ("run", "method=no_context", "limit=10", "model=gpt_4o_mini", "engine=openai", "ranker=lexical")
QUICK = ("engine.backoff=0.02", "engine.server_timeout=1.0", "engine.retries=2", "engine.concurrency=2")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Misbehaving:
    server = Misbehaving(always=late(0.1))
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    return server


def everything_written(folder: Path) -> bytes:
    """All files of a folder, compressed ones as they are and unpacked."""
    written = b""
    for file in folder.rglob("*"):
        if file.is_file():
            written += file.read_bytes()
            if file.suffix == ".zst":
                with file.open("rb") as packed:
                    written += zstandard.ZstdDecompressor().stream_reader(packed).read()
    return written


def test_a_server_that_dies_stops_the_run_and_the_same_command_goes_on(server: Misbehaving, tmp_path: Path) -> None:
    running = started([*RUN, *QUICK], tmp_path)
    wait_for_replies(tmp_path, 3)
    server.stop()
    out, err = running.communicate(timeout=60)
    assert running.returncode == 3
    assert f"kgqa: {server.url} has not answered any call for 1 s: no connection" in err
    assert "all replies in the call cache" in err
    assert "Traceback" not in err
    kept = replies_kept(tmp_path)
    assert 3 <= kept < 10

    server.start()
    again = started([*RUN, *QUICK], tmp_path)
    more, further = again.communicate(timeout=60)
    server.stop()
    assert again.returncode == 0, further
    folder = tmp_path / more.strip().splitlines()[-1]
    metrics = json.loads((folder / "metrics.json").read_text())
    assert (metrics["questions"], metrics["failed"]) == (10, 0)
    assert metrics["cost"]["paid"]["calls"] == 10 - kept
    assert metrics["cost"]["method"]["calls"] == 10
    assert replies_kept(tmp_path) == 10
    # a call that was cut off while it was answered may be answered again, nothing else: at most one per connection
    assert len(server.answered) == 10
    assert sum(server.answered.values()) <= 12
    assert SECRET.encode() not in everything_written(tmp_path)
    assert SECRET not in out + err + more + further


def test_a_spent_budget_stops_the_run_and_a_raised_one_goes_on(server: Misbehaving, kgqa: Kgqa, tmp_path: Path) -> None:
    spent = kgqa(*RUN, *QUICK, "run_name=paid", "engine.concurrency=1", "engine.budget_tokens=100")
    assert spent.code == 2
    assert "kgqa: engine.budget_tokens=100 is spent" in spent.err
    assert "All replies are saved. Run the command again with a higher budget" in spent.err
    kept = replies_kept(tmp_path)
    assert 0 < kept < 10
    done = kgqa(*RUN, *QUICK, "run_name=paid", "engine.concurrency=4", "engine.budget_tokens=100000")
    server.stop()
    assert done.code == 0, done.err
    assert done.json("metrics.json")["cost"]["paid"]["calls"] == 10 - kept
    assert set(server.answered.values()) == {1}
    assert done.json("metrics.json")["context_tokens"] is None


def test_faults_are_errors_and_never_answers(server: Misbehaving, kgqa: Kgqa, tmp_path: Path) -> None:
    """Every request of one question fails in its own way; the rest of the run does not notice."""
    faults = [refuse(400, f"bad request with {SECRET}"), refuse(500, f"broken with {SECRET}"), reset]
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
    server.stop()
    assert ran.code == 0
    assert ran.json("metrics.json")["failed"] == 3
    lines = [json.loads(line) for line in (ran.folder / "predictions.jsonl").read_text().splitlines()]
    failed = [line for line in lines if line["error"]]
    assert len(failed) == 3
    assert all(line["answer"] is None for line in failed)
    assert replies_kept(tmp_path) == 7
    with closing(sqlite3.connect(tmp_path / "outputs/.cache/calls.sqlite")) as cache:
        assert all(SECRET not in value for (value,) in cache.execute("SELECT value FROM calls"))
    assert SECRET.encode() not in everything_written(tmp_path)
    assert SECRET not in ran.out + ran.err
    assert b"[key]" in everything_written(tmp_path)  # there was something to leave out


def test_replies_of_another_model_are_counted_and_reported(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(conversation: Conversation, body: Body) -> None:
        reply = {"message": {"role": "assistant", "content": "Pellery"}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 9, "completion_tokens": 2}
        conversation.answer(200, {"model": "gpt-4o", "choices": [reply], "usage": usage})

    server = Misbehaving(always=other)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-any")
    command = ("run", "method=no_context", "limit=3", "model=gpt_4o_mini", f"server={server.url}")
    for _ in range(2):  # the second time from the call cache
        ran = kgqa(*command, "run_name=mine")
        warning = "warning: another model answered 3 calls: gpt-4o. The run is named after gpt_4o_mini."
        assert ran.out.index(warning) < ran.out.index("EM ")
        assert Metrics.read(ran.folder).cost.method.flags["answered_by:gpt-4o"].calls == 3
        assert "**Another model answered 3 calls: gpt-4o.**" in notices(FinishedRun.read(ran.folder))[0]
        (ran.folder / "metrics.json").unlink()
    server.stop()


def test_finished_run_needs_no_server_if_its_model_is_named(server: Misbehaving, kgqa: Kgqa) -> None:
    command = ("run", "method=no_context", "limit=2", f"server={server.url}", "ranker=lexical", *QUICK)
    named = (*command, "model=other")
    first = kgqa(*named)
    assert first.code == 0, first.err
    server.stop()
    _detect.cache_clear()
    again = kgqa(*named)
    assert (again.code, again.folder) == (0, first.folder)
    assert "already complete" in again.out
    assert "1 skipped" in kgqa("run", "-m", *named[1:], "seed=0").out
    more = kgqa(*named, "limit=3")
    assert more.code == 3
    assert "has not answered any call for 1 s" in more.err
    assert kgqa(*command).code == 3  # which model would answer?
    server.models = [{"id": "third", "owned_by": "tests"}]
    server.start()
    _detect.cache_clear()
    assert "does not serve it" in kgqa(*named).err
    server.stop()
