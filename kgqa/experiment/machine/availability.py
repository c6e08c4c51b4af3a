"""Whether the models and data that overrides name are on this machine, and which engine each model wants here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import environ
from pathlib import Path
from typing import ParamSpec, TypeVar

from kgqa.errors import ConfigError, DataError
from kgqa.experiment.config import parts
from kgqa.experiment.config.composing import compose
from kgqa.experiment.config.files import groups, node
from kgqa.experiment.config.overrides import override_key, override_values, role_choice
from kgqa.experiment.machine.adapters import adapter
from kgqa.experiment.machine.presets import Preset, fitness, presets
from kgqa.extras import missing_libraries

ENCODERS = ("ranker", "demonstrations_ranker", "retriever", "reranker")
P = ParamSpec("P")
R = TypeVar("R")


def once_here(function: Callable[P, R]) -> Callable[P, R]:
    """What it returned stays while the working directory and the environment do; a table asks it for each cell."""
    kept: dict[object, R] = {}

    def asked(*given: P.args, **named: P.kwargs) -> R:
        key = (Path.cwd(), *sorted(environ.items()), given, *sorted(named.items()))
        if key not in kept:
            kept[key] = function(*given, **named)
        return kept[key]

    return asked


def with_engines(overrides: Sequence[str]) -> tuple[str, ...]:
    """The overrides with the engine that suits each model here, where none is named: weights in a .gguf file and a
    folder of safetensors want different ones, and papers name none."""
    named = override_values(overrides)
    engine = named.get("engine")
    completed = list(overrides)
    if engine is None and (preset := _presets().get(named.get("model", ""))):
        completed.append(f"engine={_engine(_at(preset, named.get('model.path', '')))}")
    for place, override in enumerate(overrides):
        key, choice = override_key(override), role_choice(override.partition("=")[2])
        preset = None if choice.engine else _presets().get(choice.preset)
        if preset and (key.startswith("roles.") or key == "judge.model"):
            completed[place] = f"{override}@{engine or _engine(_at(preset, choice.path))}"
    return tuple(completed)


def missing(overrides: Sequence[str]) -> list[str]:
    """What keeps these overrides from running here, in words with the remedy; empty where nothing does.

    Looks at what is named (model, roles, judge, rankers, retriever, reranker, dataset), not at defaults; at models only
    where the method asks any.
    """
    named = override_values(overrides)
    return [*_models(named), *_encoders(named), *_datasets(named)]


@once_here
def _presets() -> dict[str, Preset]:
    return {preset.name: preset for preset in presets()}


def _at(preset: Preset, path: str) -> Preset:
    """The preset with weights that lie elsewhere, if a path is given."""
    return replace(preset, model=replace(preset.model, path=path)) if path else preset


def _engine(preset: Preset) -> str:
    """The first of the preset's engines whose libraries are here, else the first."""
    return next((engine for engine in preset.engines if not missing_libraries(engine)), preset.engines[0])


def _models(named: Mapping[str, str]) -> Iterator[str]:
    roles = {key: value for key, value in named.items() if key in ("model", "judge.model") or key.startswith("roles.")}
    if not _asks_models(named.get("method", "")) or named.get("verify.list", "null") != "null":
        roles = {}
    for key, choice in roles.items():
        name, path, trained, own = role_choice(choice)
        engine = own or named.get("engine", "")
        if trained and (reason := _no_adapter(trained)):
            yield f"{key}={choice}: {reason}"
        preset = _presets().get(name)
        if preset is None or engine == "scripted":
            continue
        preset = _at(preset, path or (named.get("model.path", "") if key == "model" else ""))
        if engine == "openai":
            if not _server(named):
                yield f"{key}={name}: no server: set OPENAI_BASE_URL or OPENAI_API_KEY, or give engine.base_url="
            continue
        fit = fitness(preset)
        if not fit.startswith("yes"):
            yield f"{key}={name}: {_reason(preset, fit)}; or give {key}=PRESET"


@once_here
def _asks_models(method: str) -> bool:
    """Whether a method as its preset has it, which "" stands for if none is named, asks any."""
    if method not in groups()["method"]:
        return True
    uses = parts.method(compose([f"method={method}"])["method"]).uses
    return bool(uses & {"model", "triples"})


def _no_adapter(name: str) -> str:
    """Why it cannot be used; "" where it can."""
    try:
        _ = adapter(name).folder
    except ConfigError as error:
        return str(error)
    return ""


def _reason(preset: Preset, fit: str) -> str:
    if preset.hosted:
        return f"runs {fit}"
    at_hand = "" if preset.model.at_hand() else f"weights are not here (hub: {preset.model.hub})"
    return at_hand if fit.startswith("once fetched") else "; ".join(part for part in (at_hand, fit) if part)


def _server(named: Mapping[str, str]) -> bool:
    return "engine.base_url" in named or bool(environ.get("OPENAI_BASE_URL") or environ.get("OPENAI_API_KEY"))


def _encoders(named: Mapping[str, str]) -> Iterator[str]:
    """Also of choices within others, such as retriever@retriever.dense=minilm."""
    own = {key.removesuffix(".model") for key in named if key.endswith((".encoder", ".model"))}  # a person's weights
    chosen = frozenset(key.partition("@")[2] for key in named if "@" in key)  # parts of others
    for key, name in named.items():
        group, _, place = key.partition("@")
        if group not in ENCODERS or name not in groups()[group] or (place or group) in own:
            continue
        for model in _encoder_models(group, name, place or group, chosen | own):
            if reason := _absence(model):
                yield f"{key}={name}: {reason}; or give {key}=PRESET"
                break


@once_here
def _absence(model: str) -> str:
    """Why an encoder's model cannot be loaded from this machine; "" where it can."""
    from kgqa import hub

    try:
        return "" if hub.on_disk(model) else f"weights are not here (hub: {model})"
    except ConfigError as error:
        return str(error)


@once_here
def _encoder_models(group: str, name: str, place: str, chosen: frozenset[str]) -> tuple[str, ...]:
    """The models that the configuration at `place` names, and those of its parts that are not chosen otherwise."""
    encoder = node(group, name)
    models = [encoder[key] for key in ("model", "query_model") if isinstance(encoder.get(key), str)]
    for default in encoder.get("defaults", ()):
        for key, choice in default.items() if isinstance(default, dict) else ():
            within, _, part = key.removeprefix("override ").lstrip("/").partition("@")
            if within in ENCODERS and f"{place}.{part}" not in chosen:
                models += _encoder_models(within, choice, f"{place}.{part}", chosen)
    return tuple(models)


def _datasets(named: Mapping[str, str]) -> Iterator[str]:
    name = named.get("dataset", "")
    given = tuple((key, named[f"dataset.{key}"]) for key in ("path", "split", "aliases") if f"dataset.{key}" in named)
    if name in groups()["dataset"] and (reason := _no_data(name, given)):
        yield f"dataset={name}: no data here ({reason})"


@once_here
def _no_data(name: str, given: tuple[tuple[str, str], ...]) -> str:
    """Why a dataset's file cannot be read; "" where it is there."""
    values = {key: None if value == "null" else value for key, value in given}
    try:
        _ = parts.dataset({**node("dataset", name), **values}).file
    except DataError as error:
        return str(error)
    return ""
