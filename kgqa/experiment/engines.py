"""Engines by role: one model for the run, and any role with its own. Equal choices share one engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, cast

from kgqa.artifacts.run import AS_READER, SCRIPTED, SCRIPTED_TARGET
from kgqa.cache.store import CallCache, Origin
from kgqa.calls import ModelCall
from kgqa.config import building as parts
from kgqa.config.files import Config, Node
from kgqa.config.overrides import parse_role
from kgqa.config.role_keys import ROLE_ENGINES
from kgqa.errors import ConfigError, EngineDied, MissingWeights
from kgqa.identity.component import identity_of
from kgqa.judge import ROLE as JUDGE
from kgqa.protocols import Adaptable, Engine, NeedsKey, ReachesServer
from kgqa.types import Json
from kgqa.util.optional_deps import check_libraries
from kgqa.util.settings import CLASS, name_of
from kgqa.util.text import estimate_tokens

if TYPE_CHECKING:
    from kgqa.artifacts.adapter import Adapter
    from kgqa.engines.weights import Model, Prices
    from kgqa.judge.judges import AnyJudge

T = TypeVar("T")


class RoleBinding(NamedTuple):
    """The model, engine and adapter of a role. `key`: the key that sets them."""

    model: Node
    engine: Node
    adapter: Adapter | None = None
    key: str = ""


# by role; "" for all other roles
RoleNodes = Mapping[str, RoleBinding]
# finds the model of a choice, `[PRESET][+ADAPTER][@ENGINE]`, by its key and the configuration of the run
ModelChooser = Callable[[str, str, Config], RoleBinding]


class Pool:
    """Loaded models by their configuration. The owner that opens the pool closes it."""

    def __init__(self) -> None:
        self._built: dict[str, object] = {}

    def shared(self, nodes: object, make: Callable[[], T]) -> T:
        """Return what was made of equal configuration nodes, or make it."""
        key = json.dumps(nodes, sort_keys=True)
        if key not in self._built:
            self._built[key] = make()
        return cast(T, self._built[key])

    def discard(self, engines: Iterable[Engine]) -> None:
        """Close engines and forget them, so that the next user gets fresh ones. An adapter goes with its base."""
        for engine in engines:
            base = _base(engine)
            self._built = {key: loaded for key, loaded in self._built.items() if loaded is not base}
            engine.close()

    def make_room(self, engine: Engine, stage: Iterable[object]) -> None:
        """Close the engines on the GPUs of another one. Those with the configuration nodes of its stage stay."""
        devices = _find_devices(engine)
        own = {json.dumps(nodes, sort_keys=True) for nodes in stage}
        others = [
            loaded
            for key, loaded in self._built.items()
            if isinstance(loaded, Engine) and key not in own
        ]
        self.discard([other for other in others if devices & _find_devices(other)])

    def close(self) -> None:
        self.discard([engine for engine in self._built.values() if isinstance(engine, Engine)])
        self._built.clear()


@dataclass(frozen=True, eq=False)
class PlannedEngine:
    """An engine without its weights, for a dry run. No reply of it can be in the cache."""

    engine: Any

    estimates_tokens: ClassVar[bool] = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    @property
    def recorded_identity(self) -> dict[str, Json]:
        return {CLASS: type(self.engine).__name__, "weights": "not on this machine"}

    def count_tokens(self, text: str) -> int:
        return estimate_tokens(text)

    def render(self, call: ModelCall) -> str:
        """Return the messages: the template is with the weights."""
        return "\n\n".join(
            f"[{message.role}]\n{message.content}" for message in call.prompt.messages
        )


def has_weights(engine: Engine) -> bool:
    try:
        identity_of(engine)
    except MissingWeights:
        return False
    return True


class Engines:
    """The engines of some roles. Each is built at its first use, and loads its weights at its first call.

    `nodes`: empty for a method without model calls, for which weights can be missing. `plans`: calls are only planned,
    so all weights can be missing.
    """

    def __init__(self, nodes: RoleNodes, pool: Pool, *, plans: bool = False) -> None:
        self._nodes, self._pool, self._plans = nodes, pool, plans
        self._models: dict[str, Model] = {}

    def __call__(self, role: str) -> Engine:
        """Return the engine of a role."""
        binding = self._binding(role)
        nodes = [binding.model, binding.engine]
        engine = self._pool.shared(nodes, lambda: self._build(binding))
        # it must know all adapters before its first call
        for other in self._nodes.values():
            if [other.model, other.engine] == nodes:
                _adapt(engine, other)
        return _adapt(engine, binding)

    def _build(self, binding: RoleBinding) -> Engine:
        engine = parts.engine(binding.engine, binding.model)
        return (
            cast(Engine, PlannedEngine(engine))
            if self._plans and not has_weights(engine)
            else engine
        )

    def streaming(self) -> bool:
        return any(self(role).streaming for role in self._nodes)

    def identities(self) -> dict[str, Json]:
        """Return what can change the replies of each role's engine."""
        return {role or "default": self._identify(role) for role in self._nodes}

    def _identify(self, role: str) -> dict[str, Json]:
        """Return what can change the engine's replies. Name the models on this machine if the weights are missing."""
        try:
            return identity_of(self(role))
        except ConfigError as error:
            if not self._plans:
                # the first thing to install: without the weights, no stored reply is usable
                check_libraries(self._binding(role).engine["_target_"].rpartition(".")[2].lower())
            if not isinstance(error, MissingWeights):
                raise
            from kgqa.system.models import list_local_models

            here = ", ".join(f"model={preset.name}" for preset in list_local_models())
            raise MissingWeights(f"{error} On this machine: {here or 'no model'}.") from error

    def label(self, role: str) -> str:
        """Return the model, adapter and engine of a role, e.g. "qwen3_8b+safe_evaluator@vllm"."""
        binding = self._binding(role)
        adapter = f"+{binding.adapter.name}" if binding.adapter else ""
        return f"{binding.model['name']}{adapter}@{name_of(identity_of(self(role)))}"

    def check_ready(self, cache: CallCache) -> None:
        """Raise an error if a key, a library or a server is missing, unless the stored replies may be enough."""
        for engine in map(self, self._nodes):
            try:
                if isinstance(engine, NeedsKey):
                    engine.find_key()
                check_libraries(name_of(identity_of(engine)))
                if isinstance(engine, ReachesServer):
                    engine.check_server()
            except (ConfigError, EngineDied):  # noqa: PERF203 - a handful of engines
                if not cache.has_calls(Origin.of(identity_of(engine))):
                    raise

    def discard(self, engines: Iterable[Engine]) -> None:
        """Close these engines. The next user gets fresh ones."""
        self._pool.discard(engines)

    def make_room(self, engine: Engine) -> None:
        """Close the engines of other stages on the GPUs of this one."""
        stage = [[binding.model, binding.engine] for binding in self._nodes.values()]
        self._pool.make_room(engine, stage)

    def model(self, role: str) -> Model:
        if role not in self._models:
            self._models[role] = parts.model(self._binding(role).model)
        return self._models[role]

    def prices(self, role: str) -> Prices | None:
        """Return the prices of the role's model, for its engine's way to call it; None: unknown."""
        return self.model(role).find_prices(is_batch=bool(self._binding(role).engine.get("batch")))

    def _binding(self, role: str) -> RoleBinding:
        own = "reader" if role in AS_READER and role not in self._nodes else role
        binding = self._nodes.get(own, self._nodes.get(""))
        if binding is None:
            raise ConfigError('this method calls a model: add "model" to its `uses`')
        return binding


def role_nodes(config: Config, choose: ModelChooser) -> RoleNodes:
    """Return the models of the method's roles. The judge is no part of a method."""
    settings = config.get(ROLE_ENGINES, {})
    choices = {
        role: choice or "" for role, choice in config["roles"].items() if choice or role in settings
    }
    own = {role: choice for role, choice in choices.items() if role != JUDGE}
    default = {"": RoleBinding(config["model"], config["engine"])}
    return default | {
        role: choose(f"roles.{role}", str(choice), config) for role, choice in own.items()
    }


def judge_nodes(config: Config, judge: AnyJudge, choose: ModelChooser) -> RoleNodes:
    """Return the models of the judge's roles: their own, else that of roles.judge, else that of the configuration."""
    key = f"{JUDGE}.model" if JUDGE in judge.roles else f"{JUDGE}.members"
    return {
        role: choose(key, own, config) if own else _general_judge(config, choose)
        for role, own in judge.roles.items()
    }


def _general_judge(config: Config, choose: ModelChooser) -> RoleBinding:
    choice = config["roles"][JUDGE]
    if choice or JUDGE in config.get(ROLE_ENGINES, {}):
        return choose(f"roles.{JUDGE}", choice or "", config)
    return RoleBinding(config["model"], config["engine"])


def reader_preset(config: Config) -> str:
    """Return the preset of the reader with its adapter, as `Engines.label` writes both, "" for engine=scripted."""
    choice = parse_role(config["roles"]["reader"] or "")
    is_scripted = config["engine"].get("_target_") == SCRIPTED_TARGET
    if choice.engine == SCRIPTED or (is_scripted and not choice.engine):
        return ""
    return f"{choice.preset or config['model']['name']}{choice.adapter and '+'}{choice.adapter}"


def _adapt(engine: Engine, binding: RoleBinding) -> Engine:
    """Return the engine with the adapter. Raises ConfigError with the key if it cannot have it."""
    if binding.adapter is None:
        return engine
    if not isinstance(engine, Adaptable):
        name = binding.engine["_target_"]
        raise ConfigError(
            f"{binding.key}: {name} does not support adapters. Choose another engine after the @"
        )
    try:
        return engine.with_adapter(binding.adapter)
    except ConfigError as error:
        raise ConfigError(f"{binding.key}: {error}") from error


def _base(engine: Engine) -> Engine:
    """Return the engine without an adapter."""
    return engine.base if isinstance(engine, Adaptable) else engine


def _find_devices(engine: Engine) -> frozenset[int | str]:
    """Return the GPUs that were planned for an engine."""
    return frozenset(getattr(_base(engine), "devices", None) or ())
