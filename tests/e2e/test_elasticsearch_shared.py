"""One server for several machines: who may only read, servers that have not what the folder says, warnings."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kgqa.retrieval import elasticsearch, elasticsearch_server
from tests.e2e.conftest import Kgqa, Ran
from tests.retrieval.elasticsearch_proxy import READING, Proxy, proxied
from tests.retrieval.elasticsearch_servers import StandIn

CHOSEN = ("dataset=demo", "retriever=elasticsearch")
BUILD = ("data", "index", *CHOSEN)
RUN = ("run", "method=retrieve_read", "engine=scripted", "limit=3", *CHOSEN)
WARNING = '299 Elasticsearch-8.15.0-abc "Elasticsearch built-in security features are not enabled."'


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[StandIn]]:
    """Two that know nothing of each other; the first is named."""
    pytest.importorskip("elasticsearch", reason="the client library elasticsearch is not installed")
    pytest.importorskip("noida_db", reason="noida-db, a stand-in for Elasticsearch, is not installed")
    both = [StandIn(tmp_path / "one"), StandIn(tmp_path / "two")]
    monkeypatch.setattr(elasticsearch_server, "WAITS", (0.05, 0.05))
    monkeypatch.setattr(elasticsearch_server, "_told", set())
    monkeypatch.setenv("KGQA_ES_URL", both[0].url)
    for server in both:
        server.start()
    yield both
    for server in both:
        server.stop()


def predictions(ran: Ran) -> bytes:
    return (ran.folder / "predictions.jsonl").read_bytes()


def test_who_may_only_read_uses_an_index_that_is_loaded(
    kgqa: Kgqa, servers: list[StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = predictions(kgqa(*RUN))
    shutil.rmtree("outputs")  # as on a second machine
    with proxied(Proxy(servers[0].url, READING)) as proxy:
        monkeypatch.setenv("KGQA_ES_URL", proxy.url)
        built = kgqa(*BUILD)
        assert built.code == 0, built.err
        assert not proxy.refused
        ran = kgqa(*RUN)
    assert ran.code == 0, ran.err
    assert predictions(ran) == wanted
    assert all(request.startswith("GET /_cluster/health/kgqa-") for request in proxy.refused)  # it goes on without


def test_who_may_only_read_is_told_what_loading_needs(
    kgqa: Kgqa, servers: list[StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxied(Proxy(servers[0].url, READING)) as proxy:
        monkeypatch.setenv("KGQA_ES_URL", proxy.url)
        refused = kgqa(*BUILD)
    assert refused.code == 2
    assert "read and view_index_metadata on kgqa-* to search, and to load the index privilege all" in refused.err


def test_a_build_loads_what_another_server_has_not(
    kgqa: Kgqa, servers: list[StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "built in" in kgqa(*BUILD).out
    assert "was there already" in kgqa(*BUILD).out
    monkeypatch.setenv("KGQA_ES_URL", servers[1].url)
    assert "built in" in kgqa(*BUILD).out
    assert "was there already" in kgqa(*BUILD).out
    servers[1].stop()
    off = kgqa(*BUILD)
    assert off.code == 2
    assert "cannot be reached" in off.err


def test_a_run_on_a_small_corpus_loads_what_the_server_has_not(
    kgqa: Kgqa, servers: list[StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = predictions(kgqa(*RUN))
    shutil.rmtree("outputs/.cache")
    monkeypatch.setenv("KGQA_ES_URL", servers[1].url)
    ran = kgqa(*RUN, "name=again")  # a finished run asks nobody
    assert ran.code == 0, ran.err
    assert predictions(ran) == wanted
    assert "has no index kgqa-" in ran.out + ran.err


def test_a_large_corpus_is_loaded_by_the_build_alone(
    kgqa: Kgqa, servers: list[StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kgqa(*BUILD).code == 0
    monkeypatch.setenv("KGQA_ES_URL", servers[1].url)
    monkeypatch.setattr(elasticsearch, "LOADED_BY_RUNS", 1)
    refused = kgqa(*RUN)
    assert refused.code == 2
    assert "is missing; run kgqa data index again" in refused.err
    assert (kgqa(*BUILD).code, kgqa(*RUN).code) == (0, 0)


def test_what_the_server_warns_of_is_one_line_once(
    kgqa: Kgqa, servers: list[StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxied(Proxy(servers[0].url, warning=WARNING)) as proxy:
        monkeypatch.setenv("KGQA_ES_URL", proxy.url)
        ran = kgqa(*RUN)
    assert ran.code == 0
    lines = [line for line in (ran.out + ran.err).splitlines() if "warn" in line.lower()]
    assert lines == [
        f"KGQA_ES_URL={proxy.url}: the server warns: Elasticsearch built-in security features are not enabled."
    ]
