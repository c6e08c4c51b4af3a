"""The number of questions that shows a difference between two runs, and the difference that a number shows."""

from __future__ import annotations

import math
from collections.abc import Callable

from kgqa.scoring.comparison import ALPHA, POWER, Difference, questions_needed

MOST = 1_000_000  # questions
# the spread of the pilot is below the cautious one with this probability
_CAUTION = 0.2


def mcnemar_power(
    questions: int, discordant: float, difference: float, alpha: float = ALPHA
) -> float:
    """Return the probability that McNemar's exact test shows a difference.

    Args:
        discordant: the share of questions that only one of the runs has right.
        difference: of the shares of right answers, at most `discordant`.
    """
    import numpy as np
    from scipy.stats import binom

    counts = np.arange(questions + 1)
    weights = binom.pmf(counts, questions, discordant)
    # with k discordant questions, the test rejects up to `lowest` wins, and from k - lowest on
    lowest = binom.ppf(alpha / 2, counts, 0.5)
    lowest -= binom.cdf(lowest, counts, 0.5) > alpha / 2
    winning = 0.5 + difference / (2 * discordant)
    rejected = binom.cdf(lowest, counts, winning) + binom.sf(counts - lowest - 1, counts, winning)
    return float(weights @ np.where(lowest >= 0, rejected, 0.0))


def plan_questions(
    pilot: Difference, points: float, *, power: float = POWER, alpha: float = ALPHA
) -> tuple[int, int]:
    """Return how many questions show a difference of `points`, and how many if the pilot's spread is too low.

    The second number uses the upper 80 % limit of the spread. For right or wrong it is that of McNemar's exact test,
    otherwise the normal approximation. `MOST` if more are needed.
    """
    return (
        _needed(pilot, pilot.deviation, points, power, alpha),
        _needed(pilot, pilot.deviation * _caution(pilot.n), points, power, alpha),
    )


def _caution(questions: int) -> float:
    """Return the ratio of the upper limit of a standard deviation to its estimate."""
    from scipy.stats import chi2

    degrees = max(questions - 1, 1)
    return math.sqrt(degrees / float(chi2.ppf(_CAUTION, degrees)))


def _needed(pilot: Difference, deviation: float, points: float, power: float, alpha: float) -> int:
    if not pilot.binary:
        return min(questions_needed(points, deviation, power=power, alpha=alpha) or 2, MOST)
    difference = points / 100
    # the variance of differences of -1, 0 and 1 is the share of discordant questions minus the squared mean
    discordant = min(max((deviation / 100) ** 2 + (pilot.difference / 100) ** 2, difference), 1.0)
    approximate = questions_needed(
        difference, math.sqrt(max(discordant - difference**2, 1e-6)), power=power, alpha=alpha
    )
    start = min(approximate or 2, MOST)
    # the exact test and the approximation agree
    if start > 20_000:
        return start
    return _first(
        lambda count: mcnemar_power(count, discordant, difference, alpha) >= power,
        start // 2,
        2 * start + 50,
    )


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return about the first number that holds, by bisection."""
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def find_detectable_points(
    pilot: Difference, questions: int, *, power: float = POWER, alpha: float = ALPHA
) -> float:
    """Return the difference in points that this number of questions shows, by the normal approximation."""
    from scipy.stats import norm

    quantiles = float(norm.ppf(1 - alpha / 2) + norm.ppf(power))
    return quantiles * pilot.deviation / math.sqrt(questions)
