"""The values of single questions behind a run's figures: for their intervals, and for the order of a table's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from kgqa.types import Json

Parts = Mapping[str, tuple[float, float]]  # numerator and denominator of a value, by question
_CELLS = 4096  # of which values are remembered, since a report is written after every cell


def add_interval(ours: Ours, folder: Path, metric: Metric) -> Ours:
    """Return a value with its bootstrap interval over questions, if the run's files show the questions' values."""
    mean, low, high = _pool(folder, metric, _read_change_time(folder))
    if low is None or high is None or abs(mean - ours.mean) > 0.01 * abs(ours.mean):
        return ours
    return replace(ours, low=low, high=high)


def pool_values(values: Sequence[Ours], folders: Sequence[Path], metric: Metric) -> Ours:
    """Return a metric's value over the questions of several runs, with its bootstrap interval.

    If the runs' files do not show the questions' values (a judge's), weight the runs' values by their questions.
    """
    read = [_read(folder, metric, _read_change_time(folder)) for folder in folders]
    parts = [part for each in read for part in each.values()]
    questions = sum(value.questions for value in values)
    if all(read) and fsum(lower for _, lower in parts):
        low, high = pool_interval(parts)
        mean = fsum(upper for upper, _ in parts) / fsum(lower for _, lower in parts)
        scale = scale_of(metric)
        return Ours(scale * mean, scale * low, scale * high, questions)
    mean = fsum(value.mean * value.questions for value in values) / questions
    below = [(value.mean - value.low) * value.questions for value in values if value.low is not None]
    above = [(value.high - value.mean) * value.questions for value in values if value.high is not None]
    if not len(below) == len(above) == len(values):
        return Ours(mean, None, None, questions)
    return Ours(mean, mean - hypot(*below) / questions, mean + hypot(*above) / questions, questions)


def compare_rows(first: Sequence[Path], second: Sequence[Path], metric: Metric) -> int:
    """Return 1 if the runs of the first row have the larger mean, -1 if those of the second have.

    The values are paired by question. Return 0 if the 95 % interval of the mean difference includes 0, or if fewer than
    30 questions are answered in all runs.
    """
    return _compare(tuple(first), tuple(second), metric, tuple(map(_read_change_time, (*first, *second))))


@lru_cache(maxsize=_CELLS)
def _pool(folder: Path, metric: Metric, written: int) -> tuple[float, float | None, float | None]:
    parts = [*_read(folder, metric, written).values()]
    whole = fsum(lower for _, lower in parts)
    if not whole:
        return 0.0, None, None
    low, high = pool_interval(parts)
    scale = scale_of(metric)
    return scale * fsum(upper for upper, _ in parts) / whole, scale * low, scale * high


@lru_cache(maxsize=_CELLS)
def _compare(first: tuple[Path, ...], second: tuple[Path, ...], metric: Metric, written: tuple[int, ...]) -> int:
    folders = zip((*first, *second), written, strict=True)
    values = [_read(folder, metric, time, answered_only=True) for folder, time in folders]
    shared = set(values[0]).intersection(*values[1:])
    if len(shared) < FEW:
        return 0
    mine, theirs = values[: len(first)], values[len(first) :]
    moved = [fmean(run[key][0] for run in mine) - fmean(run[key][0] for run in theirs) for key in shared]
    mean = fmean(moved)
    return 0 if abs(mean) <= 1.96 * stdev(moved) / sqrt(len(moved)) else 1 if mean > 0 else -1


@lru_cache(maxsize=_CELLS)
def _read(folder: Path, metric: Metric, written: int, *, answered_only: bool = False) -> Parts:
    """Return the parts of a metric's value for each question that defines it; {} if the files do not show them."""
    del written  # a run that is repeated in its folder is read again
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


def _read_change_time(folder: Path) -> int:
    file = folder / METRICS_FILE
    return file.stat().st_mtime_ns if file.is_file() else 0


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
            if usage := call.usage:
                tally.prompt_tokens += usage.prompt_tokens
                tally.cached_tokens += usage.cached_tokens
                tally.output_tokens += usage.output_tokens
                tally.seconds += usage.seconds
    total = sum(roles.values(), Tally())
    by_role = {role: vars(tally) for role, tally in roles.items()}
    record["cost"] = {"method": {**vars(total), "calls_per_question": total.calls, "by_role": by_role}}
    lengths = [len(chain["triples"]) for chain in traced.notes.get("chains", ()) if chain["triples"]]
    evidence = row.prediction.evidence or ()
    record["chains"] = {"documents_per_question": len(evidence), **({"length": fmean(lengths)} if lengths else {})}
    return record
