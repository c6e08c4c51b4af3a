"""Means over the questions that define a score, and their confidence intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import fsum, sqrt

from kgqa.artifacts.metrics import UNDEFINED, Estimate

Z = 1.959963984540054  # of a 95 % interval
# of the largest differences, by simulation of pairs of which half to 90 % are equal
PAIRED_WEIGHT = 0.1
_NO_VARIANCE = 1e-12  # of equal shares, by rounding
_EDGE = 1e-9


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None, or None if there are none."""
    numbers = [value for value in values if value is not None]
    return fsum(numbers) / len(numbers) if numbers else None


def percent(values: Iterable[float | None]) -> float | None:
    """Return the mean of shares, times 100."""
    return mean(None if value is None else 100 * value for value in values)


def estimate(values: Iterable[float | None]) -> Estimate:
    """Return the mean of shares in percent, its interval, and the number of shares that are not None."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return UNDEFINED
    low, high = share_interval(numbers)
    return Estimate(mean=percent(numbers), low=100 * low, high=100 * high, n=len(numbers))


def pool_interval(
    parts: Sequence[tuple[float, float]], *, seed: int = 0, resamples: int = 10_000
) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of a pooled share: the sum of first by the sum of second numbers.

    Raises ValueError: no parts, or all of the second are 0.
    """
    import numpy as np

    numbers = np.asarray(parts, dtype=np.float64).reshape(-1, 2)
    if not numbers[:, 1].any():
        raise ValueError("a share needs a whole that is not 0")
    generator, count = np.random.default_rng(seed), len(numbers)
    shares: list[float] = []
    for _ in range(resamples):
        part, whole = numbers[generator.integers(count, size=count)].sum(axis=0)
        shares += [float(part / whole)] if whole else []
    low, high = np.quantile(shares, [0.025, 0.975])
    return float(low), float(high)


def wilson(share: float, n: float, z: float = Z) -> tuple[float, float]:
    """Return the interval of a share of `n` questions (Wilson, 1927), which contains the share. z: its quantile."""
    center = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return min(max(center - half, 0.0), share), max(min(center + half, 1.0), share)


def share_interval(shares: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of shares from 0 to 1.

    It is Wilson's, with the number of zeros and ones that would vary like these shares (as in Korn and Graubard, 1998).
    The variance is that of the shares and of one further 0 and 1, which weigh half the share of zeros and ones
    among them: where most values are extreme, few of them can miss the other extreme. A percentile bootstrap covers
    only 90 % of true means near 0 and 1, and equal values give it no width.

    Raises ValueError: no shares, or one is not from 0 to 1.
    """
    return _interval_by_variance(shares, weight=_extreme_weight(shares))


def difference_interval(
    differences: Sequence[float], *, between: float = 0.0, z: float = Z
) -> tuple[float, float]:
    """Return the 95 % interval of the mean of paired differences of shares, from -1 to 1.

    Differences of zeros and ones: Tango's score interval. Others: Wilson's, by the variance of the differences.

    between: a further variance of the mean, that between repeated runs. z: the quantile for it.

    Raises ValueError: no differences, or one is not from -1 to 1.
    """
    if differences and not between and all(difference in (-1, 0, 1) for difference in differences):
        gains = sum(difference > 0 for difference in differences)
        return tango(gains, sum(difference < 0 for difference in differences), len(differences))
    shares = [(1 + difference) / 2 for difference in differences]
    # half a difference has a quarter of its variance
    low, high = _interval_by_variance(shares, PAIRED_WEIGHT, between / 4, z)
    return 2 * low - 1, 2 * high - 1


def smooth_variance(shares: Sequence[float]) -> float:
    """Return the variance of shares as in `share_interval`: with one further 0 and 1, by the extreme shares."""
    weight = _extreme_weight(shares)
    total = len(shares) + 2 * weight
    center = (fsum(shares) + weight) / total
    return (
        fsum((share - center) ** 2 for share in shares) + weight * (center**2 + (1 - center) ** 2)
    ) / total


def _extreme_weight(shares: Sequence[float]) -> float:
    return sum(share in (0, 1) for share in shares) / (2 * len(shares) or 1)


def _interval_by_variance(
    shares: Sequence[float], weight: float, between: float = 0.0, z: float = Z
) -> tuple[float, float]:
    """Return Wilson's interval for the number of zeros and ones with the variance of the shares.

    weight: of one 0 and one 1 that are added for the variance. between, z: see `difference_interval`.
    """
    if not shares or not all(0 <= share <= 1 for share in shares):
        raise ValueError("an interval needs one share or more, all of them from 0 to 1")
    total = len(shares) + 2 * weight
    mean = (fsum(shares) + weight) / total
    squares = fsum((share - mean) ** 2 for share in shares) + weight * (mean**2 + (1 - mean) ** 2)
    factor = mean * (1 - mean) * total / squares if squares > _NO_VARIANCE else 1.0
    size = factor * len(shares)
    if between:
        size = 1 / (1 / size + between / (mean * (1 - mean)))
    return wilson(min(fsum(shares) / len(shares), 1.0), size, z)


def tango(gains: int, losses: int, n: int) -> tuple[float, float]:
    """Return the 95 % interval of (gains - losses) / n of paired questions (Tango, 1998)."""
    from scipy.optimize import brentq

    observed = (gains - losses) / n

    def statistic(difference: float) -> float:
        """Return the score statistic of a true difference, with the likeliest share of losses under it."""
        linear = (2 * n - gains + losses) * difference - gains - losses
        root = sqrt(max(linear**2 + 8 * n * losses * difference * (1 - difference), 0.0))
        loss_share = (root - linear) / (4 * n)
        variance = n * (2 * loss_share + difference * (1 - difference))
        return n * (observed - difference) / sqrt(variance) if variance > 0 else 0.0

    first, last = -1 + _EDGE, 1 - _EDGE
    low = (
        brentq(lambda value: statistic(value) - Z, first, observed)
        if statistic(first) > Z
        else -1.0
    )
    high = (
        brentq(lambda value: statistic(value) + Z, observed, last) if statistic(last) < -Z else 1.0
    )
    return float(low), float(high)
