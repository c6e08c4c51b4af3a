"""The trained models that cells need: the commands that train them, and the overrides that use them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from kgqa.artifacts.adapter import ADAPTER, CONFIG
from kgqa.artifacts.manifest import MANIFEST
from kgqa.artifacts.trained import ENCODER, MODEL, Trained, find_trained, finished, is_finished
from kgqa.config.files import groups
from kgqa.config.overrides import (
    format_override,
    merge_overrides,
    override_group,
    override_key,
    override_values,
    split_overrides,
)
from kgqa.errors import ConfigError, UsageError, nearest
from kgqa.reproduce.tables import PublishedCell, Strict, read_conf
from kgqa.util.registry import load_registered

Command = tuple[str, ...]
TRAINED = "trained."  # trained.NAME=PATH uses a model
# commands with own keys that start with their name
VERBS = ("collect", "train", "bootstrap")
# the verbs of which a command accepts keys
ACCEPTED = {"train": ("train", "collect"), "bootstrap": ("bootstrap", "collect", "train")}


class TrainedModel(Strict):
    """`base`: the preset of a language model; None: an encoder. `needs`: models that are trained before it."""

    what: str
    base: str | None
    needs: tuple[str, ...] = ()
    makes: tuple[str, ...]  # commands


def trained_models() -> Mapping[str, TrainedModel]:
    """Return the models by name, or by the pattern of names. Raises DataError: the file is damaged."""
    models: dict[str, TrainedModel] = read_conf("trained_models.yaml", dict[str, TrainedModel])
    return models


def find_model(name: str) -> TrainedModel:
    """Return a model with the parts of its name inserted into its commands. Raises ConfigError: there is none."""
    for pattern, model in trained_models().items():
        if match := _name_pattern(pattern).fullmatch(name):
            commands = tuple(command.format_map(match.groupdict()) for command in model.makes)
            return model.model_copy(update={"makes": commands})
    raise ConfigError(f"{TRAINED}{name}: no such trained model. {nearest(name, trained_models())}")


def split_trained(overrides: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the overrides of runs, and the paths of trained models by name."""
    trained, others = split_overrides(overrides, TRAINED)
    return others, {
        key.removeprefix(TRAINED): path for key, path in override_values(trained).items()
    }


def use_trained(needed: Mapping[str, str], paths: Mapping[str, str]) -> Iterator[str]:
    """Yield the overrides that use the models. `needed`: the model that each key needs.

    Raises:
        ConfigError: a path does not exist, or its kind does not fit the key.
        DataError: its manifest is damaged.
    """
    for key, name in needed.items():
        if name in paths:
            yield format_override(key, _value(key, name, paths[name]))


def list_missing(cells: Iterable[PublishedCell], overrides: Sequence[str]) -> list[str]:
    """Return the models that cells need and that are neither set nor replaced, each once."""
    others, trained = split_trained(overrides)
    named = {override_key(override) for override in others}
    needed = (name for cell in cells for key, name in cell.trained.items() if key not in named)
    return list(dict.fromkeys(name for name in needed if name not in trained))


def find_local(names: Iterable[str]) -> dict[str, Path]:
    """Return the newest finished training of each name that has one. Damaged ones are ignored."""
    return {
        name: folders[0]
        for name in names
        if (folders := [each for each in finished(name) if is_finished(each)])
    }


def format_trained(folders: Mapping[str, Path]) -> tuple[str, ...]:
    """Return folders as command-line arguments."""
    return tuple(f"{TRAINED}{name}={folder}" for name, folder in folders.items())


def plan_training(names: Iterable[str], keys: Sequence[str] = ()) -> dict[str, list[Command]]:
    """Return the commands that train models by name, without `kgqa`. Models that others need come first.

    keys: more keys; each command gets those that it accepts. Raises ConfigError: there is no such model.
    """
    needed = dict.fromkeys(each for name in names for each in _with_needed(name, again=bool(keys)))
    return {
        name: [add_keys(command, keys) for command in find_model(name).makes] for name in needed
    }


def describe_training(plan: Mapping[str, Sequence[Command]]) -> Iterator[str]:
    """Yield the models and their commands, each command once."""
    listed: set[Command] = set()
    for name, commands in plan.items():
        new = [command for command in commands if command not in listed]
        listed |= set(new)
        yield f"to be trained: {name}: {find_model(name).what if new else 'by the same commands'}"
        yield from (f"  {shlex.join(('kgqa', *command))}" for command in new)


def train_models(
    plan: Mapping[str, Sequence[Command]], run: Callable[[Command], int]
) -> dict[str, Path]:
    """Run the commands, and return the folder of each model. Finished work is skipped, the rest is resumed.

    Raises:
        UsageError: a command failed.
    """
    for command in dict.fromkeys(command for commands in plan.values() for command in commands):
        if run(command):
            raise UsageError(
                f"{shlex.join(('kgqa', *command))}: failed, see above. Run the same command again"
            )
    return {name: _find_folder(name, commands[-1]) for name, commands in plan.items()}


def add_keys(command: str, keys: Sequence[str]) -> Command:
    """Return the words of a command without `kgqa`, with those keys that it accepts."""
    _, *words = shlex.split(command)
    accepted = ACCEPTED.get(words[0], words[:1])
    more = [
        key for key in keys if override_group(key) not in VERBS or override_group(key) in accepted
    ]
    own = [word for word in words if "=" in word and not word.startswith("-")]
    return (*(word for word in words if word not in own), *merge_overrides(own, more))


def _with_needed(name: str, *, again: bool) -> Iterator[str]:
    for needed in find_model(name).needs:
        if again or not find_local([needed]):
            yield from _with_needed(needed, again=again)
    yield name


def _find_folder(name: str, last: Sequence[str]) -> Path:
    """Return the folder of exactly this training: a newer one of the name can have other settings or examples."""
    if last[0] != "train":
        return find_trained(name)
    folder: Path = load_registered("training_folder")(last[1], last[2:])
    return folder


def _value(key: str, name: str, text: str) -> str:
    base, path = find_model(name).base, Path(text).expanduser()
    role = key.startswith("roles.")
    if role and text.partition("@")[0] in groups()["model"]:
        return text
    if not path.exists():
        preset = ", nor a preset of conf/model" if role else ""
        raise ConfigError(
            f"{TRAINED}{name}={text}: no such file or folder{preset}. See kgqa reproduce --list for how to train it"
        )
    if (path / MANIFEST).is_file() and not (path / CONFIG).is_file():  # of kgqa train
        base = Trained.read(path).base
        path = next(
            (weights for name in (MODEL, ENCODER) if (weights := path / name).is_dir()), path
        )
    is_adapter = any((folder / CONFIG).is_file() for folder in (path, path / ADAPTER))
    folder = str(path.resolve())
    return f"{base}{'+' if is_adapter else ':'}{folder}" if role else folder


@cache
def _name_pattern(text: str) -> re.Pattern[str]:
    """Return a pattern of names: {x} matches letters and digits."""
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>\\w+)", re.escape(text)))
