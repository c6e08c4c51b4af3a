"""The values of single questions behind a run's figures: for their intervals, and for the order of a table's rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from math import fsum, hypot, sqrt
from pathlib import Path
from statistics import fmean, stdev

from kgqa.artifacts.metrics import METRICS as METRICS_FILE
from kgqa.artifacts.trace import TracedCall, TracedQuestion, read_trace
from kgqa.errors import KgqaError
from kgqa.experiment.evaluate import open_run
from kgqa.scoring.intervals import Z, difference_interval, pool_interval, share_interval
from kgqa.scoring.published_delta import FEW, Ours, PublishedMetric, read_parts, scale_of
from kgqa.scoring.questions import METRICS, ScoredQuestion
from kgqa.types import Json, Usage

# by question: numerator and denominator of its value, and whether it was answered
Parts = Mapping[str, tuple[float, float, bool]]
# of which values are remembered, since a report is written after every cell
_CELLS = 4096


def add_interval(ours: Ours, folder: Path, metric: PublishedMetric) -> Ours:
    """Return a value with its interval over questions, if the run's files show the questions' values."""
    pooled = _pool([folder], metric)
    if pooled is None or abs(pooled[0] - ours.mean) > 0.01 * abs(ours.mean):
        return ours
    return replace(ours, low=pooled[1], high=pooled[2])


def pool_values(values: Sequence[Ours], folders: Sequence[Path], metric: PublishedMetric) -> Ours:
    """Return a metric's value over the questions of several runs, with its interval.

    If the runs' files do not show the questions' values (a judge's), weight the runs' values by their questions.
    """
    questions = sum(value.questions for value in values)
    if pooled := _pool(folders, metric):
        return Ours(*pooled, questions)
    return Ours(*weight_values(values, [value.questions for value in values]), questions)


def weight_values(
    values: Sequence[Ours], weights: Sequence[int]
) -> tuple[float, float | None, float | None]:
    """Return the weighted mean of independent values and its interval, None if one of them has no interval."""
    whole = sum(weights)
    mean = fsum(weight * value.mean for value, weight in zip(values, weights, strict=True)) / whole
    ends = [value.ends for value in values if value.ends]
    if len(ends) < len(values):
        return mean, None, None
    weighted = list(zip(values, weights, ends, strict=True))
    below = hypot(*(weight * (value.mean - low) for value, weight, (low, _) in weighted)) / whole
    above = hypot(*(weight * (high - value.mean) for value, weight, (_, high) in weighted)) / whole
    return mean, mean - below, mean + above


def compare_rows(first: Sequence[Path], second: Sequence[Path], metric: PublishedMetric) -> int:
    """Return 1 if the runs of the first row have the larger mean, -1 if those of the second have.

    The values are paired by question. Return 0 if the 95 % interval of the mean difference includes 0, or if fewer than
    30 questions have a value in all runs.
    """
    mine, theirs = (
        [_read_compared(folder, metric) for folder in folders] for folders in (first, second)
    )
    shared = set.intersection(*map(set, (*mine, *theirs)))
    if len(shared) < FEW:
        return 0
    moved = [fmean(run[key] for run in mine) - fmean(run[key] for run in theirs) for key in shared]
    low, high = _difference_interval(moved, metric)
    return 1 if low > 0 else -1 if high < 0 else 0


def _difference_interval(moved: Sequence[float], metric: PublishedMetric) -> tuple[float, float]:
    """Return the 95 % interval of a mean difference: that of `kgqa compare` for percentages, else the normal one."""
    if metric.unit == "%":
        low, high = difference_interval([points / 100 for points in moved])
        return 100 * low, 100 * high
    half = Z * stdev(moved) / sqrt(len(moved))
    return fmean(moved) - half, fmean(moved) + half


def _pool(folders: Sequence[Path], metric: PublishedMetric) -> tuple[float, float, float] | None:
    """Return the value over the questions of the runs with its interval; None if a run's files do not show it."""
    read = [_read(folder, metric) for folder in folders]
    parts = tuple((upper, lower) for each in read for upper, lower, _ in each.values())
    whole = fsum(lower for _, lower in parts)
    if not whole or not all(read):
        return None
    low, high = _interval(
        parts, is_mean=metric.unit == "%" and all(lower == 1 for _, lower in parts)
    )
    scale = scale_of(metric)
    return scale * fsum(upper for upper, _ in parts) / whole, scale * low, scale * high


@lru_cache(maxsize=_CELLS)
def _interval(parts: tuple[tuple[float, float], ...], *, is_mean: bool) -> tuple[float, float]:
    """Return the interval of a ratio by a bootstrap over questions, or of a mean of percentages."""
    if not is_mean:
        return pool_interval(parts)
    low, high = share_interval([upper / 100 for upper, _ in parts])
    return 100 * low, 100 * high


def _read_compared(folder: Path, metric: PublishedMetric) -> dict[str, float]:
    """Return the numerators of the questions to compare. A failed one counts in scores, and not in costs."""
    counts_failed = (metric.path or "").startswith("scores.")
    return {
        key: upper
        for key, (upper, _, answered) in _read(folder, metric).items()
        if answered or counts_failed
    }


def _read(folder: Path, metric: PublishedMetric) -> Parts:
    """Return the parts of a metric's value for each question that defines it; {} if the files do not show them."""
    file = folder / METRICS_FILE
    return _read_unchanged(
        folder, metric.path or "", file.stat().st_mtime_ns if file.is_file() else 0
    )


@lru_cache(maxsize=_CELLS)
def _read_unchanged(folder: Path, path: str, mtime: int) -> Parts:
    """Read the parts once, unless the run was `written` again."""
    records = _read_records(folder, mtime, needs_trace=path.startswith(("cost.", "chains.")))
    parts = {
        key: (read_parts(record, path), answered) for key, (record, answered) in records.items()
    }
    return {key: (*part, answered) for key, (part, answered) in parts.items() if part is not None}


# the runs of a cell or of two rows, which several metrics read one after the other
@lru_cache(maxsize=4)
def _read_records(
    folder: Path,
    mtime: int,  # noqa: ARG001
    *,
    needs_trace: bool,
) -> dict[str, tuple[dict[str, Json], bool]]:
    """Return what metrics.json would contain for each question, and whether it was answered."""
    try:
        scored = open_run(folder).scored
        traced = {each.question.id: each for each in read_trace(folder)} if needs_trace else {}
    except KgqaError:  # e.g. the run answered none
        return {}
    return {
        row.id: (_record(row, traced.get(row.id)), row.prediction.error is None) for row in scored
    }


def _record(row: ScoredQuestion, traced: TracedQuestion | None) -> dict[str, Json]:
    """Return what metrics.json would contain for one question."""
    shares = {name: metric.share(row) for name, metric in METRICS.items()}
    figures = row.prediction.figures
    record: dict[str, Json] = {
        "questions": 1,
        "scores": {name: 100 * share for name, share in shares.items() if share is not None},
        "context_tokens": row.prediction.context_tokens,
        "figures": figures,
        "figures_if_right": figures if row.em == 1 else {},
    }
    if traced is None:
        return record
    calls = [call for call in traced.own_calls if call.kind in ("generate", "choose") and call.role]
    by_role = {
        role: _sum_calls(call for call in calls if call.role == role)
        for role in {call.role for call in calls}
    }
    record["cost"] = {"method": {**_sum_calls(calls), "by_role": by_role}}
    # metrics.json has the chains of the answered questions
    if row.prediction.error is not None:
        return record
    record["chains"] = {"documents_per_question": len(row.prediction.evidence or ())}
    if lengths := [
        len(chain["triples"]) for chain in traced.notes.get("chains", ()) if chain["triples"]
    ]:
        record["chains"]["length"] = fmean(lengths)
    return record


def _sum_calls(calls: Iterable[TracedCall]) -> dict[str, Json]:
    usages = [call.usage or Usage() for call in calls]
    return {"calls": len(usages), "calls_per_question": len(usages), **asdict(sum(usages, Usage()))}
