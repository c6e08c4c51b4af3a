"""Parse and format overrides: `key=value`, `+key=value`, `group@place=choice`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

Value = str | int | float | bool | None | Path | Sequence["Value"] | Mapping[str, "Value"]

# what `kgqa evaluate` can set for finished runs
SCORE_KEYS = (
    "scoring", "judge", "model", "engine", "server", "roles", "seed", "max_parallel_questions", "output_dir",
    "allow_trained_questions",
)  # fmt: skip
# what Hydra's grammar takes for one text as it stands
_PLAIN = re.compile(r"[\w./@%+-][\w./@:%+ -]*(?<! )", re.ASCII)
_ROLE = re.compile(r"([^:+]*?)(?:\+(.*?)|:(.*?))?(?:@([^@/:+]*))?", re.DOTALL)
_READ_OTHERWISE = re.compile(
    r"(?i)[+-]?(\d[\d_.e+-]*|\.\d[\d_e+-]*|inf|nan)|true|false|null"
)  # as number, switch


class Override(NamedTuple):
    """An override in its parts: `+retriever@retriever.dense=e5` has the group `retriever`, of which it is a part."""

    text: str
    prefix: str  # "+", "~" or ""
    key: str  # retriever@retriever.dense, retriever.k1
    value: str  # "" if there is none

    @property
    def has_value(self) -> bool:
        return "=" in self.text

    @property
    def choice_group(self) -> str:
        """Return the group of the names to choose from: `retriever` of retriever@retriever.dense."""
        return self.key.partition("@")[0]

    @property
    def part(self) -> str:
        """Return the place of a choice inside another one: `retriever.dense` of retriever@retriever.dense."""
        return self.key.partition("@")[2]

    @property
    def group(self) -> str:
        """Return the group that the override changes: `retriever` of retriever.k1 and retriever@retriever.dense."""
        return self.choice_group.partition(".")[0]


@lru_cache(maxsize=4096)
def parse_override(text: str) -> Override:
    """Return the parts of an override. Hydra checks its grammar later."""
    bare = text.lstrip("+~")
    key, _, value = bare.partition("=")
    return Override(text, text[: len(text) - len(bare)], key, value)


def override_key(override: str) -> str:
    """Return the key of an override, without + and ~."""
    return parse_override(override).key


def override_group(override: str) -> str:
    """Return the group that an override changes."""
    return parse_override(override).group


# prefixes of the keys of a launcher or sweeper
HYDRA = ("hydra/", "hydra.")


def split_overrides(
    overrides: Iterable[str], *prefixes: str | tuple[str, ...]
) -> list[tuple[str, ...]]:
    """Return the overrides that start with the first of the prefixes, with the second and so on, then the others."""
    parts: list[list[str]] = [[] for _ in (*prefixes, "")]
    for override in overrides:
        bare = override.lstrip("+~")
        place = next(
            (n for n, prefix in enumerate(prefixes) if bare.startswith(prefix)), len(prefixes)
        )
        parts[place].append(override)
    return [tuple(part) for part in parts]


def find_repeated(overrides: Iterable[str]) -> list[str]:
    """Return the last override of each key that is set more than once. It is the one that counts."""
    repeated = {}
    seen = set()
    for override in map(parse_override, overrides):
        if override.key in seen:
            repeated[override.key] = override.text
        seen.add(override.key)
    return list(repeated.values())


def override_values(overrides: Iterable[str]) -> dict[str, str]:
    """Return the values by key. The last one of the same key counts."""
    return {override.key: override.value for override in map(parse_override, overrides)}


class RoleChoice(NamedTuple):
    """`PRESET[:PATH][@ENGINE]` or `[PRESET]+ADAPTER[@ENGINE]`; "" for a missing part."""

    preset: str
    path: str
    adapter: str
    engine: str


def parse_role(choice: str) -> RoleChoice:
    """Parse the choice of a role. Paths of weights and adapters can contain an @ themselves, before a slash."""
    match = _ROLE.fullmatch(choice)
    assert match is not None  # it fits every text
    preset, adapter, path, engine = (part or "" for part in match.groups())
    return RoleChoice(preset, path, adapter, engine)


def merge_overrides(*groups: Iterable[str]) -> tuple[str, ...]:
    """Return all overrides in one list, each key at its last position."""
    by_key: dict[str, str] = {}
    for override in (override for group in groups for override in group):
        key = override_key(override)
        by_key.pop(key, None)
        by_key[key] = override
    return tuple(by_key.values())


def format_override(key: str, value: Value) -> str:
    """Return the override that sets a key to this value."""
    return f"{key}={format_value(value)}"


def format_sweep(key: str, value: Value) -> str:
    """Return the override that sweeps a key over these values. A single value is set."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"{key}={','.join(map(format_value, value))}"
    return format_override(key, value)


def describe_changes(old: Mapping[str, Value], new: Mapping[str, Value]) -> list[str]:
    """Return the flat keys whose values differ, with both values, such as `limit (3 → null)`."""
    return [
        f"{key} ({format_value(old.get(key))} → {format_value(new.get(key))})"
        for key in dict.fromkeys((*old, *new))
        if old.get(key) != new.get(key)
    ]


def format_value(value: Value) -> str:
    """Return a value in Hydra's grammar, quoted if Hydra would read it as something else."""
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, str | Path):
        text = str(value)
        return (
            text if _PLAIN.fullmatch(text) and not _READ_OTHERWISE.fullmatch(text) else _quote(text)
        )
    if isinstance(value, Mapping):
        return (
            "{" + ",".join(f"{name}:{format_value(member)}" for name, member in value.items()) + "}"
        )
    return "[" + ",".join(map(format_value, value)) + "]"


def _quote(text: str) -> str:
    """Quote a text. Only backslashes in front of a quote have to be doubled."""
    return "'" + re.sub(r"(\\*)('|\Z)", lambda at: at[1] * 2 + ("\\'" if at[2] else ""), text) + "'"
