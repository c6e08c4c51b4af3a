"""Choose what the overrides leave open: the model, its engine, and the kind and model of a server."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from kgqa.artifacts.run import SCRIPTED_TARGET
from kgqa.config import building as parts
from kgqa.config.composing import compose
from kgqa.config.files import Config, list_choices
from kgqa.config.overrides import format_override, override_group, override_key
from kgqa.config.short_forms import SERVER, model_slug
from kgqa.engines.openai.detection import ServedModels, detect_server, last_seen_server
from kgqa.engines.openai.engine import UNKNOWN_CONTEXT, OpenAI, name_at_server
from kgqa.engines.openai.names import is_same_model
from kgqa.engines.openai.transport import DEFAULT_URL, find_address
from kgqa.errors import ConfigError, ServerLost
from kgqa.system.models import Preset, describe_model, list_local_models
from kgqa.types import Json
from kgqa.util.optional_deps import missing_libraries

OPENAI_TARGET = f"{OpenAI.__module__.rpartition('.')[0]}.{OpenAI.__name__}"
SHOWN = 10  # models of a server in a message


class Completed(NamedTuple):
    """A configuration without open choices. `remarks`: what was chosen, for users."""

    config: Config
    remarks: tuple[str, ...] = ()


def complete(config: Config, overrides: Sequence[str]) -> Completed:
    """Return the configuration with the model, the engine and the server's facts that the overrides leave open.

    Raises:
        ConfigError: a model is not served, or the server has several and none is chosen.
        EngineDied: there is no server.
    """
    target = config["engine"]["_target_"]
    keys = {override_key(override) for override in overrides}
    named = {override_group(override) for override in overrides} - {"model"}
    if keys & {"model", "model.hub", "model.path"}:
        named.add("model")
    if target == OPENAI_TARGET:
        return _complete_server(config, overrides, named)
    brought = {
        choice.group
        for group in ("method", "experiment")
        if (name := config["choices"].get(group))
        for choice in list_choices(group, name)
    }
    if target == SCRIPTED_TARGET or {"model", "engine"} <= named | brought:
        return Completed(config)
    words, remarks = list[str](), list[str]()
    if "model" in named | brought:
        preset = Preset(config["choices"]["model"], parts.model(config["model"]))
    else:
        fit = list_local_models(config["choices"]["engine"] if "engine" in named | brought else "")
        if not fit:  # `check` reports it if the run needs a model
            return Completed(config)
        preset = fit[0]
        words.append(f"model={preset.name}")
        remarks.append(describe_model(preset))
    if "engine" not in named | brought:
        words.append(f"engine={choose_engine(preset)}")
    changed = [word for word in words if word.partition("=")[2] != config["choices"][override_key(word)]]
    return Completed(compose([*overrides, *words]) if changed else config, tuple(remarks))


def choose_engine(preset: Preset) -> str:
    """Return the preset's first engine with installed libraries, else its first."""
    return next((engine for engine in preset.engines if not missing_libraries(engine)), preset.engines[0])


def _complete_server(config: Config, overrides: Sequence[str], named: Collection[str]) -> Completed:
    engine, model, is_model_named = config["engine"], config["model"], "model" in named
    url = find_address(engine["base_url"], engine["api_key_env"])
    if url == DEFAULT_URL and not is_model_named and not engine["served_model"]:
        raise ConfigError(
            "engine=openai: which model? Name it, e.g. model=gpt_4o_mini. For your own server: server=URL."
        )
    is_hosted = SERVER not in named and (model.get("about") or {}).get("engines") == ["openai"]
    if is_model_named and (engine["server"] or is_hosted):
        engine = {**engine, "server": engine["server"] or "hosted"}
        return Completed(_show_served({**config, "engine": engine}))
    found, is_seen_now = _find_server(url, engine, is_model_named=is_model_named)
    served = _choose_served(found, config, is_model_named=is_model_named)
    if not is_model_named:
        config = compose([*overrides, format_override("model", served)])
    elif served != name_at_server(model["name"], model["hub"]):
        engine = {**engine, "served_model": served}
    limit, is_set = found.contexts.get(served), any(override_key(each) == "model.context" for each in overrides)
    context = config["model"]["context"]
    if context is None:
        context = limit or UNKNOWN_CONTEXT
    elif limit and found.truncates and not is_set:
        context = min(context, limit)
    kind = engine["server"] or found.kind
    config = {
        **config,
        "engine": {**engine, "base_url": engine["base_url"] if found.url == url else found.url, "server": kind},
        "model": {**config["model"], "context": context},
    }
    tokens = min(context, limit or context)
    software = found.software or "OpenAI-compatible"
    remarks = [f"server: {software} at {found.url}, model {served}, context {tokens:,} tokens"]
    if not is_seen_now:
        remarks.append(f"warning: {found.url} does not respond. kgqa uses the models that it listed last time.")
    if found.truncates and not is_set:
        remarks.append(
            f"warning: Ollama truncates longer prompts without an error, so kgqa sends at most {context:,} tokens. If "
            "the server runs with a larger OLLAMA_CONTEXT_LENGTH, set model.context= to it."
        )
    return Completed(_show_served(config), tuple(remarks))


def _find_server(url: str, engine: Config, *, is_model_named: bool) -> tuple[ServedModels, bool]:
    """Return the models at an address, and whether the server answers now.

    If it does not, its last answer is enough to find a finished run of a named model. Before a new call,
    the client waits for the server and compares its models.
    """
    seen = last_seen_server(url) if is_model_named else None
    try:
        return detect_server(url, engine["api_key_env"], 0.0 if seen else engine["server_timeout"]), True
    except ServerLost:
        if seen is None:
            raise
        return seen, False


def _choose_served(found: ServedModels, config: Config, *, is_model_named: bool) -> str:
    """Return the name of the model at the server. Raises ConfigError if it is not served, or not the only one."""
    model, given = config["model"], config["engine"]["served_model"]
    expected = given or name_at_server(model["name"], model["hub"])
    known = {*found.contexts, *found.names}
    if not known:
        if is_model_named or given:
            return str(expected)
        variable = config["engine"]["api_key_env"]
        key = "" if os.environ.get(variable) else f" If it needs a key, set {variable}."
        raise ConfigError(f"{found.url} does not list its models. Name one: model=NAME.{key}")
    if given or is_model_named:
        if expected in known:
            return str(expected)
        names = [str(expected), str(config["choices"]["model"]), str(model["name"])]
        same = [] if given else [each for each in known if any(is_same_model(each, name) for name in names)]
        if len(same) == 1:
            return same[0]
        chosen = f"engine.served_model={given}" if given else f"model={config['choices']['model']}"
        wanted = "" if given or str(expected) == config["choices"]["model"] else f" ({expected})"
        remedy = _list_served(found.contexts)
        if len(found.contexts) == 1:
            (only,) = found.contexts
            remedy = f"It serves only {only}. Leave {chosen.partition('=')[0]}= out to use that"
            remedy += "." if given else f", or add engine.served_model={only} if it is the same model."
        raise ConfigError(f"{chosen}{wanted}: {found.url} does not serve it. {remedy}")
    if len(found.contexts) == 1:
        return next(iter(found.contexts))
    raise ConfigError(f"{found.url} serves {len(found.contexts):,} models. {_list_served(found.contexts)}")


def _list_served(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - SHOWN:,} more" if len(listed) > SHOWN else ""
    return f"Choose one with model=NAME: {', '.join(listed[:SHOWN])}{more}."


def _show_served(config: Config) -> Config:
    """Return the configuration with the served model as the model's name, if it is another than the preset's."""
    model, served = config["model"], config["engine"]["served_model"]
    choices = config["choices"]
    names: tuple[Json, ...] = (choices["model"], model["name"], model["hub"])
    if not served or any(is_same_model(served, str(name)) for name in names if name):
        return config
    return {**config, "choices": {**choices, "model": model_slug(served)}}
