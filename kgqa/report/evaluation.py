"""The sections of `kgqa evaluate` and `kgqa compare`."""

from __future__ import annotations

from collections.abc import Sequence

from kgqa.artifacts.metrics import Evaluation
from kgqa.report.run_report import breakdown_sections, judge_sections, scores_section
from kgqa.report.section import Section, Value
from kgqa.scoring.comparison import Difference, questions_needed


def evaluation_sections(evaluation: Evaluation) -> list[Section]:
    listed = [
        scores_section(evaluation.scores, evaluation.judge, evaluation.notes),
        *judge_sections(evaluation.judge),
        *breakdown_sections(evaluation.scores),
    ]
    return [section for section in listed if section.rows]


def comparison_section(differences: Sequence[Difference], wanted: float) -> Section:
    """Return the differences. `wanted`: the points for which the number of questions is computed."""
    header = ("metric", "runs", "means", "difference", "better on", "p", "p (Holm)", "effect", f"n for {wanted:g}", "")
    text = (
        "Means in percent, the difference in points with its 95 % interval, over the same questions. p: "
        "McNemar's exact test for right or wrong, a paired permutation test for others, with Holm's correction over "
        f"all rows. Effect: odds of the first if the two differ, or Cohen's d. n for {wanted:g}: questions that would "
        f"show a difference of {wanted:g} points with power 0.8."
    )
    return Section("Differences", header, [_difference_row(difference, wanted) for difference in differences], (text,))


def _difference_row(compared: Difference, wanted: float) -> tuple[Value, ...]:
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
        questions_needed(wanted, compared.deviation),
        f"{winner} wins" if compared.significant else "no difference shown",
    )


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else "<0.0001"
