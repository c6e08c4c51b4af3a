"""Warnings about the scores of a run, which the terminal shows above them."""

from __future__ import annotations

from collections.abc import Iterator

from kgqa.artifacts.metrics import Metrics
from kgqa.scoring.own_metrics import list_own_metrics
from kgqa.util.redaction import function_line


def find_undefined_metrics(metrics: Metrics) -> Iterator[str]:
    """Yield a line for each of the user's metrics that no answered question defines. They are in no table."""
    if metrics.failed == metrics.questions:
        return
    for name, metric in list_own_metrics().items():
        if not metrics.score(name).n:
            place = function_line(metric.function)
            yield (
                f"warning: metric {name} ({place}) is not defined for any of {metrics.questions:,} questions. "
                "It must return a number from 0 to 1"
            )


def find_worthless_answers(metrics: Metrics) -> Iterator[str]:
    """Yield a line if more than half of the answers are empty, and one if so many reached their token limit.

    The cause is usually the server or its settings, and not the method.
    """
    answered = metrics.questions - metrics.failed
    counts = {
        "empty": metrics.answerless,
        "cut at max_tokens": metrics.flags.get("truncated_answer", 0),
    }
    for problem, count in counts.items():
        if 2 * count > answered:
            yield f"warning: {count:,} of {answered:,} answers are {problem}"


def find_cut_prompts(metrics: Metrics) -> Iterator[str]:
    """Yield a line if the server truncated more than half of the prompts, so that the model has not read the rest."""
    flagged = metrics.cost.method.flags.get("cut_prompt")
    if flagged is not None and flagged.share > 1 / 2:
        yield (
            f"warning: the server truncated {flagged.calls:,} of {metrics.cost.method.calls:,} prompts, so the scores "
            "are not those of the method. Increase its context length, or set a smaller model.context"
        )
