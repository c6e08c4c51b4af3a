"""What a server says only when something is wrong: answers of a small HTTP server made for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kgqa.errors import ConfigError, DataError, EngineDied, EngineError, StorageError
from kgqa.protocols import Query
from tests.retrieval.elasticsearch_faults import GREEN, build, complete, opened, refusal
from tests.retrieval.elasticsearch_servers import Faulty

pytestmark = pytest.mark.usefixtures("no_server_named")


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (
            401,
            refusal("security_exception", "missing credentials"),
            "unauthorised with no credentials; set KGQA_ES_API_",
        ),
        (403, refusal("security_exception", "action is unauthorized"), "forbidden with no credentials; it needs"),
        (
            400,
            refusal("media_type_header_exception", "Invalid media-type value on headers [Accept]"),
            r"the server is older than the client library \d+.x; pip install 'elasticsearch<\d+'",
        ),
    ],
)
def test_a_refusal_says_what_to_do(
    faulty: Faulty, tmp_path: Path, status: int, body: dict[str, Any], message: str
) -> None:
    faulty.replies = {"": (status, body)}
    with pytest.raises(ConfigError, match=message):
        build(tmp_path)
    with pytest.raises(ConfigError, match=message):
        opened(tmp_path).find([Query("soup", 1)])


def test_another_product_is_refused(faulty: Faulty, tmp_path: Path) -> None:
    faulty.product = None
    with pytest.raises(
        ConfigError, match=r"this server is not Elasticsearch; give the address of an 8.x or 9.x server"
    ):
        build(tmp_path)


def test_a_red_cluster_is_refused(faulty: Faulty, tmp_path: Path) -> None:
    faulty.replies = {"GET /_cluster/health": (408, {"status": "red", "unassigned_shards": 3, "timed_out": True})}
    with pytest.raises(DataError, match=r"the cluster is red, 3 shards have no node; GET _cluster/allocation/explain"):
        build(tmp_path)


def test_a_red_index_is_refused(faulty: Faulty, tmp_path: Path) -> None:
    faulty.replies = {"GET /_cluster/health/kgqa-1": (408, {"status": "red", "unassigned_shards": 1}), **complete()}
    with pytest.raises(DataError, match="index kgqa-1 is red, 1 shards have no node"):
        opened(tmp_path).find([Query("soup", 1)])


def test_a_full_disk_of_the_server_is_told(faulty: Faulty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = {"type": "cluster_block_exception", "reason": "disk usage exceeded flood-stage watermark"}
    items = [{"index": {"_id": str(place), "status": 403, "error": blocked}} for place in range(2)]
    faulty.replies = {
        "GET /kgqa": (404, refusal("index_not_found_exception")),
        "GET /_cluster/health": (200, GREEN),
        "PUT /_bulk": (200, {"errors": True, "items": items}),
    }
    with pytest.raises(StorageError, match="exceeded flood-stage watermark; make room there"):
        build(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_passage_the_server_refuses_is_named(faulty: Faulty, tmp_path: Path) -> None:
    refused = {"_id": "1", "status": 400, "error": {"type": "mapper_parsing_exception", "reason": "too deep"}}
    faulty.replies = {
        "GET /kgqa": (404, refusal("index_not_found_exception")),
        "GET /_cluster/health": (200, GREEN),
        "PUT /_bulk": (200, {"errors": True, "items": [{"index": {"_id": "0", "status": 201}}, {"index": refused}]}),
    }
    with pytest.raises(DataError, match=r"passage 1 \(Pellery\) is refused: too deep"):
        build(tmp_path)


def test_a_search_that_the_server_was_too_busy_for_is_asked_again(faulty: Faulty, tmp_path: Path) -> None:
    busy = {"responses": [{"status": 429, **refusal("es_rejected_execution_exception", "queue is full")}]}
    found = {"responses": [{"status": 200, "hits": {"hits": [{"_id": "1"}]}}]}
    answers = iter([busy, busy, found])

    finder = opened(tmp_path)
    faulty.replies = complete()
    assert finder._server  # has been checked
    faulty.reply = lambda request: (200, next(answers))  # type: ignore[method-assign]
    assert finder.find([Query("town", 1)]) == [[1]]


def test_a_server_that_stays_busy_ends_the_run(faulty: Faulty, tmp_path: Path) -> None:
    faulty.replies = {**complete(), "POST /kgqa-1/_msearch": (503, refusal("unavailable", "all shards failed"))}
    with pytest.raises(EngineDied, match=r"does not answer any more, 0.02 s were waited \(HTTP 503\)"):
        opened(tmp_path).find([Query("soup", 1)])


def test_a_search_that_fails_is_an_error_and_never_an_empty_answer(faulty: Faulty, tmp_path: Path) -> None:
    failed = {"responses": [{"status": 400, **refusal("too_many_clauses", "maxClauseCount is set to 1024")}]}
    faulty.replies = {**complete(), "POST /kgqa-1/_msearch": (200, failed)}
    with pytest.raises(EngineError, match="HTTP 400 too_many_clauses: maxClauseCount is set to 1024"):
        opened(tmp_path).find([Query("soup", 1)])


def test_an_index_that_vanishes_between_two_searches_is_told(faulty: Faulty, tmp_path: Path) -> None:
    gone = {"responses": [{"status": 404, **refusal("index_not_found_exception", "no such index [kgqa-1]")}]}
    faulty.replies = {**complete(), "POST /kgqa-1/_msearch": (200, gone)}
    with pytest.raises(DataError, match=r"no such index \[kgqa-1\]; run kgqa data index again"):
        opened(tmp_path).find([Query("soup", 1)])
