"""Choose what the overrides leave open: the model, its engine, and the kind and model of a server."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from kgqa.artifacts.run import SCRIPTED_TARGET
from kgqa.config import building as parts
from kgqa.config.composing import compose
from kgqa.config.files import Config, list_choices
from kgqa.config.overrides import format_override, override_group, override_key
from kgqa.config.short_forms import SERVER, model_slug
from kgqa.engines.openai.access import DEFAULT_URL, find_address
from kgqa.engines.openai.detection import (
    ServedModels,
    detect_server,
    has_only_chat,
    is_same_model,
)
from kgqa.engines.openai.engine import UNKNOWN_CONTEXT, OpenAI, name_at_server
from kgqa.errors import ConfigError
from kgqa.system.models import Preset, describe_model, list_local_models
from kgqa.types import Json
from kgqa.util.validators import Count

OPENAI_TARGET = f"{OpenAI.__module__.rpartition('.')[0]}.{OpenAI.__name__}"
# models of a server in a message
SHOWN = 10
# a configuration without open choices, and remarks on what was chosen
Completed = tuple[Config, tuple[str, ...]]


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
    choices = config["choices"]
    for group in ("method", "experiment"):
        if name := choices.get(group):
            named |= {choice.group for choice in list_choices(group, name)}
    if target == SCRIPTED_TARGET or {"model", "engine"} <= named:
        return config, ()
    added = {}
    if "model" in named:
        preset = Preset(choices["model"], parts.model(config["model"]))
    else:
        fit = list_local_models(choices["engine"] if "engine" in named else "")
        # `check` reports it if the run needs a model
        if not fit:
            return config, ()
        preset = fit[0]
        added["model"] = preset.name
    if "engine" not in named:
        added["engine"] = preset.engine
    if any(choices[group] != name for group, name in added.items()):
        config = compose([*overrides, *(f"{group}={name}" for group, name in added.items())])
    return config, (describe_model(preset),) if "model" in added else ()


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
        return _show_served({**config, "engine": engine}), ()
    models = detect_server(url, engine["api_key_env"], engine["server_timeout"])
    served = _choose_served(models, config, is_model_named=is_model_named)
    if not is_model_named:
        config = compose([*overrides, format_override("model", served)])
    elif served != name_at_server(model["name"], model["hub"]):
        engine = {**engine, "served_model": served}
    limit, is_set = (
        models.contexts.get(served),
        any(override_key(each) == "model.context" for each in overrides),
    )
    # the other settings of the model are checked later
    context = parts.check_value("model.context", config["model"]["context"], Count | None)
    if context is None:
        context = limit or UNKNOWN_CONTEXT
    elif limit and models.truncates and not is_set:
        context = min(context, limit)
    kind = engine["server"] or models.kind
    is_chat_only = (
        kind == "hosted"
        # of known servers, it is known that they have both endpoints
        and not models.software
        and not any(override_key(each) == "engine.endpoints" for each in overrides)
        and has_only_chat(models.url, engine["api_key_env"], served)
    )
    config = {
        **config,
        "engine": {
            **engine,
            "base_url": engine["base_url"] if models.url == url else models.url,
            "server": kind,
            "endpoints": "chat" if is_chat_only else engine["endpoints"],
        },
        "model": {**config["model"], "context": context},
    }
    tokens = min(context, limit or context)
    software = models.software or "OpenAI-compatible"
    remarks = [f"server: {software} at {models.url}, model {served}, context {tokens:,} tokens"]
    if is_chat_only:
        remarks.append(
            "The server has no /completions, so kgqa sends plain prompts as messages: engine.endpoints=chat"
        )
    if models.truncates and not is_set:
        remarks.append(
            f"warning: Ollama truncates longer prompts without an error, so kgqa sends at most {context:,} tokens. If "
            "the server runs with a larger OLLAMA_CONTEXT_LENGTH, set model.context= to it."
        )
    return _show_served(config), tuple(remarks)


def _choose_served(served: ServedModels, config: Config, *, is_model_named: bool) -> str:
    """Return the name of the model at the server. Raises ConfigError if it is not served, or not the only one."""
    model, served_model = config["model"], config["engine"]["served_model"]
    expected, choice = (
        str(served_model or name_at_server(model["name"], model["hub"])),
        str(config["choices"]["model"]),
    )
    known_names = {*served.contexts, *served.names}
    is_named = is_model_named or served_model
    if is_named and (not known_names or expected in known_names):
        return expected
    if not known_names:
        variable = config["engine"]["api_key_env"]
        reason = f": {served.rejection.rstrip('.')}" if served.rejection else ""
        has_key = bool(os.environ.get(variable))
        if served.rejection.startswith(("502", "503", "504")):
            # a proxy answers for the server
            remedy = "The server behind this address is down. Start it, or wait until it is ready."
        elif served.rejection.startswith("401"):
            # every request needs a valid key, so that a model's name does not help
            remedy = f"Check the address and {'the key in' if has_key else 'set'} {variable}."
        elif has_key:
            remedy = f"Check the address and the key in {variable}, or name a model: model=NAME."
        else:
            remedy = f"Check the address, set {variable} if the server needs a key, or name a model: model=NAME."
        raise ConfigError(f"{served.url} does not list its models{reason}. {remedy}")
    if is_named:
        names = (expected, choice, str(model["name"]))
        fitting = [name for name in known_names if any(is_same_model(name, each) for each in names)]
    else:
        fitting = list(served.contexts)
    if len(fitting) == 1 and not served_model:
        return fitting[0]
    listed = sorted(served.contexts)
    more = f" and {len(listed) - SHOWN:,} more" if len(listed) > SHOWN else ""
    remedy = f"Choose one with model=NAME: {', '.join(listed[:SHOWN])}{more}."
    if not is_named:
        raise ConfigError(f"{served.url} serves {len(listed):,} models. {remedy}")
    source = f"engine.served_model={served_model}" if served_model else f"model={choice}"
    wanted = "" if expected in (served_model, choice) else f" ({expected})"
    raise ConfigError(
        f"{source}{wanted}: {served.url} does not serve it. {remedy} If one of them is the model of the preset, add "
        "engine.served_model=NAME."
    )


def _show_served(config: Config) -> Config:
    """Return the configuration with the served model as the model's name, if it is another than the preset's."""
    model, served = config["model"], config["engine"]["served_model"]
    choices = config["choices"]
    names: tuple[Json, ...] = (choices["model"], model["name"], model["hub"])
    if not served or any(is_same_model(served, str(name)) for name in names if name):
        return config
    return {**config, "choices": {**choices, "model": model_slug(served)}}
