"""Adapters at a server: vLLM serves each under a name, llama.cpp is told in every request which ones answer. No I/O."""

from __future__ import annotations

from pathlib import PurePath

from kgqa.artifacts.adapter import Adapter
from kgqa.engines.openai.payloads import Server
from kgqa.errors import ConfigError
from kgqa.types import Json

SERVERS: tuple[Server, ...] = ("vllm", "llamacpp")


def check_server(server: Server) -> None:
    """Raise ConfigError: it takes no adapters."""
    if server not in SERVERS:
        raise ConfigError(f"engine.server={server} takes no adapters; serve the model with one of {', '.join(SERVERS)}")


def find_served_name(adapter: Adapter) -> str:
    return adapter.served_name or adapter.name


def scales(listed: Json, adapter: Adapter | None) -> list[Json]:
    """Return the list for a request to llama.cpp: all its adapters, 1 for the one that answers.

    `listed`: what its /lora-adapters says. An adapter is known by the path of its GGUF file there.

    Raises:
        ConfigError: none there is this one.
    """
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    paths = {str(entry.get("path")): entry.get("id") for entry in entries}
    wanted = [number for path, number in paths.items() if adapter is not None and _is(path, adapter)]
    if adapter is not None and len(wanted) != 1:
        raise ConfigError(
            f"the server has no adapter {find_served_name(adapter)}, only {', '.join(paths) or 'none'}; start it with "
            "--lora FILE, or say which it is by served_name in conf/adapter"
        )
    return [{"id": number, "scale": float(number in wanted)} for number in paths.values()]


def _is(path: str, adapter: Adapter) -> bool:
    """Return whether the server's file is the adapter's: the very file, or one that is called so."""
    here = adapter.path is not None and path == str(adapter.gguf)
    return here or find_served_name(adapter) in (path, PurePath(path).name, PurePath(path).stem)
