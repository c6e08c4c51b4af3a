"""Schemas of replies that are JSON objects, and how to read a reply with one list."""

from __future__ import annotations

import json

from kgqa.types import Json

TEXT = {"type": "string"}
TRIPLE = {"type": "array", "items": TEXT, "minItems": 3, "maxItems": 3}


def object_schema(**properties: Json) -> str:
    """Return the schema of an object with exactly these properties."""
    return json.dumps(
        {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    )


def list_schema(key: str, items: Json) -> str:
    """Return the schema of an object with a list of `items` under this key."""
    return object_schema(**{key: {"type": "array", "items": items}})


def read_list(text: str, key: str) -> list[Json] | None:
    """Return the list of a JSON reply, also if text surrounds it, or None."""
    start, end = text.find("{"), text.rfind("}")
    try:
        value = json.loads(text[start : end + 1])
    except ValueError:
        return None
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else None
