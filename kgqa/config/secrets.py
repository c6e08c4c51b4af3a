"""Reject secrets in a configuration, which is written to a run's files and to trackers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from kgqa.config.files import Config
from kgqa.errors import ConfigError
from kgqa.types import Json
from kgqa.util.redaction import MIN_LENGTH, has_credentials, is_secret, secret_variables

READS = re.compile(r"\$\{\s*(?:oc\.)?env\s*:\s*([A-Za-z_]\w*)")  # OmegaConf's way to a variable
WRITTEN = "would be written into the run's files"
ELSEWHERE: Mapping[str, str] = {  # where a secret is read from instead
    "engine.base_url": "put the key into the variable that engine.api_key_env names, $OPENAI_API_KEY",
    "graph.url": "put the key into the variable that graph.token_env names",
    "tracker.uri": "leave the key out and set MLFLOW_TRACKING_URI, or MLFLOW_TRACKING_USERNAME and _PASSWORD",
    "retriever": "KGQA_ES_URL, KGQA_ES_USER and KGQA_ES_PASSWORD are read instead",
}
NOTHING_ELSE = (
    "leave it out: engine.api_key_env names a server's key, and libraries read HF_TOKEN, WANDB_API_KEY, "
    "MLFLOW_TRACKING_* and KGQA_ES_* themselves"
)


def check_references(written: Config) -> None:
    """Check a configuration before its references are resolved.

    Raises:
        ConfigError: a value reads a variable that holds a key by its name.
    """
    for key, text in _texts(written):
        named = [variable for variable in READS.findall(text) if is_secret(variable)]
        if named:
            raise ConfigError(f"{key} reads ${named[0]}, which looks like a secret and {WRITTEN}; {_remedy(key)}")


def check_values(resolved: Config) -> None:
    """Check the configuration as it would be written.

    Raises:
        ConfigError: a value is or holds a key of the environment, or an address with a name, password or key in it.
            None is repeated.
    """
    held = {**secret_variables(), **_keys_named_in(resolved)}
    for key, text in _texts(resolved):
        for variable, value in held.items():
            if value.strip() in text:
                raise ConfigError(f"{key} holds the value of ${variable}, which {WRITTEN}; {_remedy(key)}")
        if has_credentials(text):
            raise ConfigError(
                f"{key}: an address must hold no name, password or query with a key, as it {WRITTEN}; {_remedy(key)}"
            )


def _keys_named_in(config: Config) -> dict[str, str]:
    """Return the secrets in variables that the configuration names: `engine.api_key_env`, `graph.token_env`."""
    named = {text for key, text in _texts(config) if key.endswith("_env")}
    return {name: value for name in named if len((value := os.environ.get(name, "")).strip()) > MIN_LENGTH}


def _texts(value: Json, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text of a configuration with its key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(name, key)
            yield from _texts(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner, key)


def _remedy(key: str) -> str:
    return ELSEWHERE.get(key) or ELSEWHERE.get(key.partition(".")[0]) or NOTHING_ELSE
