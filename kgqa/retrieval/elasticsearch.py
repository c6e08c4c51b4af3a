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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, ClassVar

from kgqa.errors import ConfigError, DataError, EngineDied, EngineError, StorageError
from kgqa.protocols import Finder, Progress, Query, Rankings
from kgqa.retrieval.biencoder import clean
from kgqa.retrieval.bm25 import Boosts
from kgqa.retrieval.search import Scored
from kgqa.types import Json, JsonObject, Passage
from kgqa.util.fs import AGAIN, replace_file
from kgqa.util.jsonio import decode_json
from kgqa.util.optional_deps import require_packages
from kgqa.util.settings import Setting
from kgqa.util.validators import NotNegative, Share

# talks to servers 8.x and 9.x, as pinned in pyproject.toml
CLIENT = "elasticsearch>=8.19,<9"
DEFAULT_URL = "http://127.0.0.1:9200"
VARIABLES = ("API_KEY", "USER", "PASSWORD", "CA")
RETRIES = 3
# HTTP: too many requests, a proxy without its server, unavailable
BUSY = (429, 502, 503, 504)
REQUEST_SECONDS, MERGE_SECONDS = 60, 3_600
# which index on the server belongs to the folder
FOLDER_FILE = "elasticsearch.json"
# passages per bulk request, about 300 kB of Wikipedia's paragraphs
CHUNK = 500
# of a bulk request; servers accept 100 MB by default
CHUNK_BYTES = 10 << 20
QUERIES = 64  # per multi-search request
# A server rejects queries of more clauses than memory allows, at least 1,024 are allowed: two fields of 500 words.
LONGEST_QUERY = 500
FIRST_WORDS = re.compile(rf"(?:\W*\w+){{0,{LONGEST_QUERY}}}")
# of one search: the server's default
MOST_RESULTS = 10_000


@dataclass(frozen=True)
class Elasticsearch:
    """BM25 over the fields, the sum of each field's score times its boost. A passage without a query word is not found.

    The index is named after corpus and settings. It has one shard, so that scores do not depend on how passages are
    spread, and is never changed after it is complete. Words of a query after the 500th are left out.

    fields: the boost of `title` and of `text`; one that is absent is not searched.
    """

    fields: Annotated[
        Boosts,
        Setting(
            "Weights of title and text. A field without a weight is not searched.",
            other="IRCoT's index",
        ),
    ] = field(default_factory=lambda: {"title": 1.0, "text": 1.0})
    analyzer: Annotated[str, Setting("Analyzer of the index.", other="IRCoT's index")] = "english"
    k1: Annotated[
        NotNegative,
        Setting("Saturation of repeated words.", other="Elasticsearch's default, as in IRCoT"),
    ] = 1.2
    b: Annotated[
        Share,
        Setting("Influence of a passage's length.", other="Elasticsearch's default, as in IRCoT"),
    ] = 0.75

    # an index on the server for each question
    pools: ClassVar[bool] = False

    def loads(self) -> JsonObject:
        """Return what the settings leave open. Address and version of the server do not change what its BM25 finds."""
        return {"longest_query": LONGEST_QUERY}

    def build(self, passages: Sequence[Passage], folder: Path, advance: Progress) -> None:
        """Load the passages into the server's index, in one segment, unless it is complete.

        An index that an interrupted load left is deleted first.

        Raises:
            ConfigError: the server cannot be used, or rejects the settings.
            StorageError: the server's disk is full.
        """
        name = self._index_name(passages)
        with closing(ElasticsearchConnection()) as server:
            if server.find_problem(name, len(passages)):
                server.load(name, self._index_settings(), passages, advance)
            else:
                advance(len(passages))
        replace_file(
            folder / FOLDER_FILE,
            json.dumps({"index": name, "passages": len(passages)}) + "\n",
            AGAIN,
        )

    def open(self, passages: Sequence[Passage], folder: Path) -> Finder:
        return _Finder(
            self, decode_json((folder / FOLDER_FILE).read_bytes())["index"], len(passages), folder
        )

    def query(self, query: Query) -> dict[str, Json]:
        """Return the body of a search: any word in any field; equal scores by position."""
        first = FIRST_WORDS.match(clean(query.text))
        text = first[0] if first else ""
        should = [
            {"match": {field: {"query": text, "boost": boost}}}
            for field, boost in self.fields.items()
        ]
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
                # no search or count before `load` refreshes
                "refresh_interval": "-1",
                "similarity": {"default": {"type": "BM25", "k1": self.k1, "b": self.b}},
            },
            "mappings": {
                "dynamic": "strict",
                "properties": {"title": text, "text": text, "place": {"type": "integer"}},
            },
        }


@dataclass(frozen=True)
class _Finder(Finder):
    """Search in batches. The first query opens the server and checks its index."""

    settings: Elasticsearch
    name: str
    count: int
    folder: Path

    @cached_property
    def _server(self) -> ElasticsearchConnection:
        server = ElasticsearchConnection()
        if problem := server.find_problem(self.name, self.count):
            raise DataError(
                f"KGQA_ES_URL={server.url}: index {self.name} {problem}. Delete {self.folder.parent} and run kgqa "
                "data index again"
            )
        return server

    def find(self, queries: Sequence[Query]) -> Rankings:
        return [[position for position, _ in scored] for scored in self.find_scored(queries)]

    def find_scored(self, queries: Sequence[Query]) -> Sequence[Scored]:
        """Return positions with scores. Raise as `Server`, and DataError if the server's index is not the built one."""
        scored: list[Scored] = []
        for start in range(0, len(queries), QUERIES):
            bodies = [self.settings.query(query) for query in queries[start : start + QUERIES]]
            replies = self._server.search(self.name, bodies)
            scored += [
                [(int(hit["_id"]), float(hit["sort"][0])) for hit in reply["hits"]["hits"]]
                for reply in replies
            ]
        return scored

    def close(self) -> None:
        if "_server" in self.__dict__:
            self._server.close()


class ElasticsearchConnection:
    """A connection to the server.

    Raises:
        ConfigError: address, credentials, certificate or version are wrong.
        DataError: there is no such index, or the server rejected a passage.
        EngineDied: the server does not answer, also not after `RETRIES` more attempts.
        EngineError: the server rejected a request.
        StorageError: the server's disk is full.
    """

    def __init__(self) -> None:
        require_packages("elasticsearch", "elasticsearch")
        from elastic_transport.client_utils import DEFAULT
        from elasticsearch import Elasticsearch as Client

        self.url = os.environ.get("KGQA_ES_URL", "").rstrip("/") or DEFAULT_URL
        key, user, password, certificates = (
            os.environ.get(f"KGQA_ES_{name}", "") for name in VARIABLES
        )
        if "@" in self.url:
            raise ConfigError(
                "KGQA_ES_URL: holds credentials. Put them into KGQA_ES_USER and KGQA_ES_PASSWORD"
            )
        try:
            # otherwise found out by the first request, as a server that cannot be reached
            if certificates:
                ssl.create_default_context(cafile=certificates)
            self.client: Any = Client(
                self.url,
                api_key=key or None,
                basic_auth=(user, password) if user or password else None,
                ca_certs=certificates or DEFAULT,
                request_timeout=REQUEST_SECONDS,
                max_retries=RETRIES,
                retry_on_timeout=True,
                retry_on_status=BUSY,
            )
        except (ValueError, OSError) as error:  # ssl.SSLError is an OSError
            raise ConfigError(
                f"KGQA_ES_URL={self.url}: {error}. Set scheme, host and port, e.g. {DEFAULT_URL}, and one kind of "
                "credentials"
            ) from None

    def find_problem(self, index: str, count: int) -> str:
        """Return why an index cannot be used, "" if it can. Passages of an unfinished load are not counted."""
        with self._explain_errors():
            reply = self.client.options(ignore_status=404).count(index=index)
        if "count" not in reply:
            return "is missing"
        return (
            "" if reply["count"] == count else f"has {reply['count']} passages instead of {count}"
        )

    def load(
        self,
        index: str,
        settings: Mapping[str, Any],
        passages: Sequence[Passage],
        advance: Progress,
    ) -> None:
        """Make the index with these passages, their positions as ids. Refreshing it at the end marks it as complete."""
        from elasticsearch import BadRequestError
        from elasticsearch.helpers import streaming_bulk

        documents = (
            {
                "_index": index,
                "_id": str(place),
                "place": place,
                "title": clean(each.title),
                "text": clean(each.text),
            }
            for place, each in enumerate(passages)
        )
        with self._explain_errors():
            self.client.options(ignore_status=404).indices.delete(index=index)
            try:
                self.client.indices.create(index=index, **settings)
            except BadRequestError as error:
                raise ConfigError(
                    f"retriever=elasticsearch: the server rejects these settings. {error}"
                ) from None
            limits = {"chunk_size": CHUNK, "max_chunk_bytes": CHUNK_BYTES, "max_retries": 5}
            for _ in streaming_bulk(self.client, documents, **limits):
                advance(1)
            self.client.options(request_timeout=MERGE_SECONDS).indices.forcemerge(
                index=index, max_num_segments=1
            )
            self.client.indices.refresh(index=index)
        if problem := self.find_problem(index, len(passages)):
            raise DataError(f"KGQA_ES_URL={self.url}: index {index} {problem}. {AGAIN}")

    def search(self, index: str, bodies: Sequence[JsonObject]) -> list[Any]:
        """Send one multi-search request. A failed search in it raises like a failed request."""
        from elastic_transport import ApiError

        header = {"allow_partial_search_results": False}
        with self._explain_errors():
            reply = self.client.msearch(
                index=index, searches=[part for body in bodies for part in (header, body)]
            )
            for one in reply["responses"]:
                if "error" in one:
                    raise ApiError(
                        "a search failed", meta=replace(reply.meta, status=one["status"]), body=one
                    )
        return list(reply["responses"])

    def close(self) -> None:
        self.client.close()

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        from elastic_transport import ApiError, TransportError
        from elasticsearch import UnsupportedProductError
        from elasticsearch.helpers import BulkIndexError

        where = f"KGQA_ES_URL={self.url}"
        try:
            yield
        except UnsupportedProductError:
            raise ConfigError(
                f"{where}: this server is not Elasticsearch. Name an 8.x or 9.x server"
            ) from None
        except BulkIndexError as error:
            (outcome,) = error.errors[0].values()
            refusal = outcome.get("error", {})
            if refusal.get("type") == "cluster_block_exception":
                raise StorageError(
                    f"{where}: {refusal['reason']}. Free disk space there, then run the same command again"
                ) from None
            raise DataError(
                f"{where}: passage {outcome['_id']} was rejected: {refusal.get('reason')}"
            ) from None
        except ApiError as error:
            # its cause could show a header of the request
            status, body = error.meta.status, error.body
            if status in BUSY:
                raise EngineDied(
                    f"{where}: the server is overloaded (HTTP {status}). Run the same command again later"
                ) from None
            # without the server's reason: it names the user
            if status in (401, 403):
                raise ConfigError(
                    f"{where}: access denied (HTTP {status}). Check KGQA_ES_API_KEY, or KGQA_ES_USER and "
                    "KGQA_ES_PASSWORD, and the privileges in docs/ELASTICSEARCH.md"
                ) from None
            raise _explain_rejection(where, status, body) from None
        except TransportError as error:
            reason = error.errors[-1] if error.errors else error
            raise EngineDied(
                f"{where}: cannot be reached ({reason}). Start the server, or set KGQA_ES_URL, or KGQA_ES_CA to the "
                "file of its certificate authority, and run the same command again"
            ) from None


def _explain_rejection(where: str, status: int, body: object) -> Exception:
    """Return the exception for a request that the server rejects."""
    details = body.get("error") if isinstance(body, Mapping) else None
    if not isinstance(details, Mapping):
        details = {"reason": " ".join(str(body)[:200].split())}
    kind = details.get("type", "")
    if kind == "media_type_header_exception":
        newer = (
            f"the server is older than the Python client elasticsearch {version('elasticsearch')}"
        )
        return ConfigError(f"{where}: {newer}. Run: pip install '{CLIENT}'")
    return EngineError(f"{where}: HTTP {status} {kind}: {details.get('reason', '')}")
