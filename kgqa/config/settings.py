"""The keys of a run that belong to no component, checked."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from kgqa.config.files import Config
from kgqa.errors import ConfigError
from kgqa.types import Json

# none of these can change an answer, so none is part of a run's identity
NOT_IDENTITY = (
    "limit",
    "ids",
    "name",
    "out",
    "dry_run",
    "max_parallel_questions",
    "max_failure_rate",
    "profile",
    "choices",
    "experiment",
    "judge",
    "verify",
    "tracker",
    "collect",
    "allow_trained_questions",
    "train",
    "bootstrap",
)
# of an engine: how a server is reached and for how long, not what it answers
REACHING = ("api_key_env", "concurrency", "timeout", "retries", "backoff", "patience", "budget_tokens", "budget_usd")


@dataclass(frozen=True)
class RunSettings:
    """`conf/config.yaml` without its groups; see there for what each key means."""

    limit: int | None
    sample: int | None
    ids: tuple[str, ...] | None
    seed: int
    max_parallel_questions: int | None
    max_failure_rate: float
    name: str | None
    out: str | None
    dry_run: bool
    profile: str | None
    require_existing: bool
    roles: dict[str, str | None]
    allow_trained_questions: bool

    @classmethod
    def of(cls, config: Config) -> RunSettings:
        """Check the keys; raise a ConfigError that names the key and its value."""
        from pydantic import ConfigDict, TypeAdapter, ValidationError

        ids = config["ids"]
        values = {
            **{
                field.name: config[field.name] for field in fields(cls) if field.name not in ("ids", "require_existing")
            },
            "ids": [ids] if isinstance(ids, str | int) else ids,
            "require_existing": config["kg"]["require_existing"],
        }
        checked = {}
        for key, value in values.items():
            adapter: TypeAdapter[Json] = TypeAdapter(
                cls.__annotations__[key], config=ConfigDict(coerce_numbers_to_str=True)
            )
            try:
                checked[key] = adapter.validate_python(value)
            except ValidationError as error:
                shown = "kg.require_existing" if key == "require_existing" else key
                raise ConfigError(f"{shown}={value}: {error.errors()[0]['msg'].lower()}") from error
        settings = cls(**checked)
        settings._check_ranges()
        return settings

    def _check_ranges(self) -> None:
        for key in ("limit", "sample", "max_parallel_questions"):
            value = getattr(self, key)
            if value is not None and value < 1:
                raise ConfigError(f"{key}={value}: must be at least 1")
        if not 0 <= self.max_failure_rate <= 1:
            raise ConfigError(f"max_failure_rate={self.max_failure_rate}: must be a share, from 0 to 1")
        if self.name is not None and (not self.name or Path(self.name).name != self.name or self.name.startswith(".")):
            raise ConfigError(f"name={self.name}: must be a plain folder name, without slashes or a leading dot")
        if self.out is not None and not self.out:
            raise ConfigError("out=: give the run's folder, or leave it out")
