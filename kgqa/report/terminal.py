"""The table a run ends with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kgqa.types import Json

if TYPE_CHECKING:
    from rich.console import Console

SCORES = {
    "em": "EM",
    "f1": "F1",
    "support_recall": "support recall",
    "support_precision": "support precision",
    "support_error_rate": "support error rate",
}


def print_summary(
    console: Console, choices: Mapping[str, str], metrics: Mapping[str, Json], errors: Sequence[str]
) -> None:
    """Scores in percent with 95 % bootstrap intervals, then what it cost."""
    from rich.table import Table

    title = " · ".join(f"{choices[group]}" for group in ("method", "dataset", "model", "engine"))
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    for label, value in summary_rows(metrics):
        table.add_row(label, value)
    console.print(table, highlight=False)
    for error in errors:
        console.print(f"failed: {error}", style="red", highlight=False, markup=False, soft_wrap=True)


def summary_rows(metrics: Mapping[str, Json]) -> list[tuple[str, str]]:
    """Label and value, as terminal and Markdown report show them."""
    rows = [
        ("questions", f"{metrics['questions']} ({metrics['failed']} failed, {metrics['answerless']} empty answers)")
    ]
    for name, label in SCORES.items():
        score = metrics["scores"][name]
        if score["mean"] is not None:
            rows.append((label, f"{score['mean']:.1f}  [{score['low']:.1f}, {score['high']:.1f}]"))
    if metrics["context_tokens"] is not None:
        rows.append(("context tokens", f"{metrics['context_tokens']:,.0f} per question"))
    method, paid = metrics["cost"]["method"], metrics["cost"]["paid"]
    rows.append(
        ("model calls", f"{method['calls']:,} ({method['calls_per_question']} per question), {paid['calls']:,} paid")
    )
    rows.append(("tokens", f"{method['prompt_tokens']:,} prompt, {method['output_tokens']:,} generated"))
    rows.append(("model seconds", f"{method['seconds']:,.1f}, {paid['seconds']:,.1f} paid"))
    if metrics["cost"].get("extraction_paid", {}).get("calls"):
        extraction = metrics["cost"]["extraction_paid"]
        rows.append(("triple extraction", f"{extraction['calls']:,} calls, {extraction['seconds']:,.1f} s"))
    if "seconds" in metrics:
        rows.append(("this run took", f"{metrics['seconds']:,.1f} s"))
    if metrics["flags"]:
        rows.append(("flags", ", ".join(f"{flag} {count}" for flag, count in sorted(metrics["flags"].items()))))
    return rows
