"""One corpus' index on an Elasticsearch server: loaded in order, marked when it is whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kgqa.errors import ConfigError, DataError, EngineDied, EngineError, StorageError
from kgqa.retrieval.biencoder import clean
from kgqa.retrieval.elasticsearch_server import Server
from kgqa.types import Json, Passage

CHUNK = 500  # passages a bulk request; about 300 kB of Wikipedia's paragraphs
CHUNK_BYTES = 10 << 20  # of a bulk request; servers take 100 MB by default
MERGE_SECONDS = 3_600


@dataclass(frozen=True)
class ServerIndex:
    """One index on the server. Passages are its documents, their places its ids; `_meta` says when all are in."""

    server: Server
    name: str
    count: int

    def loaded(self) -> int | None:
        """Return how many passages, from the first on, are there already; None where there is no index.

        Passages are loaded in order, so that what an interruption leaves is the corpus' beginning. Anything else
        is deleted.
        """
        if self.mark() is None:
            return None
        self.server.ask(lambda client: client.indices.refresh(index=self.name))
        last = {"size": 1, "sort": [{"place": "desc"}], "_source": False}
        hits = self.server.ask(lambda client: client.search(index=self.name, **last))["hits"]["hits"]
        beginning = int(hits[0]["_id"]) + 1 if hits else 0
        if beginning == self.documents() <= self.count:
            return beginning
        self.server.ask(lambda client: client.indices.delete(index=self.name))
        return None

    def create(self, body: Mapping[str, Json]) -> None:
        try:
            self.server.ask(lambda client: client.indices.create(index=self.name, **body))
        except EngineDied:
            raise
        except EngineError as error:
            raise ConfigError(f"retriever=elasticsearch: the server refuses these settings; {error}") from None

    def load(self, passages: Sequence[Passage], first: int, advance: Callable[[int], None]) -> None:
        from elasticsearch.helpers import BulkIndexError

        for start in range(first, len(passages), CHUNK):
            chunk = list(self._documents(passages, start))
            try:
                self.server.ask(partial(_bulk, documents=chunk))
            except BulkIndexError as error:
                raise self._reject(error.errors[0], passages) from None
            advance(len(chunk))

    def complete(self) -> None:
        """Make the passages searchable in one segment, and say that they are all there."""
        self.server.ask(lambda client: client.indices.refresh(index=self.name))
        if (number := self.documents()) != self.count:
            raise DataError(
                f"KGQA_ES_URL={self.server.url}: index {self.name} has {number} of {self.count} passages; "
                "delete it on the server and build it again"
            )
        if self.is_complete():
            return
        patient = {"request_timeout": MERGE_SECONDS}
        self.server.ask(
            lambda client: client.options(**patient).indices.forcemerge(index=self.name, max_num_segments=1)
        )
        self.server.ask(lambda client: client.indices.refresh(index=self.name))  # else the unmerged one is searched
        self.server.ask(lambda client: client.indices.put_mapping(index=self.name, meta={"kgqa": self._complete()}))

    def whole(self) -> bool:
        """Return whether it can be used as it is. Asks for no more than who searches may: `read` and
        `view_index_metadata`.
        """
        return self.is_complete() and self.documents() == self.count

    def is_complete(self) -> bool:
        """Return whether all of this corpus was loaded. A copy or an alias of another index says another name."""
        return bool(self.mark() == self._complete())

    def mark(self) -> Json:
        """Return what was written on the index when it was complete, empty before; None where there is no index."""
        mapping = self.server.ask(lambda client: client.options(ignore_status=404).indices.get_mapping(index=self.name))
        if "error" in mapping or not mapping:
            return None
        (described,) = mapping.values()
        return described["mappings"].get("_meta", {}).get("kgqa", {})

    def _complete(self) -> Json:
        return {"complete": self.name, "passages": self.count}

    def documents(self) -> int:
        return int(self.server.ask(lambda client: client.count(index=self.name))["count"])

    def _documents(self, passages: Sequence[Passage], start: int) -> Iterator[dict[str, Json]]:
        for place in range(start, min(start + CHUNK, len(passages))):
            passage = passages[place]
            text = {"title": clean(passage.title), "text": clean(passage.text)}
            yield {"_index": self.name, "_id": str(place), "place": place, **text}

    def _reject(self, item: Mapping[str, Any], passages: Sequence[Passage]) -> Exception:
        (outcome,) = item.values()
        error, where = outcome.get("error", {}), f"KGQA_ES_URL={self.server.url}"
        if error.get("type") == "cluster_block_exception":  # what a full disk looks like
            return StorageError(f"{where}: {error.get('reason')}; make room there, then run the same command again")
        title = passages[int(outcome["_id"])].title
        return DataError(f"{where}: passage {outcome['_id']} ({title}) is refused: {error.get('reason')}")


def _bulk(client: Any, documents: Sequence[Mapping[str, Json]]) -> None:
    """Index them in one request, or in several where they are long; a refusal for want of room is tried again."""
    from elasticsearch.helpers import bulk

    bulk(client, documents, chunk_size=CHUNK, max_chunk_bytes=CHUNK_BYTES, max_retries=5, initial_backoff=1)
