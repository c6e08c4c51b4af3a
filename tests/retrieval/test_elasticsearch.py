"""`retriever=elasticsearch`: a stand-in or the server of KGQA_TEST_ES_URL, faults, outages and settings."""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import certifi
import pytest

from kgqa.errors import ConfigError, DataError, EngineDied, EngineError, StorageError
from kgqa.protocols import Finder, Query
from kgqa.retrieval import elasticsearch
from kgqa.retrieval.elasticsearch import Elasticsearch, ElasticsearchConnection
from kgqa.types import Passage
from tests.http_server import serve_json
from tests.retrieval.elasticsearch_servers import Faulty, StandIn

pytest.importorskip("elasticsearch", reason="the client library elasticsearch is not installed")
SECRET = "correct-horse-battery"
PASSAGES = (
    Passage.of("Lighthouse film", "A film about a lighthouse keeper, directed by Maria Lund."),
    Passage.of("Maria Lund", "Maria Lund is a director. She was born in Pellery."),
    Passage.of("Carrot soup", "Soup of carrots and ginger."),
    Passage.of("Pellery", "Pellery is a town on the river Corrow."),
    Passage.of("Corrow", "The river Corrow flows through Halverby and Pellery."),
    Passage.of("Ginger", "Soup of carrots and ginger."),
)


def settings(**changes: Any) -> Elasticsearch:
    usual = {"fields": {"title": 1.0, "text": 1.0}, "analyzer": "english", "k1": 1.2, "b": 0.75}
    return Elasticsearch(**{**usual, **changes})


def built(folder: Path, passages: tuple[Passage, ...] = PASSAGES, **changes: Any) -> Finder:
    folder.mkdir(parents=True, exist_ok=True)
    settings(**changes).build(passages, folder, lambda _: None)
    return settings(**changes).open(passages, folder)


def index_name(folder: Path) -> str:
    return str(json.loads((folder / elasticsearch.FOLDER_FILE).read_text())["index"])


@pytest.fixture(params=["stand-in", "KGQA_TEST_ES_URL"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of a server that the environment names; the indexes a test made, and no others, are deleted after it."""
    if request.param == "stand-in":
        monkeypatch.setenv("KGQA_ES_URL", request.getfixturevalue("stand_in").url)
    elif url := os.environ.get("KGQA_TEST_ES_URL"):
        monkeypatch.setenv("KGQA_ES_URL", url)
    else:
        pytest.skip("KGQA_TEST_ES_URL names no server")
    server = ElasticsearchConnection()
    before = set(server.client.indices.get(index="kgqa-*"))
    yield server.client
    for name in set(server.client.indices.get(index="kgqa-*")) - before:
        server.client.indices.delete(index=name)
    server.close()


def test_search_matches_stems_of_text_and_title(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query is words and never a language. Long ones are cut, and long passages indexed."""
    monkeypatch.setattr(elasticsearch, "QUERIES", 2)  # several requests keep the order
    expected = {
        "keeper": [0],
        "Ginger": [5, 2],
        "Halverby": [4],
        "Lighthouses": [0],
        "the of and": [],
    }
    for text in ("?!…", '"film', "film AND (", "a\0film", "\ud800 film", "/film[/", "😀" * 50):
        expected[text] = [0] if "film" in text else []
    expected[" ".join(["keeper", *(f"word{number}" for number in range(5_000)), "Halverby"])] = [0]
    assert built(tmp_path).find([Query(text, 5) for text in expected]) == list(expected.values())
    scopes = [Query("river Pellery", 5, among=(1, 3)), Query("soup", 5, among=(0, 1))]
    assert built(tmp_path).find(scopes) == [[3, 1], []]
    long = Passage.of("Long", "carrot soup " * 90_000 + "zebra")
    assert built(tmp_path / "long", (*PASSAGES, long)).find([Query("zebra", 3)]) == [[6]]


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize(
    ("fields", "text", "places"),
    [
        ({"text": 1.0}, "Ginger film", [0, 2, 5]),
        ({"title": 1.0}, "Ginger film", [5, 0]),
        ({"title": 5.0, "text": 0.1}, "Maria Lund", [1, 0]),
        ({"title": 0.1, "text": 5.0}, "film Maria directed", [0, 1]),
    ],
    ids=["text", "title", "more weight on the title", "more weight on the text"],
)
def test_fields_are_searched_by_their_weight(
    fields: dict[str, float], text: str, places: list[int], tmp_path: Path
) -> None:
    assert built(tmp_path, fields=fields).find([Query(text, 5)]) == [places]


def test_only_a_complete_index_is_reused(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elasticsearch, "CHUNK", 2)
    steps: list[int] = []

    def interrupt(count: int) -> None:
        steps.append(count)
        if sum(steps) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        settings().build(PASSAGES, tmp_path, interrupt)
    assert not (tmp_path / elasticsearch.FOLDER_FILE).exists()
    assert built(tmp_path).find([Query("keeper", 2), Query("ginger", 1)]) == [[0], [5]]
    with monkeypatch.context() as loaded:
        loaded.setattr(ElasticsearchConnection, "load", None)  # cannot be called
        assert built(tmp_path / "again").find([Query("keeper", 1)]) == [[0]]
    client.delete(index=index_name(tmp_path), id="2", refresh=True)
    assert client.count(index=index_name(tmp_path))["count"] == 5
    built(tmp_path)
    assert client.count(index=index_name(tmp_path))["count"] == 6


def test_index_has_one_shard_and_no_replica(client: Any, tmp_path: Path) -> None:
    built(tmp_path, k1=0.9, b=0.4)
    (answer,) = client.indices.get_settings(index=index_name(tmp_path)).values()
    index = answer["settings"]["index"]
    assert (index["number_of_shards"], index["number_of_replicas"], index["refresh_interval"]) == (
        "1",
        "0",
        "-1",
    )
    assert index["similarity"] == {"default": {"type": "BM25", "k1": "0.9", "b": "0.4"}}
    built(tmp_path / "boosts", k1=0.9, b=0.4, fields={"title": 2.0, "text": 1.0})
    assert index_name(tmp_path / "boosts") == index_name(tmp_path)
    with pytest.raises(ConfigError, match=r"rejects these settings.*klingon"):
        built(tmp_path, analyzer="klingon")


def test_an_index_that_is_not_the_built_one_is_refused(client: Any, tmp_path: Path) -> None:
    for message in ("has 5 passages instead of 6", "is missing"):
        finder, name = built(tmp_path), index_name(tmp_path)
        if message == "is missing":
            client.indices.delete(index=name)
        else:
            client.delete(index=name, id="2", refresh=True)
        with pytest.raises(
            DataError, match=rf"index kgqa-\w+ {message}. Delete .* and run kgqa data index again"
        ):
            finder.find([Query("keeper", 1)])


def test_server_that_goes_away_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(
        "noida_db", reason="noida-db, a stand-in for Elasticsearch, is not installed"
    )
    own = StandIn(tmp_path / "stand-in")
    monkeypatch.setenv("KGQA_ES_URL", own.url)
    own.start()
    finder = built(tmp_path / "finder")
    assert finder.find([Query("keeper", 1)]) == [[0]]
    own.stop()
    with pytest.raises(EngineDied, match=r"cannot be reached \(.*run the same command again"):
        finder.find([Query("Halverby", 1)])
    own.start()
    assert finder.find([Query("Halverby", 1)]) == [[4]]
    finder.close()
    own.stop()


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch, no_server_named: None) -> Iterator[Faulty]:
    server = Faulty()
    with serve_json(server.answer, server.headers) as url:
        monkeypatch.setenv("KGQA_ES_URL", url)
        yield server


def refusal(kind: str, reason: str = "") -> dict[str, Any]:
    return {"error": {"type": kind, "reason": reason}}


def opened(folder: Path) -> Any:
    (folder / elasticsearch.FOLDER_FILE).write_text(json.dumps({"index": "kgqa-1", "passages": 2}))
    return settings().open(PASSAGES[:2], folder)


COMPLETE = {f"{verb} /kgqa-1/_count": (200, {"count": 2}) for verb in ("POST", "GET")}


def test_a_refusal_says_what_to_do(faulty: Faulty, tmp_path: Path) -> None:
    denied, other = (
        r"denied \(HTTP 403\). Check KGQA_.*docs/ELAS",
        "this server is not Elasticsearch. Name an 8.x or",
    )
    for status, message in ((403, denied), (200, other)):
        faulty.replies = {"": (status, refusal("security_exception", "action"))}
        with pytest.raises(ConfigError, match=message):
            settings().build(PASSAGES, tmp_path, lambda _: None)
        with pytest.raises(ConfigError, match=message):
            opened(tmp_path).find([Query("soup", 1)])
        faulty.headers.pop("X-Elastic-Product", None)


def test_new_client_at_an_old_server(faulty: Faulty, tmp_path: Path) -> None:
    refused = refusal(
        "media_type_header_exception", "Invalid media-type value on headers [Accept, Content-Type]"
    )
    faulty.replies = {"": (400, refused)}
    with pytest.raises(
        ConfigError, match=r"older than the Python client .* pip install 'elasticsearch>=8.19,<9'"
    ):
        settings().build(PASSAGES, tmp_path, lambda _: None)


def test_client_version_fits_old_and_new_servers() -> None:
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert elasticsearch.CLIENT == "elasticsearch>=8.19,<9"
    assert f'elasticsearch = ["{elasticsearch.CLIENT}"]' in project.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("kind", "exception", "message"),
    [
        ("cluster_block_exception", StorageError, "too deep. Free disk space there"),
        ("mapper_parsing_exception", DataError, "passage 1 was rejected: too deep"),
    ],
)
def test_rejected_passage_is_named(
    kind: str, exception: type[Exception], message: str, faulty: Faulty, tmp_path: Path
) -> None:
    error = {"type": kind, "reason": "too deep"}
    items = [
        {"index": {"_id": "0", "status": 201}},
        {"index": {"_id": "1", "status": 400, "error": error}},
    ]
    absent = (404, refusal("index_not_found_exception"))
    faulty.replies = {"GET /kgqa": absent, "PUT /_bulk": (200, {"errors": True, "items": items})}
    with pytest.raises(exception, match=message):
        settings().build(PASSAGES, tmp_path, lambda _: None)
    assert not list(tmp_path.iterdir())


def test_a_search_is_repeated_while_the_server_is_busy(faulty: Faulty, tmp_path: Path) -> None:
    success = (
        200,
        {"responses": [{"status": 200, "hits": {"hits": [{"_id": "1", "sort": [2.5, 1]}]}}]},
    )
    answers = iter([(503, refusal("unavailable")), (429, refusal("rejected")), success])
    finder = opened(tmp_path)
    faulty.replies = COMPLETE
    assert finder._server  # has been checked
    faulty.reply = lambda request: next(answers)  # type: ignore[method-assign]
    assert finder.find([Query("town", 1)]) == [[1]]


def test_failed_search_is_an_error_and_no_empty_result(faulty: Faulty, tmp_path: Path) -> None:
    many = {"status": 400, **refusal("too_many_clauses", "maxClauseCount is set to 1024")}
    busy, failed = (503, refusal("unavailable", "all shards failed")), (200, {"responses": [many]})
    for reply, raised, message in (
        (busy, EngineDied, r"the server is overloaded \(HTTP 503\)"),
        (failed, EngineError, "HTTP 400 too_many_clauses: maxClauseCount"),
    ):
        faulty.replies = {**COMPLETE, "POST /kgqa-1/_msearch": reply}
        with pytest.raises(raised, match=message):
            opened(tmp_path).find([Query("soup", 1)])


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"URL": "127.0.0.1:9200"}, "KGQA_ES_URL=127.0.0.1:9200: .*. Set scheme, host and port"),
        ({"URL": "http://127.0.0.1:port"}, "Set scheme, host and port"),
        (
            {"URL": f"http://reader:{SECRET}@127.0.0.1:9200"},
            "Put them into KGQA_ES_USER and KGQA_ES_PASSWORD",
        ),
        ({"API_KEY": SECRET, "USER": "reader", "PASSWORD": SECRET}, "one kind of credentials"),
        ({"CA": certifi.where()}, "TLS options require scheme"),
        ({"CA": "/no/such/file.pem", "URL": "https://127.0.0.1:9200"}, "No such file"),
    ],
)
def test_invalid_environment_error_hides_secrets(
    variables: dict[str, str], message: str, no_server_named: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"KGQA_ES_{name}", value)
    with pytest.raises(ConfigError, match=message) as raised:
        ElasticsearchConnection()
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("variables", "header"),
    [
        ({"API_KEY": SECRET}, f"ApiKey {SECRET}"),
        (
            {"USER": "reader", "PASSWORD": SECRET},
            "Basic " + base64.b64encode(f"reader:{SECRET}".encode()).decode(),
        ),
        ({}, None),
    ],
)
def test_credentials_go_to_the_server_and_nowhere_else(
    faulty: Faulty,
    tmp_path: Path,
    variables: dict[str, str],
    header: str | None,
    caplog: Any,
    monkeypatch: Any,
) -> None:
    caplog.set_level(logging.DEBUG)
    for name, value in variables.items():
        monkeypatch.setenv(f"KGQA_ES_{name}", value)
    faulty.replies = {
        "": (401, refusal("security_exception", "unable to authenticate user [reader]"))
    }
    with pytest.raises(ConfigError, match="access denied") as raised:
        settings().build(PASSAGES, tmp_path, lambda _: None)
    assert {
        headers.get("Authorization") or headers.get("authorization")
        for _, headers in faulty.requests
    } == {header}
    content = "".join(file.read_text() for file in tmp_path.rglob("*") if file.is_file())
    texts = [
        str(raised.value),
        repr(raised.value.__cause__),
        caplog.text,
        content,
        repr(settings()),
    ]
    encoded = header.split()[1] if header else SECRET
    assert not [text for text in texts if SECRET in text or encoded in text]
    assert "[reader]" not in str(raised.value)
