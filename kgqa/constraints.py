"""What the values of a configuration may be, said beside their types: `beam: Count`.

A dataclass does not check itself: `experiment.config.building` holds every value against its bounds when it builds a
part from a configuration, and says in one line which key is wrong.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any


@dataclass(frozen=True)
class Bound:
    """What a value must be. `words` come after "key=value: "; `holds` gets a value of the type beside it."""

    words: str
    holds: Callable[[Any], bool]


def at_least(least: int) -> Bound:
    return Bound(f"must be at least {least}", lambda number: number >= least)


def matches(pattern: str, words: str) -> Bound:
    """For texts, as a whole."""
    return Bound(words, lambda text: re.fullmatch(pattern, text) is not None)


not_negative = Bound("must not be negative", lambda number: number >= 0)

Count = Annotated[int, at_least(1)]
Natural = Annotated[int, at_least(0)]
NotNegative = Annotated[float, not_negative]
Positive = Annotated[float, Bound("must be above 0", lambda number: number > 0)]
Seconds = Annotated[float, Bound("must be a number of seconds above 0", lambda seconds: 0 < seconds < math.inf)]
Share = Annotated[float, Bound("must be between 0 and 1", lambda share: 0 <= share <= 1)]
Url = Annotated[str, Bound("expected http://… or https://…", lambda url: url.startswith(("http://", "https://")))]
