"""The sections of `kgqa evaluate`, `kgqa compare` and `kgqa tune`."""

from __future__ import annotations

from collections.abc import Sequence

from kgqa.artifacts.metrics import Evaluation
from kgqa.artifacts.sweep import TunedCell, TuneRecord
from kgqa.report.run_report import breakdown_sections, figure, judge_sections, scores_section
from kgqa.report.section import Section
from kgqa.report.summary import answer_rows, interval_text
from kgqa.scoring.comparison import Difference, questions_needed


def evaluation_sections(evaluation: Evaluation) -> list[Section]:
    listed = [
        scores_section(evaluation.scores, answer_rows(evaluation.scores, evaluation.judge), evaluation.notes),
        *judge_sections(evaluation.judge),
        *breakdown_sections(evaluation.scores),
    ]
    return [section for section in listed if section.rows]


def comparison_section(differences: Sequence[Difference], wanted: float) -> Section:
    """Return the differences. `wanted`: the points for which the number of questions is computed."""
    header = ("metric", "runs", "means", "difference", "better on", "p", "p (Holm)", "effect", f"n for {wanted:g}", "")
    text = (
        "Means in percent, the difference in points with its 95 % bootstrap interval, over the same questions. p: "
        "McNemar's exact test for right or wrong, a paired permutation test for others, with Holm's correction over "
        f"all rows. Effect: odds of the first if the two differ, or Cohen's d. n for {wanted:g}: questions that would "
        f"show a difference of {wanted:g} points with power 0.8."
    )
    return Section("Differences", header, [_difference_row(difference, wanted) for difference in differences], (text,))


def _difference_row(compared: Difference, wanted: float) -> tuple[str, ...]:
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
        figure(questions_needed(wanted, compared.deviation)),
        f"{winner} wins" if compared.significant else "no difference shown",
    )


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else "<0.0001"


def tuning_sections(record: TuneRecord) -> list[Section]:
    """Return the candidates on dev, and the choice on test if it is finished."""
    counts = f"{record.dev.questions:,} dev and {record.test.questions:,} test questions, none in both"
    tried = [
        (f"{'→ ' if outcome.cell == record.chosen else ''}{outcome.settings}", _outcome_text(outcome))
        for outcome in record.tried
    ]
    header = ("settings", record.metric)
    sections = [Section("Tried on dev", header, tried, (f"{counts}. Their ids are in tune.json.",))]
    if record.tested:
        rows = [(outcome.settings, _outcome_text(outcome)) for outcome in record.tested]
        if record.mean is not None and record.std is not None:
            rows.append(("mean ± standard deviation", f"{record.mean:.1f} ± {record.std:.1f}"))
        sections.append(Section("On test, with the choice", header, rows))
    return sections


def _outcome_text(outcome: TunedCell) -> str:
    return interval_text(outcome.score) if outcome.score else f"{outcome.status}: {outcome.error}"
