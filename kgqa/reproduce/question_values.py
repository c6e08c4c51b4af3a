"""The values of single questions behind a run's figures: for their intervals, and for the order of a table's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from math import fsum, hypot, sqrt
from pathlib import Path
from statistics import fmean, stdev

from kgqa.artifacts.metrics import METRICS as METRICS_FILE
from kgqa.artifacts.trace import TracedQuestion, read_trace
from kgqa.errors import KgqaError
from kgqa.experiment.evaluate import open_run
from kgqa.runtime.costs import Tally
from kgqa.scoring.intervals import pool_interval
from kgqa.scoring.published_delta import FEW, Metric, Ours, read_parts, scale_of
from kgqa.scoring.questions import METRICS, ScoredQuestion
from kgqa.types import Json, Usage

Parts = Mapping[str, tuple[float, float]]  # numerator and denominator of a value, by question
_CELLS = 4096  # of which values are remembered, since a report is written after every cell
_interval = lru_cache(maxsize=_CELLS)(pool_interval)


def add_interval(ours: Ours, folder: Path, metric: Metric) -> Ours:
    """Return a value with its bootstrap interval over questions, if the run's files show the questions' values."""
    pooled = _pool([folder], metric)
    if pooled is None or abs(pooled[0] - ours.mean) > 0.01 * abs(ours.mean):
        return ours
    return replace(ours, low=pooled[1], high=pooled[2])


def pool_values(values: Sequence[Ours], folders: Sequence[Path], metric: Metric) -> Ours:
    """Return a metric's value over the questions of several runs, with its bootstrap interval.

    If the runs' files do not show the questions' values (a judge's), weight the runs' values by their questions.
    """
    questions = sum(value.questions for value in values)
    if pooled := _pool(folders, metric):
        return Ours(*pooled, questions)
    return Ours(*weight_values(values, [value.questions for value in values]), questions)


def weight_values(values: Sequence[Ours], weights: Sequence[int]) -> tuple[float, float | None, float | None]:
    """Return the weighted mean of independent values and its interval, None if one of them has no interval."""
    weighted = list(zip(values, weights, strict=True))
    whole = sum(weights)
    mean = fsum(weight * value.mean for value, weight in weighted) / whole
    below = [weight * (value.mean - value.low) for value, weight in weighted if value.low is not None]
    above = [weight * (value.high - value.mean) for value, weight in weighted if value.high is not None]
    if not len(below) == len(above) == len(values):
        return mean, None, None
    return mean, mean - hypot(*below) / whole, mean + hypot(*above) / whole


def compare_rows(first: Sequence[Path], second: Sequence[Path], metric: Metric) -> int:
    """Return 1 if the runs of the first row have the larger mean, -1 if those of the second have.

    The values are paired by question. Return 0 if the 95 % interval of the mean difference includes 0, or if fewer than
    30 questions are answered in all runs.
    """
    mine, theirs = ([_read(folder, metric, answered_only=True) for folder in folders] for folders in (first, second))
    shared = set.intersection(*map(set, (*mine, *theirs)))
    if len(shared) < FEW:
        return 0
    moved = [fmean(run[key][0] for run in mine) - fmean(run[key][0] for run in theirs) for key in shared]
    mean = fmean(moved)
    return 0 if abs(mean) <= 1.96 * stdev(moved) / sqrt(len(moved)) else 1 if mean > 0 else -1


def _pool(folders: Sequence[Path], metric: Metric) -> tuple[float, float, float] | None:
    """Return the value over the questions of the runs with its interval; None if a run's files do not show it."""
    read = [_read(folder, metric) for folder in folders]
    parts = tuple(part for each in read for part in each.values())
    whole = fsum(lower for _, lower in parts)
    if not whole or not all(read):
        return None
    low, high = _interval(parts)
    scale = scale_of(metric)
    return scale * fsum(upper for upper, _ in parts) / whole, scale * low, scale * high


def _read(folder: Path, metric: Metric, *, answered_only: bool = False) -> Parts:
    """Return the parts of a metric's value for each question that defines it; {} if the files do not show them."""
    file = folder / METRICS_FILE
    return _read_unchanged(folder, metric, file.stat().st_mtime_ns if file.is_file() else 0, answered_only)


@lru_cache(maxsize=_CELLS)
def _read_unchanged(folder: Path, metric: Metric, written: int, answered_only: bool) -> Parts:  # noqa: ARG001
    """Read the parts once, unless the run was `written` again."""
    path = metric.path or ""
    try:
        scored = open_run(folder).scored
        needs_trace = path.startswith(("cost.", "chains."))
        traced = {each.question.id: each for each in read_trace(folder)} if needs_trace else {}
    except KgqaError:  # e.g. the run verified questions, or answered none
        return {}
    scored = [row for row in scored if row.prediction.error is None] if answered_only else scored
    records = {row.id: _record(row, traced.get(row.id)) for row in scored}
    parts = {key: read_parts(record, path) for key, record in records.items()}
    return {key: part for key, part in parts.items() if part is not None}


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
    roles: dict[str, Tally] = {}
    for call in traced.calls:
        if call.kind in ("generate", "choose") and call.role:
            tally = roles.setdefault(call.role, Tally())
            tally.calls += 1
            tally.usage += call.usage or Usage()
    total = sum(roles.values(), Tally())
    by_role = {role: {"calls": tally.calls, **asdict(tally.usage)} for role, tally in roles.items()}
    everything = {"calls": total.calls, "calls_per_question": total.calls, **asdict(total.usage)}
    record["cost"] = {"method": {**everything, "by_role": by_role}}
    lengths = [len(chain["triples"]) for chain in traced.notes.get("chains", ()) if chain["triples"]]
    evidence = row.prediction.evidence or ()
    record["chains"] = {"documents_per_question": len(evidence), **({"length": fmean(lengths)} if lengths else {})}
    return record
