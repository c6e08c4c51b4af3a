"""Engines by role: one default model, any role with one of its own; equal choices share one engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from typing import NamedTuple, TypeVar, cast

from kgqa.artifacts.adapter import Adapter
from kgqa.artifacts.run import AS_READER
from kgqa.config import factories as parts
from kgqa.config.composing import compose
from kgqa.config.files import Config, Node
from kgqa.config.overrides import format_override, parse_role
from kgqa.engines.thinking import Thinking
from kgqa.engines.weights import Prices
from kgqa.errors import ConfigError
from kgqa.protocols import Adaptable, Engine
from kgqa.types import Json
from kgqa.util.optional_deps import LIBRARIES, missing_libraries

T = TypeVar("T")


class RoleBinding(NamedTuple):
    """The model, engine and adapter of a role. `key`: the key that sets them."""

    model: Node
    engine: Node
    adapter: Adapter | None = None
    key: str = ""


RoleNodes = Mapping[str, RoleBinding]  # by role; "" for all other roles


class Pool:
    """Loaded models by their configuration. The owner that opens the pool closes it."""

    def __init__(self) -> None:
        self._built: dict[str, object] = {}

    def shared(self, key: str, make: Callable[[], T]) -> T:
        """Return what was made for the configuration nodes of this `pool_key`, made now if nothing was."""
        if key not in self._built:
            self._built[key] = make()
        return cast(T, self._built[key])

    def discard(self, engines: Iterable[Engine]) -> None:
        """Close these and forget them, so that the next one asked for is a fresh one; adapters go with their base."""
        for engine in engines:
            base = engine.base if isinstance(engine, Adaptable) else engine
            self._built = {key: built for key, built in self._built.items() if built is not base}
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
        self._ready: dict[str, Engine] = {}  # by key: it knows all adapters of these roles
        self._prices: dict[str, Prices | None] = {}  # by role, as far as they were asked for

    def __call__(self, role: str) -> Engine:
        """The engine that answers this role."""
        answering = self._answering(role)
        if role not in self._keys:
            self._keys[role] = pool_key([answering.model, answering.engine])
        key = self._keys[role]
        engine = self._pool.shared(key, lambda: parts.engine(answering.engine, answering.model))
        if self._ready.get(key) is not engine:
            for each in self._nodes.values():
                if pool_key([each.model, each.engine]) == key:
                    _adapt(engine, each)
            self._ready[key] = engine
        return _adapt(engine, answering)

    def estimates_tokens(self, role: str) -> bool:
        """Return whether this role's engine cannot count a text's tokens: a hosted model whose tokenizer is not
        known.
        """
        return str(self(role).identity().get("tokens", "")).startswith("estimated")

    def streaming(self) -> bool:
        return any(self(role).streaming for role in self._nodes)

    def identities(self) -> dict[str, Json]:
        return {role or "default": dict(self(role).identity()) for role in self._nodes}

    def unready(self) -> list[str]:
        """Return what asking these models lacks here, in words; replies from the call cache can do without."""
        lacking = []
        for model, engine, adapter, _ in self._nodes.values():
            module = str(engine["_target_"]).rpartition(".")[0]  # of kgqa.engines.vllm.Vllm
            name = module.rpartition(".")[2]
            if missing := missing_libraries(name):
                lacking.append(f"engine={name} lacks {', '.join(missing)}; pip install 'kgqa[{name}]'")
            if adapter and name == "transformers" and find_spec("peft") is None:
                lacking.append("an adapter under engine=transformers lacks peft; pip install 'kgqa[train]'")
            weights = parts.model(model)
            if name in LIBRARIES and weights.path is None and not weights.at_hand():
                lacking.append(weights.remedies())
        return lacking

    def label(self, role: str) -> str:
        """Return which model answers this role and how, e.g. "smollm2_135m@llamacpp" or
        "qwen3_8b+safe_evaluator@vllm".
        """
        answering = self._answering(role)
        adapter = f"+{answering.adapter.name}" if answering.adapter else ""
        return f"{answering.model['name']}{adapter}@{self(role).identity()['engine']}"

    def reasoning_tokens_limit(self, role: str) -> int:
        """Return the most a thought of the role's model may take, beside what its calls ask for."""
        return Thinking.of(parts.model(self._answering(role).model).thinking).budget

    def prices(self, role: str) -> Prices | None:
        """Return what the role's model costs; None where that is not known. Free to ask: a display does so every
        second.
        """
        if role not in self._prices:
            self._prices[role] = parts.model(self._answering(role).model).prices
        return self._prices[role]

    def discard(self, engines: Iterable[Engine]) -> None:
        """Close these; whoever asks next gets fresh ones."""
        self._pool.discard(engines)

    def _answering(self, role: str) -> RoleBinding:
        answering = "reader" if role in AS_READER and role not in self._nodes else role
        found = self._nodes.get(answering, self._nodes.get(""))
        if found is None:
            raise ConfigError('this method asks a model: its `uses` must say "model"')
        return found


def role_nodes(config: Config) -> RoleNodes:
    """Return what answers the method's roles; the judge is no part of a method."""
    own = {role: choice for role, choice in config["roles"].items() if choice and role != "judge"}
    default = {"": RoleBinding(config["model"], config["engine"])}
    return default | {role: choose_nodes(f"roles.{role}", str(choice), config) for role, choice in own.items()}


def choose_nodes(key: str, choice: str, run: Config) -> RoleBinding:
    """Return what a role's choice stands for, see `role_choice`; `key` is where it was written, `run` has the run's
    own model.

    Raises:
        ConfigError: naming the key, and what of it is not there.
    """
    from kgqa.system.adapters import find_adapter as adapter_named

    preset, path, adapter_name, engine = parse_role(choice)
    named = {"model": preset, "model.path": path, "engine": engine}
    try:
        adapter = adapter_named(adapter_name) if "+" in choice.partition(":")[0] else None
        config = compose([format_override(each, value) for each, value in named.items() if value])
    except ConfigError as error:
        raise ConfigError(f"{key}={choice}: {error}") from error
    own = config if preset or adapter is None else run
    return RoleBinding(own["model"], config["engine"] if engine else own["engine"], adapter, f"{key}={choice}")


def _adapt(engine: Engine, answering: RoleBinding) -> Engine:
    """Raise ConfigError naming the key: the engine takes no adapters, or not this one."""
    if answering.adapter is None:
        return engine
    if not isinstance(engine, Adaptable):
        name = answering.engine["_target_"]
        raise ConfigError(f"{answering.key}: {name} takes no adapters; choose another engine, behind an @")
    try:
        return engine.with_adapter(answering.adapter)
    except ConfigError as error:
        raise ConfigError(f"{answering.key}: {error}") from error
