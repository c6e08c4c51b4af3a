"""Compose a configuration from `conf/` and the command line, and say in one line what is wrong with it."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kgqa.errors import ConfigError, nearest
from kgqa.experiment.config.files import SECOND, config_file, flatten, groups
from kgqa.experiment.config.listing import run_keys
from kgqa.experiment.config.secrets import check_references, check_values
from kgqa.types import Json

if TYPE_CHECKING:
    from yaml import MarkedYAMLError

DATASET_KEYS = ("name", "profile", "family")  # that others than the dataset's class read
_NUMBER = re.compile(r"\d+(?:_\d+)*")
# groups that may be null
OPTIONAL = (
    "ranker", "demonstrations_ranker", "reranker", "retriever", "graph", "collection", "judge", "verify", "tracker",
    "experiment", "collect", "train", "bootstrap",
)  # fmt: skip


def compose(overrides: Sequence[str]) -> dict[str, Json]:
    """The resolved configuration as plain dictionaries; `choices` names what was chosen in each group.

    Raises:
        ConfigError: an unknown name, key or value, with the nearest ones that exist; or a value that is a secret.
    """
    from hydra import compose as hydra_compose
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import MarkedYAMLError

    from kgqa.experiment.config.search_path import RUN, hydra_ready

    choices_of = groups()
    for override in overrides:
        check_form(override)
        check_choice(override, choices_of)
        key = override.lstrip("+~").partition("=")[0].partition("@")[0]
        if key != "hydra" and not key.startswith(("hydra/", "hydra.")):
            continue
        if override.startswith("~"):
            raise ConfigError(f"{override}: cannot be taken out; give it another value, e.g. hydra/launcher=joblib")
        raise ConfigError(f"{override}: only kgqa run -m and kgqa reproduce, which make several runs, read it")
    try:
        with hydra_ready():
            composed = hydra_compose(RUN, overrides=[_spelt(o) for o in overrides], return_hydra_config=True)
            choices = OmegaConf.to_container(composed.hydra.runtime.choices)
            del composed.hydra
            written: Json = OmegaConf.to_container(composed)
            check_references(written)
            assert isinstance(choices, dict)
            chosen = {group: choices.get(_place(group)) for group in choices_of}
            _check_nodes(written, chosen)  # before others' references to a key that is missing are followed
            resolved: Json = OmegaConf.to_container(composed, resolve=True)
    except (HydraException, OmegaConfBaseException, AssertionError) as error:  # Hydra asserts some of its grammar
        raise _explained(error, overrides) from error
    except MarkedYAMLError as error:
        raise ConfigError(_place_in_yaml(error)) from error
    config = {**resolved, "choices": chosen}
    _check_keys(config)
    check_values(resolved)
    return config


def _check_keys(config: Mapping[str, Json]) -> None:
    """What every run has, whatever was chosen: `~limit` takes it out, `roles=7` puts something else in its place."""
    for key in run_keys():
        *parents, last = key.name.split(".")
        node: Json = config
        for parent in parents:
            node = node[parent] if isinstance(node[parent], Mapping) else {}
        if last not in node:
            raise ConfigError(f"{key.name}: every run needs this key; do not take it out, leave it as it is")


def _check_nodes(config: Mapping[str, Json], choices: Mapping[str, Json]) -> None:
    """What each chosen file must have, whoever wrote it."""
    for group, name in choices.items():
        if not name and group not in OPTIONAL:
            raise ConfigError(f"{group}: every run needs one; choose it with {group}=NAME")
        if not name or group == "experiment":
            continue
        node = config.get(group)
        for key in ("_target_", *(DATASET_KEYS if group == "dataset" else ())):
            if not isinstance(node, Mapping) or key not in node:
                raise ConfigError(f"{config_file(group, name)}: no key {key}; see docs/OWN_CODE.md")


def _place_in_yaml(error: MarkedYAMLError) -> str:
    mark = error.problem_mark
    return f"{mark.name}:{mark.line + 1}: {error.problem}" if mark else str(error)


def check_form(override: str) -> None:
    """Raises ConfigError for what is no override."""
    key = _group(override.lstrip("+~").partition("=")[0])
    if ("=" not in override and not override.startswith("~")) or not key.strip():
        raise ConfigError(f"{override!r}: expected key=value, e.g. method=trace limit=10; see kgqa run --help")
    digits = max((len(number) for number in _NUMBER.findall(override)), default=0)
    if digits > sys.get_int_max_str_digits() > 0:  # Hydra's parser makes an int of them, and Python refuses
        raise ConfigError(f"{key}: a number of {digits:,} digits; at most {sys.get_int_max_str_digits():,} can be read")


def check_choice(override: str, choices_of: Mapping[str, Sequence[str]]) -> None:
    """Raises ConfigError: a name that its group, of all `groups()`, does not have, or several."""
    key, equals, value = override.lstrip("+~").partition("=")
    choices = choices_of.get(_group(key))
    if choices is None or (key in OPTIONAL and value in ("null", "")) or not equals:
        return
    swept = value.startswith(("choice(", "glob("))
    for name in () if swept else value.split(","):
        if name not in choices:
            raise ConfigError(f"{key}={name}: no such {_group(key)}; {nearest(name, choices)}")
    if swept or "," in value:
        raise ConfigError(f"{key}={value}: a list of values is a sweep: kgqa run -m {key}={value} …")


def _spelt(override: str) -> str:
    """Hydra takes no group=null; ~group says the same. It has a second choice of a group at a place of its own."""
    key, equals, value = override.lstrip("+").partition("=")
    if key in OPTIONAL and value in ("null", ""):
        return f"~{_place(key)}"
    return f"{_place(key)}{equals}{value}" if key in SECOND else override


def _place(group: str) -> str:
    """`ranker@demonstrations_ranker`: how Hydra names a group's second choice."""
    return f"{SECOND[group]}@{group}" if group in SECOND else group


def _group(key: str) -> str:
    """`retriever@retriever.dense`, a choice inside another one, is of the group `retriever`."""
    return key.partition("@")[0]


def _explained(error: Exception, overrides: Sequence[str]) -> ConfigError:
    """One line for Hydra's error: the override at fault and the nearest key, if one is unknown."""
    known = _known_keys(overrides)
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        group, inside_choice, place = key.partition("@")
        if not known and inside_choice and _known_keys([other for other in overrides if other != override]):
            outer, _, part = place.partition(".")
            return ConfigError(
                f"{override}: the chosen {outer} has no {part or 'part'} that is a {group}; leave it out, "
                f"or choose another {outer}="
            )
        inside = any(name.startswith(f"{key}.") for name in known)
        if known and key not in known and _group(key) not in groups() and not inside:
            return ConfigError(f"{override}: unknown key {key!r}; {nearest(key, known)}")
    for override in overrides:
        if wrong := _misread(override):
            return ConfigError(f"{override}: {wrong}")
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return ConfigError(f"{' '.join(overrides)}: {first}")


def _misread(override: str) -> str | None:
    """What Hydra's grammar makes of an override where one value was meant."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    key, _, value = override.partition("=")
    try:
        several = OverridesParser.create().parse_override(override).is_sweep_override()
    except HydraException:  # a character that the grammar gives a meaning to
        return "cannot be read; put the value into quotes of its own, e.g. 'key=\"FILE#name\"'"
    if several:
        return f"several values: a list is {key}=[{value}], a text with commas '{key}=\"…\"', a sweep takes -m"
    return None


def _known_keys(overrides: Sequence[str]) -> list[str]:
    """Keys of the configuration that the group choices alone would give; none where these do not fit together."""
    from hydra import compose as hydra_compose
    from hydra.errors import HydraException
    from omegaconf import OmegaConf

    from kgqa.experiment.config.search_path import RUN, hydra_ready

    choices_of = groups()
    choices = [_spelt(override) for override in overrides if _group(override.partition("=")[0]) in choices_of]
    try:
        with hydra_ready():
            container: Json = OmegaConf.to_container(hydra_compose(RUN, overrides=choices))
    except HydraException:
        return []
    return [*flatten(container), *choices_of]
