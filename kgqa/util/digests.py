"""Hash texts and values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from kgqa.types import Json


def digest(value: Json, digits: int = 64, *, ensure_ascii: bool = True) -> str:
    """Return hex digits of a value's JSON; the order of keys does not matter."""
    return text_digest(json.dumps(value, sort_keys=True, ensure_ascii=ensure_ascii), digits)


def text_digest(text: str, digits: int = 64) -> str:
    """Return hex digits of a text's SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[
        :digits
    ]  # replies may hold halves


def ids_digest(ids: Iterable[str]) -> str:
    """Return 16 hex digits of the ids in their order, the name of a collection of passages."""
    return text_digest("\n".join(ids), 16)
