"""Engines by role: one default model, any role with one of its own; equal choices share one engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kgqa.errors import ConfigError
from kgqa.experiment.building import build
from kgqa.experiment.configuration import compose
from kgqa.protocols import Engine


class Engines:
    """Built when first asked for; the weights are loaded by the engine itself when it must answer."""

    def __init__(self, config: Mapping[str, Any], roles: Mapping[str, str | None]) -> None:
        self._nodes = {"": (config["model"], config["engine"])}
        self._nodes |= {role: _chosen(role, choice) for role, choice in roles.items() if choice}
        self._built: dict[str, Engine] = {}

    def __call__(self, role: str) -> Engine:
        """The engine that answers this role."""
        model, engine = self._nodes.get(role, self._nodes[""])
        key = json.dumps([model, engine], sort_keys=True)
        if key not in self._built:
            self._built[key] = build(engine, "engine", model=build(model, "model"))
        return self._built[key]

    def streaming(self) -> bool:
        return any(self(role).streaming for role in self._nodes)

    def identities(self) -> dict[str, Any]:
        return {role or "default": dict(self(role).identity()) for role in self._nodes}

    def close(self) -> None:
        for engine in self._built.values():
            engine.close()


def _chosen(role: str, choice: str) -> tuple[Any, Any]:
    preset, _, engine = choice.partition("@")
    try:
        config = compose([f"model={preset}", *([f"engine={engine}"] if engine else [])])
    except ConfigError as error:
        raise ConfigError(f"roles.{role}={choice}: {error}") from error
    return config["model"], config["engine"]
