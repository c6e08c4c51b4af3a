"""Readers of the recorded data, and the hashes and numbers that they use."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kgqa.types import Passage

DATA = Path(os.environ.get("KGQA_DATA", "data"))
FOLDER = DATA / "conformance"
needs_data = pytest.mark.skipif(not FOLDER.is_dir(), reason="no conformance data in KGQA_DATA")


@cache
def load(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the head and the rows of a file, and none without the data."""
    file = FOLDER / f"{name}.jsonl.gz"
    if not file.is_file():
        return {}, []
    head, *rows = map(json.loads, gzip.decompress(file.read_bytes()).decode().splitlines())
    assert head["rows"] == len(rows)
    return head, rows


@cache
def load_shared(name: str) -> Any:
    """Return a JSON or JSON lines file of `KGQA_DATA`."""
    raw = (DATA / name).read_bytes()
    text = (gzip.decompress(raw) if name.endswith(".gz") else raw).decode()
    return (
        [json.loads(line) for line in text.splitlines()] if ".jsonl" in name else json.loads(text)
    )


# of templates: keeps the blank lines at the ends of blocks
EXACT = "{% block exact %}{% endblock %}"


def read_agent_rows(name: str) -> list[Any]:
    """Return the rows of an agent's program, and none without the data."""
    file = FOLDER / "agents" / f"{name}.jsonl.gz"
    if not file.is_file():
        return []
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).decode().splitlines()]


@cache
def read_passages() -> list[tuple[Passage, ...]]:
    """Return the ten passages of each search."""
    return [
        tuple(Passage.of(one["title"], one["text"]) for one in passages)
        for passages in read_agent_rows("passages")
    ]


def exact_block(name: str, text: str) -> str:
    """Return a template with one block, which keeps the blank lines at its ends."""
    start = "\n" if text.startswith("\n") else ""  # Jinja drops the first one
    return f"{{% block {name} %}}{start}{text}{{% endblock %}}{EXACT}"


def sha(text: str, digits: int = 16) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def u(*parts: str) -> float:
    """Return a number in [0, 1) that depends only on these texts."""
    return int.from_bytes(hashlib.sha256("\0".join(parts).encode()).digest()[:6], "big") / 2**48
