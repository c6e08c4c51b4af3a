"""Compose a configuration from `conf/` and the command line, and say in one line what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kgqa.errors import ConfigError, DataError, nearest
from kgqa.storage import package

Config = Mapping[str, Any]
# groups that may be null
OPTIONAL = ("ranker", "reranker", "retriever", "graph", "collection", "judge", "tracker", "experiment")


def conf_folder() -> Path:
    """`conf/` of the installed package, or of the checkout the package is installed from."""
    packaged = package() / "conf"
    return packaged if packaged.is_dir() else package().parent / "conf"


def groups() -> dict[str, list[str]]:
    """The names that can be chosen in each group, e.g. `{"method": ["all_documents", …], …}`."""
    folders = sorted(folder for folder in conf_folder().iterdir() if folder.is_dir() and folder.name != "reproduce")
    return {folder.name: sorted(file.stem for file in folder.glob("*.yaml")) for folder in folders}


def compose(overrides: Sequence[str]) -> dict[str, Any]:
    """The resolved configuration as plain dictionaries; `choices` names what was chosen in each group.

    Raises:
        ConfigError: an unknown name, key or value, with the nearest ones that exist.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    for override in overrides:
        check_form(override)
        check_choice(override)
        if override.startswith(("hydra/", "hydra.")):
            raise ConfigError(f"{override}: only kgqa run -m and kgqa reproduce, which make several runs, read it")
    try:
        with initialize_config_dir(str(conf_folder().resolve()), version_base="1.3"):
            composed = hydra_compose("config", overrides=[_spelt(o) for o in overrides], return_hydra_config=True)
            choices = OmegaConf.to_container(composed.hydra.runtime.choices)
            del composed.hydra
            resolved: Any = OmegaConf.to_container(composed, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise _explained(error, overrides) from error
    assert isinstance(choices, dict)
    return {**resolved, "choices": {group: choices.get(group) for group in groups()}}


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"method.beam": 5, …}`; lists are leaves."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def check_form(override: str) -> None:
    """Raises ConfigError for what is no override."""
    if "=" not in override and not override.startswith("~"):
        raise ConfigError(f"{override!r}: expected key=value, e.g. method=trace limit=10; see kgqa run --help")


def check_choice(override: str) -> None:
    """Raises ConfigError: a name that its group does not have, or several."""
    key, _, value = override.lstrip("+").partition("=")
    choices = groups().get(_group(key))
    if choices is None or (key in OPTIONAL and value in ("null", "")):
        return
    swept = value.startswith(("choice(", "glob("))
    for name in () if swept else value.split(","):
        if name not in choices:
            raise ConfigError(f"{key}={name}: no such {_group(key)}; {nearest(name, choices)}")
    if swept or "," in value:
        raise ConfigError(f"{key}={value}: a list of values is a sweep: kgqa run -m {key}={value} …")


def _spelt(override: str) -> str:
    """Hydra takes no group=null; ~group says the same."""
    key, _, value = override.lstrip("+").partition("=")
    return f"~{key}" if key in OPTIONAL and value in ("null", "") else override


def _group(key: str) -> str:
    """`retriever@retriever.dense`, a choice inside another one, is of the group `retriever`."""
    return key.partition("@")[0]


def _explained(error: Exception, overrides: Sequence[str]) -> ConfigError:
    """One line for Hydra's error: the override at fault and the nearest key, if one is unknown."""
    known = _known_keys(overrides)
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        group, inside_choice, place = key.partition("@")
        if not known and inside_choice and _known_keys([each for each in overrides if each != override]):
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
        return f"several values: a list is {key}=[{value}], a text with commas '{key}=\"…\"', a sweep kgqa run -m"
    return None


def _known_keys(overrides: Sequence[str]) -> list[str]:
    """Keys of the configuration that the group choices alone would give; none where these do not fit together."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf

    choices = [override for override in overrides if _group(override.partition("=")[0]) in groups()]
    try:
        with initialize_config_dir(str(conf_folder().resolve()), version_base="1.3"):
            container: Any = OmegaConf.to_container(hydra_compose("config", overrides=choices))
    except HydraException:
        return []
    return [*flatten(container), *groups()]


def load_yaml(file: Path) -> Any:
    """A configuration that a run has kept. Raises DataError: not readable."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        return OmegaConf.to_container(OmegaConf.load(file))
    except (OSError, UnicodeDecodeError, YAMLError, OmegaConfBaseException) as error:
        raise DataError(f"{file}: not readable ({error}); run the same command again") from error


def yaml_text(config: Config) -> str:
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(OmegaConf.create(dict(config)))
