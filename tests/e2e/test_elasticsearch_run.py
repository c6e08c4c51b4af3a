"""A run whose search server is stopped in the middle: noida-db, a stand-in for Elasticsearch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kgqa.cli.main import main
from kgqa.retrieval import elasticsearch, elasticsearch_server
from tests.retrieval.elasticsearch_servers import StandIn

RUN = [
    "run",
    "method=iter_retgen",
    "dataset=demo",
    "engine=scripted",
    "retriever=elasticsearch",
    "limit=6",
    "max_parallel_questions=1",
]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    pytest.importorskip("elasticsearch", reason="the client library elasticsearch is not installed")
    pytest.importorskip("noida_db", reason="noida-db, a stand-in for Elasticsearch, is not installed")
    started = StandIn(tmp_path / "stand-in")
    monkeypatch.setenv("KGQA_ES_URL", started.url)
    monkeypatch.delenv("KGQA_CACHE", raising=False)
    monkeypatch.setattr(elasticsearch_server, "WAITS", (0.05, 0.05))
    started.start()
    yield started
    started.stop()


class Searches:
    """Counts the searches that reach the server; stops it before the one of that number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, server: StandIn) -> None:
        self.count, self.stop_before = 0, -1
        search = elasticsearch._Finder._search

        def counted(finder: Any, client: Any, bodies: Any) -> Any:
            if self.count == self.stop_before:
                server.stop()
            found = search(finder, client, bodies)
            self.count += 1
            return found

        monkeypatch.setattr(elasticsearch._Finder, "_search", counted)


def predictions(folder: Path) -> bytes:
    (file,) = folder.glob("outputs/demo/iter_retgen/*/*/predictions.jsonl")
    return file.read_bytes()


def test_a_server_stopped_in_the_middle_of_a_run_loses_nothing(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    searches = Searches(monkeypatch, server)
    (tmp_path / "whole").mkdir()
    monkeypatch.chdir(tmp_path / "whole")
    assert main(RUN) == 0
    whole = searches.count
    assert whole >= 6

    (tmp_path / "stopped").mkdir()
    monkeypatch.chdir(tmp_path / "stopped")
    searches.count, searches.stop_before = 0, 4
    capsys.readouterr()
    assert main(RUN) == 3
    told = capsys.readouterr().err
    assert f"KGQA_ES_URL={server.url}: the server does not answer any more" in told
    assert "run the same command again, what was done is kept" in told
    assert "Traceback" not in told

    server.start()
    searches.stop_before = -1
    assert main(RUN) == 0
    assert searches.count == whole  # none was asked twice
    assert predictions(tmp_path / "stopped") == predictions(tmp_path / "whole")


def test_a_server_that_was_never_started_is_one_line(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    server.stop()
    assert main(RUN) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "KGQA_ES_URL" in line]
    assert "cannot be reached" in line
    assert not list(tmp_path.glob("outputs/index/*/*/*/manifest.json"))
