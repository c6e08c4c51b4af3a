"""graph=tagme against a fake service."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest

from kgqa.errors import ConfigError, DataError
from kgqa.retrieval.graphs.tagme import Tagme
from kgqa.types import Passage
from tests.retrieval.linked_passages import neighbours, passages


class _Tagme(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if "moved" in form["text"][0]:
            self.send_response(307)
            self.send_header("Location", "http://127.0.0.2:9/tag")
            self.end_headers()
            return
        self.send_response(200 if form["gcube-token"] == ["key"] else 403)
        self.end_headers()
        notes = [
            {"id": len(word), "rho": 0.5 if word.isupper() else 0.05, "link_probability": 0.05 * len(word)}
            for word in form["text"][0].split()
        ]
        self.wfile.write(b"<html>" if "broken" in form["text"][0] else json.dumps({"annotations": notes}).encode())

    def log_message(self, *args: object) -> None:
        """Nothing: tests are quiet."""


@pytest.fixture
def tagme() -> Iterator[Tagme]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Tagme) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Tagme(f"http://127.0.0.1:{server.server_port}/tag", "TAGME_TOKEN", "rho", 0.1, False, "en", 10)
        server.shutdown()


def test_tagmes_confident_entities_link_passages(tagme: Tagme, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAGME_TOKEN", "key")
    assert neighbours(tagme.links(passages("AAA b", "cc DDD", "d", ""))) == [[1], [0], [], []]


def test_mentions_that_are_likely_links_may_count_instead(tagme: Tagme, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAGME_TOKEN", "key")
    likely = replace(tagme, confidence="link_probability")
    assert neighbours(likely.links(passages("AAA b", "cc DDD", "dd"))) == [[1], [0, 2], [1]]
    assert likely.identity() != tagme.identity()


def test_the_key_is_not_carried_to_another_address(tagme: Tagme, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAGME_TOKEN", "key")
    with pytest.raises(DataError, match=r"sends on to another address; mend graph\.url"):
        tagme.links(passages("moved"))


def test_a_passage_may_mention_its_document_too(tagme: Tagme, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAGME_TOKEN", "key")
    same = [Passage.of("T", "AAA"), Passage.of("T", "BBBB"), Passage.of("U", "CC")]
    assert neighbours(replace(tagme, titles=True).links(same)) == [[1], [0], []]


def test_another_tagme_service_gives_another_graph(tagme: Tagme) -> None:
    assert replace(tagme, url="http://127.0.0.1:1/tag").identity() != tagme.identity()


def test_tagme_without_a_key_or_an_answer_says_what_to_do(tagme: Tagme, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAGME_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="no key in the environment variable TAGME_TOKEN; set it, or choose graph=e"):
        tagme.links(passages("A"))
    monkeypatch.setenv("TAGME_TOKEN", "wrong")
    with pytest.raises(DataError, match="HTTP 403; check TAGME_TOKEN"):
        tagme.links(passages("A"))
    monkeypatch.setenv("TAGME_TOKEN", "key")
    with pytest.raises(DataError, match="no annotations in its answer"):
        tagme.links(passages("broken"))
    with pytest.raises(DataError, match="cannot be reached"):
        replace(tagme, url="http://127.0.0.1:1/tag").links(passages("A"))
