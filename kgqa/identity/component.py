"""Derive the identity of a component from its declared fields. Run IDs, cache keys and indexes use it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

from kgqa.identity.program_code import user_code
from kgqa.protocols import Adaptable
from kgqa.types import Json
from kgqa.util.digests import text_digest
from kgqa.util.settings import CLASS, declared_fields


def identity_of(part: Any) -> dict[str, Json]:
    """Return everything about a component that can change its results.

    These are its class with `version`, which is raised when equal settings give other results, all fields except those
    marked with `NotIdentity`, and what `loads()` returns: the hash of weights or files, templates, the served model.
    A class of the user also has the hash of its code.

    Raises:
        MissingWeights: the weights are not on this machine.
        ConfigError, DataError: what the component loads cannot be read.
    """
    if (recorded := getattr(part, "recorded_identity", None)) is not None:
        return dict(recorded)
    # an engine with an adapter has the settings of its engine, and loads more
    component = part.base if isinstance(part, Adaptable) else part
    kind = type(component)
    identity: dict[str, Json] = {CLASS: kind.__name__}
    if (version := getattr(kind, "version", None)) is not None:
        identity["version"] = version
    for name, field in declared_fields(kind).items():
        if field.is_in_identity(value := getattr(component, name)):
            identity[name] = _plain(value)
    if (loads := getattr(part, "loads", None)) is not None:
        identity |= loads()
    if (code := user_code(kind.__module__)) is not None:
        identity["code"] = code
    return identity


def corpus_identity_of(dataset: Any) -> dict[str, Json]:
    """Return the identity of a dataset's corpus. A class of the user also has the hash of its code."""
    code = user_code(type(dataset).__module__)
    return {**dataset.corpus_identity(), **({"code": code} if code is not None else {})}


def _plain(value: Any) -> Json:
    """Return a value of a field as JSON. Examples that were read from a file become a hash."""
    if is_dataclass(value):
        return identity_of(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(_plain, value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        members = [_plain(member) for member in value]
        are_read = any(isinstance(member, dict) for member in members)
        return text_digest(json.dumps(members, sort_keys=True), 16) if are_read else members
    return value if value is None or isinstance(value, str | int | float) else str(value)
