"""Encoders on a server: order, batches, long texts and failures, against a real HTTP server."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgqa.calls import Rank
from kgqa.config.keys import load_node
from kgqa.errors import ConfigError, DataError, EngineError, KgqaError, ServerLost
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.identity import identify
from kgqa.identity.component import identity_of
from kgqa.protocols import Finder
from kgqa.retrieval.biencoder import get_biencoder
from kgqa.retrieval.index import IndexFolder
from kgqa.retrieval.server import ServerEncoder
from kgqa.types import Passage
from tests.composed import composed_node
from tests.http_server import serve_json
from tests.retrieval.conftest import MADE_FROM, built, find, retriever_of

Body = dict[str, Any]
Vectors = list[list[float | None]]
TEXTS = [f"text {number} of the harbour" for number in range(7)]
SECRET = "sk-Tr0ub4dor-and-four"


def words(text: str) -> list[float | None]:
    """Return the counts of a text's words in eight classes."""
    counts = [0.0] * 8
    for word in text.lower().split():
        counts[zlib.crc32(word.strip("?.,").encode()) % 8] += 1
    return [*counts]


class Endpoint:
    """An embeddings endpoint. `change` edits a response; the statuses in `failures` are sent first."""

    def __init__(self) -> None:
        self.requests: list[Body] = []
        self.keys: set[str | None] = set()
        self.models = ["words"]
        self.name: str | None = "words"
        self.failures: list[int] = []
        self.refuse: Callable[[list[str]], tuple[int, str] | None] = lambda texts: None
        self.change: Callable[[list[Body]], list[Body]] = lambda items: items
        self.url = ""

    def answer(self, body: Body) -> tuple[int, Any]:
        self.requests.append(body)
        if self.failures:
            return self.failures.pop(0), {"error": {"message": "not now"}}
        if refused := self.refuse(body["input"]):
            return refused[0], {"error": {"message": refused[1]}}
        items = [
            {"index": place, "embedding": words(text)} for place, text in enumerate(body["input"])
        ]
        return 200, {"model": self.name, "data": self.change(items)}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    state = Endpoint()

    def answer(request: BaseHTTPRequestHandler, content: bytes) -> tuple[int, Any]:
        if request.command == "GET":
            return 200, {"data": [{"id": name} for name in state.models]}
        state.keys.add(request.headers.get("Authorization"))
        return state.answer(json.loads(content))

    with serve_json(answer, {}) as address:
        state.url = f"{address}/v1"
        yield state


def encoder(endpoint: Endpoint, **changes: Any) -> ServerEncoder:
    settings = {
        "base_url": endpoint.url, "model": "words", "deployment": None, "dimensions": None, "normalise": False,
        "query_prefix": "", "passage_prefix": "", "api_key_env": "KGQA_TEST_KEY", "batch_size": 3, "concurrency": 2,
        "timeout": 10.0, "retries": 2, "backoff": 0.01, "server_timeout": 0.2,
    }  # fmt: skip
    return ServerEncoder(**{**settings, **changes})


def as_base64(items: list[Body]) -> list[Body]:
    return [
        {
            **item,
            "embedding": base64.b64encode(np.array(item["embedding"], "<f4").tobytes()).decode(),
        }
        for item in items
    ]


@pytest.mark.parametrize(
    "change", [None, as_base64, lambda items: items[::-1], lambda items: as_base64(items)[::-1]]
)
def test_vectors_come_in_the_order_of_the_texts(endpoint: Endpoint, change: Any) -> None:
    endpoint.change = change or endpoint.change
    assert encoder(endpoint).encode("passage", TEXTS).tolist() == [words(text) for text in TEXTS]
    assert sorted(len(body["input"]) for body in endpoint.requests) == [1, 3, 3]


def test_settings_are_sent(endpoint: Endpoint) -> None:
    ranker = encoder(
        endpoint, query_prefix="query: ", passage_prefix="passage: ", dimensions=8, normalise=True
    )
    rows = [*ranker.encode("query", ["who? I"]), *ranker.encode("passage", ["me"])]
    assert [body["input"] for body in endpoint.requests] == [["query: who? I"], ["passage: me"]]
    assert {body["dimensions"] for body in endpoint.requests} == {8}
    assert np.linalg.norm(rows, axis=1).tolist() == pytest.approx([1.0, 1.0])
    assert encoder(endpoint, normalise=True).encode("passage", [""]).tolist() == [[0.0] * 8]


@pytest.mark.parametrize("status", [500, 503, 429, 422])
def test_brief_failures_and_large_batches_succeed(endpoint: Endpoint, status: int) -> None:
    """A batch that is rejected for its size is sent in halves. An event loop may run, as in notebooks."""
    endpoint.failures = [status] * 3 if status != 422 else []
    too_large = status == 422
    endpoint.refuse = lambda texts: (
        (422, "maximum allowed batch size 1") if too_large and len(texts) > 1 else None
    )

    async def cell() -> Any:
        return encoder(endpoint, server_timeout=30.0).encode("passage", TEXTS)

    assert asyncio.run(cell()).tolist() == [words(text) for text in TEXTS]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "This model's maximum context length is 40 tokens, however you requested {} tokens"),
        (
            500,
            "input ({} tokens) is too large to process. increase the physical batch size (current: 40)",
        ),
    ],
)
def test_long_texts_are_cut_to_what_fits(endpoint: Endpoint, status: int, message: str) -> None:
    def refuse(texts: list[str]) -> tuple[int, str] | None:
        longest = max(len(text.split()) for text in texts)
        return (status, message.format(longest)) if longest > 40 else None

    endpoint.refuse = refuse
    rows = encoder(endpoint).encode("passage", ["short text", f"{'harbour ' * 300}{status}"])
    assert rows[0].tolist() == words("short text")
    assert 20 <= rows[1].sum() <= 40


@pytest.mark.parametrize(
    ("change", "settings", "kind", "message"),
    [
        (
            lambda items: [{**items[0], "embedding": [math.nan] * 8}, *items[1:]],
            {},
            DataError,
            "are no numbers",
        ),
        (
            lambda items: [{**items[0], "embedding": [None] * 8}, *items[1:]],
            {},
            DataError,
            "are no numbers",
        ),
        (
            lambda items: [{**items[0], "embedding": [1.0] * 5}, *items[1:]],
            {},
            DataError,
            "5 and 8 numbers",
        ),
        (None, {"dimensions": 4}, DataError, "8 numbers, not of encoder.dimensions=4"),
        (lambda items: items[1:], {}, ServerLost, "for 3 texts"),
        (lambda items: [items[0]] * 3, {}, ServerLost, "for 3 texts"),
        (lambda items: [{**item, "embedding": "?"} for item in items], {}, ServerLost, ""),
        (
            lambda items: [{**item, "embedding": {"a": 1}} for item in items],
            {},
            ServerLost,
            "no list of numbers",
        ),
        (
            lambda items: [{**item, "embedding": [{"a": 1}] * 8} for item in items],
            {},
            ServerLost,
            "no list of numbers",
        ),
        (
            lambda items: [{**item, "embedding": [10**400] * 8} for item in items],
            {},
            ServerLost,
            "no list of numbers",
        ),
        (lambda items: [{**item, "index": [1]} for item in items], {}, ServerLost, "for 3 texts"),
    ],
)
def test_invalid_vectors_are_one_error(
    endpoint: Endpoint, change: Any, settings: Body, kind: type[KgqaError], message: str
) -> None:
    endpoint.change = change or endpoint.change
    with pytest.raises(kind) as error:
        encoder(endpoint, **settings).encode("passage", TEXTS[:3])
    assert message in str(error.value)
    assert endpoint.url in str(error.value)


@pytest.mark.parametrize(
    ("status", "text", "kind", "message"),
    [
        (
            401,
            f"Incorrect API key {SECRET}",
            ConfigError,
            "does not accept the key of encoder.api_key_env",
        ),
        (404, "no such model", ConfigError, "does not know the model or the path"),
        (400, "unknown parameter", EngineError, "rejected the call (400): unknown parameter"),
    ],
    ids=[401, 404, 400],
)
def test_refusals_are_explained_without_the_key(
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    text: str,
    kind: type[KgqaError],
    message: str,
) -> None:
    monkeypatch.setenv("KGQA_TEST_KEY", SECRET)
    endpoint.refuse = lambda texts: (status, text)
    with pytest.raises(kind) as error:
        encoder(endpoint).encode("passage", TEXTS)
    assert message in str(error.value)
    assert SECRET not in str(error.value)
    assert endpoint.keys == {f"Bearer {SECRET}"}


def test_rejected_text_is_named(endpoint: Endpoint) -> None:
    endpoint.refuse = lambda texts: (400, "filtered") if TEXTS[3] in texts else None
    with pytest.raises(EngineError, match=r"filtered \(text: 'text 3 of the harbour'\)"):
        encoder(endpoint).encode("passage", TEXTS)


def test_another_model_that_answers_is_named_once(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.name = "words-v2-large"
    for _ in range(2):
        encoder(endpoint).encode("passage", TEXTS)
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [line.partition(" answers ")[2] for line in warned] == [
        "as model 'words-v2-large', but model 'words' was requested"
    ]


def test_missing_model_or_server_is_one_line(endpoint: Endpoint) -> None:
    endpoint.models = ["other/model"]
    with pytest.raises(
        ConfigError, match=r"serves 'other/model', not 'words'. Set encoder\.model to that"
    ):
        encoder(endpoint).encode("passage", TEXTS)
    with pytest.raises(ConfigError, match=r"encoder\.model=null: name the model"):
        identity_of(encoder(endpoint, model=None))
    with pytest.raises(ServerLost, match=r"Start the server, or correct encoder\.base_url"):
        encoder(endpoint, base_url="http://127.0.0.1:9/v1").encode("query", ["a"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base_url": None}, "encoder.base_url=null: name the server"),
        (
            {"base_url": "127.0.0.1:80"},
            "encoder.base_url=127.0.0.1:80: must be an address like http",
        ),
        ({"api_key_env": SECRET}, "encoder.api_key_env: must be the NAME"),
    ],
    ids=["no address", "no scheme", "key instead of a name"],
)
def test_invalid_setting_of_a_server_is_one_line(
    endpoint: Endpoint, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        identity_of(encoder(endpoint, **changes))
    assert SECRET not in str(error.value)


def test_ranker_remembers_and_an_index_is_searched(endpoint: Endpoint, tmp_path: Path) -> None:
    ranker = encoder(endpoint, query_prefix="query: ")
    call = Rank("slate harbour", ("slate", "the harbour of slate", "carrots"))
    ((first, second, third),) = ranker.score([call])
    assert second > max(first, third)
    count = len(endpoint.requests)
    assert list(get_biencoder(ranker).score([call])) == [(first, second, third)]
    assert len(endpoint.requests) == count
    changes = [f"retriever.encoder.base_url={endpoint.url}", "retriever.encoder.model=words"]
    passages = [
        Passage.of("", text) for text in ("carrots and ginger soup", "slate harbour", "river")
    ]
    finder = built(retriever_of("retriever=server", *changes), passages, tmp_path)
    assert find(finder, "slate harbour", 1) == [1]
    finder.close()


def other_weights(items: list[Body]) -> list[Body]:
    return [
        {**item, "embedding": [*item["embedding"][3:], *item["embedding"][:3]]} for item in items
    ]


PASSAGES = [Passage.of("", text) for text in TEXTS]


def server_index(endpoint: Endpoint, folder: Path, count: int = len(PASSAGES)) -> Finder:
    """Return an index of some passages, as a new process opens it."""
    get_biencoder.cache_clear()
    retriever = retriever_of(
        "retriever=server",
        f"retriever.encoder.base_url={endpoint.url}",
        "retriever.encoder.model=words",
    )
    index = IndexFolder(
        folder / str(count), retriever, MADE_FROM, "kgqa data index dataset=d", folder / "vectors"
    )
    index.build(PASSAGES[:count], lambda *_: None)
    get_biencoder.cache_clear()
    return retriever.open(PASSAGES[:count], index.path / "finder")


def test_stored_index_needs_the_weights_that_built_it(endpoint: Endpoint, tmp_path: Path) -> None:
    finder = server_index(endpoint, tmp_path)
    ranked = find(finder, "text 5", 3)
    finder.close()
    assert find(server_index(endpoint, tmp_path), "text 5", 3) == ranked
    endpoint.change = other_weights
    with pytest.raises(
        DataError,
        match=r"finder: the server gives .* name the new one: retriever.encoder.deployment",
    ):
        find(server_index(endpoint, tmp_path), "text 5", 3)


def test_new_passages_need_the_weights_of_the_old_ones(endpoint: Endpoint, tmp_path: Path) -> None:
    server_index(endpoint, tmp_path, 4).close()
    server_index(endpoint, tmp_path, 5).close()
    endpoint.change = other_weights
    with pytest.raises(
        DataError, match=r"\.sqlite: the server gives a stored text another vector than before"
    ):
        server_index(endpoint, tmp_path)


def test_index_of_this_process_needs_no_check(endpoint: Endpoint, tmp_path: Path) -> None:
    finder = built(
        retriever_of(
            "retriever=server",
            f"retriever.encoder.base_url={endpoint.url}",
            "retriever.encoder.model=words",
        ),
        PASSAGES,
        tmp_path,
    )
    count = len(endpoint.requests)
    find(finder, "text 5", 3)
    assert len(endpoint.requests) == count + 1


def server_identity(*changes: str) -> Any:
    fixed = ["retriever.encoder.base_url=http://127.0.0.1:9/v1", "retriever.encoder.model=m"]
    changed = (f"retriever.encoder.{change}" for change in changes)
    return identity_of(retriever_of("retriever=server", *fixed, *changed))


ADDRESS = "base_url=http://127.0.0.1:8/v1"


@pytest.mark.parametrize("change", ["concurrency=3", "batch_size=7", "server_timeout=9.0"])
def test_speed_settings_are_not_in_the_identity(change: str) -> None:
    assert server_identity(change) == server_identity()


@pytest.mark.parametrize(
    "change",
    [
        "model=other",
        "dimensions=4",
        "query_prefix=q",
        "normalise=false",
        ADDRESS,
        "deployment=mine",
    ],
)
def test_settings_of_vectors_are_in_the_identity(change: str) -> None:
    assert server_identity(change) != server_identity()


def test_deployment_replaces_the_address() -> None:
    assert server_identity("deployment=mine", ADDRESS) == server_identity("deployment=mine")


def test_identity_of_a_run_has_the_model_of_its_ranker() -> None:
    """The key of the vectors of a run, also where the encoder is a part of the retriever."""
    choice = [
        "method=trace",
        "engine=scripted",
        "ranker=server",
        "ranker.base_url=http://127.0.0.1:9/v1",
    ]
    one, equal, different = (
        identify(compose_experiment([*choice, *changes]))
        for changes in (
            ["ranker.model=m"],
            ["ranker.model=m", "ranker.batch_size=7"],
            ["ranker.model=n"],
        )
    )
    assert one == equal != different


@pytest.mark.parametrize("name", ["text_embedding_3_small", "nv_embed_v2", "qwen3_embedding_8b"])
def test_preset_of_retriever_and_ranker_is_one_encoder(name: str) -> None:
    preset = composed_node("retriever", name)["encoder"]
    assert preset["model"]
    assert preset == composed_node("ranker", name)


@pytest.mark.parametrize("name", ["qwen3_embedding_8b", "nv_embed_v2", "text_embedding_3_small"])
def test_presets_ask_for_vectors_of_full_length(name: str) -> None:
    """Servers reject `dimensions` for models that cannot shorten their vectors."""
    assert load_node("ranker", name)["dimensions"] is None
