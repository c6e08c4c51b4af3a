"""Build the warnings at the top of a report: simulated replies and failed questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kgqa.artifacts.predictions import run_predictions
from kgqa.artifacts.run import FinishedRun

SCRIPTED = "scripted"  # the engine whose replies come from rules or a hash
_REASONS = 3  # that are told of failed questions, the most frequent first
_LONGEST = 300  # characters of a reason
_LIMIT = "max_failure_rate"  # among a run's settings; runs of kgqa 0.2 and before do not have it there


def notices(run: FinishedRun) -> list[str]:
    """Return the notices with Markdown's bold; none for a run of which there is nothing to say."""
    return [*_notice_scripted(run), *_notice_trained(run), *_notice_failed(run)]


def _notice_scripted(run: FinishedRun) -> Iterator[str]:
    models = run.manifest.models
    made_up = sorted(role for role, identity in models.items() if identity.get("engine") == SCRIPTED)
    if made_up and len(made_up) == len(models):
        yield "**Scripted replies: no model was asked.** The figures show that the program works, and nothing else."
    elif made_up:
        roles = ", ".join(made_up)
        yield f"**Scripted replies: no model was asked as {roles}.** The figures are of no method."


def _notice_trained(run: FinishedRun) -> Iterator[str]:
    for key, count in (run.metrics.trained_questions or {}).items():
        of = f"{count:,} of {run.metrics.questions:,} questions were trained on"
        yield f"**{of} by what {key} names.** The scores are of what was learnt by heart."


def _notice_failed(run: FinishedRun) -> Iterator[str]:
    failed, questions = run.metrics.failed, run.metrics.questions
    if not failed:
        return
    errors = Counter(prediction.error for prediction in run_predictions(run.folder) if prediction.error is not None)
    reasons = [f"{count:,} × {_shorten(error)}" for error, count in errors.most_common(_REASONS)]
    more = len(errors) - _REASONS
    reasons += [f"{more:,} other reasons"] if more > 0 else []
    limit = {key: value for key, value, _ in run.settings}.get(_LIMIT)
    beyond = limit is not None and failed > float(limit) * questions
    said = f", more than max_failure_rate={limit} allows: the scores stand for nothing" if beyond else ""
    counted = "" if failed == questions else " and count as wrong"
    yield f"**{failed:,} of {questions:,} questions failed**{counted}{said}. Why: {'; '.join(reasons)}"


def _shorten(error: str) -> str:
    flat = " ".join(error.split())
    return flat if len(flat) <= _LONGEST else f"{flat[: _LONGEST - 1]}…"
