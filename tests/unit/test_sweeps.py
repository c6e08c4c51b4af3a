"""Parts of sweeps that need no run: axes, order, budgets, marks, estimates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.sweep import CellState, ListedCell, SweepPlan
from kgqa.config.axes import expand_grid, parse_axes
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.run.estimating import Rate
from kgqa.experiment.session.budget import Budget, limited
from kgqa.experiment.session.experiment import Experiment
from kgqa.report.columns import COLUMNS, Measured
from kgqa.report.plots import Point
from kgqa.report.sweeps import CellRun, SweepReport, frontier, mark_best, tables
from kgqa.runtime.costs import Spent
from kgqa.runtime.sweep_folder import SweepFolder, keep_state
from kgqa.sweeps.cells import Cell, adjacent, differing_settings

RUN = Path(__file__).parents[1] / "golden/artefacts/trace"


def cells(overrides: list[str]) -> list[list[str]]:
    return [given for _, given in expand_grid(parse_axes(overrides))]


def test_the_last_axis_varies_fastest_and_the_rest_is_kept_as_written() -> None:
    found = cells(["method=trace,golden", "seed=choice(3,4)", "ids=[a,b]", "~ranker"])
    assert found == [
        ["method=trace", "seed=3", "ids=[a,b]", "~ranker"],
        ["method=trace", "seed=4", "ids=[a,b]", "~ranker"],
        ["method=golden", "seed=3", "ids=[a,b]", "~ranker"],
        ["method=golden", "seed=4", "ids=[a,b]", "~ranker"],
    ]


def test_ranges_end_before_their_end_and_a_value_given_twice_counts_once() -> None:
    assert cells(["seed=range(0,6,2)"]) == [["seed=0"], ["seed=2"], ["seed=4"]]
    assert cells(["seed=1,1,2"]) == [["seed=1"], ["seed=2"]]


def test_a_cell_is_named_after_what_varies() -> None:
    assert [name for name, _ in expand_grid(parse_axes(["method=trace", "seed=1,2"]))] == ["seed=1", "seed=2"]


def cell(number: int, **config: Any) -> Cell:
    return Cell(number, f"cell {number}", replace(Experiment.of(["method=golden", "dataset=demo"]), config=config))


def test_cells_with_the_same_models_are_adjacent_in_order_of_appearance() -> None:
    given = [
        cell(0, model="a"),
        cell(1, model="b"),
        cell(2, model="a"),
        cell(3, model="b", judge="j"),
        cell(4, model="b"),
    ]
    assert [[each.number for each in group] for group in adjacent(given)] == [[0, 2], [1, 4], [3]]


def test_settings_that_not_all_cells_have_are_not_compared() -> None:
    first = cell(0, choices={"method": "a"}, method={"_target_": "x", "k": 1, "only": 3}, seed=0)
    second = cell(1, choices={"method": "b"}, method={"_target_": "y", "k": 2}, seed=0)
    assert differing_settings([first, second]) == {"method": ("a", "b"), "method.k": (1, 2)}


@pytest.mark.parametrize("value", ["3", "3 euro", "usd", "0usd", "1.5tokens", "-1usd"])
def test_a_budget_is_dollars_or_tokens(value: str) -> None:
    with pytest.raises(ConfigError, match="expected dollars or tokens"):
        Budget.of(value)


def test_a_budget_counts_what_was_paid_and_tells_engines_what_is_left() -> None:
    budget = Budget.of("2.50USD")
    budget.pay(Spent(120, 1.0))
    budget.pay(Spent(120))  # on this machine
    assert not budget.spent()
    assert budget.left().dollars == 1.5
    engine = {"budget_tokens": None, "budget_usd": 7.0}
    config = {"engine": engine, "model": {"name": "m", "prices": {"input": 1}}}
    assert limited(config, budget.left())["engine"] == {"budget_tokens": None, "budget_usd": 1.5}
    assert limited({"engine": {"threads": 1}}, budget.left()) == {"engine": {"threads": 1}}
    budget.pay(Spent(0, 1.5))
    assert budget.spent()


def test_dollars_need_prices_where_a_server_is_paid() -> None:
    config = {"engine": {"budget_tokens": None, "budget_usd": None}, "model": {"name": "m", "prices": None}}
    with pytest.raises(ConfigError, match="model=m has no prices"):
        limited(config, Budget.of("1usd"))


def shares(right: int, of: int = 40) -> dict[str, float | None]:
    return {str(n): float(n < right) for n in range(of)}


def test_best_and_second_are_marked_and_only_a_shown_difference_is_starred() -> None:
    figures = [Measured(each, 0.0, 100.0) for each in (75.0, 70.0, 25.0, 75.0)]
    entries = mark_best(figures, [shares(30), shares(28), shares(10), shares(30)])
    assert [entry.mark for entry in entries] == ["best", "second", "", "best"]
    assert [entry.worse for entry in entries] == [False, False, True, False]


def test_a_cell_that_is_better_where_both_are_judged_is_not_starred() -> None:
    """The best was judged on few questions, and of these the other has more."""
    best = {str(n): 0.0 if n < 20 else 1.0 if n < 60 else None for n in range(100)}
    other = {str(n): 1.0 if n < 40 else 0.0 for n in range(100)}
    other |= {str(n): 1.0 for n in range(40, 60)}
    figures = [Measured(66.7, 0.0, 100.0), Measured(60.0, 0.0, 100.0)]
    assert [entry.worse for entry in mark_best(figures, [best, other])] == [False, False]


def test_failed_questions_have_a_column_where_there_are_some() -> None:
    column = next(column for column in COLUMNS if column.label == "failed questions")
    metrics = Metrics.read(RUN)
    assert column.of(metrics) is None
    assert column.of(metrics.replace(failed=2)) == Measured(2, None, None)


def test_equal_scores_and_costs_have_no_best() -> None:
    same = [Measured(50.0, 40.0, 60.0)] * 2
    costs = [Measured(3.0, None, None), Measured(4.0, None, None)]
    for figures in (same, costs):
        assert [entry.mark for entry in mark_best(figures, [None, None])] == ["", ""]


def test_what_a_cell_does_not_have_is_a_dash_and_never_zero() -> None:
    entries = mark_best([Measured(50.0, 40.0, 60.0), None, Measured(0.0, 0.0, 0.0)], [None, None, None])
    assert [entry.text for entry in entries] == ["50.0 [40.0, 60.0]", "–", "0.0 [0.0, 0.0]"]


def test_thefrontier_holds_what_nothing_cheaper_beats() -> None:
    points = [Point(3, 10), Point(1, 5), Point(2, 4), Point(4, 10), Point(5, 20)]
    assert [(point.x, point.y) for point in frontier(points)] == [(1, 5), (3, 10), (5, 20)]


def test_a_plot_is_of_the_first_score_that_tells_cells_apart_and_names_what_varies(tmp_path: Path) -> None:
    run = FinishedRun.read(RUN)
    scores = run.metrics.scores
    assert scores.em.mean == 0  # and equal in both cells
    better = replace(run, metrics=run.metrics.replace(scores=scores.replace(f1=scores.f1.replace(mean=90.0))))
    cells = [
        CellRun(number, "", {"method": "trace", "method.beam": str(beam)}, "done", None, each)
        for number, (beam, each) in enumerate([(3, run), (5, better)])
    ]
    (table,) = tables(SweepReport(tmp_path, (), {"method": ("trace",), "method.beam": (3, 5)}, cells, (), None))
    assert table.plot is not None
    assert table.plot.y == "F1"
    assert [point.label for point in table.plot.series[0].points] == ["beam=3", "beam=5"]
    assert table.matrix.questions[0] == (
        "2hop__demo_01",
        "In which town was the architect of the Candle Bridge born?",
        "ww",
    )


def test_a_rate_tells_reading_from_writing_once_it_has_three_runs() -> None:
    few = Rate([(100, 100, 20.0)])
    assert few.seconds(50, 50) == pytest.approx(10.0)
    many = Rate([(100, 0, 1.0), (0, 100, 10.0), (100, 100, 11.0)])
    assert many.seconds(100, 10) == pytest.approx(2.0)


def test_replies_are_expected_as_long_as_earlier_ones_and_never_longer_than_allowed() -> None:
    rate = Rate(replies={"reader": (30, 10)})
    assert rate.output("reader", 4, 100) == 12
    assert rate.output("reader", 4, 5) == 5
    assert rate.output("judge", 4, 100) == 100


PLAN = SweepPlan(command=("kgqa",), axes={}, cells=(ListedCell(number=0, name="a", overrides=(), run=None),))
NOTHING = PLAN.replace(cells=(), search="f1")
FAILED = CellState(status="failed", run=None, seconds=0, error="gone")


def test_a_sweep_in_use_is_refused(tmp_path: Path) -> None:
    with SweepFolder(tmp_path / "s", PLAN, ["seed: 1"]), pytest.raises(ConfigError, match="another kgqa process"):
        SweepFolder(tmp_path / "s", PLAN, ["seed: 1"])
    SweepFolder(tmp_path / "s", PLAN, ["seed: 1"]).close()


def test_a_search_keeps_to_its_own_folder(tmp_path: Path) -> None:
    SweepFolder(tmp_path / "grid", PLAN, ["seed: 1"]).close()
    SweepFolder(tmp_path / "search", NOTHING, []).close()
    SweepFolder(tmp_path / "search", NOTHING, []).close()
    for name, search in (("grid", "f1"), ("search", "em"), ("search", None)):
        with pytest.raises(ConfigError, match="holds another sweep"):
            SweepFolder(tmp_path / name, NOTHING.replace(search=search), [])


def test_a_failed_cell_of_a_search_stays_when_the_next_is_added(tmp_path: Path) -> None:
    one = NOTHING.replace(cells=PLAN.cells)
    two = NOTHING.replace(cells=(*PLAN.cells, ListedCell(number=1, name="b", overrides=(), run=None)))
    with SweepFolder(tmp_path / "s", NOTHING, []) as folder:
        folder.grow(one, ["seed: 1"])
        keep_state(folder.path, 0, FAILED)
        folder.grow(two, ["seed: 1", "seed: 2"])
        assert CellState.read(folder.path, 0) == FAILED


@pytest.mark.parametrize(("status", "left"), [("failed", None), ("running", None), ("done", "done")])
def test_a_failed_cell_is_forgotten_when_it_is_tried_again_and_a_done_one_is_not(
    tmp_path: Path, status: Literal["failed", "running", "done"], left: str | None
) -> None:
    keep_state(_claimed(tmp_path), 0, FAILED.replace(status=status))
    state = CellState.read(_claimed(tmp_path), 0)
    assert (state.status if state else None) == left


def _claimed(folder: Path) -> Path:
    SweepFolder(folder / "s", PLAN, ["seed: 1"]).close()
    return folder / "s"


def test_a_damaged_sweep_is_named(tmp_path: Path) -> None:
    path = _claimed(tmp_path)
    (path / "sweep.json").write_text('{"format": 1, "cells"')
    with pytest.raises(DataError, match="not readable"):
        SweepPlan.read(path)
    with pytest.raises(DataError, match="not the folder of a sweep"):
        SweepPlan.read(tmp_path)
