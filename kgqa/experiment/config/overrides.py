"""Overrides as text: `key=value`, `+key=value`, `group@place=choice`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

Value = str | int | float | bool | None | Path | Sequence["Value"] | Mapping[str, "Value"]

# what Hydra's grammar takes for one text as it stands
_PLAIN = re.compile(r"[\w./@%+-][\w./@:%+ -]*(?<! )", re.ASCII)


def override_key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def override_group(override: str) -> str:
    """`retriever` of retriever=bm25, retriever.k1=1 and retriever@retriever.dense=e5."""
    return override_key(override).partition("@")[0].partition(".")[0]


def override_values(overrides: Iterable[str]) -> dict[str, str]:
    """By key; of those with the same key the last one counts."""
    return {override_key(override): override.partition("=")[2] for override in overrides}


class RoleChoice(NamedTuple):
    """`PRESET[:PATH][@ENGINE]` or `[PRESET]+ADAPTER[@ENGINE]`; "" for what is left out."""

    preset: str
    path: str
    adapter: str
    engine: str


def role_choice(choice: str) -> RoleChoice:
    """What a role's choice is made of; an adapter may be a path, as weights may."""
    preset, named, rest = choice.partition(":")
    if "+" in preset:
        preset, _, rest = choice.partition("+")
        adapter, engine = _before_engine(rest)
        return RoleChoice(preset, "", adapter, engine)
    if not named:
        preset, _, engine = choice.partition("@")
        return RoleChoice(preset, "", "", engine)
    path, engine = _before_engine(rest)
    return RoleChoice(preset, path, "", engine)


def _before_engine(text: str) -> tuple[str, str]:
    """A path or name, which may hold an @ itself, and the engine behind it."""
    before, at, engine = text.rpartition("@")
    return (before, engine) if at and "/" not in engine else (text, "")


def merged(*groups: Iterable[str]) -> tuple[str, ...]:
    """Overrides as one list, in which each key stands where it was given last."""
    by_key: dict[str, str] = {}
    for override in (override for group in groups for override in group):
        key = override_key(override)
        by_key.pop(key, None)
        by_key[key] = override
    return tuple(by_key.values())


def spelt(key: str, value: Value) -> str:
    """The override that gives a key this value."""
    return f"{key}={value_text(value)}"


def swept(key: str, value: Value) -> str:
    """The override that gives a key each of these values in turn; a value alone is given as it is."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"{key}={','.join(map(value_text, value))}"
    return spelt(key, value)


def value_text(value: Value) -> str:
    """A value in Hydra's grammar: quoted where it would be taken for something else."""
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, str | Path):
        text = str(value)
        return text if _PLAIN.fullmatch(text) and not _other_than_text(text) else _quoted(text)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{value_text(member)}" for name, member in value.items()) + "}"
    return "[" + ",".join(map(value_text, value)) + "]"


def _other_than_text(text: str) -> bool:
    """Numbers, true, null and the like: as a text they need quotes."""
    return re.fullmatch(r"(?i)[+-]?(\d[\d_.e+-]*|\.\d[\d_e+-]*|inf|nan)|true|false|null", text) is not None


def _quoted(text: str) -> str:
    """Backslashes count where a quote follows, and are themselves elsewhere."""
    return "'" + re.sub(r"(\\*)('|\Z)", lambda at: at[1] * 2 + ("\\'" if at[2] else ""), text) + "'"
