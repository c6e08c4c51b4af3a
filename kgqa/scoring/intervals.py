"""Means over the questions that define a score, and their confidence intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import fsum

from kgqa.artifacts.metrics import UNDEFINED, Estimate

_CELLS_PER_CHUNK = 2_000_000  # int64 counts: 16 MB


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None, or None if there are none."""
    known = [value for value in values if value is not None]
    return fsum(known) / len(known) if known else None


def percent(values: Iterable[float | None]) -> float | None:
    """Return the mean of shares, times 100."""
    return mean(None if value is None else 100 * value for value in values)


def estimate(values: Iterable[float | None], seed: int) -> Estimate:
    """Return the mean of shares in percent, its interval, and the number of shares that are not None."""
    known = [100 * value for value in values if value is not None]
    if not known:
        return UNDEFINED
    low, high = interval(known, seed=seed)
    return Estimate(mean=mean(known), low=low, high=high, n=len(known))


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


def interval(values: Sequence[float], *, seed: int = 0, resamples: int = 10_000) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of the mean (Efron, 1979), independent of the order of values.

    Equal values give that value twice. The interval of fewer than about ten values is too narrow.

    Raises ValueError: no values, or a value that is not finite.
    """
    import numpy as np

    if not len(values) or not np.isfinite(values).all():
        raise ValueError("an interval needs one value or more, all of them finite")
    distinct, counts = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
    if len(distinct) == 1:
        return float(distinct[0]), float(distinct[0])

    # Sample how often each distinct value occurs. EM has two of them and F1 some hundred: far fewer than questions.
    generator = np.random.default_rng(seed)
    total = len(values)
    chunk = max(1, _CELLS_PER_CHUNK // len(distinct))
    means = np.empty(resamples)
    for start in range(0, resamples, chunk):
        size = min(chunk, resamples - start)
        drawn = generator.multinomial(total, counts / total, size=size)  # (size, D)
        means[start : start + size] = drawn @ distinct / total
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)
