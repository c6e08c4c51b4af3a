"""Passages with a common Wikipedia entity, found by the TAGME service (KGP §3; Ferragina and Scaiella, 2010)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from kgqa.errors import ConfigError, DataError
from kgqa.retrieval.graphs.links import Links, document_of, link_passages
from kgqa.types import Json, Passage
from kgqa.util import http
from kgqa.util.validators import Share, Url

if TYPE_CHECKING:
    import httpx2

AT_ONCE = 4  # requests; the service is slow and shared: hours for 12 articles (KGP supplement 8.5)
OFFLINE = "or choose graph=entities, which asks nobody"


@dataclass(frozen=True)
class Tagme:
    """Two passages are linked where TAGME finds one Wikipedia page in both, each time with `threshold` or more.

    confidence: what of TAGME's is compared with the threshold: rho, of a mention's page in its context, or
    link_probability, of the mention being a link at all.
    titles: whether a passage also mentions its document, so that all passages of a document are linked.
    token_env: the environment variable with the service's key. Each passage is a request of its own.
    """

    url: Url
    token_env: str
    confidence: Literal["rho", "link_probability"]
    threshold: Share
    titles: bool
    language: str
    timeout: float

    def identity(self) -> Mapping[str, Json]:
        settings = {name: getattr(self, name) for name in ("url", "confidence", "threshold", "titles", "language")}
        return {"graph": "tagme", "version": 2, **settings}

    def links(self, passages: Sequence[Passage]) -> Links:
        """Raise ConfigError without a key, DataError where the service does not answer."""
        if not os.environ.get(self.token_env):
            raise ConfigError(f"graph=tagme: no key in the environment variable {self.token_env}; set it, {OFFLINE}")
        with http.create_client(self.timeout, redirected=False) as client, ThreadPoolExecutor(AT_ONCE) as workers:
            found = list(workers.map(partial(self._entities, client), passages))
        return link_passages(
            [[*pages, document_of(p)] if self.titles else pages for p, pages in zip(passages, found, strict=True)]
        )

    def _entities(self, client: httpx2.Client, passage: Passage) -> list[int]:
        if not passage.text.strip():
            return []
        form = {"gcube-token": os.environ[self.token_env], "text": passage.text, "lang": self.language}
        try:
            with http.translate_errors():
                answer = client.post(self.url, data=form)
        except http.NoResponse as error:
            raise DataError(f"TAGME at {self.url} cannot be reached ({error}); try again, {OFFLINE}") from None
        if answer.is_redirect:  # the key is for this address
            raise DataError(f"TAGME at {self.url}: sends on to another address; mend graph.url, {OFFLINE}")
        if answer.is_error:
            raise DataError(f"TAGME at {self.url}: HTTP {answer.status_code}; check {self.token_env}, {OFFLINE}")
        try:
            kept = [note for note in answer.json()["annotations"] if note[self.confidence] >= self.threshold]
            return sorted({int(note["id"]) for note in kept})
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"TAGME at {self.url}: no annotations in its answer ({error!r}); {OFFLINE}") from None
