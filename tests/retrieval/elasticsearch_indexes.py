"""Indexes of six passages at a server that speaks Elasticsearch's interface."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kgqa.protocols import Finder
from kgqa.retrieval import elasticsearch
from kgqa.retrieval.elasticsearch import Elasticsearch
from kgqa.types import Passage

pytest.importorskip("elasticsearch", reason="the client library elasticsearch is not installed")

PASSAGES = (
    Passage.of("Lighthouse film", "A film about a lighthouse keeper, directed by Maria Lund."),
    Passage.of("Maria Lund", "Maria Lund is a director. She was born in Pellery."),
    Passage.of("Carrot soup", "Soup of carrots and ginger."),
    Passage.of("Pellery", "Pellery is a town on the river Corrow."),
    Passage.of("Corrow", "The river Corrow flows through Halverby and Pellery."),
    Passage.of("Ginger", "Soup of carrots and ginger."),
)


def settings(**changes: Any) -> Elasticsearch:
    given = {"fields": {"title": 1.0, "text": 1.0}, "analyzer": "english", "k1": 1.2, "b": 0.75}
    return Elasticsearch(**{**given, **changes})


class Counter:
    def __init__(self) -> None:
        self.steps: list[int] = []

    def __call__(self, count: int) -> None:
        self.steps.append(count)


def built(folder: Path, passages: tuple[Passage, ...] = PASSAGES, **changes: Any) -> Finder:
    folder.mkdir(parents=True, exist_ok=True)
    settings(**changes).build(passages, folder, Counter())
    return settings(**changes).open(passages, folder)


def index_name(folder: Path) -> str:
    name = json.loads((folder / elasticsearch.FOLDER_FILE).read_text())["index"]
    assert isinstance(name, str)
    return name
