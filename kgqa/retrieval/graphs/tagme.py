"""Passages with a common Wikipedia entity, found by the TAGME service (KGP §3; Ferragina and Scaiella, 2010)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from kgqa.errors import ConfigError, DataError
from kgqa.retrieval.graphs.links import Links, linked
from kgqa.types import Json, Passage

AT_ONCE = 4  # requests; the service is slow and shared: hours for 12 articles (KGP supplement 8.5)
OFFLINE = "or choose graph=entities, which asks nobody"


@dataclass(frozen=True)
class Tagme:
    """Two passages are linked where TAGME finds one Wikipedia page in both, with a confidence of `threshold` or more.

    token_env: the environment variable with the service's key. Each passage is a request of its own.
    """

    url: str
    token_env: str
    threshold: float
    language: str
    timeout: float

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise ConfigError(f"graph.url={self.url}: expected http://… or https://…")
        if not 0 <= self.threshold <= 1:
            raise ConfigError(f"graph.threshold={self.threshold}: must be between 0 and 1")

    def identity(self) -> Mapping[str, Json]:
        return {"graph": "tagme", "version": 1, "url": self.url, "threshold": self.threshold, "language": self.language}

    def links(self, passages: Sequence[Passage]) -> Links:
        """Raises ConfigError without a key, DataError where the service does not answer."""
        if not os.environ.get(self.token_env):
            raise ConfigError(f"graph=tagme: no key in the environment variable {self.token_env}; set it, {OFFLINE}")
        with ThreadPoolExecutor(AT_ONCE) as workers:
            return linked(list(workers.map(self._entities, passages)))

    def _entities(self, passage: Passage) -> list[int]:
        if not passage.text.strip():
            return []
        form = {"gcube-token": os.environ[self.token_env], "text": passage.text, "lang": self.language}
        request = Request(self.url, urlencode(form).encode())  # noqa: S310 - the scheme is checked above
        try:
            with urlopen(request, timeout=self.timeout) as answer:  # noqa: S310
                found: Any = json.load(answer)
            kept = [note for note in found["annotations"] if note["rho"] >= self.threshold]
            return sorted({int(note["id"]) for note in kept})
        except HTTPError as error:
            raise DataError(f"TAGME at {self.url}: HTTP {error.code}; check {self.token_env}, {OFFLINE}") from None
        except (URLError, OSError) as error:
            raise DataError(f"TAGME at {self.url} cannot be reached ({error}); try again, {OFFLINE}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"TAGME at {self.url}: no annotations in its answer ({error!r}); {OFFLINE}") from None
