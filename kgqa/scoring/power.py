"""The number of questions that shows a difference between two runs, and the difference that a number shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from kgqa.scoring.comparison import ALPHA, POWER, Difference, RepeatSpread, questions_needed

MOST = 1_000_000  # questions
# the spread of the differences of a smaller pilot is uncertain (docs/PLAN.md)
ENOUGH = 40  # questions
# the spread of the pilot is below the cautious one with this probability
_CAUTION = 0.2
# equally likely estimates of the spread between the repeats of a row
_ESTIMATES = 16
# a variance above 0
_LEAST = 1e-18


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

    # other counts are too rare to change the result
    fewest, most = binom.interval(1 - 1e-9, questions, discordant)
    counts = np.arange(int(fewest), int(most) + 1)
    weights = binom.pmf(counts, questions, discordant)
    # with k discordant questions, the test rejects up to `lowest` wins, and from k - lowest on
    lowest = binom.ppf(alpha / 2, counts, 0.5)
    lowest -= binom.cdf(lowest, counts, 0.5) > alpha / 2
    winning = 0.5 + difference / (2 * discordant)
    rejected = binom.cdf(lowest, counts, winning) + binom.sf(counts - lowest - 1, counts, winning)
    return float(weights @ np.where(lowest >= 0, rejected, 0.0))


def repeat_power(
    questions: int,
    points: float,
    deviation: float,
    repeats: Sequence[RepeatSpread],
    alpha: float = ALPHA,
) -> float:
    """Return the probability that the test of `compare_rows` shows a difference between repeated runs.

    The test estimates the spread between repeats from few of them. So the power is the mean over the estimates that it
    can get: chi-squared for each row.

    Args:
        points: the difference.
        deviation: of the differences of questions, in points.
    """
    import numpy as np
    from scipy.stats import chi2, norm, t

    of_questions = (deviation / 100) ** 2 / questions
    error = math.sqrt(max(of_questions + sum(row.between for row in repeats), _LEAST))
    between, noise = np.zeros(1), np.full(1, of_questions**2 / max(questions - 1, 1))
    for row in repeats:
        degrees, residual = row.runs - 1, row.residual / questions
        chances = (np.arange(_ESTIMATES) + 0.5) / _ESTIMATES
        estimate = (residual + row.between) * chi2.ppf(chances, degrees) / degrees
        between = np.add.outer(between, np.maximum(estimate - residual, 0.0)).ravel()
        noise = np.add.outer(noise, estimate**2 / degrees).ravel()
    total = of_questions + between
    # as of `compare_rows`; equal differences of all questions have no noise
    freedom = np.maximum(total**2 / np.maximum(noise, _LEAST), min(row.runs for row in repeats) - 1)
    quantile = np.where(between > 0, t.isf(alpha / 2, freedom), norm.isf(alpha / 2))
    return float(norm.sf((quantile * np.sqrt(total) - points / 100) / error).mean())


def plan_questions(
    pilot: Difference, points: float, *, power: float = POWER, alpha: float = ALPHA
) -> tuple[int | None, int | None]:
    """Return how many questions show a difference of `points`, and how many if the pilot's spread is too low.

    The first number is None if no question of the pilot differs. The second one is that of the upper 80 % limit of the
    spread between questions, because a small pilot can have a low spread by chance. For right or wrong they are those
    of McNemar's exact test, with repeats those of their test, otherwise those of the normal approximation. `MOST` if
    more are needed. Both are None if the repeats differ by so much that no number of questions shows it.

    The spread between repeats is that of the pilot. Too few repeats know a limit: that of the variance of 3 repeats
    would be 4.5 times the estimate.
    """
    differing = sum(pilot.wins)
    most = _bound_share(differing, pilot.n)
    spread = _Spread(pilot.is_exact, differing / pilot.n, pilot.deviation, pilot.repeats)
    bound = replace(spread, share=most, deviation=_bound_deviation(pilot, most))
    cautious = bound.needed(points, power, alpha)
    if not differing:
        return None, cautious
    count = spread.needed(points, power, alpha)
    # a higher spread of questions can need fewer beside a large one of repeats, which is then known better
    return count, max(count, cautious) if count and cautious else None


def _bound_share(count: int, total: int) -> float:
    """Return the upper limit of a share (Clopper and Pearson, 1934)."""
    from scipy.stats import beta

    return float(beta.ppf(1 - _CAUTION, count + 1, total - count)) if count < total else 1.0


def _bound_deviation(pilot: Difference, most: float) -> float:
    """Return the upper limit of the standard deviation in points.

    most: the largest share of questions that differ. Few of them can miss large differences, so that the limit of
    normal differences is too low. If no question differs, the differences are taken as the largest possible ones.
    """
    from scipy.stats import chi2

    degrees, differing = max(pilot.n - 1, 1), sum(pilot.wins)
    normal = pilot.deviation * math.sqrt(degrees / float(chi2.ppf(_CAUTION, degrees)))
    squares = pilot.deviation**2 * degrees + pilot.difference**2 * pilot.n
    square = squares / differing if differing else 100.0**2
    return max(normal, math.sqrt(max(most * square - pilot.difference**2, 0.0)))


@dataclass(frozen=True)
class _Spread:
    """The spread of paired differences.

    is_exact, repeats: as of `Difference`. share: of questions that differ. deviation: in points.
    """

    is_exact: bool
    share: float
    deviation: float
    repeats: Sequence[RepeatSpread]

    def needed(self, points: float, power: float, alpha: float) -> int | None:
        """Return the number of questions that shows a difference of `points`, or None if no number does."""
        if self.is_exact:
            return _count_exactly(self.share, points / 100, power, alpha)
        if self.repeats:
            return self._count_with_repeats(points, power, alpha)
        count = questions_needed(points, self.deviation, power=power, alpha=alpha)
        return min(count or 2, MOST)

    def _count_with_repeats(self, points: float, power: float, alpha: float) -> int | None:
        def shows(questions: int) -> bool:
            return repeat_power(questions, points, self.deviation, self.repeats, alpha) >= power

        return _first(shows, 1, MOST) if shows(MOST) else None

    def find_points(self, questions: int, power: float, alpha: float) -> float | None:
        """Return the difference in points that some questions show, or None without a spread."""
        if self.is_exact:
            return 100 * _find_exactly(questions, self.share, power, alpha)
        if self.repeats:
            return self._find_with_repeats(questions, power, alpha)
        points = _quantiles(power, alpha) * self.deviation / math.sqrt(questions)
        # no two scores differ by more than 100 points
        return (points if points <= 100 else math.inf) or None

    def _find_with_repeats(self, questions: int, power: float, alpha: float) -> float:
        from scipy.optimize import brentq

        def missing(points: float) -> float:
            return power - repeat_power(questions, points, self.deviation, self.repeats, alpha)

        return float(brentq(missing, 0.0, 100.0, xtol=1e-4)) if missing(100.0) <= 0 else math.inf


def _quantiles(power: float, alpha: float) -> float:
    """Return how many standard errors a difference has that a two-sided test shows with this power."""
    from scipy.special import ndtri

    return float(ndtri(1 - alpha / 2) + ndtri(power))


# many pairs of runs differ on equally many questions
@cache
def _count_exactly(share: float, difference: float, power: float, alpha: float) -> int:
    """Return the number of questions for McNemar's exact test. share: of questions that only one run has right."""
    discordant = max(share, difference)
    deviation = math.sqrt(max(discordant - difference**2, 1e-6))
    approximate = questions_needed(difference, deviation, power=power, alpha=alpha)
    start = min(approximate or 2, MOST)
    # the exact test and the approximation agree
    if start > 20_000:
        return start
    return _first(
        lambda count: mcnemar_power(count, discordant, difference, alpha) >= power,
        start // 2,
        2 * start + 50,
    )


@cache
def _find_exactly(questions: int, share: float, power: float, alpha: float) -> float:
    """Return the difference that McNemar's exact test shows: the inverse of `_count_exactly`."""
    from scipy.optimize import brentq

    def missing(difference: float) -> float:
        return power - mcnemar_power(questions, max(share, difference), difference, alpha)

    # below 6 questions, p is at least 0.06
    return float(brentq(missing, 0.0, 1.0, xtol=1e-6)) if missing(1.0) <= 0 else math.inf


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return about the first number that holds, by bisection."""
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def find_detectable_points(
    pilot: Difference, questions: int, *, power: float = POWER, alpha: float = ALPHA
) -> float | None:
    """Return the smallest difference in points that this number of questions shows: the inverse of `plan_questions`.

    With repeats: with as many as the pilot has. Infinity if so few questions show no difference. None if the spread is
    not known, because no question of the pilot differs.
    """
    differing = sum(pilot.wins)
    if not differing:
        return None
    spread = _Spread(pilot.is_exact, differing / pilot.n, pilot.deviation, pilot.repeats)
    return spread.find_points(questions, power, alpha)
