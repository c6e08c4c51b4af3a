"""BM25 of an Elasticsearch server: the index and the query of IRCoT (Trivedi et al., ACL 2023)."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar

from kgqa.errors import DataError
from kgqa.protocols import Finder, Query
from kgqa.retrieval.biencoder import clean
from kgqa.retrieval.elasticsearch_index import ServerIndex
from kgqa.retrieval.elasticsearch_server import Server
from kgqa.types import Json, Passage
from kgqa.util.fs import AGAIN, lock_file, replace_file
from kgqa.util.jsonio import parse_json
from kgqa.util.validators import NotNegative, Share, Validator

logger = logging.getLogger(__name__)

FOLDER_FILE = "elasticsearch.json"  # which index on the server belongs to the folder
LOADED_BY_RUNS = 50_000  # passages at most that a run loads where the server has them not; as many as it indexes itself
TOGETHER = 64  # queries a multi-search request
# A server refuses queries of more clauses than memory allows, at least 1,024 are allowed: two fields of 500 words.
LONGEST_QUERY = 500
MOST_TERMS = 65_536  # values of one `terms` filter: the server's default
MOST_RESULTS = 10_000  # of one search: the server's default
Boost = Annotated[float, Validator("must be above 0; leave out the field instead", lambda boost: boost > 0)]
Fields = Annotated[
    Mapping[str, Boost],
    Validator(
        "expected boosts of title, text or both", lambda fields: bool(fields) and set(fields) <= {"title", "text"}
    ),
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
        """Return the settings. Not the server's address and version: they do not change what its BM25 finds."""
        return {"retriever": "elasticsearch", "longest_query": LONGEST_QUERY, **asdict(self)}

    def build(self, passages: Sequence[Passage], folder: Path, advance: Callable[[int], None]) -> None:
        """Load the passages into the server's index, from where an interrupted load stopped.

        Raises:
            ConfigError: the server cannot be used, or refuses the settings.
            StorageError: the server's disk is full.
        """
        with closing(Server()) as server:
            index = self._index(server, passages)
            if index.whole():
                advance(len(passages))
            else:
                self._load(index, passages, advance)
        named = json.dumps({"index": index.name, "passages": len(passages)})
        replace_file(folder / FOLDER_FILE, f"{named}\n", AGAIN)

    def restore(self, passages: Sequence[Passage], folder: Path, advance: Callable[[int], None]) -> None:  # noqa: ARG002
        """Load what this server has not: it is another one, say. Raises: as `build`."""
        with closing(Server()) as server:
            if not (index := self._index(server, passages)).whole():
                self._load(index, passages, advance)

    def open(self, passages: Sequence[Passage], folder: Path) -> Finder:
        file = folder / FOLDER_FILE
        named = parse_json(file.read_bytes(), str(file), AGAIN)
        if not isinstance(named, dict) or not isinstance(named.get("index"), str):
            raise DataError(f"{file}: names no index of the server; {AGAIN}")
        return _Finder(self, named["index"], passages, folder)

    def _index(self, server: Server, passages: Sequence[Passage]) -> ServerIndex:
        return ServerIndex(server, self._name(passages), len(passages))

    def _load(self, index: ServerIndex, passages: Sequence[Passage], advance: Callable[[int], None]) -> None:
        index.server.require_health()
        loaded = index.loaded()
        if loaded is None:
            index.create(self._body())
        advance(loaded or 0)
        index.load(passages, loaded or 0, advance)
        index.complete()

    def query(self, query: Query) -> dict[str, Json]:
        """Return the body of a search: any word in any field; equal scores by place."""
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
        """Return settings and mapping of the index. Both fields are indexed always, so that boosts share an index."""
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


class _Finder:
    """Searches in batches. The first query opens the server and checks its index."""

    def __init__(self, settings: Elasticsearch, name: str, passages: Sequence[Passage], folder: Path) -> None:
        self._settings, self._name, self._passages, self._folder = settings, name, passages, folder

    @cached_property
    def _server(self) -> Server:
        server, count = Server(), len(self._passages)
        index = ServerIndex(server, self._name, count)
        mark = index.mark()  # asked by GET: the answer to a HEAD could not tell what is wrong
        if not mark and count <= LOADED_BY_RUNS:
            self._restore(server)
        elif mark is None:
            raise self._reject(server, "is missing")
        server.require_health(self._name)
        if not index.is_complete():
            raise self._reject(server, "is another one, or was not loaded to its end")
        if (there := index.documents()) != count:
            raise self._reject(server, f"has {there} passages instead of {count}")
        return server

    def _restore(self, server: Server) -> None:
        """Another server, or one that lost its index, gets the passages of a small corpus as the first one did."""
        logger.info("KGQA_ES_URL=%s: has no index %s; loading its passages", server.url, self._name)
        with lock_file(self._folder.parent / ".lock"):
            self._settings.restore(self._passages, self._folder, lambda _: None)

    def _reject(self, server: Server, why: str) -> DataError:
        return DataError(f"KGQA_ES_URL={server.url}: index {self._name} {why}; run kgqa data index again")

    def find(self, queries: Sequence[Query]) -> Sequence[Sequence[int]]:
        """Return the answer. Raise as `Server.ask`; DataError where the server's index is not the one that was
        built.
        """
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
        """Send one multi-search request. A failed search in it raises as if it had been a request of its own."""
        from elastic_transport import ApiError

        whole = {"allow_partial_search_results": False}
        reply = client.msearch(index=self._name, searches=[part for body in bodies for part in (whole, body)])
        for one in reply["responses"]:
            if "error" in one:
                raise ApiError("a search failed", meta=replace(reply.meta, status=one["status"]), body=one)
        return list(reply["responses"])


def _cut(text: str) -> str:
    ends = [match.end() for match in islice(re.finditer(r"\w+", text), LONGEST_QUERY)]
    return text[: ends[-1]] if ends else ""


def _terms(places: Sequence[int]) -> list[Json]:
    starts = range(0, max(1, len(places)), MOST_TERMS)
    return [{"terms": {"place": list(places[start : start + MOST_TERMS])}} for start in starts]
