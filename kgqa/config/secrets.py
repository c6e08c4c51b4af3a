"""Reject secrets in a configuration, which is written to a run's files and to trackers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from kgqa.config.files import Config
from kgqa.errors import ConfigError
from kgqa.types import Json
from kgqa.util.redaction import MIN_LENGTH, has_credentials, is_secret, secret_variables

VARIABLE = re.compile(
    r"\$\{\s*(?:oc\.)?env\s*:\s*([A-Za-z_]\w*)"
)  # as OmegaConf reads the environment
# API keys of OpenAI and Anthropic, Hugging Face, GitHub, GitLab, Groq, xAI, NVIDIA, Perplexity, Google, AWS, Slack
_KEY = re.compile(
    r"(?<![A-Za-z0-9])("
    r"sk-(?=[\w-]*\d)[\w-]{20,}|hf_[A-Za-z0-9]{30,}|gh[opusr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}|"
    r"gsk_[A-Za-z0-9]{30,}|xai-[A-Za-z0-9]{30,}|nvapi-[\w-]{30,}|pplx-[A-Za-z0-9]{30,}|AIza[\w-]{30,}|AKIA[A-Z0-9]{16}|"
    r"xox[abprs]-[\w-]{20,}|(?i:bearer) [\w.~+/-]{16,}"
    r")(?![A-Za-z0-9])"
)
REMEDY = (
    "Leave it out: engine.api_key_env and graph.token_env name the variable with a key, and libraries read HF_TOKEN, "
    "WANDB_API_KEY, MLFLOW_TRACKING_* and KGQA_ES_* themselves"
)


def check_references(config: Config) -> None:
    """Raise a ConfigError if a value reads a secret variable. The references are not resolved yet."""
    for key, text in _texts(config):
        for variable in filter(is_secret, VARIABLE.findall(text)):
            raise _refusal(key, f"reads ${variable}, which looks like a secret and")


def check_values(config: Config) -> None:
    """Raise a ConfigError if a value contains a key of the environment, an API key or an address with credentials.

    The message does not repeat the value.
    """
    named = {
        text for key, text in _texts(config) if key.endswith("_env")
    }  # engine.api_key_env, graph.token_env
    read = {
        name: value
        for name in named
        if len((value := os.environ.get(name, "")).strip()) > MIN_LENGTH
    }
    secrets = {name: value.strip() for name, value in {**secret_variables(), **read}.items()}
    for key, text in _texts(config):
        for variable, value in secrets.items():
            if value in text:
                raise _refusal(key, f"holds the value of ${variable}, which")
        check_text(key, text)
        if has_credentials(text):
            raise _refusal(
                f"{key}:",
                "an address must not contain a user name, a password or a query with a key. It",
            )


def check_text(key: str, text: str) -> None:
    """Raise a ConfigError if a text has the form of an API key. The message does not repeat it."""
    if _KEY.search(text):
        raise _refusal(f"{key}:", "this value looks like an API key, and")


def _refusal(key: str, problem: str) -> ConfigError:
    return ConfigError(f"{key} {problem} would be written into the run's files. {REMEDY}")


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
