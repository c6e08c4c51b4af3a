"""BM25 of an Elasticsearch server: the index and the query of IRCoT (Trivedi et al., ACL 2023).

The environment names the server, so that no credential gets into a configuration, a manifest or a log:

    KGQA_ES_URL                          scheme, host and port (default: http://127.0.0.1:9200)
    KGQA_ES_API_KEY                      an API key, or
    KGQA_ES_USER and KGQA_ES_PASSWORD    a user
    KGQA_ES_CA                           the file with the certificate of the server's own authority
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from kgqa.errors import ConfigError, DataError, EngineDied, EngineError, KgqaError, StorageError
from kgqa.protocols import Finder, Query
from kgqa.retrieval.biencoder import clean
from kgqa.retrieval.bm25 import Boosts
from kgqa.types import Json, Passage
from kgqa.util.fs import AGAIN, replace_file
from kgqa.util.jsonio import parse_json
from kgqa.util.optional_deps import require_packages
from kgqa.util.validators import NotNegative, Share

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:9200"
VARIABLES = ("API_KEY", "USER", "PASSWORD", "CA")
WAITS = (1, 2, 4, 8, 16, 32)  # seconds before another try: a node that restarts is back within them
BUSY = frozenset({429, 502, 503, 504})  # HTTP: too many requests, a proxy without its server, unavailable
REQUEST_SECONDS, MERGE_SECONDS = 60, 3_600
FOLDER_FILE = "elasticsearch.json"  # which index on the server belongs to the folder
CHUNK = 500  # passages per bulk request, about 300 kB of Wikipedia's paragraphs
CHUNK_BYTES = 10 << 20  # of a bulk request; servers accept 100 MB by default
QUERIES = 64  # per multi-search request
# A server rejects queries of more clauses than memory allows, at least 1,024 are allowed: two fields of 500 words.
LONGEST_QUERY = 500
MOST_RESULTS = 10_000  # of one search: the server's default


@dataclass(frozen=True)
class Elasticsearch:
    """BM25 over the fields, the sum of each field's score times its boost. A passage without a query word is not found.

    The index is named after corpus and settings. It has one shard, so that scores do not depend on how passages are
    spread, and is never changed after it is complete. Words of a query after the 500th are left out.

    fields: the boost of `title` and of `text`; one that is absent is not searched.
    """

    fields: Boosts
    analyzer: str
    k1: NotNegative
    b: Share

    pools: ClassVar[bool] = False  # an index on the server for each question

    def identity(self) -> Mapping[str, Json]:
        """Return the settings. Not the server's address and version: they do not change what its BM25 finds."""
        return {"retriever": "elasticsearch", "longest_query": LONGEST_QUERY, **asdict(self)}

    def build(self, passages: Sequence[Passage], folder: Path, advance: Callable[[int], None]) -> None:
        """Load the passages into the server's index, unless it is complete.

        Raises:
            ConfigError: the server cannot be used, or rejects the settings.
            StorageError: the server's disk is full.
        """
        name = self._index_name(passages)
        with closing(Server()) as server:
            self.load(server, name, passages, advance)
        replace_file(folder / FOLDER_FILE, json.dumps({"index": name, "passages": len(passages)}) + "\n", AGAIN)

    def open(self, passages: Sequence[Passage], folder: Path) -> Finder:
        file = folder / FOLDER_FILE
        saved = parse_json(file.read_bytes(), str(file), AGAIN)
        if not isinstance(saved, dict) or not isinstance(saved.get("index"), str):
            raise DataError(f"{file}: names no index of the server; {AGAIN}")
        return _Finder(self, saved["index"], len(passages), folder)

    def load(self, server: Server, name: str, passages: Sequence[Passage], advance: Callable[[int], None]) -> None:
        """Create the index with all passages in one segment.

        An index that is complete stays. One that an interrupted load left is deleted first.
        """
        if not server.find_problem(name, len(passages)):
            advance(len(passages))
            return
        server.call(lambda client: client.options(ignore_status=404).indices.delete(index=name))
        try:
            server.call(lambda client: client.indices.create(index=name, **self._index_settings()))
        except EngineDied:
            raise
        except EngineError as error:
            raise ConfigError(f"retriever=elasticsearch: the server refuses these settings; {error}") from None
        for start in range(0, len(passages), CHUNK):
            chunk = passages[start : start + CHUNK]
            server.index_passages(name, chunk, start)
            advance(len(chunk))
        server.complete(name, len(passages))

    def query(self, query: Query) -> dict[str, Json]:
        """Return the body of a search: any word in any field; equal scores by place."""
        ends = [match.end() for match in islice(re.finditer(r"\w+", clean(query.text)), LONGEST_QUERY)]
        text = clean(query.text)[: ends[-1]] if ends else ""
        should = [{"match": {field: {"query": text, "boost": boost}}} for field, boost in self.fields.items()]
        matching: dict[str, Json] = {"should": should, "minimum_should_match": 1}
        if query.among is not None:
            matching["filter"] = [{"terms": {"place": list(query.among)}}]
        return {
            "query": {"bool": matching},
            "size": min(query.k, MOST_RESULTS),
            "sort": [{"_score": "desc"}, {"place": "asc"}],
            "_source": False,
            "track_total_hits": False,
        }

    def _index_name(self, passages: Sequence[Passage]) -> str:
        hashed = hashlib.sha256(json.dumps(self._index_settings(), sort_keys=True).encode())
        for passage in passages:
            hashed.update(f"{passage.title}\n{passage.text}\0".encode("utf-8", "surrogatepass"))
        return f"kgqa-{hashed.hexdigest()[:16]}"

    def _index_settings(self) -> dict[str, Json]:
        """Return settings and mapping of the index. Both fields are indexed always, so that boosts share an index."""
        text = {"type": "text", "analyzer": self.analyzer}
        return {
            "settings": {
                "number_of_shards": 1,
                "number_of_replicas": 0,
                "refresh_interval": "-1",  # nothing is searched or counted before `complete` refreshes
                "similarity": {"default": {"type": "BM25", "k1": self.k1, "b": self.b}},
            },
            "mappings": {
                "dynamic": "strict",
                "properties": {"title": text, "text": text, "place": {"type": "integer"}},
            },
        }


class _Finder:
    """Searches in batches. The first query opens the server and checks its index."""

    def __init__(self, settings: Elasticsearch, name: str, count: int, folder: Path) -> None:
        self._settings, self._name, self._count, self._folder = settings, name, count, folder

    @cached_property
    def _server(self) -> Server:
        server = Server()
        if problem := server.find_problem(self._name, self._count):
            raise DataError(
                f"KGQA_ES_URL={server.url}: index {self._name} {problem}; delete {self._folder.parent} and run kgqa "
                "data index again"
            )
        return server

    def find(self, queries: Sequence[Query]) -> Sequence[Sequence[int]]:
        """Return the places. Raises as `Server.call`, and DataError if the server's index is not the built one."""
        places: list[list[int]] = []
        for start in range(0, len(queries), QUERIES):
            bodies = [self._settings.query(query) for query in queries[start : start + QUERIES]]
            replies = self._server.call(partial(self._search, bodies=bodies))
            places += [[int(hit["_id"]) for hit in reply["hits"]["hits"]] for reply in replies]
        return places

    def close(self) -> None:
        if "_server" in self.__dict__:
            self._server.close()

    def _search(self, client: Any, bodies: Sequence[Mapping[str, Json]]) -> list[Any]:
        """Send one multi-search request. A failed search in it raises as a request of its own would."""
        from elastic_transport import ApiError

        header = {"allow_partial_search_results": False}
        reply = client.msearch(index=self._name, searches=[part for body in bodies for part in (header, body)])
        for one in reply["responses"]:
            if "error" in one:
                raise ApiError("a search failed", meta=replace(reply.meta, status=one["status"]), body=one)
        return list(reply["responses"])


class Server:
    """A connection to the server. A request is repeated while the server is away or busy, but not the first one."""

    def __init__(self) -> None:
        self.url = os.environ.get("KGQA_ES_URL", "").rstrip("/") or DEFAULT_URL
        self._client = _connect(self.url)
        self._reached = False

    def call(self, request: Callable[[Any], T]) -> T:
        """Return the result of `request(client)`.

        Raises:
            ConfigError: address, credentials, certificate or version are wrong.
            DataError: there is no such index.
            EngineDied: the server went away and did not come back.
            EngineError: the server rejected this request.
        """
        from elastic_transport import ApiError, TransportError

        waits = iter(WAITS if self._reached else ())
        while True:
            try:
                reply = request(self._client)
            except (ApiError, TransportError) as error:  # noqa: PERF203 - one request takes far longer
                wait = next(waits, None) if _is_temporary(error) else None
                if wait is None:
                    raise self._explain(error) from None  # its cause could show a header of the request
                time.sleep(wait)
            else:
                self._reached = True
                return reply

    def find_problem(self, index: str, count: int) -> str:
        """Return why an index cannot be used, "" if it can. Passages of an unfinished load are not counted."""
        reply = self.call(lambda client: client.options(ignore_status=404).count(index=index))
        if "count" not in reply:
            return "is missing"
        return "" if reply["count"] == count else f"has {reply['count']} passages instead of {count}"

    def index_passages(self, index: str, passages: Sequence[Passage], start: int) -> None:
        """Index the passages with their places as ids; `start` is the first place."""
        from elasticsearch.helpers import BulkIndexError, bulk

        documents = [
            {"_index": index, "_id": str(place), "place": place, "title": clean(one.title), "text": clean(one.text)}
            for place, one in enumerate(passages, start)
        ]
        options = {"chunk_size": CHUNK, "max_chunk_bytes": CHUNK_BYTES, "max_retries": 5, "initial_backoff": 1}
        try:
            self.call(lambda client: bulk(client, documents, **options))
        except BulkIndexError as error:
            (outcome,) = error.errors[0].values()
            refusal, where = outcome.get("error", {}), f"KGQA_ES_URL={self.url}"
            reason, title = refusal.get("reason"), passages[int(outcome["_id"]) - start].title
            if refusal.get("type") == "cluster_block_exception":  # the disk is full
                raise StorageError(
                    f"{where}: {reason}; free disk space there, then run the same command again"
                ) from None
            raise DataError(f"{where}: passage {outcome['_id']} ({title}) was rejected: {reason}") from None

    def complete(self, index: str, count: int) -> None:
        """Merge the passages into one segment, and make them searchable, which marks the index as complete."""
        self.call(
            lambda client: client.options(request_timeout=MERGE_SECONDS).indices.forcemerge(
                index=index, max_num_segments=1
            )
        )
        self.call(lambda client: client.indices.refresh(index=index))
        if problem := self.find_problem(index, count):
            raise DataError(f"KGQA_ES_URL={self.url}: index {index} {problem}; {AGAIN}")

    def close(self) -> None:
        self._client.close()

    def _explain(self, error: Exception) -> KgqaError:
        from elastic_transport import ApiError
        from elasticsearch import UnsupportedProductError

        where = f"KGQA_ES_URL={self.url}"
        if isinstance(error, UnsupportedProductError):
            return ConfigError(f"{where}: this server is not Elasticsearch; set the address of an 8.x or 9.x server")
        reason = f"HTTP {error.meta.status}" if isinstance(error, ApiError) else _innermost_reason(error)
        if self._reached and _is_temporary(error):
            return EngineDied(
                f"{where}: the server does not answer any more, {sum(WAITS)} s were waited ({reason}); start it and "
                "run the same command again"
            )
        if isinstance(error, ApiError):
            return _explain_status(where, error)
        if "certificate" in reason.lower():
            return ConfigError(f"{where}: {reason}; set KGQA_ES_CA to the file of the server's certificate authority")
        return ConfigError(f"{where}: cannot be reached ({reason}); start the server or set KGQA_ES_URL")


def _connect(url: str) -> Any:
    require_packages("elasticsearch", "elasticsearch")
    from elasticsearch import Elasticsearch as Client

    key, user, password, file = (os.environ.get(f"KGQA_ES_{name}", "") for name in VARIABLES)
    if "@" in url:
        raise ConfigError("KGQA_ES_URL: holds credentials; put them into KGQA_ES_USER and KGQA_ES_PASSWORD")
    if bool(user) != bool(password):
        raise ConfigError("KGQA_ES_USER and KGQA_ES_PASSWORD: only one of the two is set")
    if key and user:
        raise ConfigError("KGQA_ES_API_KEY and KGQA_ES_USER: both are set; unset one")
    options: dict[str, Any] = {"api_key": key or None, "basic_auth": (user, password) if user else None}
    if file:
        try:
            ssl.create_default_context(cafile=file)
        except OSError as error:  # ssl.SSLError is one
            raise ConfigError(f"KGQA_ES_CA={file}: no readable PEM certificate ({error})") from None
        options["ca_certs"] = file
    try:
        # the client's own retries follow each other without a pause
        return Client(url, **options, request_timeout=REQUEST_SECONDS, max_retries=0)
    except ValueError as error:
        raise ConfigError(f"KGQA_ES_URL={url}: {error}; set scheme, host and port, e.g. {DEFAULT_URL}") from None


def _is_temporary(error: Exception) -> bool:
    import elastic_transport as transport

    if isinstance(error, transport.ApiError):
        return error.meta.status in BUSY
    lost = isinstance(error, (transport.ConnectionError, transport.ConnectionTimeout))
    return lost and not isinstance(error, transport.TlsError)


def _innermost_reason(error: BaseException) -> str:
    """Return the innermost cause in one line: the outer messages only say that there was an error."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _explain_status(where: str, error: Any) -> KgqaError:
    """Return the error for an answer with an HTTP status of 400 and above."""
    import elasticsearch

    status, body = error.meta.status, error.body
    details = body.get("error") if isinstance(body, Mapping) else None
    details = details if isinstance(details, Mapping) else {"reason": " ".join(str(body)[:200].split())}
    kind, reason = str(details.get("type", "")), str(details.get("reason", ""))
    if kind == "media_type_header_exception" or status == 406:
        major = int(elasticsearch.__version__[0])
        return ConfigError(
            f"{where}: the server is older than the client library {major}.x; pip install 'elasticsearch<{major}'"
        )
    if status == 401:  # without the server's reason: it names the user
        return ConfigError(f"{where}: unauthorised; check KGQA_ES_API_KEY, or KGQA_ES_USER and KGQA_ES_PASSWORD")
    if status == 403 and kind in ("security_exception", ""):
        return ConfigError(
            f"{where}: forbidden; the user needs the index privilege read on kgqa-* to search, and to load the index "
            "privilege all and the cluster privilege monitor"
        )
    if kind == "index_not_found_exception":
        return DataError(f"{where}: {reason}; run kgqa data index again")
    return EngineError(f"{where}: HTTP {status} {kind}: {reason}")
