"""Compose an experiment from overrides, and choose what they leave open: models, engines and the kind of a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kgqa.config.composing import compose
from kgqa.config.files import Config
from kgqa.config.overrides import format_override, override_values, parse_role
from kgqa.config.role_keys import ROLE_ENGINES
from kgqa.config.settings import read_settings
from kgqa.engines.openai.access import DEFAULT_URL
from kgqa.errors import ConfigError
from kgqa.experiment.engines import RoleBinding
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.gpu_plan import plan_gpus
from kgqa.experiment.selection import GIVEN
from kgqa.judge import ROLE as JUDGE
from kgqa.system.defaults import OPENAI_TARGET, complete
from kgqa.system.models import find_adapter
from kgqa.types import Json

if TYPE_CHECKING:
    from kgqa.datasets.in_memory import InMemoryDataset


def compose_evaluation(overrides: Sequence[str]) -> Experiment:
    """Compose the settings of an evaluation. Server and model are only looked for if a judge calls a model."""
    experiment = compose_experiment(overrides, config=compose(overrides))
    if experiment.judge is None or not experiment.judge.role_forms:
        return experiment
    return compose_experiment(overrides)


def compose_experiment(
    overrides: Sequence[str],
    config: Config | None = None,
    given: InMemoryDataset | None = None,
    function: object = None,
) -> Experiment:
    """Compose an experiment, and choose the model if the overrides do not.

    Args:
        config: an earlier composed configuration, which holds even if conf/ has changed.
        given: questions in memory instead of the dataset's.
        function: what method=function runs.
    """
    remarks: tuple[str, ...] = ()
    if config is None:
        config, remarks = complete(compose(overrides), overrides)
    if function is not None:
        name = config["method"]["function"].rpartition(":")[2]
        config = {**config, "choices": {**config["choices"], "method": name}}
    if given is not None:
        config = {**config, "choices": {**config["choices"], "dataset": GIVEN}}
    return Experiment(
        tuple(overrides),
        config,
        read_settings(config),
        choose_nodes,
        plan_gpus,
        given,
        remarks,
        function,
    )


def choose_nodes(key: str, choice: str, run: Config) -> RoleBinding:
    """Return the model of a role's choice, `[PRESET][+ADAPTER][@ENGINE]`, with the settings of its engine.

    The run's `engine.*` keys hold for a role with the same engine. Those of the role come first.

    Args:
        key: where the choice is set, for messages.
        run: the configuration with the run's own model.
    """
    role = JUDGE if key.startswith(f"{JUDGE}.") else key.removeprefix("roles.")
    settings = own_settings(role, run)
    preset, path, adapter_name, engine = parse_role(choice)
    if "base_url" in settings:
        engine = engine or "openai"
    try:
        adapter = find_adapter(adapter_name) if "+" in choice.partition(":")[0] else None
        if engine == "openai":
            _check_address(role, settings, run)
        named = {"model": preset, "model.path": path, "engine": engine}
        words = [format_override(each, value) for each, value in named.items() if value]
        has_own = preset or engine or (adapter is None and not settings)
        own = _compose_role(words, settings) if has_own else _change_engine(run, settings)
        if own["engine"]["_target_"] == OPENAI_TARGET and preset:
            _check_address(role, settings, run)
    except ConfigError as error:
        raise ConfigError(f"{key}={choice}: {error}") from error
    has_own_model = preset or "base_url" in settings or adapter is None
    model = own["model"] if has_own_model else run["model"]
    return RoleBinding(
        model, _inherit(own["engine"], settings, run["engine"]), adapter, f"{key}={choice}"
    )


def own_settings(role: str, run: Config) -> dict[str, Json]:
    """Return the settings of a role's engine. A server with its own address has its own variable with a key."""
    settings = dict(run.get(ROLE_ENGINES, {}).get(role, {}))
    url = settings.get("base_url")
    if url and "api_key_env" not in settings and url != DEFAULT_URL:
        is_shared = url == run["engine"].get("base_url")
        settings["api_key_env"] = (
            run["engine"]["api_key_env"] if is_shared else f"{role.upper()}_API_KEY"
        )
    return settings


def _compose_role(words: list[str], settings: Config) -> Config:
    """Return the configuration of a role with a model or an engine of its own."""
    if settings and "engine" not in override_values(words):
        # its keys are those of the engine that suits the model
        chosen, _ = complete(compose(words), words)
        words = [*words, format_override("engine", chosen["choices"]["engine"])]
    words = [
        *words,
        *(format_override(f"engine.{name}", value) for name, value in settings.items()),
    ]
    return complete(compose(words), words)[0]


def _change_engine(run: Config, settings: Config) -> Config:
    """Return the run's configuration with other settings of its engine."""
    words = [format_override("engine", run["choices"]["engine"])]
    words += (format_override(f"engine.{name}", value) for name, value in settings.items())
    return {
        **run,
        "engine": {**run["engine"], **{name: compose(words)["engine"][name] for name in settings}},
    }


def _inherit(engine: Config, settings: Config, shared: Config) -> Config:
    """Return the engine with the run's settings, unless they are of another engine or of a server."""
    if engine["_target_"] != shared["_target_"] or engine["_target_"] == OPENAI_TARGET:
        return engine
    return {**shared, **{name: engine[name] for name in settings}}


def _check_address(role: str, settings: Config, run: Config) -> None:
    """Raise ConfigError for a server without an address next to one that the command names.

    Otherwise questions, and the key of the named server, go to a host that the command does not name.
    """
    url = run["engine"].get("base_url")
    if settings.get("base_url") or not url or url == DEFAULT_URL:
        return
    keys = "judge.server=URL and judge.api_key_env=NAME"
    if role != JUDGE:
        keys = f"roles.{role}.engine.base_url=URL and roles.{role}.engine.api_key_env=NAME"
    raise ConfigError(
        f"which server? {url} is that of the run's model, and its questions and key go to no other one. Set {keys} "
        f"(default: {role.upper()}_API_KEY)"
    )
