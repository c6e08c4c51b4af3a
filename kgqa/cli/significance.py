"""The keys of statistical tests, which `kgqa compare` and `kgqa report --table` share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from kgqa.config.building import check_value
from kgqa.report.columns import COSTS
from kgqa.scoring.comparison import ALPHA, HOLM, check_correction
from kgqa.scoring.questions import METRICS
from kgqa.util.validators import Validator

Significance = Annotated[
    float, Validator("must be above 0 and up to 0.5", lambda alpha: 0 < alpha <= 0.5)
]


def read_metrics(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of metrics=, in any case: EM is em. Without the key there are none."""
    names = [name.strip() for name in values.get("metrics", "").strip("[]").split(",")]
    known = {name.casefold(): name for name in (*METRICS, *COSTS, "judge", "corrected")}
    return tuple(known.get(name.casefold(), name) for name in names if name)


def check_test(values: Mapping[str, str]) -> tuple[float, str]:
    """Return alpha= and correction=. Raises ConfigError: one is not valid."""
    alpha = check_value("alpha", values.get("alpha", f"{ALPHA:g}"), Significance)
    return alpha, check_correction(values.get("correction", HOLM))
