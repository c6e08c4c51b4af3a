"""engine=openai at a server that misbehaves: without its libraries, a file that imports this is skipped."""

from __future__ import annotations

from typing import Any

import pytest

from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.engines.openai import OpenAI
from kgqa.engines.weights import Model, Prices
from tests.engines.asking import ask, write
from tests.engines.misbehaving import Misbehaving

for library in ("aiohttp", "llguidance"):
    pytest.importorskip(library, reason=f"engine openai needs {library}")

QUICK = {"timeout": 5.0, "retries": 4, "backoff": 0.01, "server_timeout": 1.0, "concurrency": 8}
DEFAULTS = compose(["engine=openai"])["engine"]
MODEL = Model(
    "gpt-4o-mini-2024-07-18", None, None, (), None, 4096, "off", Prices(1.0, 0.5, 2.0), None
)


def engine(at: Misbehaving | None = None, **fields: Any) -> OpenAI:
    settings = DEFAULTS | QUICK | ({"base_url": at.url} if at else {}) | fields
    model = settings.pop("model", MODEL)
    client: OpenAI = build(settings, "engine", model=model)
    return client


def asked(at: Misbehaving | None, calls: list[Any], **fields: Any) -> list[Any]:
    opened = engine(at, **fields)
    try:
        return ask(opened, calls)
    finally:
        opened.close()


CALLS = [write(f"question {number}") for number in range(8)]
REPLIES = [f"re: question {number}" for number in range(8)]
