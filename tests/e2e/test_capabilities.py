"""What a method needs and a server lacks is one line, before any call and any cost."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from kgqa.config.files import groups
from kgqa.errors import ConfigError
from kgqa.experiment.capabilities import check_capabilities
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.session import Session
from kgqa.util.places import call_cache
from tests.e2e.conftest import Kgqa
from tests.http_server import serve_json

KEYS = (
    "engine=openai",
    "engine.base_url=http://127.0.0.1:9/v1",
    "model=qwen3_8b",
    "engine.served_model=m",
)
SERVERS = {
    "chat": (*KEYS, "engine.server=hosted", "engine.endpoints=chat"),
    "completions": (
        *KEYS,
        "engine.server=hosted",
        "engine.endpoints=completions",
        "engine.tools=functions",
    ),
    "vllm": (*KEYS, "engine.server=vllm"),
    "llamacpp": (*KEYS, "engine.server=llamacpp"),
    "no model": ("engine=scripted",),
}
RETRIEVERS = {
    "bm25": ("retriever=bm25",),
    "server of searches": ("retriever=remote", "retriever.url=http://x/retrieve"),
}
NEEDS_FUNCTIONS = {"tool_agent", "react_tools"}
NO_TEXT_FORM = ("method.protocol=functions",)


def explain_lack(*overrides: str) -> str:
    """Return what is rejected before the first call, or ""."""
    return explain_lack_of(compose_experiment(("dataset=demo", *overrides)))


def explain_lack_of(experiment: Experiment) -> str:
    with Session(experiment) as session:
        try:
            check_capabilities(session)
        except ConfigError as error:
            return str(error)
    return ""


METHODS = [name for name in groups()["method"] if name not in ("command", "function")]


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_at_every_kind_of_server(method: str, server: str) -> None:
    if method in NEEDS_FUNCTIONS and server in ("completions", "no model"):
        assert "needs function calls" in explain_lack(
            f"method={method}", *SERVERS[server], *NO_TEXT_FORM
        )
        assert not explain_lack(f"method={method}", *SERVERS[server], "method.protocol=text")
    else:
        assert not explain_lack(f"method={method}", *SERVERS[server])


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_own_passages_need_a_retriever_of_pools(method: str) -> None:
    overrides = (f"method={method}", "engine=scripted", *RETRIEVERS["server of searches"])
    experiment = compose_experiment(("dataset=demo", *overrides))
    lack = explain_lack_of(experiment)
    assert bool(lack) == ("pool" in experiment.method.uses)
    assert not lack or "retriever=remote cannot" in lack


class Site:
    """A simulated embeddings server, with a status for /embeddings."""

    def __init__(self) -> None:
        self.status, self.embedding, self.texts = 200, [0.1, 0.2], 0

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, Any]:
        if request.path.endswith("/models"):
            return 200, {"data": [{"id": "small-encoder"}]}
        self.texts += 1
        data = [{"index": 0, "embedding": self.embedding}]
        return self.status, {"data": data} if self.status == 200 else {
            "error": {"message": "no such endpoint"}
        }


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Site, str]]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    simulated = Site()
    with serve_json(simulated.answer, {}) as address:
        yield simulated, address


def count_calls() -> int:
    file = Path(call_cache()) / "calls.sqlite"
    if not file.exists():
        return 0
    with closing(sqlite3.connect(file)) as database:
        (count,) = database.execute("SELECT count(*) FROM calls").fetchone()
    return int(count)


def encoder_keys(address: str, model: str = "small-encoder") -> list[str]:
    keys = ["retriever=hipporag", "retriever.filter=false"]
    for part in ("passages", "facts"):
        encoder = f"retriever.{part}.encoder"
        keys += [
            f"retriever@retriever.{part}=server",
            f"{encoder}.base_url={address}/v1",
            f"{encoder}.model={model}",
        ]
        keys += [f"{encoder}.server_timeout=0.5", f"{encoder}.retries=0"]
    return keys


@pytest.mark.parametrize(
    ("status", "embedding", "model", "code", "line"),
    [
        (404, [0.1], "small-encoder", 2, "embeds no text: the server does not know the"),
        (400, [0.1], "small-encoder", 2, "embeds no text"),
        (200, [0.1], "other", 2, "serves 'small-encoder', not 'other'"),
        (200, "no vector", "small-encoder", 3, "Only base64 data is allowed"),
        (200, [], "small-encoder", 3, "an embedding that is no list of numbers"),
    ],
    ids=["no endpoint", "rejected", "other model", "text", "empty"],
)
def test_encoder_is_tried_before_triples_are_extracted(
    site: tuple[Site, str],
    status: int,
    embedding: Any,
    model: str,
    code: int,
    line: str,
    kgqa: Kgqa,
) -> None:
    server, address = site
    server.status, server.embedding = status, embedding
    ran = kgqa(
        "run",
        "method=retrieve_read",
        "dataset=demo",
        "engine=scripted",
        *encoder_keys(address, model),
    )
    assert ran.code == code
    assert line in ran.err.splitlines()[0]
    assert count_calls() == 0


DEAD = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    "keys",
    [
        ["method=retrieve_read", *encoder_keys(DEAD)],
        [
            "method=trace",
            "ranker=server",
            f"ranker.base_url={DEAD}",
            "ranker.model=m",
            "ranker.server_timeout=0.5",
        ],
    ],
    ids=["retriever", "ranker"],
)
def test_missing_encoder_costs_no_call(keys: list[str], kgqa: Kgqa) -> None:
    ran = kgqa("run", "dataset=demo", "engine=scripted", "demonstrations_ranker=lexical", *keys)
    assert ran.code == 3
    assert "has not answered any call for 0.5 s" in ran.err
    assert count_calls() == 0


def test_missing_server_is_noticed_before_the_index(kgqa: Kgqa, tmp_path: Path) -> None:
    ran = kgqa("run", "method=ircot", "dataset=demo", *SERVERS["vllm"], "engine.server_timeout=0.5")
    assert ran.code == 3
    assert "has not answered any call" in ran.err
    assert not list(tmp_path.rglob("index/**/manifest.json"))
