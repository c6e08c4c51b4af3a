"""Compose a configuration from `conf/` and the command line, with errors of one line."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from kgqa.config.files import SECOND, ConfState, conf_state, config_file, config_files, flatten, groups
from kgqa.config.overrides import Override, parse_override
from kgqa.config.renamed import check_renamed
from kgqa.config.secrets import check_references, check_values
from kgqa.config.yaml_docs import list_run_keys
from kgqa.errors import ConfigError, nearest
from kgqa.types import Json

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from yaml import YAMLError

DATASET_KEYS = ("name", "profile", "family")  # that others than the dataset's class read
_NUMBER = re.compile(r"\d+(?:_\d+)*")
# groups that may be null
OPTIONAL = (
    "ranker", "demonstrations_ranker", "reranker", "retriever", "graph", "collection", "judge", "verify", "tracker",
    "experiment", "collect", "train", "bootstrap",
)  # fmt: skip


def compose(overrides: Sequence[str]) -> dict[str, Json]:
    """Return the resolved configuration as plain dictionaries; `choices` has the chosen name of each group.

    Raises:
        ConfigError: a name, key or value is unknown (with the nearest known ones), or a value is a secret.
    """
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    choices_of = groups()
    for override in overrides:
        check_form(override)
        check_choice(override, choices_of)
        parsed = parse_override(override)
        if parsed.group.partition("/")[0] != "hydra":
            continue
        if parsed.prefix == "~":
            raise ConfigError(f"{override}: cannot be removed; set another value, e.g. hydra/launcher=joblib")
        raise ConfigError(f"{override}: only for several runs, that is with kgqa run -m and kgqa reproduce")
    try:
        composed, choices = _compose(tuple(_to_hydra(o) for o in overrides), conf_state())
        written: Json = OmegaConf.to_container(composed)
        check_references(written)
        chosen = {group: choices.get(_hydra_key(group)) for group in choices_of}
        _check_nodes(written, chosen)  # before others' references to a key that is missing are followed
        resolved: Json = OmegaConf.to_container(composed, resolve=True)
    except (HydraException, OmegaConfBaseException, AssertionError) as error:  # Hydra asserts some of its grammar
        raise _explain(error, overrides) from error
    except YAMLError as error:
        raise ConfigError(_explain_yaml(error)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{_find_undecodable(overrides)}: not a text in UTF-8. Save the file as UTF-8.") from error
    config = {**resolved, "choices": chosen}
    _check_keys(config)
    check_values(resolved)
    return config


@lru_cache(maxsize=128)
def _compose(overrides: tuple[str, ...], _state: ConfState) -> tuple[DictConfig, Mapping[str, str | None]]:
    """Return the configuration and its choices. Callers do not change them. `_state` is part of the cache key."""
    from hydra import compose as hydra_compose
    from omegaconf import OmegaConf

    from kgqa.config.search_path import RUN, hydra_ready

    with hydra_ready():
        composed = hydra_compose(RUN, overrides=list(overrides), return_hydra_config=True)
    choices: Json = OmegaConf.to_container(composed.hydra.runtime.choices)
    del composed.hydra
    return composed, choices


def _check_keys(config: Mapping[str, Json]) -> None:
    """Raise a ConfigError if a key of every run is missing: `~limit` removes one, `roles=7` replaces one."""
    for key in list_run_keys():
        *parents, last = key.name.split(".")
        node: Json = config
        for parent in parents:
            node = node[parent] if isinstance(node[parent], Mapping) else {}
        if last not in node:
            raise ConfigError(f"{key.name}: every run needs this key; do not remove it")


def _check_nodes(config: Mapping[str, Json], choices: Mapping[str, Json]) -> None:
    """Raise a ConfigError if a chosen file lacks a required key."""
    for group, name in choices.items():
        if not name and group not in OPTIONAL:
            raise ConfigError(f"{group}: every run needs one; choose it with {group}=NAME")
        if not name or group == "experiment":
            continue
        node = config.get(group)
        for key in ("_target_", *(DATASET_KEYS if group == "dataset" else ())):
            if not isinstance(node, Mapping) or key not in node:
                raise ConfigError(f"{config_file(group, name)}: no key {key}; see docs/OWN_CODE.md")


def _explain_yaml(error: YAMLError) -> str:
    """Return `FILE:LINE: problem`; the reader of bytes knows the file only."""
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f"{mark.name}:{mark.line + 1}: {getattr(error, 'problem', error)}"
    return f"{getattr(error, 'name', '')}: {getattr(error, 'reason', error)}".lstrip(": ")


def _find_undecodable(overrides: Sequence[str]) -> str:
    """Return the configuration file of a choice that is not UTF-8; Hydra does not name it."""
    for override in map(parse_override, overrides):
        file = config_files(override.choice_group).get(override.value)
        if file and "\ufffd" in file.read_text(encoding="utf-8", errors="replace"):
            return str(file)
    return "conf/"


def check_form(override: str) -> None:
    """Raise a ConfigError for a text that is not an override, or that uses a renamed key."""
    parsed = parse_override(override)
    key = parsed.choice_group
    if (not parsed.has_value and parsed.prefix != "~") or not key.strip():
        raise ConfigError(f"{override!r}: expected key=value, e.g. method=trace limit=10; see kgqa run --help")
    check_renamed(key, parsed.value)
    digits = max((len(number) for number in _NUMBER.findall(override)), default=0)
    if digits > sys.get_int_max_str_digits() > 0:  # Hydra's parser converts them, and Python refuses
        raise ConfigError(f"{key}: a number of {digits:,} digits; the maximum is {sys.get_int_max_str_digits():,}")


def check_choice(override: str, choices_of: Mapping[str, Sequence[str]]) -> None:
    """Raise a ConfigError if an override chooses several names, or a name that its group does not have.

    `choices_of` is all of `groups()`.
    """
    parsed = parse_override(override)
    key, value, group = parsed.key, parsed.value, parsed.choice_group
    choices = choices_of.get(group)
    if choices is None or (key in OPTIONAL and value in ("null", "")) or not parsed.has_value:
        return
    is_swept = value.startswith(("choice(", "glob("))
    for name in () if is_swept else value.split(","):
        if name not in choices:
            raise ConfigError(f"{key}={name}: no such {group}; {nearest(name, choices)}")
    if is_swept or "," in value:
        raise ConfigError(f"{key}={value}: a list of values is a sweep: kgqa run -m {key}={value} …")


def _to_hydra(override: str) -> str:
    """Return an override as Hydra accepts it: ~group for group=null, and a second choice of a group with its place."""
    parsed = parse_override(override)
    if parsed.key in OPTIONAL and parsed.value in ("null", ""):
        return f"~{_hydra_key(parsed.key)}"
    return f"{_hydra_key(parsed.key)}={parsed.value}" if parsed.key in SECOND and parsed.has_value else override


def _hydra_key(group: str) -> str:
    """Return how Hydra names the second choice of a group, such as `ranker@demonstrations_ranker`."""
    return f"{SECOND[group]}@{group}" if group in SECOND else group


def _explain(error: Exception, overrides: Sequence[str]) -> ConfigError:
    """Return Hydra's error in one line, with the override at fault and the nearest key if one is unknown."""
    known = _list_known_keys(overrides)
    for override in map(parse_override, overrides):
        others = [other for other in overrides if other != override.text]
        if not known and override.part and _list_known_keys(others):
            outer, _, part = override.part.partition(".")
            return ConfigError(
                f"{override.text}: the chosen {outer} has no {part or 'part'} that is a {override.choice_group}; "
                f"leave it out, or choose another {outer}="
            )
        is_inside = any(name.startswith(f"{override.key}.") for name in known)
        if known and override.key not in known and override.choice_group not in groups() and not is_inside:
            return ConfigError(f"{override.text}: unknown key {override.key!r}; {nearest(override.key, known)}")
    for override in map(parse_override, overrides):
        if reason := _find_misreading(override):
            return ConfigError(f"{override.text}: {reason}")
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return ConfigError(f"{' '.join(overrides)}: {first}")


def _find_misreading(override: Override) -> str | None:
    """Return how Hydra's grammar reads an override that was meant as one value."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        is_swept = OverridesParser.create().parse_override(override.text).is_sweep_override()
    except HydraException:  # a character with a meaning in the grammar
        return "cannot be read; put quotes around the value, e.g. 'key=\"FILE#name\"'"
    if is_swept:
        key, value = override.key, override.value
        return f"several values: write a list as {key}=[{value}], a text with commas as '{key}=\"…\"', a sweep with -m"
    return None


def _list_known_keys(overrides: Sequence[str]) -> list[str]:
    """Return the keys of the configuration with only the chosen groups; none if these do not fit together."""
    from hydra.errors import HydraException
    from omegaconf import OmegaConf

    choices_of = groups()
    choices = [_to_hydra(each) for each in overrides if parse_override(each).choice_group in choices_of]
    try:
        container: Json = OmegaConf.to_container(_compose(tuple(choices), conf_state())[0])
    except HydraException:
        return []
    return [*flatten(container), *choices_of]
