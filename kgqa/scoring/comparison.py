"""Compare two runs on the same questions: paired tests, effect sizes and questions needed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

from kgqa.errors import ConfigError, nearest
from kgqa.scoring.intervals import difference_interval

RESAMPLES = 10_000
ALPHA = 0.05
HOLM = "holm"
# the points that matter, unless a user sets others
DIFFERENCE = 2.0
POWER = 0.8
# differences of which all patterns of signs are enumerated: 4,096, faster than RESAMPLES samples
FEW_MOVED = 12
_CELLS_PER_CHUNK = 2_000_000  # int64 counts: 16 MB
LOWER = "↓"
LOWER_NOTE = f"{LOWER}: a lower value is better."
_TIE = 1e-9  # equal sums differ by less


@dataclass(frozen=True, slots=True)
class RepeatSpread:
    """The spread between the repeats of one row, as variances of their mean (of shares).

    runs: the number of repeats, at least 2. residual: of equal runs, for one question: it falls with their number.
    between: what more questions do not reduce, 0 if a test does not show it.
    """

    runs: int
    residual: float
    between: float


@dataclass(frozen=True, slots=True)
class Difference:
    """One metric of two runs over the questions that define it for both. Means in percent, differences in points."""

    metric: str
    first: str
    second: str
    n: int
    means: tuple[float, float]
    difference: float  # first minus second
    low: float  # of its 95 % interval
    high: float
    p: float
    # p after the correction over all pairs and metrics compared, see `correct`
    adjusted: float
    # matched-pairs odds ratio of `wins` if `binary`, otherwise Cohen's d of the differences
    effect: float | None
    binary: bool
    # questions on which the first and the second are better
    wins: tuple[int, int]
    # standard deviation of the differences, in points
    deviation: float
    # it is significant if `adjusted` is below
    alpha: float = ALPHA
    # whether one of the two is no competitor: these pairs are corrected on their own
    upper_bound: bool = False
    # of each row with several runs
    repeats: tuple[RepeatSpread, ...] = ()
    # whether the interval and p contain the spread between repeats
    has_spread: bool = False
    # whether a lower mean is better
    lower_is_better: bool = False

    @property
    def significant(self) -> bool:
        return self.adjusted < self.alpha

    @property
    def is_exact(self) -> bool:
        """Return whether McNemar's exact test is the only one."""
        return self.binary and not self.has_spread

    @property
    def title(self) -> str:
        return mark_direction(self.metric, lower_is_better=self.lower_is_better)

    @property
    def better(self) -> str:
        """Return the run with the better mean: the second one if both are equal."""
        sign = -1 if self.lower_is_better else 1
        return self.first if sign * self.difference > 0 else self.second

    def is_within(self, points: float) -> bool:
        """Return whether the 95 % interval is between -points and points: two one-sided tests at 2.5 % each."""
        return -points < self.low and self.high < points


def mark_direction(label: str, *, lower_is_better: bool) -> str:
    """Return the label of a score for tables: with an arrow if a lower value is better."""
    return f"{label} {LOWER}" if lower_is_better else label


def explain_direction(titles: Iterable[object]) -> list[str]:
    """Return the note of a table in which some title of a score has an arrow."""
    return [LOWER_NOTE] if any(str(title).endswith(LOWER) for title in titles) else []


def compare(
    scores: Mapping[str, Mapping[str, Sequence[float | None]]],
    seed: int,
    *,
    alpha: float = ALPHA,
    correction: str = HOLM,
    baseline: str | None = None,
    bounds: Collection[str] = (),
    lower_is_better: Collection[str] = (),
) -> list[Difference]:
    """Compare every pair of runs in every metric. `scores[metric][run]`: one share per question, in the same order.

    A metric of zeros and ones is tested by McNemar's exact test, others by a paired permutation test. Questions that
    are undefined (None) for one of the two runs, and pairs without questions, are skipped.

    correction: a name of `CORRECTIONS`. baseline: see `pair_runs`. bounds: the runs that are upper bounds.
    lower_is_better: the metrics of which a lower value is better.
    """
    differences = []
    for metric, runs in scores.items():
        for first, second in pair_runs(list(runs), baseline):
            pairs = [
                (mine, theirs)
                for mine, theirs in zip(runs[first], runs[second], strict=True)
                if mine is not None and theirs is not None
            ]
            if pairs:
                compared = _difference(
                    (metric, first, second), pairs, seed, lower_is_better=metric in lower_is_better
                )
                is_bound = first in bounds or second in bounds
                differences.append(replace(compared, upper_bound=is_bound))
    return correct(differences, alpha=alpha, correction=correction)


def correct(
    differences: Sequence[Difference], *, alpha: float = ALPHA, correction: str = HOLM
) -> list[Difference]:
    """Return the differences with corrected p-values. Those with an upper bound are a family of their own."""
    families = [each.upper_bound for each in differences]
    adjusted = adjust([each.p for each in differences], families, correction)
    return [
        replace(difference, adjusted=p, alpha=alpha)
        for difference, p in zip(differences, adjusted, strict=True)
    ]


def adjust(
    values: Sequence[float], families: Sequence[bool], correction: str = HOLM
) -> list[float]:
    """Return the p-values in order after a correction over each of two families."""
    adjusted = list(values)
    for family in (False, True):
        places = [place for place, each in enumerate(families) if each is family]
        corrected = CORRECTIONS[correction]([values[place] for place in places])
        for place, p in zip(places, corrected, strict=True):
            adjusted[place] = p
    return adjusted


def count_families(differences: Iterable[Difference]) -> dict[bool, int]:
    """Return the number of tests without and with an upper bound, each if there are any: see `correct`."""
    return dict(sorted(Counter(each.upper_bound for each in differences).items()))


def pair_runs(runs: Sequence[str], baseline: str | None = None) -> list[tuple[str, str]]:
    """Return every pair of runs, or with a baseline the pairs of each other run and the baseline."""
    if baseline is None:
        return list(combinations(runs, 2))
    return [(run, baseline) for run in runs if run != baseline]


def mcnemar(wins: int, losses: int) -> float:
    """Return the exact two-sided p-value of McNemar's test (1947) on questions that one of two runs has right."""
    # scipy.stats, which has this test, needs twice as long to import
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(min(wins, losses), wins + losses, 0.5)))


def permutation(differences: Sequence[float], seed: int, resamples: int = RESAMPLES) -> float:
    """Return the two-sided p-value of the mean of paired differences under random signs (Fisher, 1935).

    Up to FEW_MOVED differences that are not 0, it is exact: of k, p is at least 2 / 2^k. With more, signs are sampled.
    The observed signs then count as a resample, so p is at least 1 / (resamples + 1).
    """
    import numpy as np

    moved = np.asarray([difference for difference in differences if difference], dtype=np.float64)
    if not len(moved):
        return 1.0
    if len(moved) <= FEW_MOVED:
        signs = np.array(list(product((-1, 1), repeat=len(moved))))  # (2^k, k)
        return float((np.abs(signs @ moved) >= abs(moved.sum()) - _TIE).mean())
    # Sample only how many differences of each size are positive: 30 times faster than scipy.stats.permutation_test.
    sizes, counts = np.unique(np.abs(moved).round(12), return_counts=True)
    observed = abs(moved.sum())
    generator = np.random.default_rng(seed)
    chunk = max(1, _CELLS_PER_CHUNK // len(sizes))
    extreme = 0
    for start in range(0, resamples, chunk):
        positive = generator.binomial(
            counts, 0.5, size=(min(chunk, resamples - start), len(sizes))
        )  # (R, D)
        extreme += int((np.abs((2 * positive - counts) @ sizes) >= observed - _TIE).sum())
    return (extreme + 1) / (resamples + 1)


def holm(values: Sequence[float]) -> list[float]:
    """Return the p-values in order after Holm's step-down correction (Holm, 1979)."""
    adjusted = [0.0] * len(values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(values)), key=lambda index: values[index])):
        largest = max(largest, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = largest
    return adjusted


def benjamini_hochberg(values: Sequence[float]) -> list[float]:
    """Return the p-values in order, adjusted for the false discovery rate (Benjamini and Hochberg, 1995)."""
    from scipy.stats import false_discovery_control

    return [float(p) for p in false_discovery_control(values)] if values else []


# by the value of correction=
CORRECTIONS: Mapping[str, Callable[[Sequence[float]], list[float]]] = {
    HOLM: holm,
    "bh": benjamini_hochberg,
    "none": list,
}


def check_correction(name: str) -> str:
    """Return the name of a correction. Raise a ConfigError if there is no such correction."""
    if name not in CORRECTIONS:
        raise ConfigError(f"correction={name}: no such correction. {nearest(name, CORRECTIONS)}")
    return name


def questions_needed(
    difference: float, deviation: float, *, power: float = POWER, alpha: float = ALPHA
) -> int | None:
    """Return the number of questions that shows a mean paired difference, by the normal approximation, at least 2.

    deviation: standard deviation of the paired differences, in the difference's unit. If it is 0, return None.

    Raises ValueError: a difference of 0, which no number of questions shows.
    """
    from scipy.special import ndtri

    if difference == 0:
        raise ValueError("no number of questions shows a difference of 0")
    if deviation == 0:
        return None
    quantiles = float(ndtri(1 - alpha / 2) + ndtri(power))
    return max(2, math.ceil((quantiles * deviation / difference) ** 2))


def _difference(
    names: tuple[str, str, str],
    pairs: Sequence[tuple[float, float]],
    seed: int,
    *,
    lower_is_better: bool,
) -> Difference:
    n = len(pairs)
    moved = [100 * (mine - theirs) for mine, theirs in pairs]
    mean = math.fsum(moved) / n
    deviation = (
        math.sqrt(math.fsum((points - mean) ** 2 for points in moved) / (n - 1)) if n > 1 else 0.0
    )
    wins = sum(points > 0 for points in moved), sum(points < 0 for points in moved)
    wins = wins[::-1] if lower_is_better else wins
    binary = all(share in (0.0, 1.0) for pair in pairs for share in pair)
    low, high = difference_interval([mine - theirs for mine, theirs in pairs])
    if binary:
        p, effect = mcnemar(*wins), wins[0] / wins[1] if wins[1] else None
    else:
        p, effect = permutation(moved, seed), mean / deviation if deviation else None
    return Difference(
        *names,
        n=n,
        means=(
            100 * math.fsum(mine for mine, _ in pairs) / n,
            100 * math.fsum(theirs for _, theirs in pairs) / n,
        ),
        difference=mean,
        low=100 * low,
        high=100 * high,
        p=p,
        adjusted=1.0,
        effect=effect,
        binary=binary,
        wins=wins,
        deviation=deviation,
        lower_is_better=lower_is_better,
    )
