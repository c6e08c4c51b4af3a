"""A retriever on a server: of `kgqa serve`, or one in the form of Search-R1's `/retrieve`. It has its own corpus."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import requests

from kgqa.calls import Fact, Facts, Locate, Search
from kgqa.errors import ConfigError, EngineDied, EngineError
from kgqa.protocols import Finder, Progress
from kgqa.retrieval.search import PoolIndex
from kgqa.types import Json, JsonObject, Passage
from kgqa.util.settings import NotIdentity, Setting
from kgqa.util.validators import Seconds, Url

# seconds before a request is repeated
WAITS = (0.5, 1.0, 2.0, 4.0)
CONTENTS = re.compile(r'"?(.*?)"?(?:\n(.*))?', re.DOTALL)  # "title"\ntext


@dataclass(frozen=True)
class Remote:
    """Passages of a server's corpus. The dataset gives questions only, and its corpus is not read."""

    url: Annotated[
        Url | None,
        Setting(
            "Address of the server's /retrieve, e.g. http://127.0.0.1:8745/retrieve. It must be set."
        ),
        NotIdentity("what it loads has the name of the index, or else the address"),
    ] = None
    deployment: Annotated[
        str | None,
        Setting(
            "Name of the index in a run's ID, so that it can move. null: what the server says, or its address."
        ),
        NotIdentity("what it loads has it, or else what the server says"),
    ] = None
    timeout: Annotated[
        Seconds,
        Setting("Seconds to wait for a response."),
        NotIdentity("takes time only", reported=False),
    ] = 60.0

    @property
    def pools(self) -> bool:
        return False

    def loads(self) -> JsonObject:
        return {"index": self.deployment or self._index_name or self.address}

    @property
    def address(self) -> str:
        if self.url is None:
            raise ConfigError(
                "retriever.url=null: name the server, e.g. retriever.url=http://127.0.0.1:8745/retrieve"
            )
        return self.url

    @cached_property
    def _index_name(self) -> str:
        """Return the name of the index that the server reports, or ""."""
        try:
            response = requests.get(self.address, timeout=self.timeout)
        except requests.RequestException as error:
            reason = type(error).__name__
            raise ConfigError(
                f"retriever.url={self.address}: no server answers ({reason}). Start it first"
            ) from None
        try:
            return str(response.json()["index"]) if response.ok else ""
        except (ValueError, KeyError, TypeError):
            return ""

    def open_server(self) -> PoolIndex:
        return RemoteIndex(self)

    def build(self, passages: Sequence[Passage], folder: Path, advance: Progress) -> None:  # noqa: ARG002
        raise ConfigError(REMEDY)

    def open(self, passages: Sequence[Passage], folder: Path) -> Finder:  # noqa: ARG002
        raise ConfigError(REMEDY)

    def retrieve(self, queries: Sequence[str], k: int) -> list[tuple[Passage, ...]]:
        """Return the passages of each query, best first.

        Raises:
            EngineDied: the server does not answer.
            EngineError: it rejects the queries, or its response has another form.
        """
        body = {"queries": list(queries), "topk": k, "return_scores": False}
        response = self._post(body)
        if not response.ok:
            raise EngineError(
                f"{self.address}: status {response.status_code}: {response.text[:200]}"
            )
        try:
            results = response.json()["result"]
            results_read = [tuple(map(read_document, documents[:k])) for documents in results]
        except (ValueError, KeyError, TypeError) as error:
            raise EngineError(
                f"{self.address}: no response in the form of /retrieve ({error})"
            ) from error
        if len(results_read) != len(queries):
            raise EngineError(
                f"{self.address}: {len(results_read)} results for {len(queries)} queries"
            )
        return results_read

    def _post(self, body: Mapping[str, Json]) -> requests.Response:
        for wait in (*WAITS, None):
            try:
                response = requests.post(self.address, json=body, timeout=self.timeout)
                if response.status_code not in (429, 502, 503, 504) or wait is None:
                    return response
            except requests.RequestException as error:
                if wait is None:
                    raise EngineDied(
                        f"{self.address} does not answer: {type(error).__name__}"
                    ) from error
            time.sleep(wait)
        raise AssertionError


REMEDY = "retriever=remote searches the corpus of its server only. Use a method that searches a corpus (scope=corpus)"


class RemoteIndex(PoolIndex):
    """Answers searches of a run with a remote retriever."""

    def __init__(self, retriever: Remote) -> None:
        super().__init__(retriever)
        self._remote = retriever

    def search(self, calls: Sequence[Search]) -> Sequence[tuple[Passage, ...]]:
        """Answer searches. Those with equal `k` are one request."""
        by_count: defaultdict[int, list[int]] = defaultdict(list)
        for position, call in enumerate(calls):
            if any(
                part is not None for part in (call.pool, call.titles, call.keywords, call.positions)
            ):
                raise ConfigError(REMEDY)
            by_count[call.k].append(position)
        results: list[tuple[Passage, ...]] = [()] * len(calls)
        for k, positions in by_count.items():
            rankings = self._remote.retrieve([calls[position].query for position in positions], k)
            for position, passages in zip(positions, rankings, strict=True):
                results[position] = passages
        return results

    def locate(self, calls: Sequence[Locate]) -> Sequence[tuple[int, ...]]:  # noqa: ARG002 - the interface
        raise ConfigError(REMEDY)

    def find_facts(self, calls: Sequence[Facts]) -> Sequence[tuple[Fact, ...]]:
        return [()] * len(calls)


def read_document(document: Any) -> Passage:
    """Return the passage of a document: its title and text, or `contents` with the title in the first line.

    Raises KeyError, TypeError: it has another form.
    """
    document = document.get("document", document)
    if "title" in document and "text" in document:
        return Passage.of(
            str(document["title"]), str(document["text"]), place=str(document.get("place", ""))
        )
    title, text = CONTENTS.fullmatch(str(document["contents"])).groups()  # type: ignore[union-attr]  # matches all
    return Passage.of(title, text or "")
