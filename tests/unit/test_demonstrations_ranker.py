"""Examples are chosen by a ranker of their own, so that another ranker of triples changes nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgqa.experiment.experiment import Experiment
from kgqa.experiment.prepare.triples import TripleBuilder
from kgqa.experiment.session import Session
from kgqa.reproduce.tables import load_table

BY_LETTERS = ("ranker=levenshtein", "demonstrations_ranker=lexical")


def store(*overrides: str) -> Path:
    lexical = ("ranker=lexical", "demonstrations_ranker=lexical")
    with Session(Experiment.of(["engine=scripted", *lexical, *overrides])) as session:
        return TripleBuilder(session).store.folder


def test_another_ranker_reads_the_same_triples() -> None:
    assert store() == store("ranker=levenshtein") == store("method.candidates=9")
    apart = {store(), store("demonstrations_ranker=levenshtein"), store("kg.head=any")}
    assert len(apart) == 3
    fixed = "kg.demonstrations=fixed"
    assert store(fixed) == store(fixed, "demonstrations_ranker=levenshtein")


def test_a_run_names_it_where_it_is_asked() -> None:
    fixed = ("method.demonstrations=fixed", "kg.demonstrations=fixed")
    cases = {("method=trace",): True, ("method=trace", *fixed): False, ("method=no_context",): False}
    for overrides, asked in cases.items():
        with Session(Experiment.of(["engine=scripted", *BY_LETTERS, *overrides])) as session:
            assert ("demonstrations_ranker" in session.experiment.choices) is asked
            assert ("demonstrations_ranker" in session.experiment.identity) is asked


@pytest.mark.parametrize("table", ["trace/table2", "trace/table6"])
def test_published_rows_that_name_a_ranker_change_it_alone(table: str) -> None:
    cells = {(cell.row, cell.column): set(cell.overrides) for cell in load_table(table).cells}
    rows = {"w. DRAGON+": "dragon_plus", "w. E5": "e5"}
    for (row, column), overrides in cells.items():
        if row in rows:
            (whole,) = [each for (name, of), each in cells.items() if of == column and name.startswith("TRACE-")]
            assert overrides ^ whole == {"ranker=e5_mistral", f"ranker={rows[row]}"}
            assert "demonstrations_ranker=e5_mistral" in overrides
    assert rows.keys() <= {row for row, _ in cells}
