"""Compose a configuration from `conf/` and the command line with Hydra, and parse sweeps, with errors of one line."""

from __future__ import annotations

import ast
import pickle
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from hydra import compose as compose_with_hydra
from hydra import initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, RangeSweep
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from kgqa.config.building import check_keys, check_node, errors_name
from kgqa.config.files import (
    BASES,
    NAMED,
    OPTIONAL,
    SECOND,
    UNNAMED,
    class_name,
    config_file,
    config_files,
    flatten,
    group_names,
    is_own,
    is_unnamed,
    list_defaults,
    list_own_classes,
    load_file,
    name_group,
    own_files,
)
from kgqa.config.foreign_names import KEYS, name_method_keys
from kgqa.config.keys import FILE_KEYS, MODEL, complete_node, load_node
from kgqa.config.overrides import parse_override
from kgqa.config.role_keys import ROLE_ENGINES, find_role_key, split_roles
from kgqa.config.run_keys import default_config, list_run_keys
from kgqa.config.secrets import check_references, check_text, check_values
from kgqa.config.short_forms import (
    QUESTIONS,
    SERVER,
    expand_short_forms,
    model_slug,
    name_questions,
)
from kgqa.errors import NO_CHOICES, ConfigError, nearest
from kgqa.types import Json
from kgqa.util.places import conf_folders, package_conf, user_folder
from kgqa.util.redaction import hide_secret, is_secret
from kgqa.util.yaml_files import explain_yaml, read_yaml_text

# groups and names of the user's components in Hydra's store
_stored: set[tuple[str, str]] = set()
# the configuration of a run. A config.yaml in an own conf/ belongs to another program
RUN = "kgqa_run"
NULL = ("null", "")  # values that choose nothing
# what Hydra loads for a program of its own, and kgqa does not use: almost half the time of composing
HYDRA_PARTS = (
    "output", "launcher", "sweeper", "help", "hydra_help", "hydra_logging", "job_logging", "env",
)  # fmt: skip
# of Hydra: a file names another file that does not exist
MISSING_DEFAULT = re.compile(
    r"In '(?P<group>\w+)/(?P<file>\w+)': Could not load '(?P=group)/(?P<name>\w+)'"
)
# what users write instead
NO_CHOICE = ("none", "no", "false", "off")
# keys of a dataset that are not for its class
DATASET_KEYS = ("profile", "family")


class OwnFolders(SearchPathPlugin):
    """Add the user's folder to Hydra's."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in conf_folders()[:-1]:
            search_path.prepend("kgqa", f"file://{folder.resolve()}", anchor="main")


@contextmanager
def hydra_ready() -> Iterator[None]:
    """Initialize Hydra with `RUN` and the configurations of all folders."""
    Plugins.instance().register(OwnFolders)
    if f"{RUN}.yaml" not in ConfigStore.instance().repo:
        defaults = OmegaConf.load(package_conf() / "config.yaml")
        defaults.defaults.extend([{f"override hydra/{part}": None} for part in HYDRA_PARTS])
        run = OmegaConf.merge(defaults, default_config(), {"model": {"_target_": MODEL}})
        ConfigStore.instance().store(name=RUN, node=run)
        ConfigStore.instance().store(group="model", name=UNNAMED, node={})
    _store_own_classes()
    with initialize_config_dir(str(package_conf().resolve()), version_base="1.3"):
        yield


def _store_own_classes() -> None:
    """Name the user's components without a YAML to Hydra, and no others: it would merge them with later files."""
    store = ConfigStore.instance()
    for group, name in _stored:
        store.repo.get(group, {}).pop(f"{name}.yaml", None)
    _stored.clear()
    for group, files in list_own_classes().items():
        for name, file in files.items():
            if config_files(group)[name] == file:
                store.store(group=group, name=name, node=dict(load_file(group, name)))
                _stored.add((group, name))


def compose(overrides: Sequence[str]) -> dict[str, Json]:
    """Return the resolved configuration as plain dictionaries. `choices` has the chosen name of each group.

    Raises:
        ConfigError: a name, key or value is unknown (with the nearest known ones), or a value is a secret.
    """
    for override in overrides:
        check_form(override)
    overrides = expand_short_forms(overrides)
    for override in overrides:
        _check_override(override)
    try:
        resolved, choices = _compose(overrides)
    except (
        HydraException,
        OmegaConfBaseException,
        AssertionError,
        ValueError,
    ) as error:  # Hydra asserts its grammar
        raise _explain_hydra(error, overrides) from error
    except YAMLError as error:
        raise ConfigError(explain_yaml(error)) from error
    except RecursionError as error:
        raise ConfigError(
            f"{' '.join(overrides)}: a file names itself in its defaults. Remove it there."
        ) from error
    _complete_own_files(resolved, choices, {parse_override(override).key for override in overrides})
    check_values(resolved)
    _check_known_keys(resolved, choices)
    # a preset's keys are there if its file does not say that they are the run's
    if "experiment" in resolved:
        file = config_file("experiment", str(choices["experiment"]))
        raise ConfigError(
            f"{file}: its keys have no effect. Put '# @package _global_' into its first line"
        )
    if isinstance(server := resolved.pop(SERVER), Mapping):  # engine.base_url has an address
        raise ConfigError(f"server={server}: must be an address, e.g. http://127.0.0.1:8000/v1")
    resolved["roles"], engines = split_roles(resolved["roles"])
    if engines:
        resolved[ROLE_ENGINES] = engines
    _name_choices(resolved, choices)
    return {**resolved, "choices": choices}


def _name_choices(resolved: Mapping[str, Json], choices: dict[str, str | None]) -> None:
    """Name a model without a preset, and own questions by their file, unless a dataset has this name."""
    if choices["model"] == UNNAMED:
        choices["model"] = model_slug(str(resolved["model"]["name"]))
    if choices["dataset"] == QUESTIONS and (path := resolved["dataset"]["path"]):
        name = name_questions(str(path))
        choices["dataset"] = QUESTIONS if name in config_files("dataset") else name


def _explain_hydra(error: Exception, overrides: Sequence[str]) -> ConfigError:
    """Return an error of Hydra in one line. A file that names a missing one is named."""
    first, *more = str(error).strip().splitlines() or [type(error).__name__]
    reason = more[0] if first.endswith("raised while composing config:") and more else first
    if missing := MISSING_DEFAULT.search(reason):
        group, file, name = missing.groups()
        hint = nearest(name, config_files(group))
        return ConfigError(f"{config_file(group, file)}: defaults: no such {group}: {name}. {hint}")
    return ConfigError(f"{' '.join(overrides)}: {reason}")


def _check_override(override: str) -> None:
    """Raise a ConfigError or DataError for what Hydra would accept, or explain badly."""
    parsed = parse_override(override)
    key, value, group = parsed.key, parsed.value, parsed.choice_group
    if group in group_names() and parsed.has_value and not (key in OPTIONAL and value in NULL):
        _check_choice(key, value, group)
    check_text(key, value)
    if parsed.group.partition("/")[0] == "hydra":
        raise ConfigError(f"{override}: works only with kgqa run -m and kgqa reproduce")
    if parsed.prefix == "~" and group not in OPTIONAL:
        raise ConfigError(f"{override}: this key is required. Do not remove it")


def _check_choice(key: str, value: str, group: str) -> None:
    """Raise a ConfigError for several names, one that the group does not have, or a file that cannot be used."""
    if value.startswith("["):
        names = value.strip("[]")
        raise ConfigError(
            f"{key}={value}: a list of values is a sweep, without brackets: kgqa run -m {key}={names} …"
        )
    is_swept, choices = value.startswith(("choice(", "glob(")), config_files(group)
    for name in () if is_swept else value.split(","):
        if name not in choices and name != UNNAMED:
            hint = _hint_at_choice(group, name, choices)
            raise ConfigError(f"{key}={name}: no such {name_group(group)}. {hint}")
    if is_swept or "," in value:
        raise ConfigError(
            f"{key}={value}: a list of values is a sweep: kgqa run -m {key}={value} …"
        )
    if value in choices and choices[value].suffix == ".yaml":
        read_yaml_text(choices[value])
        if key == "experiment" and "hydra" in load_node("experiment", value):
            raise ConfigError(
                f"{choices[value]}: hydra: set these keys on the command line, after -m"
            )


def _compose(overrides: Sequence[str]) -> tuple[dict[str, Json], dict[str, str | None]]:
    """Return the resolved configuration and the choices."""
    choices = [override for override in overrides if _is_choice(override)]
    cached, names = _compose_choices(tuple(map(_choice_for_hydra, choices)), own_files())
    composed: DictConfig = pickle.loads(cached)  # noqa: S301 - made by this process
    for override in overrides:
        if not _is_choice(override):
            _set_value(composed, override)
    values: Json = OmegaConf.to_container(composed)
    check_references(values)
    files = {group: names.get(_hydra_key(group)) for group in group_names()}
    complete = {key: _complete(value, key) for key, value in values.items() if key not in FILE_KEYS}
    # before references to a missing key are resolved
    _check_nodes(complete, files)
    return _resolve(complete), files


def _complete(value: Json, key: str) -> Json:
    """Return the node of a group with all keys of its class, and other values as they are."""
    if key not in group_names() or not isinstance(value, Mapping):
        return value
    return complete_node(value, key)


def _resolve(config: Mapping[str, Json]) -> dict[str, Json]:
    """Return the configuration with the values that references name."""
    resolved: dict[str, Json] = OmegaConf.to_container(OmegaConf.create(dict(config)), resolve=True)  # type: ignore[assignment]
    return resolved


@lru_cache(maxsize=128)
def _compose_choices(choices: tuple[str, ...], _: object) -> tuple[bytes, Mapping[str, str | None]]:
    """Return the pickled configuration of choices, and the names of all choices.

    Hydra needs 0.06 s for it. Cells of a sweep mostly differ in values, which are set afterwards.
    Unpickling a configuration takes a tenth of the time of copying it.
    """
    with hydra_ready():
        composed = compose_with_hydra(RUN, overrides=list(choices), return_hydra_config=True)
    names: Json = OmegaConf.to_container(composed.hydra.runtime.choices)
    del composed.hydra
    return pickle.dumps(composed), names


def _is_choice(override: str) -> bool:
    parsed = parse_override(override)
    return parsed.choice_group in group_names() or parsed.prefix == "~"


def _choice_for_hydra(override: str) -> str:
    """Return a choice as Hydra accepts it: ~group for group=null, and a second choice of a group with its place."""
    parsed = parse_override(override)
    if parsed.key in OPTIONAL and parsed.value in NULL:
        return f"~{_hydra_key(parsed.key)}"
    return override.replace(parsed.key, _hydra_key(parsed.key), 1)


def _hydra_key(group: str) -> str:
    """Return how Hydra names the second choice of a group, such as `ranker@demonstrations_ranker`."""
    return f"{SECOND[group]}@{group}" if group in SECOND else group


def _set_value(config: DictConfig, override: str) -> None:
    """Set a value as Hydra would. Any key is accepted: `_check_known_keys` also has to find those of files."""
    key, value = parse_override(override).key, parse_override(override).value
    try:
        parsed = OverridesParser.create().parse_override(f"++{key}={value}")
    except (HydraException, ValueError) as error:
        # a character with a meaning in the grammar, thousands of digits
        remedy = "Close all brackets, or put quotes around the value, e.g. 'key=\"FILE#name\"'"
        raise ConfigError(f"{override}: cannot be read. {remedy}") from error
    if parsed.is_sweep_override():
        remedy = f"Write a list as {key}=[{value}], a text with commas as '{key}=\"…\"'"
        sweep = shlex.join(["kgqa", "run", "-m", override])
        raise ConfigError(f"{override}: several values are a sweep: {sweep}. {remedy}")
    OmegaConf.update(
        config, find_role_key(config["roles"], key), parsed.value(), merge=True, force_add=True
    )


def _complete_own_files(
    config: Mapping[str, Json], choices: Mapping[str, Json], keys: set[str]
) -> None:
    """Name the user's models and datasets after their files, and check the keys of a model.

    given: keys of the command line.
    """
    for group in NAMED:
        name = str(choices[group])
        if f"{group}.name" not in keys and name in config_files(group) and is_unnamed(group, name):
            config[group]["name"] = name
    if is_own("model", name := str(choices["model"])):
        with errors_name(config_file("model", name)):
            check_node(config["model"], "model")


def resolve_node(group: str, name: str) -> Json:
    """Return the node of a choice among the defaults of all other groups. Faster than `compose` for many choices."""
    defaults, _ = _compose_choices((), own_files())
    whole: Json = OmegaConf.to_container(pickle.loads(defaults))  # noqa: S301 - made by this process
    return _resolve(
        {
            key: _complete(value, key)
            for key, value in {**whole, group: load_node(group, name)}.items()
        }
    )[group]


# groups for which `kgqa new` writes the files of a choice
OWN = ("dataset", "method", "model", "retriever")


def _hint_at_choice(group: str, name: str, choices: Collection[str]) -> str:
    """Return a hint for an unknown choice: its file as a value of another key, the closest name, or how to add it."""
    if group == "dataset" and Path(name).is_file():
        own = "Or write a reader: kgqa new dataset NAME"
        return f"Convert the file to .jsonl with question and answer per line (docs/FAQ.md). {own}"
    if group == "dataset" and Path(name).is_dir():
        return f"For your own documents: dataset=folder dataset.path={name}"
    if group == "dataset" and Path(name).suffix:
        return "There is no such file. Name a file of questions: dataset=FILE.jsonl"
    if group in OPTIONAL and name.casefold() in NO_CHOICE:
        return f"To choose none: {group}=null"
    if group in BASES.values() and name.endswith(".py"):
        return f"Name the module in this folder without its suffix: {group}={Path(name).stem}"
    module = user_folder() / f"{name}.py"
    if group in BASES.values() and module.is_file():
        return _explain_module(module, group)
    hint = nearest(name, choices)
    if group == "experiment":
        return f"To name a sweep: sweep.name={name}. To name a run: run_name={name}. {hint}"
    if group == "judge" and not hint.startswith("Did"):
        return (
            f"{hint} For a model as the judge: judge=three_way roles.judge=NAME (see kgqa models). "
            "To add a judge: kgqa new judge NAME"
        )
    is_new = not hint.startswith("Did") and group in OWN and name.isidentifier()
    return f"{hint} To add it: kgqa new {group} {name}" if is_new else hint


def _explain_module(module: Path, group: str) -> str:
    """Return why a module of this name has no component."""
    try:
        ast.parse(module.read_bytes())
    except (SyntaxError, ValueError) as error:
        place = f"{module.name}:{getattr(error, 'lineno', None) or 1}"
        return f"{place}: {getattr(error, 'msg', error)}"
    base = next(base for base, each in BASES.items() if each == group)
    return f"{module.name} has no class {class_name(module.stem)}({base})"


def _check_known_keys(config: Mapping[str, Json], choices: Mapping[str, Json]) -> None:
    """Raise a ConfigError for a key that no run reads. The message names its preset, if a preset sets it."""
    run_keys = [key.name for key in list_run_keys()]
    try:
        _check_run_keys(config, run_keys, str(choices["method"]))
        for group, name in choices.items():
            _check_group(config, run_keys, group, name)
    except ConfigError as error:
        message, method = str(error), config["method"]
        if isinstance(method, Mapping):
            message = name_method_keys(message, str(choices["method"]), method)
        # cells of a sweep have different choices
        group = message.partition(".")[0]
        message = message.replace(NO_CHOICES, f"{group}={choices.get(group)} has no settings.")
        experiment = str(choices.get("experiment") or "")
        preset = load_node("experiment", experiment) if experiment else {}
        key = message.partition("=")[0].partition(": ")[0]
        if key in {*preset, *flatten(preset)}:
            message = _explain_preset(experiment, key, choices) or (
                f"{config_file('experiment', experiment)}: {message}"
            )
        raise ConfigError(message) from error


def _explain_preset(experiment: str, key: str, choices: Mapping[str, Json]) -> str:
    """Return that a preset sets a key of another choice than the user's, or ""."""
    group = key.partition(".")[0]
    for choice in list_defaults("experiment", experiment):
        if (choice.group, choice.part) == (group, "") and choice.name != choices[group]:
            chosen, other = f"{group}={choice.name}", f"{group}={choices[group]}"
            return (
                f"experiment={experiment} is for {chosen}: {other} has no setting {key}. "
                f"Remove experiment={experiment}, or use {chosen}"
            )
    return ""


def _check_run_keys(config: Mapping[str, Json], run_keys: Sequence[str], method: str) -> None:
    """Check the keys of no group. A user's method can have roles that kgqa does not know."""
    roots = {name.partition(".")[0] for name in run_keys} | set(group_names())
    for key, value in config.items():
        if key not in roots:
            text = "" if isinstance(value, Mapping) else f"={hide_secret(key, value)}"
            raise ConfigError(f"{key}{text}: unknown key. {_hint_at_key(key, config, roots)}")
    roles, role_keys = config["roles"], [name for name in run_keys if name.startswith("roles.")]
    if not isinstance(roles, Mapping):
        raise ConfigError(
            f"roles={roles}: this key has settings. Set one of them: roles.reader=PRESET"
        )
    for role, value in () if is_own("method", method) else roles.items():
        if f"roles.{role}" not in role_keys:
            raise ConfigError(
                f"roles.{role}={value}: unknown key. {nearest(f'roles.{role}', role_keys)}"
            )


def _hint_at_key(key: str, config: Mapping[str, Json], roots: Collection[str]) -> str:
    """Return a hint for an unknown key: the same key of a component, another program's key, or the closest one."""
    if is_secret(key) and key not in KEYS:
        return f"{KEYS['api_key']}."
    if "__" in key:
        name = key.replace("__", ".")
        return f"Write {name}=VALUE, in Python **{{'{name}': VALUE}}."
    groups = [group for group in group_names() if isinstance(config.get(group), Mapping)]
    owners = [f"{group}.{key}" for group in groups if key in config[group]]
    if owners and (key not in KEYS or f"method.{key}" in owners):
        return f"Did you mean {' or '.join(owners)}?"
    return f"{KEYS[key]}." if key in KEYS else nearest(key, roots)


def _check_group(
    config: Mapping[str, Json], run_keys: Sequence[str], group: str, name: str | None
) -> None:
    """Check the keys of a chosen component, and of the components in it."""
    node: Json = config.get(group)
    if node and not name:
        raise ConfigError(f"{group}: no preset is chosen. Choose one with {group}=NAME")
    if name and group != "experiment":
        own_keys = {key.partition(".")[2] for key in run_keys if key.startswith(f"{group}.")}
        check_keys(node, group, own_keys, _list_keys_elsewhere(config, run_keys, group))


def _list_keys_elsewhere(
    config: Mapping[str, Json], run_keys: Collection[str], group: str
) -> dict[str, str]:
    """Return the keys of the run, the groups, and the keys of other groups, by their last part."""
    nodes = {each: node for each in group_names() if isinstance(node := config.get(each), Mapping)}
    inner = {
        name: f"{other}.{name}" for other, node in nodes.items() if other != group for name in node
    }
    outer = [*group_names(), *run_keys]
    return {**inner, **{key: key for key in outer if "." not in key}}


def _check_nodes(config: Mapping[str, Json], choices: Mapping[str, Json]) -> None:
    """Raise a ConfigError if a chosen file lacks a required key."""
    for group, name in choices.items():
        if not name and group not in OPTIONAL:
            raise ConfigError(f"{group}: a choice is required: set {group}=NAME")
        if not name or group == "experiment" or name == UNNAMED:
            continue
        node = config.get(group)
        for key in ("_target_", *(DATASET_KEYS if group == "dataset" else ())):
            if isinstance(node, str) and (preset := choices.get("experiment")):
                raise ConfigError(
                    f"{config_file('experiment', str(preset))}: {group}: {node}: choose it under defaults: "
                    f"- override /{group}: {node}. See docs/OWN_CODE.md"
                )
            if not isinstance(node, Mapping) or key not in node:
                raise ConfigError(f"{config_file(group, name)}: no key {key}. See docs/OWN_CODE.md")


def check_form(override: str) -> None:
    """Raise a ConfigError for a text that is not an override."""
    parsed = parse_override(override)
    if (not parsed.has_value and parsed.prefix != "~") or not parsed.choice_group.strip():
        raise ConfigError(f"{override!r}: expected key=value{_hint_at_word(override)}")


def _hint_at_word(word: str) -> str:
    """Return a hint for a word that is not key=value: a key before a space, or a choice without its group."""
    if word in group_names() or word in (key.name for key in list_run_keys()):
        return f" without spaces: {word}=VALUE"
    for group in ("method", "dataset", *group_names()):
        if word in config_files(group):
            return f". Did you mean {group}={word}?"
    return " without spaces, e.g. method=trace limit=10. See kgqa run --help"


@dataclass(frozen=True)
class ValueRange:
    """A quantity from `low` to `high`, both included. They are whole numbers, `step` apart, if both ends are."""

    low: float
    high: float
    step: int = 1
    log: bool = False  # search on a log scale


@dataclass(frozen=True)
class Axis:
    """One override of a sweep with its values: a single one, the override itself, if it is not swept.

    span: the values of an interval, which cannot be listed, or of a range of whole numbers.
    """

    override: str
    key: str
    values: tuple[str, ...]
    swept: bool
    span: ValueRange | None = None

    def overrides(self) -> list[str]:
        return [f"{self.key}={value}" for value in self.values] if self.swept else [self.override]


def parse_axes(overrides: Sequence[str]) -> list[Axis]:
    """Return one axis per override: `key=a,b`, `choice(…)`, `range(…)`, `glob(…)` and `interval(…)` are swept.

    Raises:
        ConfigError: Hydra's grammar cannot read an override, a key is swept twice, or no name matches.
    """
    with hydra_ready():
        # the loader knows the names in each group, which glob() needs
        parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
        axes = [_parse_axis(override, parser) for override in overrides]
    keys = [axis.key for axis in axes]
    for axis in axes:
        if axis.swept and keys.count(axis.key) > 1:
            raise ConfigError(f"{axis.key}: set twice. List its values in one override")
    return axes


def _parse_axis(override: str, parser: OverridesParser) -> Axis:
    check_form(override)
    try:
        (parsed,) = parser.parse_overrides([override])
    except (HydraException, ValueError) as error:
        remedy = "Write values with commas and without spaces, e.g. method.candidates=15,20"
        raise ConfigError(f"{override}: cannot be read as a sweep. {remedy}") from error
    if not parsed.is_sweep_override():
        return Axis(override, parsed.key_or_group, (override,), swept=False)
    key, sweep = parsed.get_key_element(), parsed.value()
    if isinstance(sweep, IntervalSweep):
        low, high = (0.0 if end is None else end for end in (sweep.start, sweep.end))
        return Axis(
            override, key, (), swept=True, span=ValueRange(low, high, log="log" in sweep.tags)
        )
    texts = dict.fromkeys(parsed.sweep_string_iterator())  # each once
    # Hydra escapes colons, which only its dictionaries need
    values = tuple(text if "{" in text else text.replace(r"\:", ":") for text in texts)
    if not values:
        if isinstance(sweep, RangeSweep):
            raise ConfigError(
                f"{override}: no values. Write range(START,STOP) with START below STOP"
            )
        raise ConfigError(f"{override}: no name matches. See kgqa run --help")
    span, numbers = None, list[Any](parsed.sweep_iterator())
    if isinstance(sweep, RangeSweep) and all(isinstance(number, int) for number in numbers):
        span = ValueRange(min(numbers), max(numbers), abs(int(sweep.step)))
    return Axis(override, key, values, swept=True, span=span)


# the name of the cell of a sweep in which no setting differs
ONLY_CELL = "all"


def expand_grid(axes: Sequence[Axis]) -> list[tuple[str, list[str]]]:
    """Return name and overrides of every cell. The last axis varies fastest.

    Raises:
        ConfigError: the values of an interval cannot be listed.
    """
    for axis in axes:
        if not axis.values:
            remedy = "Only hydra/sweeper=optuna can search it"
            raise ConfigError(f"{axis.override}: an interval, not a list of values. {remedy}")
    named = []
    for overrides in product(*(axis.overrides() for axis in axes)):
        varying = [override for axis, override in zip(axes, overrides, strict=True) if axis.swept]
        named.append((" ".join(varying) or ONLY_CELL, list(overrides)))
    return named
