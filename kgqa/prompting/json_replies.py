"""Schemas of replies that are JSON objects, and how to read such a reply."""

from __future__ import annotations

import json
import re

from kgqa.types import Json

TEXT = {"type": "string"}
TRIPLE = {"type": "array", "items": TEXT, "minItems": 3, "maxItems": 3}


def object_node(**properties: Json) -> dict[str, Json]:
    """Return the schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


def object_schema(**properties: Json) -> str:
    """Return the schema of `object_node` as text."""
    return json.dumps(object_node(**properties))


def list_schema(key: str, items: Json) -> str:
    """Return the schema of an object with a list of `items` under this key."""
    return object_schema(**{key: {"type": "array", "items": items}})


def read_object(text: str) -> dict[str, Json] | None:
    """Return the JSON object of a reply, also if text surrounds it, or None."""
    try:
        value = json.loads(text[text.find("{") : text.rfind("}") + 1])
    except (ValueError, RecursionError):
        # an integer of thousands of digits is a ValueError too
        return None
    return value if isinstance(value, dict) else None


def read_list(text: str, key: str) -> list[Json] | None:
    """Return the list under a key of a reply's JSON object, or None.

    If the reply is cut, or is no JSON behind some items, return the complete items before, at least one.
    """
    items = (read_object(text) or {}).get(key)
    return items if isinstance(items, list) else _read_first_items(text, key)


def _read_first_items(text: str, key: str) -> list[Json] | None:
    start = re.search(rf'"{re.escape(key)}"\s*:\s*\[', text)
    items, at = list[Json](), start.end() if start else len(text)
    while True:
        at = len(text) - len(text[at:].lstrip(" \t\r\n,"))
        try:
            item, at = json.JSONDecoder().raw_decode(text, at)
        except (ValueError, RecursionError):
            return items or None
        items.append(item)
