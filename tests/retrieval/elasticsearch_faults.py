"""An index of two passages at a server whose answers a test decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kgqa.retrieval import elasticsearch
from kgqa.retrieval.elasticsearch import Elasticsearch
from kgqa.types import Passage

pytest.importorskip("elasticsearch", reason="the client library elasticsearch is not installed")

SECRET = "correct-horse-battery"
PASSAGES = (Passage.of("Carrot soup", "Soup of carrots."), Passage.of("Pellery", "A town."))
GREEN = {"status": "green", "unassigned_shards": 0}


def settings(**changes: Any) -> Elasticsearch:
    given = {"fields": {"title": 1.0, "text": 1.0}, "analyzer": "english", "k1": 1.2, "b": 0.75}
    return Elasticsearch(**{**given, **changes})


def refusal(kind: str, reason: str = "", **more: Any) -> dict[str, Any]:
    return {"error": {"type": kind, "reason": reason, **more}}


def build(folder: Path) -> None:
    settings().build(PASSAGES, folder, lambda _: None)


def opened(folder: Path) -> Any:
    (folder / elasticsearch.FOLDER_FILE).write_text(json.dumps({"index": "kgqa-1", "passages": 2}))
    return settings().open(PASSAGES, folder)


def complete(name: str = "kgqa-1") -> dict[str, Any]:
    """The replies of a server with a whole index."""
    mark = {"kgqa": {"complete": name, "passages": 2}}
    return {
        f"GET /{name}/_mapping": (200, {name: {"mappings": {"_meta": mark}}}),
        "GET /_cluster/health": (200, GREEN),
        f"POST /{name}/_count": (200, {"count": 2}),
        f"GET /{name}/_count": (200, {"count": 2}),
    }
