"""Replies that are a JSON object with one list: their schema, and how to read them."""

from __future__ import annotations

import json

from kgqa.types import Json


def list_schema(key: str, items: Json) -> str:
    """Return the schema of an object with a list of `items` under this key."""
    properties = {key: {"type": "array", "items": items}}
    return json.dumps({"type": "object", "properties": properties, "required": [key], "additionalProperties": False})


def read_list(text: str, key: str) -> list[Json] | None:
    """Return the list of a JSON reply, also if text surrounds it; None if there is none."""
    start, end = text.find("{"), text.rfind("}")
    try:
        value = json.loads(text[start : end + 1])
    except ValueError:
        return None
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else None
