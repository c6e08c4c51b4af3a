"""`retriever=remote` searches the corpus of a server: of `kgqa serve`, or of another program."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

import kgqa
from kgqa.errors import KgqaError
from kgqa.retrieval.remote import read_document
from kgqa.runtime.display import QUIET
from kgqa.types import Passage
from tests.http_server import serve_json

for package in ("starlette", "uvicorn"):
    pytest.importorskip(package)
pytestmark = pytest.mark.usefixtures("own_folder")


def retrieve(*words: str, **keys: str) -> kgqa.Run:
    return kgqa.run(*words, method="retrieve_only", dataset="demo", limit=3, display=QUIET, **keys)


@contextmanager
def open_server(*words: str) -> Iterator[str]:
    """Start `kgqa serve` and yield its address."""
    command = [sys.executable, "-m", "kgqa", "serve", *words, "--port", "0"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=None)
    try:
        assert running.stdout is not None
        lines = iter(running.stdout.readline, "")
        yield next(match[0] for line in lines if (match := re.search(r"http://[\d.:]+", line)))
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)
    assert running.returncode == 0


@pytest.mark.slow
def test_remote_finds_what_its_server_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    local = retrieve(retriever="bm25")
    with open_server("retriever=bm25", "dataset=demo") as address:
        remote = retrieve(f"retriever.url={address}/retrieve", retriever="remote")
    assert [row["evidence"] for row in remote.predictions] == [
        row["evidence"] for row in local.predictions
    ]
    assert remote.metrics.retrieval == local.metrics.retrieval


@pytest.mark.slow
def test_run_is_named_after_the_index_of_a_kgqa_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    folders = []
    for _ in range(2):
        with open_server("retriever=bm25", "dataset=demo") as address:
            folders.append(retrieve(f"retriever.url={address}/retrieve", retriever="remote").folder)
    assert folders[0] == folders[1]


def answer_as_search_r1(handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, Any]:
    if handler.command == "GET":
        return 405, {"detail": "Method Not Allowed"}
    queries = json.loads(body)["queries"]
    return 200, {
        "result": [[{"id": "7", "contents": '"Mill"\nBo built the mill.'}] for _ in queries]
    }


def test_server_of_search_r1_is_searched() -> None:
    with serve_json(answer_as_search_r1, {}) as address:
        finished = retrieve(f"retriever.url={address}/retrieve", retriever="remote")
    assert {tuple(row["evidence_titles"] or ()) for row in finished.predictions} == {("Mill",)}  # type: ignore[arg-type]


DOCUMENTS: dict[str, tuple[Any, Passage]] = {
    "contents": ({"contents": '"A"\nb'}, Passage.of("A", "b")),
    "plain title": ({"contents": "A\nb\nc"}, Passage.of("A", "b\nc")),
    "title only": ({"contents": "A"}, Passage.of("A", "")),
    "scored": ({"document": {"contents": '"A"\nb'}, "score": 1}, Passage.of("A", "b")),
    "title and text": ({"title": "A", "text": "b", "contents": "x"}, Passage.of("A", "b")),
}


@pytest.mark.parametrize(("document", "passage"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_document_becomes_a_passage(document: Any, passage: Passage) -> None:
    assert read_document(document) == passage


def test_missing_server_is_one_line() -> None:
    with pytest.raises(KgqaError, match="no server answers"):
        retrieve("retriever.url=http://127.0.0.1:9/retrieve", retriever="remote")


def test_missing_address_is_one_line() -> None:
    with pytest.raises(KgqaError, match=r"retriever\.url=null"):
        retrieve(retriever="remote")


WRONG: dict[str, tuple[int, Any, str]] = {
    "status": (400, {"detail": "no"}, "status 400"),
    "form": (200, {"results": []}, "no response in the form of /retrieve"),
    "count": (200, {"result": []}, "0 results for"),
}


@pytest.mark.parametrize(("status", "response", "message"), WRONG.values(), ids=WRONG)
def test_wrong_response_fails_the_question(status: int, response: Any, message: str) -> None:
    with serve_json(
        lambda handler, _: (405 if handler.command == "GET" else status, response), {}
    ) as address:
        finished = retrieve(
            f"retriever.url={address}/retrieve", "max_failure_rate=1", retriever="remote"
        )
    assert all(message in str(row["error"]) for row in finished.predictions)
