"""Encoders on a server that speaks OpenAI's embeddings protocol: vLLM, Ollama, TEI, llama.cpp's server, hosted ones."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, ClassVar

import numpy as np

from kgqa.engines.event_loop import run_in_thread
from kgqa.engines.openai.access import REACHING, ServerAccess
from kgqa.engines.openai.detection import is_same_model, is_snapshot
from kgqa.engines.openai.messages import find_lengths
from kgqa.engines.openai.transport import Refused, Transport
from kgqa.errors import ConfigError, DataError, EngineDied, EngineError
from kgqa.retrieval.biencoder import Encoder, Kind, clean
from kgqa.retrieval.vector_store import Vectors
from kgqa.types import Json, JsonObject
from kgqa.util.settings import NotIdentity, Setting
from kgqa.util.validators import Count

_checked: set[tuple[str, str]] = set()  # addresses and models
# of a model in a warning
NAME_LENGTH = 80
log = logging.getLogger(__name__)
# characters: a server that rejects so short a text as too long has another problem
SHORTEST = 64


@dataclass(frozen=True)
class ServerEncoder(ServerAccess, Encoder):
    """A model behind an embeddings endpoint.

    Failures follow the rules of `engine=openai`: the server is waited for, and a call never fails for it. A batch that
    the server rejects is sent in halves. A text that is too long for the model is cut to what fits, as local encoders
    cut it.
    """

    model: Annotated[str | None, Setting("Name of the model on the server. It must be set.")] = None
    deployment: Annotated[
        str | None,
        Setting(
            'Name of the server in the run\'s identity, e.g. "vllm 0.32 bf16", so that it may move. null: its address.'
        ),
        NotIdentity("what it loads has it, or else the address"),
    ] = None
    dimensions: Annotated[
        Count | None,
        Setting(
            "Length of shortened vectors, of models that can shorten them. null: the model's own."
        ),
    ] = None
    normalise: Annotated[
        bool,
        Setting(
            "Scale vectors to length 1: scores are cosines. false: inner products, for encoders such as DPR."
        ),
    ] = True
    query_prefix: Annotated[str, Setting("Text before each query.")] = ""
    passage_prefix: Annotated[str, Setting('Text before each passage. E5: "passage: ".')] = ""
    batch_size: Annotated[
        Count,
        Setting("Texts per request. Rejected batches are sent in halves.", other="TEI's limit: 32"),
        REACHING,
    ] = 32
    concurrency: Annotated[Count, Setting("Maximum number of parallel requests."), REACHING] = 8

    group: ClassVar[str] = "encoder"
    can_change: ClassVar[bool] = True  # see `biencoder.can_change`

    def __post_init__(self) -> None:
        if self.base_url is not None:
            self.find_address()

    def loads(self) -> JsonObject:
        return {"server": self.deployment or self.find_address(), "model": self._model}

    def encode(self, kind: Kind, texts: Sequence[str]) -> Vectors:
        """Return a row for each text.

        Raises:
            ConfigError: the server has another model, or does not accept the key.
            DataError: vectors that are not finite, or of different lengths.
            EngineError: as `Transport.post`.
        """
        inputs = [
            self._prefix(kind) + clean(text) or " " for text in texts
        ]  # OpenAI rejects empty texts
        return self._stack(run_in_thread("encoder", self._embed_all(inputs)))

    def check_server(self) -> None:
        """Check that the server embeds a short text."""
        address = self.find_address()
        try:
            self.encode("query", ["Hello"])
        except (ConfigError, EngineError) as error:
            if isinstance(error, EngineDied) or address in str(error):
                raise
            raise ConfigError(
                f"{address}: model {self._model!r} embeds no text: {error}"
            ) from error

    async def _embed_all(self, texts: list[str]) -> list[Vectors]:
        transport, gate = self.open_transport(), asyncio.Semaphore(self.concurrency)

        async def embed(batch: list[str]) -> list[Vectors]:
            async with gate:
                return await self._embed(transport, batch)

        starts = range(0, len(texts), self.batch_size)
        try:
            await self._check_model(transport)
            parts = await asyncio.gather(
                *(embed(texts[start : start + self.batch_size]) for start in starts)
            )
        finally:
            await transport.close()
        return [vector for part in parts for vector in part]

    async def _check_model(self, transport: Transport) -> None:
        """Raise ConfigError if the server has only another model: llama.cpp and TEI answer to any name."""
        if (transport.url, self._model) in _checked:
            return
        names = [str(model["id"]) for model in await transport.list_models() or ()]
        if len(names) == 1 and not is_same_model(names[0], self._model):
            raise ConfigError(
                f"{transport.url} serves {names[0]!r}, not {self._model!r}. Set encoder.model to that"
            )
        _checked.add((transport.url, self._model))

    async def _embed(self, transport: Transport, texts: list[str]) -> list[Vectors]:
        def body(inputs: list[str]) -> dict[str, Json]:
            # base64 is four times shorter than numbers, and what OpenAI's own client requests
            request = {"model": self._model, "input": inputs, "encoding_format": "base64"}
            return (
                request if self.dimensions is None else {**request, "dimensions": self.dimensions}
            )

        read = partial(self._read, count=len(texts))
        try:
            vectors, _ = await transport.post(
                "/embeddings", body(texts), read, lambda: body(["Hello"] * len(texts))
            )
        except Refused as refused:
            parts = [await self._embed(transport, part) for part in _split(texts, refused)]
            vectors = [vector for part in parts for vector in part]
        return vectors

    def _read(self, answer: Json, count: int) -> list[Vectors]:
        """Return the vectors of a response. Warn once if another model answers."""
        vectors = read_vectors(answer, count)
        name = answer.get("model")
        if (
            isinstance(name, str)
            and name
            and not (is_same_model(name, self._model) or is_snapshot(name, self._model))
        ):
            _warn_of_model(self.find_address(), " ".join(name.split())[:NAME_LENGTH], self._model)
        return vectors

    def _stack(self, vectors: list[Vectors]) -> Vectors:
        """Return the vectors as rows, of length 1 if `normalise` is set."""
        lengths = sorted({len(vector) for vector in vectors})
        if len(lengths) > 1 or (self.dimensions and lengths != [self.dimensions]):
            expected = f"encoder.dimensions={self.dimensions}" if self.dimensions else "one length"
            listed = " and ".join(map(str, lengths))
            raise DataError(
                f"{self.find_address()}: model {self._model!r} returns vectors of {listed} numbers, not of {expected}"
            )
        rows: Vectors = np.stack(vectors)
        if not np.isfinite(rows).all():
            raise DataError(
                f"{self.find_address()}: model {self._model!r} returns vectors with values that are no numbers. "
                "Start the server with float32 or bfloat16"
            )
        if self.normalise:
            norms = np.linalg.norm(rows, axis=1, keepdims=True)
            rows = (rows / np.where(norms > 0, norms, 1)).astype(np.float32)
        return rows

    @property
    def _model(self) -> str:
        if self.model is None:
            raise ConfigError(
                "encoder.model=null: name the model of the server, as retriever.encoder.model=NAME"
            )
        return self.model

    def find_address(self) -> str:
        if self.base_url is None:
            raise ConfigError(
                "encoder.base_url=null: name the server, e.g. retriever.encoder.base_url=http://127.0.0.1:8000/v1 "
                "(of a ranker: ranker.base_url)"
            )
        return super().find_address()

    def _prefix(self, kind: Kind) -> str:
        return self.query_prefix if kind == "query" else self.passage_prefix


@cache
def _warn_of_model(url: str, name: str, requested: str) -> None:
    log.warning("warning: %s answers as model %r, but model %r was requested", url, name, requested)


def read_vectors(answer: Json, count: int) -> list[Vectors]:
    """Return the vectors of a response in the order of the texts. Raise ValueError for any other response."""
    items = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ValueError("a response without a list of embeddings")
    by_index = {
        str(item.get("index", place)): item.get("embedding") for place, item in enumerate(items)
    }
    if len(items) != count or by_index.keys() != set(map(str, range(count))):
        raise ValueError(f"embeddings with the indexes {sorted(by_index)[:8]}, for {count} texts")
    vectors = []
    for index in range(count):
        embedding = by_index[str(index)]
        try:
            if isinstance(embedding, str):
                vector = np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")
            else:
                vector = np.asarray(
                    embedding if isinstance(embedding, list) else [], dtype=np.float32
                )
        except (TypeError, OverflowError) as error:
            # an object, or an integer that is no float
            raise ValueError(f"an embedding that is no list of numbers ({error})") from None
        if vector.ndim != 1 or not len(vector):
            raise ValueError("an embedding that is no list of numbers")
        vectors.append(vector)
    return vectors


def _split(texts: list[str], refused: Refused) -> list[list[str]]:
    """Return smaller requests for a rejected one: its halves, or a text cut to what fits. Raise if there is none."""
    if len(texts) > 1:
        return [texts[: len(texts) // 2], texts[len(texts) // 2 :]]
    (text,) = texts
    if refused.meaning == "too_long" and len(text) <= SHORTEST:
        raise refused
    if refused.meaning != "too_long":
        raise EngineError(f"{refused} (text: {text[:SHORTEST]!r})") from refused
    tokens, limit = find_lengths(refused.error) or (2, 1)
    share = min(0.95 * limit / tokens, 0.95)
    return [[text[: int(len(text) * share)]]]
