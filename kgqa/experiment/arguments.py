"""Command lines of places, flags and key=value, as `kgqa evaluate`, `compare` and `judge` take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kgqa.errors import ConfigError, nearest
from kgqa.experiment.config.overrides import override_group


@dataclass(frozen=True, slots=True)
class Arguments:
    places: tuple[Path, ...]  # folders and files
    overrides: tuple[str, ...]  # key=value
    flags: frozenset[str]


def parse(arguments: Sequence[str], usage: str, flags: Sequence[str] = ()) -> Arguments:
    """What is on disk is a place, whatever its name.

    Raises:
        ConfigError: an unknown flag.
    """
    given = [each for each in arguments if each.startswith("--")]
    for flag in given:
        if flag not in flags:
            raise ConfigError(f"{flag}: no such option; {usage}")
    others = [each for each in arguments if not each.startswith("--")]
    overrides = [each for each in others if "=" in each and not Path(each).exists()]
    places = [Path(each) for each in others if each not in overrides]
    return Arguments(tuple(places), tuple(overrides), frozenset(given))


def refuse_other_keys(overrides: Sequence[str], keys: Sequence[str], usage: str) -> None:
    """Raises ConfigError for a key that would change nothing here."""
    for override in overrides:
        if (key := override_group(override)) not in keys:
            raise ConfigError(f"{override}: not a key of this command; {nearest(key, keys)}; {usage}")
