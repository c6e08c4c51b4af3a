"""The log of a long run, `kgqa runs --running`, and the last lines of an interrupted run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from kgqa.runtime.monitor import Heartbeat, read_heartbeats
from tests.e2e.conftest import QUICK, Kgqa
from tests.e2e.processes import started, wait_for_replies
from tests.engines.misbehaving import Misbehaving, late, refuse

pytest.importorskip("aiohttp", reason="engine openai needs aiohttp")
SECRET = "sk-Tr0ub4dor-and-three"
RUN = ("run", "method=no_context", "limit=10", "model=gpt_4o_mini", "engine=openai", "ranker=lexical")
HASTY = ("engine.backoff=0.02", "engine.server_timeout=1.0", "engine.retries=2", "engine.concurrency=2")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Misbehaving:
    server = Misbehaving(always=late(0.1))
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    return server


def log_of(folder: Path) -> list[dict[str, Any]]:
    (file,) = folder.rglob("log.jsonl")
    return [json.loads(line) for line in file.read_text(encoding="ascii").splitlines()]


def test_logs_of_runs_sweeps_and_builds(kgqa: Kgqa) -> None:
    first = kgqa("run", "method=golden", "limit=3", "dataset=demo", *QUICK)
    lines = log_of(first.folder)
    assert [line["event"] for line in lines] == ["start", "stage", "end"]
    assert lines[0]["identity"] == first.folder.name
    assert lines[-1] | {"outcome": "done", "ended": 3, "failed": 0, "calls": 3} == lines[-1]
    (first.folder / "metrics.json").unlink()  # a finished run is left as it is
    kgqa("run", "method=golden", "limit=3", "dataset=demo", *QUICK)
    again = log_of(first.folder)
    assert again[: len(lines)] == lines
    assert again[-1] | {"outcome": "done", "ended": 3, "calls": 0} == again[-1]  # all from the cache
    sweep = log_of(kgqa("run", "-m", "method=golden,no_context", "dataset=demo", "limit=2", *QUICK).folder)
    assert sweep[-1] | {"outcome": "done", "stage": "cells", "ended": 2, "count": 2} == sweep[-1]
    assert log_of(kgqa("data", "index", "dataset=demo", "retriever=bm25").folder)[-1]["event"] == "end"
    assert not list(Path("outputs/.running").iterdir())


def test_run_that_loses_its_server(kgqa: Kgqa, server: Misbehaving, tmp_path: Path) -> None:
    running = started([*RUN, *HASTY, "engine.server_timeout=8.0"], tmp_path)
    wait_for_replies(tmp_path, 3)
    server.stop()
    until = time.monotonic() + 60
    beat: dict[str, Any] = {"ended": 0}
    while time.monotonic() < until and not 3 <= beat["ended"] < 10:
        (beat,) = json.loads(kgqa("runs", "--running", "--json").out)
    assert beat | {"what": "run", "stage": "questions", "count": 10, "state": "running", "pid": running.pid} == beat
    assert beat["tokens"] > 0
    assert beat["usd"] > 0
    _, err = running.communicate(timeout=60)
    command = f"kgqa {' '.join([*RUN, *HASTY])} engine.server_timeout=8.0"
    assert running.returncode == 3
    assert f"kgqa: {server.url} has not answered any call for 8 s: no connection" in err
    assert "of 10 questions, and all replies in the call cache" in err
    assert f"kgqa: continue with: {command}\n" in err
    end = log_of(tmp_path)[-1]
    assert (end["event"], end["outcome"], end["level"]) == ("end", "failed", "error")
    assert end["message"].startswith(f"ServerLost: {server.url} has not answered any call")
    assert log_of(tmp_path)[0]["command"] == command
    assert any(line["event"] == "wait" for line in log_of(tmp_path))
    assert json.loads(kgqa("runs", "--running", "--json").out) == []


def test_killed_run_is_stopped_until_its_command_continues(kgqa: Kgqa, server: Misbehaving, tmp_path: Path) -> None:
    running = started([*RUN, *HASTY], tmp_path)
    wait_for_replies(tmp_path, 3)
    running.kill()
    running.communicate(timeout=60)
    (beat,) = read_heartbeats()
    beat.replace(updated=beat.updated - 600).write()
    (shown,) = json.loads(kgqa("runs", "--running", "--json").out)
    assert shown["state"] == "stopped"
    told = kgqa("runs", "--running").out
    assert "stopped: no heartbeat" in told
    assert f"Continue with: kgqa {' '.join([*RUN, *HASTY])}" in told
    again = started([*RUN, *HASTY], tmp_path)
    again.communicate(timeout=60)
    server.stop()
    assert again.returncode == 0
    assert json.loads(kgqa("runs", "--running", "--json").out) == []


def test_damaged_and_old_heartbeats_are_not_shown(kgqa: Kgqa) -> None:
    Heartbeat(what="run", folder="a", command="", host="here", pid=1, started=1, updated=1).write()
    Path("outputs/.running/damaged.json").write_text("{", encoding="utf-8")
    assert json.loads(kgqa("runs", "--running", "--json").out) == []
    assert "no running work in outputs/" in kgqa("runs", "--running").out


def test_retries_are_logged_without_the_key(server: Misbehaving, tmp_path: Path) -> None:
    server.faults.extend([refuse(429, f"slow down, {SECRET}", "0.3"), refuse(500, "oops")])
    running = started([*RUN, *HASTY], tmp_path)
    _, err = running.communicate(timeout=60)
    server.stop()
    assert running.returncode == 0, err
    lines = log_of(tmp_path)
    causes = {line["cause"] for line in lines if line["event"] in ("wait", "retry")}
    assert causes == {"429 slow down, [key]", "500 oops"}
    assert SECRET not in json.dumps(lines)


def test_runs_show_the_settings_in_which_they_differ(kgqa: Kgqa) -> None:
    for tokens in (1, 2):
        assert kgqa("run", "method=golden", "limit=2", f"method.max_answer_tokens={tokens}", *QUICK).code == 0
    listed = [line for line in kgqa("runs").out.splitlines() if "demo/golden" in line]
    assert [line.split()[3] for line in listed] == [f"method.max_answer_tokens={tokens}" for tokens in (2, 1)]
