"""Compare the names of models at servers."""

from __future__ import annotations

import re

# what vendors add to a name: gpt-4o-2024-08-06, claude-3-5-sonnet-20241022, gpt-3.5-turbo-0125, gemini-2.0-flash-001
VERSION = re.compile(r"[-@:](\d{4}-\d{2}-\d{2}|\d{8}|\d{3,4}|\d{2}-\d{2}|latest|(\d{4}-)?preview(-[\d-]+)?)$")


def is_same_model(one: str, other: str) -> bool:
    """Return whether two names are of one model: Qwen/Qwen3-8B, qwen3_8b, qwen3:8b and qwen3:8b:latest."""
    return bool(_plain_name(one)) and _plain_name(one) == _plain_name(other)


def is_snapshot(name: str, requested: str) -> bool:
    """Return whether a name is that of the requested model with a date or version, or both are versions of one."""
    base, version = _split_version(requested)
    other, other_version = _split_version(name)
    return is_same_model(base, other) and (not version or version == "latest" or not other_version)


def _plain_name(name: str) -> str:
    last = name.rstrip("/").rpartition("/")[2].casefold().removesuffix(":latest").removesuffix(".gguf")
    return re.sub(r"[^a-z0-9]", "", last)


def _split_version(name: str) -> tuple[str, str]:
    version = VERSION.search(name)
    return (name[: version.start()], version[1]) if version else (name, "")
