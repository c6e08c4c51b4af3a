"""Expand the short forms of the command line.

They are `server=URL`, `model=NAME` for a model without a preset, and `dataset=FILE.jsonl` for your own questions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from kgqa.config.files import UNNAMED, config_files, group_names, load_file, load_yaml
from kgqa.config.foreign_names import KEYS, REMEDIES, find_name, fold
from kgqa.config.overrides import (
    Override,
    format_override,
    override_key,
    override_values,
    parse_override,
)
from kgqa.engines.openai.access import check_address
from kgqa.errors import ConfigError, nearest
from kgqa.util.hub import HUB_NAME

SERVER = "server"
# the dataset of your own questions
QUESTIONS = "questions"
QUESTION_FILE = re.compile(r"[^,()]*\.jsonl?(\.gz)?")
# a judge's own server and key
# engines whose models are at a server or a vendor
REMOTE = ("openai", "anthropic", "gemini")
JUDGE_KEYS = {
    "judge.server": "roles.judge.engine.base_url",
    "judge.api_key_env": "roles.judge.engine.api_key_env",
}


def expand_short_forms(overrides: Sequence[str]) -> list[str]:
    """Return the overrides with `server=` and names of models without a preset written out.

    Raises:
        ConfigError: `server=` is next to another engine, or a model's name is no preset, path or hub name.
    """
    values = override_values(overrides)
    address = _find_server(values)
    words = [
        _expand_judge_key(override) for override in overrides if override_key(override) != SERVER
    ]
    if address:
        for key in ("engine", "engine.base_url"):
            if values.get(key, "openai") != "openai":
                raise ConfigError(
                    f"{key}={values[key]}: server={address} already sets it. Remove {key}=."
                )
        check_address(SERVER, address)
        rest = [word for word in words if word != "engine=openai"]
        words = ["engine=openai", format_override("engine.base_url", address), *rest]
    elif (
        "engine.base_url" in values
        and "experiment" not in values
        and values.get("engine") not in REMOTE
    ):
        loads = f"engine={values.get('engine', 'llamacpp')} loads a model itself"
        raise ConfigError(
            f"engine.base_url={values['engine.base_url']}: {loads}. {KEYS['base_url']}."
        )
    words = list(map(_expand_name, words))
    has_server = bool(address) or values.get("engine") in REMOTE
    return [
        each
        for word in words
        for each in (
            _expand_question_file(parse_override(word))
            or _expand_model(parse_override(word), has_server=has_server)
        )
    ]


def find_preset(name: str) -> str | None:
    """Return the preset of a model by its name on the hub or at an API."""
    for preset, file in config_files("model").items():
        node = load_yaml(file) or {}
        if name in (node.get("hub"), node.get("name", preset)):
            return preset
    return None


def model_slug(name: str) -> str:
    """Return a model's name as a folder can have it, without the owner: Qwen3-8B of Qwen/Qwen3-8B."""
    return (
        re.sub(r"[^\w.+-]+", "-", name.rstrip("/").rpartition("/")[2].removesuffix(".gguf")).strip(
            "-."
        )
        or "model"
    )


def name_questions(path: str) -> str:
    """Return the name of a dataset of own questions by their file, as a folder can have it."""
    return model_slug(re.sub(r"\.jsonl?(\.gz)?$", "", path))


def _find_server(values: Mapping[str, str]) -> str:
    """Return the address of `server=`, else that of the experiment's file, else ""."""
    address = values.get(SERVER)
    experiment = values.get("experiment", "null")
    if address is None and experiment in config_files("experiment"):
        address = str(load_file("experiment", experiment).get(SERVER) or "")
    return "" if address in (None, "null") else str(address).strip("\"'")


def _expand_judge_key(text: str) -> str:
    """Return the override of the judge's engine for `judge.server=URL` and the name of its key's variable."""
    override = parse_override(text)
    return f"{JUDGE_KEYS[override.key]}={override.value}" if override.key in JUDGE_KEYS else text


def _expand_name(text: str) -> str:
    """Return the override with kgqa's spelling of a choice: method=trace for method=TRACE.

    Raises ConfigError: the name is that of a paper or program which has another place in kgqa.
    """
    override = parse_override(text)
    group = override.choice_group
    if group not in group_names() or group == "model" or override.value in config_files(group):
        return text
    name = find_name(group, override.value, config_files(group))
    if name is None and (remedy := REMEDIES.get((group, fold(override.value)))):
        raise ConfigError(f"{text}: {remedy}.")
    return text if name is None else f"{override.prefix}{override.key}={name}"


def _expand_question_file(override: Override) -> list[str]:
    """Return dataset=questions and its path for dataset=FILE.jsonl, [] for another override."""
    path = override.value.strip("\"'")
    if override.key != "dataset" or not QUESTION_FILE.fullmatch(path):
        return []
    return [f"dataset={QUESTIONS}", format_override("dataset.path", path)]


def _expand_model(override: Override, *, has_server: bool) -> list[str]:
    name = override.value.strip("\"'")
    if (
        override.key != "model"
        or not name
        or name in config_files("model")
        or name.startswith(("choice(", "glob("))
    ):
        return [override.text]
    is_path = name.endswith(".gguf") or name.startswith((".", "/", "~")) or Path(name).exists()
    if preset := find_preset(name):
        return [f"model={preset}"]
    if has_server:
        return [f"model={UNNAMED}", format_override("model.name", name)]
    if is_path and ":" not in name:
        path = Path(name)
        stem = path.stem if path.suffix == ".gguf" else path.resolve().name
        return [
            f"model={UNNAMED}",
            format_override("model.name", stem),
            format_override("model.path", name),
        ]
    if HUB_NAME.fullmatch(name):
        return [
            f"model={UNNAMED}",
            format_override("model.name", name),
            format_override("model.hub", name),
        ]
    if "," in name:
        return [override.text]
    raise ConfigError(
        f"model={name}: no such model. {nearest(name, config_files('model'))} Other models: a hub name "
        "(model=OWNER/NAME), a .gguf file or folder (model=PATH), or a name on a server (server=URL model=NAME)."
    )
