"""Engines by role: one default model, any role with one of its own; equal choices share one engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar, cast

from kgqa.engines.thinking import Thinking
from kgqa.engines.weights import Prices
from kgqa.errors import ConfigError
from kgqa.experiment.config import parts
from kgqa.experiment.config.composing import compose
from kgqa.experiment.config.files import Config, Node
from kgqa.experiment.config.overrides import role_choice, spelt
from kgqa.extras import LIBRARIES, missing_libraries
from kgqa.protocols import Engine
from kgqa.types import Json

T = TypeVar("T")
RoleNodes = Mapping[str, tuple[Node, Node]]  # model and engine as configured, by role; "" for all other roles


class Pool:
    """What holds a model, by its configuration: built once, closed when the pool is. Who opens it closes it."""

    def __init__(self) -> None:
        self._built: dict[str, object] = {}

    def shared(self, key: str, make: Callable[[], T]) -> T:
        """What was made for the configuration nodes of this `pool_key`, made now if nothing was."""
        if key not in self._built:
            self._built[key] = make()
        return cast(T, self._built[key])

    def discard(self, engines: Iterable[Engine]) -> None:
        """Close these and forget them, so that the next one asked for is a fresh one."""
        for engine in engines:
            self._built = {key: built for key, built in self._built.items() if built is not engine}
            engine.close()

    def close(self) -> None:
        self.discard([built for built in self._built.values() if isinstance(built, Engine)])
        self._built.clear()


def pool_key(nodes: object) -> str:
    """Of configuration nodes: equal ones share what is built of them."""
    return json.dumps(nodes, sort_keys=True)


class Engines:
    """Built when first asked for; the weights are loaded by the engine itself when it must answer.

    `nodes`: none at all for a method that asks no model, whose weights may be missing.
    """

    def __init__(self, nodes: RoleNodes, pool: Pool) -> None:
        self._nodes, self._pool = nodes, pool
        self._keys: dict[str, str] = {}  # by role, as each call asks for its engine
        self._prices: dict[str, Prices | None] = {}  # by role, as far as they were asked for

    def __call__(self, role: str) -> Engine:
        """The engine that answers this role."""
        model, engine = nodes = self._node(role)
        if role not in self._keys:
            self._keys[role] = pool_key(nodes)
        return self._pool.shared(self._keys[role], lambda: parts.engine(engine, model))

    def estimates_tokens(self, role: str) -> bool:
        """Whether this role's engine cannot count a text's tokens: a hosted model whose tokenizer is not known."""
        return str(self(role).identity().get("tokens", "")).startswith("estimated")

    def streaming(self) -> bool:
        return any(self(role).streaming for role in self._nodes)

    def identities(self) -> dict[str, Json]:
        return {role or "default": dict(self(role).identity()) for role in self._nodes}

    def unready(self) -> list[str]:
        """What asking these models lacks here, in words; replies from the call cache can do without."""
        lacking = []
        for model, engine in self._nodes.values():
            module = str(engine["_target_"]).rpartition(".")[0]  # of kgqa.engines.vllm.Vllm
            name = module.rpartition(".")[2]
            if missing := missing_libraries(name):
                lacking.append(f"engine={name} lacks {', '.join(missing)}; pip install 'kgqa[{name}]'")
            weights = parts.model(model)
            if name in LIBRARIES and weights.path is None and not weights.at_hand():
                lacking.append(weights.remedies())
        return lacking

    def label(self, role: str) -> str:
        """Which model answers this role and how, e.g. "smollm2_135m@llamacpp"."""
        return f"{self._node(role)[0]['name']}@{self(role).identity()['engine']}"

    def thought_tokens(self, role: str) -> int:
        """The most a thought of the role's model may take, beside what its calls ask for."""
        return Thinking.of(parts.model(self._node(role)[0]).thinking).budget

    def prices(self, role: str) -> Prices | None:
        """What the role's model costs; None where that is not known. Free to ask: a display does so every second."""
        if role not in self._prices:
            self._prices[role] = parts.model(self._node(role)[0]).prices
        return self._prices[role]

    def discard(self, engines: Iterable[Engine]) -> None:
        """Close these; whoever asks next gets fresh ones."""
        self._pool.discard(engines)

    def _node(self, role: str) -> tuple[Node, Node]:
        nodes = self._nodes.get(role, self._nodes.get(""))
        if nodes is None:
            raise ConfigError('this method asks a model: its `uses` must say "model"')
        return nodes


def role_nodes(config: Config) -> RoleNodes:
    """Model and engine of the method's roles; the judge is no part of a method."""
    own = {role: choice for role, choice in config["roles"].items() if choice and role != "judge"}
    default = {"": (config["model"], config["engine"])}
    return default | {role: chosen_nodes(f"roles.{role}", str(choice)) for role, choice in own.items()}


def chosen_nodes(key: str, choice: str) -> tuple[Node, Node]:
    """Model and engine that `preset[:path][@engine]` stands for; `key` is where it was written."""
    preset, path, engine = role_choice(choice)
    named = {"model": preset, "model.path": path, "engine": engine}
    try:
        config = compose([spelt(each, value) for each, value in named.items() if value])
    except ConfigError as error:
        raise ConfigError(f"{key}={choice}: {error}") from error
    return config["model"], config["engine"]
