"""Check whether models and data of overrides are on this machine, and choose engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from os import environ

from kgqa.cache.maintenance import existing
from kgqa.cache.store import Origin
from kgqa.config import building as parts
from kgqa.config.composing import resolve_node
from kgqa.config.files import config_files, list_choices
from kgqa.config.keys import load_node
from kgqa.config.overrides import (
    RoleChoice,
    override_key,
    override_values,
    parse_override,
    parse_role,
)
from kgqa.config.short_forms import SERVER
from kgqa.datasets.base import FileDataset
from kgqa.errors import ConfigError, DataError, StorageError, UsageError
from kgqa.system.models import Preset, find_adapter, find_obstacle, load_presets
from kgqa.util import hub
from kgqa.util.places import call_cache

ENCODERS = ("ranker", "demonstrations_ranker", "retriever", "reranker")
DATA_KEYS = ("path", "split", "aliases", "corpus")


def add_engines(overrides: Sequence[str]) -> tuple[str, ...]:
    """Add an engine for each model that has none, one that suits its weights on this machine."""
    values = override_values(overrides)
    engine = values.get("engine")
    engines = {
        key: preset.engine
        for key, choice, preset in _list_models(values)
        if preset and not choice.engine
    }
    own = engines.pop("model", None)
    completed = []
    for override in overrides:
        suited = engines.get(override_key(override))
        completed.append(f"{override}@{engine or suited}" if suited else override)
    if own and engine is None and SERVER not in values:
        completed.append(f"engine={own}")
    return tuple(completed)


def find_missing(overrides: Sequence[str]) -> list[str]:
    """Return what prevents these overrides from running here, each with its remedy."""
    values = override_values(overrides)
    return [*_missing_models(values), *_missing_encoders(values), *_missing_data(values)]


def _list_models(values: Mapping[str, str]) -> Iterator[tuple[str, RoleChoice, Preset | None]]:
    """Yield the key, the choice and the preset of each model."""
    for key, value in values.items():
        if key in ("model", "judge.model") or key.startswith("roles."):
            choice = parse_role(value)
            path = choice.path or (values.get("model.path", "") if key == "model" else "")
            preset = load_presets().get(choice.preset)
            if isinstance(preset, UsageError):
                raise preset
            if preset and path:
                preset = replace(preset, model=replace(preset.model, path=path))
            yield key, choice, preset


def _missing_models(values: Mapping[str, str]) -> Iterator[str]:
    if not _calls_models(values.get("method", "")) or values.get("method.list", "null") != "null":
        return
    variables = ("OPENAI_BASE_URL", "OPENAI_API_KEY")
    has_server = {"engine.base_url", SERVER} & values.keys() or any(map(environ.get, variables))
    for key, choice, preset in _list_models(values):
        engine = choice.engine or (
            "openai" if key == "model" and SERVER in values else values.get("engine", "")
        )
        try:
            _ = choice.adapter and find_adapter(choice.adapter).folder
        except ConfigError as error:
            yield f"{key}={values[key]}: {error}"
        if preset is None or engine == "scripted":
            continue
        if engine == "openai":
            if not has_server:
                yield f"{key}={preset.name}: no server. Write server=URL, or set OPENAI_BASE_URL or OPENAI_API_KEY"
            continue
        obstacle = find_obstacle(preset)
        if preset.is_hosted:
            reasons = [f"runs {obstacle}"]
        else:
            absent = (
                ""
                if preset.model.at_hand()
                else f"weights are not on this machine (hub: {preset.model.hub})"
            )
            reasons = [reason for reason in (absent, obstacle) if reason]
        # the last check, because it can read the whole cache
        if reasons and not _has_replies(preset, engine):
            yield f"{key}={preset.name}: {'. '.join(reasons)}. Or set {key}=PRESET"


def _has_replies(preset: Preset, engine: str) -> bool:
    """Return whether the call cache has replies of these weights, from which a run can be repeated without them."""
    if preset.model.sha256 is None:
        return False
    try:
        with existing(call_cache()) as database:
            return database.has_calls(Origin(engine, preset.model.sha256))
    except (DataError, StorageError):
        return False


@cache
def _calls_models(method: str) -> bool:
    """Return whether a method calls models. "" is the default method."""
    return method not in config_files("method") or bool(
        parts.method(resolve_node("method", method)).uses & {"model", "triples"}
    )


def _missing_encoders(values: Mapping[str, str]) -> Iterator[str]:
    """Yield missing encoders, also of choices inside others, such as retriever@retriever.dense=minilm."""
    own = {
        key.removesuffix(".model") for key in values if key.endswith((".encoder", ".model"))
    }  # the user's weights
    keys = own | {parse_override(key).part for key in values}
    for key, name in values.items():
        group = parse_override(key).choice_group
        inside = parse_override(key).part or group
        if group not in ENCODERS or name not in config_files(group) or inside in own:
            continue
        for model in _encoder_models(group, name, inside, keys):
            try:
                reason = (
                    ""
                    if hub.find_encoder(model)
                    else f"weights are not on this machine (hub: {model})"
                )
            except ConfigError as error:
                reason = str(error)
            if reason:
                yield f"{key}={name}: {reason}. Or set {key}=PRESET"
                break


def _encoder_models(group: str, name: str, inside: str, keys: set[str]) -> list[str]:
    """Return the models of a configuration, and of its parts unless these are chosen separately."""
    node = load_node(group, name)
    if "base_url" in node:  # a server has the model
        return []
    models = [node[key] for key in ("model", "query_model") if isinstance(node.get(key), str)]
    for part in list_choices(group, name):
        if part.group in ENCODERS and f"{inside}.{part.part}" not in keys:
            models += _encoder_models(part.group, part.name, f"{inside}.{part.part}", keys)
    return models


def _missing_data(values: Mapping[str, str]) -> Iterator[str]:
    name = values.get("dataset", "")
    if name not in config_files("dataset"):
        return
    files = {key: values[f"dataset.{key}"] for key in DATA_KEYS if f"dataset.{key}" in values}
    settings = {key: None if value == "null" else value for key, value in files.items()}
    try:
        dataset = parts.dataset({**load_node("dataset", name), **settings})
        _ = dataset.file
        if settings.get("corpus") and isinstance(dataset, FileDataset):
            _ = dataset.corpus_files
    except DataError as error:
        reason = str(error).removeprefix(f"dataset={name}: ")
        yield f"dataset={name}: no data on this machine ({reason})"
