"""`retriever=elasticsearch` at a server that goes away: a stand-in of one's own, which may be stopped."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kgqa.errors import EngineDied
from kgqa.protocols import Query
from kgqa.retrieval import elasticsearch_index, elasticsearch_server
from tests.retrieval.elasticsearch_indexes import PASSAGES, Counter, built, settings
from tests.retrieval.elasticsearch_servers import StandIn


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    pytest.importorskip("noida_db", reason="noida-db, a stand-in for Elasticsearch, is not installed")
    server = StandIn(tmp_path / "stand-in")
    monkeypatch.setenv("KGQA_ES_URL", server.url)
    monkeypatch.setattr(elasticsearch_server, "WAITS", (0.1, 0.2, 0.4, 0.8, 1.6))
    server.start()
    yield server
    server.stop()


def test_a_server_that_comes_back_in_time_is_waited_for(own: StandIn, tmp_path: Path) -> None:
    finder = built(tmp_path / "finder")
    assert finder.find([Query("keeper", 1)]) == [[0]]
    own.stop()
    restart = threading.Timer(0.5, own.start)
    restart.start()
    assert finder.find([Query("Halverby", 1)]) == [[4]]
    restart.join()
    finder.close()


def test_a_server_that_stays_away_ends_the_run_and_a_later_one_goes_on(
    own: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elasticsearch_server, "WAITS", (0.1, 0.1))
    finder = built(tmp_path / "finder")
    assert finder.find([Query("keeper", 1)]) == [[0]]
    own.stop()
    with pytest.raises(EngineDied, match=r"does not answer any more.*run the same command again, what was done is kep"):
        finder.find([Query("Halverby", 1)])
    own.start()
    again = settings().open(PASSAGES, tmp_path / "finder")
    assert again.find([Query("Halverby", 1)]) == [[4]]


def test_a_server_stopped_in_the_middle_of_a_load_loses_nothing(
    own: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elasticsearch_server, "WAITS", (0.1, 0.1))
    monkeypatch.setattr(elasticsearch_index, "CHUNK", 2)
    steps = Counter()

    def stopping(count: int) -> None:
        steps(count)
        if sum(steps.steps) == 2:
            own.stop()

    with pytest.raises(EngineDied, match="does not answer any more"):
        settings().build(PASSAGES, tmp_path, stopping)
    own.start()
    resumed = Counter()
    settings().build(PASSAGES, tmp_path, resumed)
    assert (resumed.steps[0], sum(resumed.steps)) == (2, 6)
    assert settings().open(PASSAGES, tmp_path).find([Query("keeper", 2), Query("ginger", 1)]) == [[0], [5]]
