"""Parse sweep overrides: `key=a,b`, `choice(…)`, `range(…)` and `glob(…)` become one override per cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from kgqa.config.composing import check_form
from kgqa.errors import ConfigError

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override


@dataclass(frozen=True)
class Axis:
    """One override with the overrides it stands for: a single one where nothing is swept."""

    key: str
    values: tuple[str, ...]
    swept: bool

    def overrides(self) -> list[str]:
        return [f"{self.key}={value}" for value in self.values] if self.swept else list(self.values)


@dataclass(frozen=True)
class Span:
    """A quantity from `low` to `high`, both included; whole numbers where both ends are, `step` apart."""

    low: float
    high: float
    step: int = 1
    log: bool = False  # to be searched on a log scale


def search_space(overrides: Sequence[str]) -> tuple[list[str], dict[str, Span | tuple[str, ...]]]:
    """Return the overrides with one value, and the values that each other key is searched among.

    Raises:
        ConfigError: what Hydra's grammar cannot read.
    """
    pairs = list(zip(overrides, parse_sweeps(overrides), strict=True))
    fixed = [override for override, read in pairs if not read.is_sweep_override()]
    return fixed, {read.get_key_element(): _among(read) for _, read in pairs if read.is_sweep_override()}


def _among(override: Override) -> Span | tuple[str, ...]:
    from hydra.core.override_parser.types import IntervalSweep, RangeSweep

    swept = override.value()
    if isinstance(swept, IntervalSweep):
        low, high = (0.0 if end is None else end for end in (swept.start, swept.end))
        return Span(low, high, log="log" in swept.tags)
    values = list(override.sweep_iterator())
    whole = [value for value in values if isinstance(value, int)]
    if isinstance(swept, RangeSweep) and whole and len(whole) == len(values):
        return Span(min(whole), max(whole), abs(int(swept.step)))
    return tuple(override.sweep_string_iterator())


def parse_axes(overrides: Sequence[str]) -> list[Axis]:
    """Return one axis per override, in the given order.

    Raises:
        ConfigError: what Hydra's grammar cannot read, a key swept twice, or an `interval`, which has no list of values.
    """
    listed = []
    for override, read in zip(overrides, parse_sweeps(overrides), strict=True):
        if not read.is_sweep_override():
            listed.append(Axis(read.key_or_group, (override,), swept=False))
            continue
        if not read.is_discrete_sweep():
            raise ConfigError(f"{override}: has no list of values; only hydra/sweeper=optuna can search an interval")
        values = _distinct(read)
        if not values:
            raise ConfigError(f"{override}: no value fits; see kgqa run --help for the names")
        listed.append(Axis(read.get_key_element(), values, swept=True))
    keys = [axis.key for axis in listed]
    for axis in listed:
        if axis.swept and keys.count(axis.key) > 1:
            raise ConfigError(f"{axis.key}: given twice; list its values in one override")
    return listed


def _distinct(override: Override) -> tuple[str, ...]:
    """Return the values as they are written, each once: `a` and `"a"` are equal, `1` and `"1"` are not."""
    spellings: dict[object, str] = {}
    for value, spelling in zip(override.sweep_iterator(), override.sweep_string_iterator(), strict=True):
        spellings.setdefault(_meaning(value), spelling)
    return tuple(spellings.values())


def _meaning(value: object) -> object:
    """Return an object that is equal for equal values; numbers and booleans differ."""
    from hydra.core.override_parser.types import QuotedString

    if isinstance(value, QuotedString):
        return _meaning(value.text)
    if isinstance(value, list):
        return ("list", *map(_meaning, value))
    if isinstance(value, dict):
        return ("dict", *((_meaning(key), _meaning(below)) for key, below in value.items()))
    return type(value).__name__, value


def expand_grid(axes: Sequence[Axis]) -> list[tuple[str, list[str]]]:
    """Return name and overrides of every cell; the last axis varies fastest."""
    named = []
    for chosen in product(*(axis.overrides() for axis in axes)):
        varying = [override for axis, override in zip(axes, chosen, strict=True) if axis.swept]
        named.append((" ".join(varying) or "all", list(chosen)))
    return named


def parse_sweeps(overrides: Sequence[str]) -> list[Override]:
    """Parse overrides with Hydra's grammar; raise a ConfigError that names the one that cannot be read.

    Raises ConfigError naming the override that cannot be read.
    """
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    from kgqa.config.search_path import hydra_ready

    read = []
    with hydra_ready():
        # the loader knows the names in each group, which glob() asks for
        parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
        for override in overrides:
            check_form(override)
            try:
                read += parser.parse_overrides([override])
            except HydraException as error:
                reason = str(error).strip().splitlines()[0]
                raise ConfigError(
                    f"{override}: cannot be read as a sweep ({reason}); e.g. method.candidates=15,20"
                ) from error
    return read
