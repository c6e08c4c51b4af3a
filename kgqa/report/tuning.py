"""Build the report of `kgqa tune`: the candidates on dev, and the choice on test."""

from __future__ import annotations

from kgqa.artifacts.tuning import OnTest, Outcome, TuneRecord
from kgqa.report.content import Section
from kgqa.report.summary import interval_text


def tuning_sections(record: TuneRecord) -> list[Section]:
    """Return the tuning sections of a record that has come to its end, also what test says."""
    counts = f"{record.dev.questions:,} dev and {record.test.questions:,} test questions, none in both"
    chosen = record.chosen.cell if record.chosen else None
    tried = [
        (f"{'→ ' if outcome.cell == chosen else ''}{outcome.settings}", _outcome_text(outcome))
        for outcome in record.tried
    ]
    header = ("settings", record.metric)
    sections = [Section("Tried on dev", header, tried, (f"{counts}; their ids are in tune.json.",))]
    if record.result:
        sections.append(Section("On test, with the choice", header, _test_rows(record.result)))
    return sections


def _test_rows(on_test: OnTest) -> list[tuple[str, str]]:
    rows = [(outcome.settings, _outcome_text(outcome)) for outcome in on_test.runs]
    if on_test.mean is not None and on_test.std is not None:
        rows.append(("mean ± standard deviation", f"{on_test.mean:.1f} ± {on_test.std:.1f}"))
    return rows


def _outcome_text(outcome: Outcome) -> str:
    return interval_text(outcome.score) if outcome.score else f"{outcome.status}: {outcome.error}"
