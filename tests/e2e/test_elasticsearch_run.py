"""Runs with an Elasticsearch server that stops or was never started."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kgqa.retrieval import elasticsearch
from tests.e2e.conftest import Kgqa, Ran
from tests.retrieval.elasticsearch_servers import StandIn

CHOSEN = ("dataset=demo", "retriever=elasticsearch")
RUN = ("run", "method=iter_retgen", "engine=scripted", "limit=6", "max_parallel_questions=1", *CHOSEN)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    pytest.importorskip("elasticsearch", reason="the client library elasticsearch is not installed")
    pytest.importorskip("noida_db", reason="noida-db, a stand-in for Elasticsearch, is not installed")
    started = StandIn(tmp_path / "stand-in")
    monkeypatch.setenv("KGQA_ES_URL", started.url)
    started.start()
    yield started
    started.stop()


def predictions(ran: Ran) -> bytes:
    return (ran.folder / "predictions.jsonl").read_bytes()


def test_a_server_stopped_in_the_middle_of_a_run_loses_nothing(
    kgqa: Kgqa, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, stop_before = 0, -1
    search = elasticsearch.Server.search

    def counted(connection: Any, index: str, bodies: Any) -> Any:
        nonlocal count
        if count == stop_before:
            server.stop()
        found = search(connection, index, bodies)
        count += 1
        return found

    monkeypatch.setattr(elasticsearch.Server, "search", counted)
    wanted, whole = predictions(kgqa(*RUN)), count
    assert whole >= 6
    shutil.rmtree("outputs")
    count, stop_before = 0, 4
    stopped = kgqa(*RUN)
    assert stopped.code == 3
    assert f"KGQA_ES_URL={server.url}: cannot be reached" in stopped.err
    assert "Traceback" not in stopped.err
    server.start()
    stop_before = -1
    assert predictions(kgqa(*RUN)) == wanted
    assert count == whole  # no search is repeated
