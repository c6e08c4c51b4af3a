"""Compose an experiment from overrides, and choose what they leave open: models, engines and the kind of a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kgqa.config.composing import compose
from kgqa.config.files import Config
from kgqa.config.overrides import format_override, parse_role
from kgqa.config.settings import read_settings
from kgqa.errors import ConfigError
from kgqa.experiment.engines import RoleBinding
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.selection import GIVEN
from kgqa.system.defaults import complete
from kgqa.system.models import find_adapter

if TYPE_CHECKING:
    from kgqa.datasets.in_memory import InMemoryDataset


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
    return Experiment(tuple(overrides), config, read_settings(config), choose_nodes, given, remarks, function)


def choose_nodes(key: str, choice: str, run: Config) -> RoleBinding:
    """Return the model of a role's choice, `[PRESET][+ADAPTER][@ENGINE]`.

    Args:
        key: where the choice is set, for messages.
        run: the configuration with the run's own model.
    """
    preset, path, adapter_name, engine = parse_role(choice)
    named = {"model": preset, "model.path": path, "engine": engine}
    try:
        adapter = find_adapter(adapter_name) if "+" in choice.partition(":")[0] else None
        words = [format_override(each, value) for each, value in named.items() if value]
        config, _ = complete(compose(words), words)
    except ConfigError as error:
        raise ConfigError(f"{key}={choice}: {error}") from error
    own = config if preset or adapter is None else run
    return RoleBinding(own["model"], config["engine"] if engine else own["engine"], adapter, f"{key}={choice}")
