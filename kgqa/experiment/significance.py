"""The keys of statistical tests, which `kgqa compare`, `kgqa plan` and `kgqa report --table` share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from kgqa.config.building import check_value
from kgqa.report.columns import COSTS
from kgqa.scoring.questions import METRICS
from kgqa.util.validators import Validator

Significance = Annotated[
    float, Validator("must be above 0 and up to 0.5", lambda alpha: 0 < alpha <= 0.5)
]


def read_metrics(metrics: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names of a list, or of a text such as "f1,EM", in any case. Without a name there are none."""
    listed = metrics.strip("[]").split(",") if isinstance(metrics, str) else metrics
    names = [name.strip() for name in listed]
    known = {name.casefold(): name for name in (*METRICS, *COSTS, "judge", "corrected")}
    return tuple(known.get(name.casefold(), name) for name in names if name)


def check_alpha(alpha: str | float) -> float:
    """Return a level of significance. Raises ConfigError: it is not valid."""
    level: float = check_value("alpha", alpha, Significance)
    return level
