"""Parse the command line of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kgqa.config.overrides import override_group, override_values, parse_override
from kgqa.errors import ConfigError, nearest
from kgqa.experiment.session.budget import Budget
from kgqa.sweeps.launching import check_launcher

OWN = ("sweep.name", "sweep.metric", "budget")
SWEEPERS = ("basic", "optuna")  # every combination, or a search


@dataclass(frozen=True)
class SweepRequest:
    overrides: tuple[str, ...]  # of the experiment
    hydra: tuple[str, ...]  # of launcher and sweeper
    name: str | None
    metric: str | None  # that hydra/sweeper=optuna is to raise
    budget: Budget | None
    command: tuple[str, ...]

    @classmethod
    def of(cls, arguments: Sequence[str]) -> SweepRequest:
        """Raise ConfigError for an unknown key of the sweep's own, and for one that would change nothing."""
        own: dict[str, str] = {}
        overrides, hydra = [], []
        for argument in arguments:
            parsed = parse_override(argument)
            key, value = parsed.key, parsed.value
            if key.startswith("sweep.") and key not in OWN:
                raise ConfigError(f"{argument}: unknown key {key!r}; {nearest(key, OWN)}")
            if key in OWN:
                own[key] = value
            elif override_group(argument) == "verify":
                raise ConfigError(f"{argument}: a run answers questions; use kgqa data verify")
            elif key.startswith(("hydra/", "hydra.")):
                hydra.append(argument)
            else:
                overrides.append(argument)
        budget = Budget.of(own["budget"]) if "budget" in own else None
        names, command = (own.get("sweep.name"), own.get("sweep.metric")), ("kgqa", "run", "-m", *arguments)
        request = cls(tuple(overrides), tuple(hydra), *names, budget, command)
        if request.sweeper not in SWEEPERS:
            raise ConfigError(f"hydra/sweeper={request.sweeper}: no such sweeper; {nearest(request.sweeper, SWEEPERS)}")
        if request.sweeper == "basic":
            request._refuse_unread()
        return request

    @property
    def sweeper(self) -> str:
        return override_values(self.hydra).get("hydra/sweeper", "basic")

    def _refuse_unread(self) -> None:
        """Raise ConfigError: a key of a launcher or sweeper that was not chosen, which would change nothing."""
        if self.metric is not None:
            raise ConfigError(f"sweep.metric={self.metric}: only hydra/sweeper=optuna raises a score; add it")
        for override in self.hydra:
            if not override.startswith(("hydra/launcher=", "hydra/sweeper=", "hydra.launcher.")):
                raise ConfigError(f"{override}: nothing reads it; hydra.sweeper.… goes with hydra/sweeper=optuna")
        check_launcher(self.hydra, self.budget)
