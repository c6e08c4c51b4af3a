"""BM25 of an Elasticsearch server: the index and the query of IRCoT (Trivedi et al., ACL 2023)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar

from kgqa.constraints import Bound, NotNegative, Share
from kgqa.errors import ConfigError, DataError, EngineDied, EngineError, StorageError
from kgqa.protocols import Finder, Query
from kgqa.retrieval.biencoder import clean
from kgqa.retrieval.elasticsearch_server import Server
from kgqa.storage import AGAIN, replace_file
from kgqa.types import Json, Passage

FOLDER_FILE = "elasticsearch.json"  # which index on the server belongs to the folder
CHUNK = 500  # passages a bulk request; about 300 kB of Wikipedia's paragraphs
CHUNK_BYTES = 10 << 20  # of a bulk request; servers take 100 MB by default
TOGETHER = 64  # queries a multi-search request
# A server refuses queries of more clauses than memory allows, at least 1,024 are allowed: two fields of 500 words.
LONGEST_QUERY = 500
MOST_TERMS = 65_536  # values of one `terms` filter: the server's default
MOST_RESULTS = 10_000  # of one search: the server's default
MERGE_SECONDS = 3_600
Boost = Annotated[float, Bound("must be above 0; leave out the field instead", lambda boost: boost > 0)]
Fields = Annotated[
    Mapping[str, Boost],
    Bound("expected boosts of title, text or both", lambda fields: bool(fields) and set(fields) <= {"title", "text"}),
]


@dataclass(frozen=True)
class Elasticsearch:
    """BM25 over the fields, the sum of each field's score times its boost. A passage without a query word is not found.

    The server is the environment's, see `elasticsearch_server`. The index is named after corpus and settings, has one
    shard, so that scores do not depend on how passages are spread, and is never changed once it is complete. Words of
    a query after the 500th are left out.

    fields: the boost of `title` and of `text`; one that is absent is not searched.
    """

    fields: Fields
    analyzer: str
    k1: NotNegative
    b: Share

    pools: ClassVar[bool] = False  # an index on the server for each question

    def identity(self) -> Mapping[str, Json]:
        """The settings. Not the server's address and version: they do not change what its BM25 finds."""
        return {"retriever": "elasticsearch", "longest_query": LONGEST_QUERY, **asdict(self)}

    def build(self, passages: Sequence[Passage], folder: Path, advance: Callable[[int], None]) -> None:
        """Load the passages into the server's index, from where an interrupted load stopped.

        Raises:
            ConfigError: the server cannot be used, or refuses the settings.
            StorageError: the server's disk is full.
        """
        server = Server()
        try:
            server.require_health()
            index = _ServerIndex(server, self._name(passages), len(passages))
            loaded = index.loaded()
            if loaded is None:
                index.create(self._body())
            advance(loaded or 0)
            index.load(passages, loaded or 0, advance)
            index.complete()
        finally:
            server.close()
        named = json.dumps({"index": index.name, "passages": len(passages)})
        replace_file(folder / FOLDER_FILE, f"{named}\n", AGAIN)

    def open(self, passages: Sequence[Passage], folder: Path) -> Finder:
        named = json.loads((folder / FOLDER_FILE).read_text(encoding="utf-8"))
        return _Finder(self, named["index"], len(passages), folder.parent)

    def query(self, query: Query) -> dict[str, Json]:
        """The body of a search: any word in any field; equal scores by place."""
        text = _cut(clean(query.text))
        should = [{"match": {field: {"query": text, "boost": boost}}} for field, boost in self.fields.items()]
        matching: dict[str, Json] = {"should": should, "minimum_should_match": 1}
        if query.among is not None:
            matching["filter"] = [{"bool": {"should": _terms(query.among)}}]
        return {
            "query": {"bool": matching},
            "size": min(query.k, MOST_RESULTS),
            "sort": [{"_score": "desc"}, {"place": "asc"}],
            "_source": False,
            "track_total_hits": False,
        }

    def _name(self, passages: Sequence[Passage]) -> str:
        hashed = hashlib.sha256(json.dumps(self._body(), sort_keys=True).encode())
        for passage in passages:
            hashed.update(f"{passage.title}\n{passage.text}\0".encode("utf-8", "surrogatepass"))
        return f"kgqa-{hashed.hexdigest()[:16]}"

    def _body(self) -> dict[str, Json]:
        """Settings and mapping of the index. Both fields are indexed always, so that boosts share an index."""
        text = {"type": "text", "analyzer": self.analyzer}
        return {
            "settings": {
                "number_of_shards": 1,
                "number_of_replicas": 0,
                "refresh_interval": "-1",  # nothing is searched before `complete` refreshes
                "similarity": {"default": {"type": "BM25", "k1": self.k1, "b": self.b}},
            },
            "mappings": {
                "dynamic": "strict",
                "properties": {"title": text, "text": text, "place": {"type": "integer"}},
            },
        }


@dataclass(frozen=True)
class _ServerIndex:
    """One index on the server. Passages are its documents, their places its ids; `_meta` says when all are in."""

    server: Server
    name: str
    count: int

    def loaded(self) -> int | None:
        """How many passages, from the first on, are there already; None where there is no index.

        Passages are loaded in order, so that what an interruption leaves is the corpus' beginning. Anything else
        is deleted.
        """
        if self.mark() is None:
            return None
        if self.is_complete() and self.documents() == self.count:
            return self.count
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
                raise self._refused(error.errors[0], passages) from None
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

    def is_complete(self) -> bool:
        """Whether all of this corpus was loaded. A copy or an alias of another index says another name."""
        return bool(self.mark() == self._complete())

    def mark(self) -> Json:
        """What was written on the index when it was complete, empty before; None where there is no index."""
        mapping = self.server.ask(lambda client: client.options(ignore_status=404).indices.get_mapping(index=self.name))
        if "error" in mapping:
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

    def _refused(self, item: Mapping[str, Any], passages: Sequence[Passage]) -> Exception:
        (outcome,) = item.values()
        error, where = outcome.get("error", {}), f"KGQA_ES_URL={self.server.url}"
        if error.get("type") == "cluster_block_exception":  # what a full disk looks like
            return StorageError(f"{where}: {error.get('reason')}; make room there, then run the same command again")
        title = passages[int(outcome["_id"])].title
        return DataError(f"{where}: passage {outcome['_id']} ({title}) is refused: {error.get('reason')}")


class _Finder:
    """Searches in batches. The first query opens the server and checks its index."""

    def __init__(self, settings: Elasticsearch, name: str, count: int, folder: Path) -> None:
        self._settings, self._name, self._count, self._folder = settings, name, count, folder

    @cached_property
    def _server(self) -> Server:
        server = Server()
        index = _ServerIndex(server, self._name, self._count)
        if index.mark() is None:  # asked by GET: the answer to a HEAD could not tell what is wrong
            raise self._refused(server, "is missing")
        server.require_health(self._name)
        if not index.is_complete():
            raise self._refused(server, "is another one, or was not loaded to its end")
        if (count := index.documents()) != self._count:
            raise self._refused(server, f"has {count} passages instead of {self._count}")
        return server

    def _refused(self, server: Server, why: str) -> DataError:
        return DataError(
            f"KGQA_ES_URL={server.url}: index {self._name} {why}; delete {self._folder} and run kgqa index build again"
        )

    def find(self, queries: Sequence[Query]) -> Sequence[Sequence[int]]:
        """Raises: as `Server.ask`; DataError where the server's index is not the one that was built."""
        places: list[list[int]] = []
        for start in range(0, len(queries), TOGETHER):
            bodies = [self._settings.query(query) for query in queries[start : start + TOGETHER]]
            replies = self._server.ask(partial(self._search, bodies=bodies))
            places += [[int(hit["_id"]) for hit in reply["hits"]["hits"]] for reply in replies]
        return places

    def close(self) -> None:
        if "_server" in self.__dict__:
            self._server.close()

    def _search(self, client: Any, bodies: Sequence[Mapping[str, Json]]) -> list[Any]:
        """One multi-search request. A search in it that failed is raised as if it had been a request of its own."""
        from elastic_transport import ApiError

        whole = {"allow_partial_search_results": False}
        reply = client.msearch(index=self._name, searches=[part for body in bodies for part in (whole, body)])
        for one in reply["responses"]:
            if "error" in one:
                raise ApiError("a search failed", meta=replace(reply.meta, status=one["status"]), body=one)
        return list(reply["responses"])


def _bulk(client: Any, documents: Sequence[Mapping[str, Json]]) -> None:
    """Index them in one request, or in several where they are long; a refusal for want of room is tried again."""
    from elasticsearch.helpers import bulk

    bulk(client, documents, chunk_size=CHUNK, max_chunk_bytes=CHUNK_BYTES, max_retries=5, initial_backoff=1)


def _cut(text: str) -> str:
    ends = [match.end() for match in islice(re.finditer(r"\w+", text), LONGEST_QUERY)]
    return text[: ends[-1]] if ends else ""


def _terms(places: Sequence[int]) -> list[Json]:
    starts = range(0, max(1, len(places)), MOST_TERMS)
    return [{"terms": {"place": list(places[start : start + MOST_TERMS])}} for start in starts]
