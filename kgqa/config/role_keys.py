"""Keys of a role, such as `roles.judge.model=PRESET roles.judge.engine.tensor_parallel=4`. Short: `roles.judge=PRESET`.

A composed configuration has the choice of each role as a text in `roles`, and the settings of its engine in
`role_engines`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kgqa.errors import ConfigError
from kgqa.types import Json

ROLE_ENGINES = "role_engines"
MODEL, ENGINE = "model", "engine"
# name of the engine, next to its settings
ENGINE_NAME = "engine_name"


def find_role_key(roles: Json, key: str) -> str:
    """Return the place of a key. A choice that is a text becomes a node, so that settings can join it."""
    group, _, rest = key.partition(".")
    if group != "roles" or not rest:
        return key
    role, _, setting = rest.partition(".")
    if not setting:
        return f"{key}.{MODEL}" if isinstance(roles.get(role), Mapping) else key
    if not isinstance(roles.get(role), Mapping):
        roles[role] = {MODEL: roles.get(role)}
    return f"roles.{role}.{ENGINE_NAME}" if setting == ENGINE else key


def split_roles(
    roles: Mapping[str, Json],
) -> tuple[dict[str, str | None], dict[str, dict[str, Json]]]:
    """Return the choice of each role, `[PRESET][+ADAPTER][@ENGINE]`, and the settings of its engine."""
    choices, engines = dict[str, str | None](), dict[str, dict[str, Json]]()
    for role, value in roles.items():
        if not isinstance(value, Mapping):
            choices[role] = value
            continue
        for name in value:
            if name not in (MODEL, ENGINE, ENGINE_NAME):
                raise ConfigError(
                    f"roles.{role}.{name}: unknown key. A role has roles.{role}.model, roles.{role}.engine and the "
                    f"keys of its engine, e.g. roles.{role}.engine.max_model_len"
                )
        model, settings, engine = (value.get(name) for name in (MODEL, ENGINE, ENGINE_NAME))
        for key, named in ((f"{role}.{MODEL}", model), (f"{role}.{ENGINE}", engine)):
            if isinstance(named, Mapping | list):
                raise ConfigError(
                    f"roles.{key} must be one name, got {named}. "
                    f"Set its settings one by one, e.g. roles.{role}.engine.max_model_len=4096"
                )
        # a file can have `engine: vllm`
        if isinstance(settings, str):
            settings, engine = {}, engine or settings
        choices[role] = f"{model or ''}{f'@{engine}' if engine else ''}" or None
        if settings:
            if not isinstance(settings, Mapping):
                raise ConfigError(
                    f"roles.{role}.engine must be one name or settings of an engine, got {settings}. "
                    f"Example: roles.{role}.engine=vllm"
                )
            engines[role] = dict(settings)
    return choices, engines
