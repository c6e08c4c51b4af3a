"""Overrides as text: `key=value`, `+key=value`, `group@place=choice`."""

from __future__ import annotations

from collections.abc import Iterable


def override_key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def override_group(override: str) -> str:
    """`retriever` of retriever=bm25, retriever.k1=1 and retriever@retriever.dense=e5."""
    return override_key(override).partition("@")[0].partition(".")[0]


def override_values(overrides: Iterable[str]) -> dict[str, str]:
    """By key; of those with the same key the last one counts."""
    return {override_key(each): each.partition("=")[2] for each in overrides}


def merged(*groups: Iterable[str]) -> tuple[str, ...]:
    """Overrides as one list, in which each key stands where it was given last."""
    by_key: dict[str, str] = {}
    for override in (override for group in groups for override in group):
        key = override_key(override)
        by_key.pop(key, None)
        by_key[key] = override
    return tuple(by_key.values())
