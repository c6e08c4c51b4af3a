"""The keys of a run that belong to no component, checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kgqa.errors import ConfigError
from kgqa.experiment.config.files import Config
from kgqa.types import Json

# none of these can change an answer, so none is part of a run's identity
NOT_IDENTITY = (
    "limit",
    "ids",
    "name",
    "out",
    "dry_run",
    "width",
    "fail_above",
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
FAILED_BEFORE = 0.05  # the limit before `fail_above` was a key
# of an engine: how a server is reached and for how long, not what it answers
REACHING = ("api_key_env", "concurrency", "timeout", "retries", "backoff", "patience", "budget_tokens", "budget_usd")


@dataclass(frozen=True)
class RunSettings:
    """`conf/config.yaml` without its groups; see there for what each key means."""

    limit: int | None
    sample: int | None
    ids: tuple[str, ...] | None
    seed: int
    width: int | None
    fail_above: float
    name: str | None
    out: str | None
    dry_run: bool
    profile: str | None
    offline: bool
    roles: dict[str, str | None]
    allow_trained_questions: bool

    @classmethod
    def of(cls, config: Config) -> RunSettings:
        """Raises ConfigError naming the key and its value."""
        from pydantic import ConfigDict, TypeAdapter, ValidationError

        ids = config["ids"]
        values = {
            **{key: config[key] for key in ("limit", "seed", "width", "name", "out", "dry_run", "profile", "roles")},
            # a configuration that was kept may be older than these keys
            "sample": config.get("sample"),
            "fail_above": config.get("fail_above", FAILED_BEFORE),
            "ids": [ids] if isinstance(ids, str | int) else ids,
            "allow_trained_questions": config.get("allow_trained_questions", False),
            "offline": config["kg"]["offline"],
        }
        checked = {}
        for key, value in values.items():
            adapter: TypeAdapter[Json] = TypeAdapter(
                cls.__annotations__[key], config=ConfigDict(coerce_numbers_to_str=True)
            )
            try:
                checked[key] = adapter.validate_python(value)
            except ValidationError as error:
                shown = "kg.offline" if key == "offline" else key
                raise ConfigError(f"{shown}={value}: {error.errors()[0]['msg'].lower()}") from error
        settings = cls(**checked)
        settings._check_ranges()
        return settings

    def _check_ranges(self) -> None:
        for key in ("limit", "sample", "width"):
            value = getattr(self, key)
            if value is not None and value < 1:
                raise ConfigError(f"{key}={value}: must be at least 1")
        if not 0 <= self.fail_above <= 1:
            raise ConfigError(f"fail_above={self.fail_above}: must be a share, from 0 to 1")
        if self.name is not None and (not self.name or Path(self.name).name != self.name or self.name.startswith(".")):
            raise ConfigError(f"name={self.name}: must be a plain folder name, without slashes or a leading dot")
        if self.out is not None and not self.out:
            raise ConfigError("out=: give the run's folder, or leave it out")
