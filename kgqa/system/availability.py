"""Check whether models and data of overrides are on this machine, and choose engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import environ
from pathlib import Path
from typing import ParamSpec, TypeVar

from kgqa.config import factories as parts
from kgqa.config.composing import compose
from kgqa.config.files import groups, load_node
from kgqa.config.overrides import override_values, parse_override, parse_role
from kgqa.errors import ConfigError, DataError
from kgqa.system.adapters import find_adapter
from kgqa.system.presets import Preset, describe_fitness, list_presets
from kgqa.util.optional_deps import missing_libraries

ENCODERS = ("ranker", "demonstrations_ranker", "retriever", "reranker")
P = ParamSpec("P")
R = TypeVar("R")


def memoize_here(function: Callable[P, R]) -> Callable[P, R]:
    """Cache results until the working directory or the environment changes: a table calls it for each cell."""
    results: dict[object, R] = {}

    def call(*given: P.args, **named: P.kwargs) -> R:
        key = (Path.cwd(), *sorted(environ.items()), given, *sorted(named.items()))
        if key not in results:
            results[key] = function(*given, **named)
        return results[key]

    return call


def add_engines(overrides: Sequence[str]) -> tuple[str, ...]:
    """Add an engine for each model that has none, one that suits its weights on this machine."""
    named = override_values(overrides)
    engine = named.get("engine")
    completed = list(overrides)
    if engine is None and (preset := _presets().get(named.get("model", ""))):
        completed.append(f"engine={_engine(_at(preset, named.get('model.path', '')))}")
    for place, override in enumerate(overrides):
        parsed = parse_override(override)
        key, choice = parsed.key, parse_role(parsed.value)
        preset = None if choice.engine else _presets().get(choice.preset)
        if preset and (key.startswith("roles.") or key == "judge.model"):
            completed[place] = f"{override}@{engine or _engine(_at(preset, choice.path))}"
    return tuple(completed)


def find_missing(overrides: Sequence[str]) -> list[str]:
    """Return what prevents these overrides from running here, each with its remedy."""
    named = override_values(overrides)
    return [*_models(named), *_encoders(named), *_datasets(named)]


@memoize_here
def _presets() -> dict[str, Preset]:
    return {preset.name: preset for preset in list_presets()}


def _at(preset: Preset, path: str) -> Preset:
    """Return the preset with other weights if a path is set."""
    return replace(preset, model=replace(preset.model, path=path)) if path else preset


def _engine(preset: Preset) -> str:
    """Return the preset's first engine with installed libraries, else its first."""
    return next((engine for engine in preset.engines if not missing_libraries(engine)), preset.engines[0])


def _models(named: Mapping[str, str]) -> Iterator[str]:
    roles = {key: value for key, value in named.items() if key in ("model", "judge.model") or key.startswith("roles.")}
    if not _asks_models(named.get("method", "")) or named.get("verify.list", "null") != "null":
        roles = {}
    for key, choice in roles.items():
        name, path, trained, own = parse_role(choice)
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
        fit = describe_fitness(preset)
        if not fit.startswith("yes"):
            yield f"{key}={name}: {_reason(preset, fit)}; or give {key}=PRESET"


@memoize_here
def _asks_models(method: str) -> bool:
    """Return whether a method calls models; "" is the default method."""
    if method not in groups()["method"]:
        return True
    uses = parts.method(compose([f"method={method}"])["method"]).uses
    return bool(uses & {"model", "triples"})


def _no_adapter(name: str) -> str:
    """Return why an adapter cannot be used, or ""."""
    try:
        _ = find_adapter(name).folder
    except ConfigError as error:
        return str(error)
    return ""


def _reason(preset: Preset, fit: str) -> str:
    if preset.is_hosted:
        return f"runs {fit}"
    at_hand = "" if preset.model.at_hand() else f"weights are not here (hub: {preset.model.hub})"
    return at_hand if fit.startswith("once fetched") else "; ".join(part for part in (at_hand, fit) if part)


def _server(named: Mapping[str, str]) -> bool:
    return "engine.base_url" in named or bool(environ.get("OPENAI_BASE_URL") or environ.get("OPENAI_API_KEY"))


def _encoders(named: Mapping[str, str]) -> Iterator[str]:
    """Yield missing encoders, also of choices inside others, such as retriever@retriever.dense=minilm."""
    own = {key.removesuffix(".model") for key in named if key.endswith((".encoder", ".model"))}  # a person's weights
    chosen = frozenset(part for key in named if (part := parse_override(key).part))  # parts of others
    for key, name in named.items():
        parsed = parse_override(key)
        group, place = parsed.choice_group, parsed.part
        if group not in ENCODERS or name not in groups()[group] or (place or group) in own:
            continue
        for model in _encoder_models(group, name, place or group, chosen | own):
            if reason := _absence(model):
                yield f"{key}={name}: {reason}; or give {key}=PRESET"
                break


@memoize_here
def _absence(model: str) -> str:
    """Return why an encoder's model cannot be loaded on this machine, or ""."""
    from kgqa.util import hub

    try:
        return "" if hub.find_encoder(model) else f"weights are not here (hub: {model})"
    except ConfigError as error:
        return str(error)


@memoize_here
def _encoder_models(group: str, name: str, place: str, chosen: frozenset[str]) -> tuple[str, ...]:
    """Return the models of a configuration, and of its parts unless these are chosen separately."""
    encoder = load_node(group, name)
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


@memoize_here
def _no_data(name: str, given: tuple[tuple[str, str], ...]) -> str:
    """Return why a dataset's file cannot be read, or ""."""
    values = {key: None if value == "null" else value for key, value in given}
    try:
        _ = parts.dataset({**load_node("dataset", name), **values}).file
    except DataError as error:
        return str(error)
    return ""
