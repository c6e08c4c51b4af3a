"""Whole runs at a server that misbehaves and then heals: the predictions of a healthy one, and no key anywhere."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.conftest import Kgqa
from tests.e2e.test_server_runs import everything_written
from tests.faults import FAULTS
from tests.faulty_server import MODEL, FaultyServer

pytest.importorskip("httpx2", reason="engine openai needs httpx2")
SECRET = "sk-or/Tr0ub4dor/and-three+more"
RUN = ("run", "dataset=demo", "limit=2", "engine=openai", "ranker=lexical", f"engine.served_model={MODEL}")
QUICK = (
    *("engine.backoff=0.02", "engine.patience=4.0", "engine.retries=2", "engine.concurrency=4", "engine.timeout=5"),
    "max_failure_rate=1.0",  # a question that failed is the next run's
)
PASSING = ("choice-empty", "finish-error", "length-too-short", "huge-text")
KEYS = ("key-200", "key-403", "key-401")
STOPPING = ("redirect",)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    with FaultyServer() as server:
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield server


def shown(text: bytes) -> bool:
    return SECRET.encode() in text


def attack(kgqa: Kgqa, server: FaultyServer, method: str, name: str, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A run at a fault, then at the healthy server, with a cache of their own: what the second predicts."""
    folder = f"{name}-run"
    monkeypatch.setenv("KGQA_CACHE", f"{folder}-cache")
    server.fault, server.when = name, "every:2"
    faulty = kgqa(*RUN, *QUICK, f"method={method}", f"out={folder}")
    assert faulty.code == (2 if FAULTS[name].outcome == "stopped" else 0), faulty.err
    assert not shown((faulty.out + faulty.err).encode())
    server.when = "never"
    healed = kgqa(*RUN, *QUICK, f"method={method}", f"out={folder}")
    assert healed.code == 0, healed.err
    return (Path(folder) / "predictions.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("method", "faults"),
    [("no_context", (*PASSING, *KEYS, *STOPPING)), ("trace", ("logprob-infinite", "content-null"))],
)
def test_after_every_fault_the_predictions_are_those_of_a_healthy_server(
    method: str,
    faults: tuple[str, ...],
    server: FaultyServer,
    kgqa: Kgqa,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KGQA_CACHE", "healthy-cache")
    healthy = kgqa(*RUN, *QUICK, f"method={method}", "out=healthy")
    assert healthy.code == 0, healthy.err
    predictions = (tmp_path / "healthy" / "predictions.jsonl").read_bytes()
    for name in faults:
        before = server.faulted
        assert attack(kgqa, server, method, name, monkeypatch) == predictions, name
        assert server.faulted > before
    assert server.keys == {f"Bearer {SECRET}"}
    assert not shown(everything_written(tmp_path))
    for cache in tmp_path.rglob("calls.sqlite"):
        with closing(sqlite3.connect(cache)) as rows:
            assert not shown("".join(value for (value,) in rows.execute("SELECT value FROM calls")).encode())
