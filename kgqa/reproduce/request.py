"""Parse the command line of `kgqa reproduce`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kgqa.config.overrides import override_key, override_values
from kgqa.errors import ConfigError, nearest
from kgqa.experiment.session.budget import Budget
from kgqa.reproduce.artifacts import TRAINED
from kgqa.reproduce.protocol import Protocol, find_protocol
from kgqa.reproduce.published import PublishedTable
from kgqa.reproduce.reading import load_table
from kgqa.sweeps.launching import check_launcher

OWN = ("only", "budget", "name", "dry_run", "protocol", "protocol.dev", "protocol.test")
MAKE = "make."  # what the commands are given that make what cells lack: make.train.base=…


@dataclass(frozen=True)
class ReproduceRequest:
    table: PublishedTable
    overrides: tuple[str, ...]  # of every cell
    hydra: tuple[str, ...]  # of a launcher
    only: str | None
    name: str | None
    budget: Budget | None
    dry_run: bool
    protocol: Protocol | None  # None: short
    make: tuple[str, ...]  # words for the commands that make what cells lack
    command: tuple[str, ...]

    @classmethod
    def of(cls, table_id: str, given: Sequence[str]) -> ReproduceRequest:
        """Raise ConfigError: an unknown table, key or value."""
        table = load_table(table_id)
        own = {key: value for key, value in override_values(given).items() if key in OWN}
        hydra = tuple(override for override in given if override.startswith(("hydra/", "hydra.")))
        make = tuple(override for override in given if override.startswith(MAKE))
        others = (override for override in given if override not in {*hydra, *make})
        overrides = tuple(override for override in others if override_key(override) not in OWN)
        for override in overrides:
            if override_key(override) == "out":
                raise ConfigError(f"{override}: every cell has a run's folder of its own; give name= for the report's")
        _refuse_unneeded(table, overrides)
        if own.get("dry_run", "false").lower() not in ("true", "false"):
            raise ConfigError(f"dry_run={own['dry_run']}: true or false")
        if "name" in own and (not own["name"] or Path(own["name"]).name != own["name"] or own["name"].startswith(".")):
            raise ConfigError(f"name={own['name']}: must be a plain folder name, without slashes or a leading dot")
        budget = Budget.of(own["budget"]) if "budget" in own else None
        for override in hydra:
            if not override.startswith(("hydra/launcher=", "hydra.launcher.")):
                raise ConfigError(
                    f"{override}: nothing reads it; a table names its cells itself, hydra/launcher= runs them"
                )
        check_launcher(hydra, budget)
        dry_run = own.get("dry_run", "false").lower() == "true"
        protocol = _protocol(table_id, own, (*overrides, *hydra))
        command = ("kgqa", "reproduce", table_id, *given)
        words = tuple(override.removeprefix(MAKE) for override in make)
        return cls(table, overrides, hydra, own.get("only"), own.get("name"), budget, dry_run, protocol, words, command)

    def with_trained(self, given: Sequence[str]) -> ReproduceRequest:
        """Return the request with trained.NAME=FOLDER for the artifacts that cells lack."""
        return replace(self, overrides=(*self.overrides, *given))


def _protocol(table_id: str, own: Mapping[str, str], others: Sequence[str]) -> Protocol | None:
    """Raise ConfigError: an unknown one, or a key that it decides itself."""
    changed = {key.removeprefix("protocol."): value for key, value in own.items() if key.startswith("protocol.")}
    for key, value in changed.items():
        if not value.isdecimal() or int(value) < 1:
            raise ConfigError(f"protocol.{key}={value}: must be a number from 1")
    numbers = {key: int(value) for key, value in changed.items()}
    protocol = find_protocol(table_id, own.get("protocol", "short"), numbers)
    for override in others if protocol else ():
        if override_key(override) in ("limit", "sample", "ids") or override.startswith(("hydra/", "hydra.")):
            remedy = "give protocol.dev= and protocol.test=" if not override.startswith("hydra") else "leave it out"
            raise ConfigError(
                f"{override}: protocol=paper says itself what is asked, one run after the other; {remedy}"
            )
    return protocol


def _refuse_unneeded(table: PublishedTable, overrides: Sequence[str]) -> None:
    """Raise ConfigError: what is given as trained is needed by no cell of the table."""
    needed = {name for cell in table.cells for _, name in cell.trained}
    for override in overrides:
        name = override_key(override).removeprefix(TRAINED)
        if override.startswith(TRAINED) and name not in needed:
            hint = nearest(name, needed) if needed else "none of its cells needs anything trained"
            raise ConfigError(f"{override}: no cell of {table.id} needs it; {hint}")
