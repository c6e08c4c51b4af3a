"""Build the sections of `kgqa evaluate` and `kgqa compare`."""

from __future__ import annotations

from collections.abc import Sequence

from kgqa.artifacts.evaluation import Evaluation
from kgqa.report.content import Section, breakdown_sections, figure, judge_sections
from kgqa.report.summary import answer_rows
from kgqa.scoring.comparison import Difference, questions_needed


def evaluation_sections(evaluation: Evaluation) -> list[Section]:
    text = (
        f"Scored by the `{evaluation.scores.profile}` profile, in percent; brackets: 95 % bootstrap intervals.",
        "Failed questions count as wrong.",
        *evaluation.notes,
    )
    listed = [
        Section("Scores", (), answer_rows(evaluation.scores, evaluation.judge), text),
        *judge_sections(evaluation.judge),
        *breakdown_sections(evaluation.scores),
    ]
    return [section for section in listed if section.rows]


def comparison_section(differences: Sequence[Difference], wanted: float) -> Section:
    """Return who wins where. `wanted`: the difference, in points, whose number of questions is told."""
    header = ("metric", "runs", "means", "difference", "better on", "p", "p (Holm)", "effect", f"n for {wanted:g}", "")
    text = (
        "Means in percent, the difference in points with its 95 % bootstrap interval, over the same questions. p: "
        "McNemar's exact test for right or wrong, a paired permutation test for the rest; Holm's correction over all "
        f"rows. Effect: odds of the first where the two differ, or Cohen's d. n for {wanted:g}: questions that would "
        f"show a difference of {wanted:g} points with power 0.8."
    )
    return Section("Differences", header, [_difference_row(difference, wanted) for difference in differences], (text,))


def _difference_row(compared: Difference, wanted: float) -> tuple[str, ...]:
    needed = questions_needed(wanted, compared.deviation)
    winner = compared.first if compared.difference > 0 else compared.second
    return (
        compared.metric,
        f"{compared.first} – {compared.second}",
        f"{compared.means[0]:.1f}  {compared.means[1]:.1f}",
        f"{compared.difference:+.1f} [{compared.low:+.1f}, {compared.high:+.1f}]",
        f"{compared.wins[0]} : {compared.wins[1]}",
        _p(compared.p),
        _p(compared.adjusted),
        "–" if compared.effect is None else f"{'odds' if compared.binary else 'd'} {compared.effect:.2f}",
        figure(needed),
        f"{winner} wins" if compared.significant else "no difference shown",
    )


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else "<0.0001"
