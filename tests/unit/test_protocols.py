"""The papers' protocols are said of keys and tables that there are, and reach the cells that they are meant for."""

from __future__ import annotations

import pytest

from kgqa.config.files import flatten
from kgqa.experiment.experiment import Experiment
from kgqa.reproduce.protocol import Protocol, ProtocolRuns, protocol_of
from kgqa.reproduce.tables import table_ids
from kgqa.sweeps.cells import Cell, check_metric
from tests.composed import composed_node

PAPERS = ("ircot", "trace", "knowtrace", "kgp", "safe")
TABLE = {"ircot": "ircot/table4", "trace": "trace/table1", "safe": "safe/table3"}


def protocol(table_id: str) -> Protocol:
    found = protocol_of(table_id)
    assert found
    return found


def among(paper: str, *overrides: str) -> dict[str, list[int]]:
    experiment = Experiment.of([*overrides, "engine=scripted"])
    chosen = ProtocolRuns(Cell(0, "a", experiment), protocol(TABLE[paper]), TABLE[paper]).among
    return {key: list(values) for key, values in chosen.items()}


def test_every_paper_has_one_whose_tables_and_metrics_there_are() -> None:
    for paper in PAPERS:
        (found, *_) = [each for id_ in table_ids() if id_.startswith(f"{paper}/") and (each := protocol_of(id_))]
        assert set(found.tables) | set(found.metrics) <= set(table_ids())
        for metric in (found.metric, *found.metrics.values()):
            check_metric("metric", metric)


def test_what_is_chosen_among_is_a_key_of_the_method_it_is_said_of() -> None:
    for paper in PAPERS:
        (found, *_) = [each for id_ in table_ids() if id_.startswith(f"{paper}/") and (each := protocol_of(id_))]
        for entry in found.tune:
            method = next(word for word in entry.when if word.startswith("method="))
            assert entry.among.keys() <= flatten({"method": composed_node("method", method.partition("=")[2])}).keys()


def test_each_cell_gets_its_own_choice() -> None:
    assert among("ircot", "method=retrieve_read", "method.scope=none") == {}
    assert set(among("ircot", "method=retrieve_read")) == {"method.passages", "method.few_shot.distractors"}
    assert among("ircot", "method=ircot")["method.passages_per_step"] == [2, 4, 6, 8]
    assert among("trace", "method=trace") == {"method.candidates": [15, 20, 25, 30]}
    assert len(among("trace", "experiment=trace_bi_encoder", "dataset=musique")["method.passages"]) == 20
    assert len(among("trace", "experiment=trace_bi_encoder", "dataset=2wiki")["method.passages"]) == 10
    assert among("trace", "method=no_context") == {}


@pytest.mark.parametrize("asked", [5, 36, 40])
def test_where_nothing_is_chosen_as_many_are_drawn_as_the_paper_asked(asked: int) -> None:
    few = protocol("safe/table3").model_copy(update={"test": asked})
    (cell,) = ProtocolRuns(
        Cell(0, "a", Experiment.of(["method=no_context", "engine=scripted"])), few, "safe/table3"
    ).tests()
    assert len(cell.experiment.questions) == min(asked, 36)


def test_cells_with_and_without_a_choice_are_asked_the_same_questions() -> None:
    found = protocol("ircot/table4")
    few = [{key: values[:2] for key, values in entry.among.items()} for entry in found.tune]
    tune = (entry.model_copy(update={"among": some}) for entry, some in zip(found.tune, few, strict=True))
    small = found.model_copy(update={"dev": 5, "test": 7, "sets": ("1", "2"), "tune": tuple(tune)})
    base = ("dataset=demo", "engine=scripted", "ranker=lexical")
    ids = set()
    for overrides in (("method=retrieve_read",), ("method=retrieve_read", "method.scope=none"), ("method=ircot",)):
        runs = ProtocolRuns(Cell(0, "a", Experiment.of([*base, *overrides])), small, "ircot/table4")
        tests = runs.tests()
        assert len(tests) == 2
        ids |= {tuple(question.id for question in cell.experiment.questions) for cell in tests}
        assert len(runs.tried()) == (4 if runs.among else 0)
        assert not {id_ for cell in runs.tried() for id_ in cell.experiment.settings.ids or ()} & set(next(iter(ids)))
    assert len(ids) == 1
