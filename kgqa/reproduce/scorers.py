"""The scorers that papers released, and where ours differs from that of a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from kgqa.config.overrides import override_values
from kgqa.reproduce.cells import PlannedCell
from kgqa.reproduce.tables import DATASET, PublishedTable

NONE = "none"  # not released


def describe_scorer(table: PublishedTable) -> str:
    """Return the table's scorer, our profile for it and its gold answers, as a sentence."""
    scorer = table.released
    if scorer.file == NONE:
        return "Scorer: not released. Ours are the official scorers of the datasets."
    ours = (
        "the official scorers of the datasets"
        if scorer.profile == DATASET
        else f"scoring={scorer.profile}"
    )
    return f"Scorer: {scorer.file} of the authors, here {ours}. Gold answers: {scorer.golds}."


def list_scorer_differences(
    table: PublishedTable, planned: Sequence[PlannedCell]
) -> Iterator[tuple[str, str, str]]:
    """Yield where the scorer or the gold answers are not the table's: name, the paper's value, ours."""
    scorer, running = table.released, [cell for cell in planned if cell.state == "run"]
    if scorer.file == NONE and running:
        yield "scorer", "not released", "the official scorer of each dataset"
    others, lacking = (
        defaultdict[str, dict[str, None]](dict),
        defaultdict[str, dict[str, None]](dict),
    )
    for cell in running:
        profile = override_values(cell.published.overrides).get("scoring", DATASET)
        if scorer.profile not in (profile, DATASET):
            others[f"scoring={profile}"][cell.published.column] = None
        for run in cell.tests:
            if missing := (run.figures or {}).get("missing_golds"):
                lacking[missing][cell.published.column] = None
    for name, theirs, columns in (
        ("scorer", scorer.file, others),
        ("gold answers", scorer.golds, lacking),
    ):
        yield from ((name, theirs, _of_columns(ours, names)) for ours, names in columns.items())


def _of_columns(ours: str, columns: Mapping[str, None]) -> str:
    return f"{ours} ({', '.join(columns)})"
