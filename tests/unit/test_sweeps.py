"""Parts of sweeps that need no run: axes, order, budgets, marks, estimates."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.sweep import CellState, SweepCell, SweepPlan, cell_file, sweep_name
from kgqa.config.composing import expand_grid, parse_axes
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.budget import Budget, limited
from kgqa.experiment.experiment import Experiment
from kgqa.report.columns import Measured, columns, name_by_settings
from kgqa.report.plots import BarPlot, Plot
from kgqa.report.section import MarkedCell
from kgqa.report.sweeps import SweepReport, mark_best
from kgqa.runtime.costs import Spent
from kgqa.sweeps.cells import Cell, differing_settings, group_by_models
from kgqa.sweeps.running import SweepFolder, open_sweep
from tests.unit.killing import contents, killed_at

RUN = Path(__file__).parents[1] / "golden/artefacts/trace"


def cells(overrides: list[str]) -> list[list[str]]:
    return [words for _, words in expand_grid(parse_axes(overrides))]


def test_last_axis_varies_fastest_and_other_words_stay() -> None:
    found = cells(["method=trace,golden", "seed=choice(3,4)", "ids=[a,b]", "~ranker"])
    pairs = [("trace", 3), ("trace", 4), ("golden", 3), ("golden", 4)]
    assert found == [[f"method={method}", f"seed={seed}", "ids=[a,b]", "~ranker"] for method, seed in pairs]
    assert cells(["seed=range(0,6,2)"]) == [["seed=0"], ["seed=2"], ["seed=4"]]
    assert cells(["seed=1,1,2"]) == [["seed=1"], ["seed=2"]]
    assert [name for name, _ in expand_grid(parse_axes(["method=trace", "seed=1,2"]))] == ["seed=1", "seed=2"]


def cell(number: int, **config: Any) -> Cell:
    return Cell(number, f"cell {number}", replace(Experiment.of(["method=golden", "dataset=demo"]), config=config))


def test_cells_with_the_same_models_are_grouped_in_order_of_appearance() -> None:
    found = [cell(number, model=model) for number, model in enumerate("abab")] + [cell(4, model="b", judge="j")]
    assert [[each.number for each in group] for group in group_by_models(found)] == [[0, 2], [1, 3], [4]]


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


def test_best_and_second_are_marked_and_only_a_significant_difference_is_starred() -> None:
    figures = [Measured(each, 0.0, 100.0) for each in (75.0, 70.0, 25.0, 75.0)]
    entries = mark_best(figures, [shares(30), shares(28), shares(10), shares(30)])
    assert [entry.mark for entry in entries] == ["best", "second", "", "best"]
    assert [entry.worse for entry in entries] == [False, False, True, False]
    # The best was judged on few questions, and of these the other has more
    best = {str(n): 0.0 if n < 20 else 1.0 if n < 60 else None for n in range(100)}
    other: dict[str, float | None] = {str(n): 1.0 if n < 60 else 0.0 for n in range(100)}
    judged = mark_best([Measured(66.7, 0.0, 100.0), Measured(60.0, 0.0, 100.0)], [best, other])
    assert [entry.worse for entry in judged] == [False, False]


def test_lowest_value_is_best_if_lower_is_better() -> None:
    figures = [Measured(each, 0.0, 100.0) for each in (75.0, 70.0, 25.0)]
    entries = mark_best([*figures, None], [shares(30), shares(28), shares(10), None], lower_is_better=True)
    assert [entry.mark for entry in entries] == ["", "second", "best", ""]
    assert [entry.worse for entry in entries] == [True, True, False, False]


def test_a_shared_second_is_not_marked() -> None:
    figures = [Measured(each, 0.0, 100.0) for each in (75.0, 0.0, 0.0)]
    assert [entry.mark for entry in mark_best(figures, [None] * 3)] == ["best", "", ""]


@pytest.mark.parametrize(
    ("figures", "texts"),
    [
        ([Measured(50.0, 40.0, 60.0)] * 2, ["50.0 [40.0, 60.0]"] * 2),  # equal scores
        ([Measured(3.0, None, None), Measured(4.0, None, None)], ["3", "4"]),  # costs
    ],
)
def test_equal_scores_and_costs_have_no_best(figures: list[Measured | None], texts: list[str]) -> None:
    entries = mark_best(figures, [None, None])
    assert list(entries) == texts
    assert [entry.mark for entry in entries] == ["", ""]


def test_missing_figure_is_a_dash_and_never_zero() -> None:
    entries = mark_best([Measured(50.0, 40.0, 60.0), None, Measured(0.0, 0.0, 0.0)], [None, None, None])
    assert list(entries) == ["50.0 [40.0, 60.0]", "–", "0.0 [0.0, 0.0]"]
    column = next(column for column in columns() if column.label == "failed questions")
    metrics = Metrics.read(RUN)
    assert column.measure(metrics) is None
    assert column.measure(metrics.replace(failed=2)) == Measured(2, of=metrics.questions)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"method": "trace", "retriever": "minilm", "method.beam": "5"}, "trace · minilm · beam 5"),
        ({"retriever": "minilm", "ranker": "minilm"}, "minilm · ranker minilm"),
        ({"seed": "0", "method.exact": "true"}, "seed 0 · exact true"),
        ({}, ""),
    ],
)
def test_name_by_settings(values: dict[str, str], name: str) -> None:
    assert name_by_settings(values) == name


def test_a_plot_is_of_the_first_score_that_tells_cells_apart_and_names_what_varies(tmp_path: Path) -> None:
    run = FinishedRun.read(RUN)
    scores = run.metrics.scores
    assert scores["em"].mean == 0  # and equal in both cells
    better = replace(run, metrics=run.metrics.replace(scores={**scores, "f1": scores["f1"].replace(mean=90.0)}))
    cells = [
        SweepCell(number=number, name="", overrides=("method=trace", f"method.beam={beam}"), run=None, finished=each)
        for number, (beam, each) in enumerate([(3, run), (5, better)])
    ]
    axes = {"method": ("trace",), "method.beam": (3, 5)}
    plan = SweepPlan(command=(), axes=axes, cells=tuple(cells))
    (table,) = SweepReport(tmp_path, plan, None).tables()
    bars, plot = table.plots
    assert isinstance(plot, Plot)
    assert isinstance(bars, BarPlot)
    assert (plot.x, plot.y) == ("tokens per question", "F1")
    assert [point.label for point in plot.series[0].points] == ["beam 3", "beam 5"]
    assert [bar.name for bar in bars.bars] == ["beam 3", "beam 5"]
    links = [row[1].link for row in table.rows if isinstance(row[1], MarkedCell)]
    assert [(tmp_path / link).resolve() for link in links] == [(run.folder / "report.html").resolve()] * 2


BASE = Experiment.of(["method=golden", "dataset=demo", "engine=scripted"])


def frozen_cells(*seeds: int) -> list[Cell]:
    return [
        Cell(number, f"seed={seed}", replace(BASE, config={**BASE.config, "seed": seed}))
        for number, seed in enumerate(seeds)
    ]


def open_folder(path: Path, *seeds: int, search: str | None = None) -> AbstractContextManager[SweepFolder]:
    return open_sweep(path, SweepPlan(search=search, command=(), axes={}, cells=()), frozen_cells(*seeds))


def close_folder(path: Path, *seeds: int, search: str | None = None) -> None:
    with open_folder(path, *seeds, search=search):
        pass


def end(path: Path, number: int, status: Any) -> None:
    CellState(status=status, run=None, seconds=1.0, error=None).write(path, number)


def statuses(path: Path) -> list[str]:
    return [cell.status for cell in SweepPlan.read(path).cells]


def test_a_sweep_in_use_is_refused(tmp_path: Path) -> None:
    with open_folder(tmp_path / "s", 1), pytest.raises(ConfigError, match="another kgqa process"):
        close_folder(tmp_path / "s", 1)
    close_folder(tmp_path / "s", 1)


def test_another_sweep_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    close_folder(tmp_path, 1, 2)
    before = contents(tmp_path)
    for seeds, message in (((1, 3), "configuration in cell 1"), ((2, 1), "in cell 0, 1"), ((1,), "2 cells, not 1")):
        with pytest.raises(ConfigError, match=f"contains another sweep: .*{message}"):
            close_folder(tmp_path, *seeds)
        assert sweep_name([cell.frozen for cell in frozen_cells(*seeds)]) != sweep_name(
            [c.frozen for c in frozen_cells(1, 2)]
        )
    with pytest.raises(ConfigError, match="contains another sweep: another search"):
        close_folder(tmp_path, search="f1")
    assert contents(tmp_path) == before


def test_a_search_adds_cells_and_starts_without_any(tmp_path: Path) -> None:
    for _ in range(2):
        with open_folder(tmp_path, search="f1") as folder:
            folder.add(frozen_cells(1))
            end(tmp_path, 0, "failed")
            folder.add(frozen_cells(1, 2)[1:])
            assert statuses(tmp_path) == ["failed", "waiting"]
    with pytest.raises(ConfigError, match="another search"):
        close_folder(tmp_path, search="em")


def test_started_again_a_sweep_keeps_done_cells_and_tries_others_again(tmp_path: Path) -> None:
    close_folder(tmp_path, *range(5))
    for number, status in enumerate(("done", "failed", "running", "not run")):
        end(tmp_path, number, status)
    close_folder(tmp_path, *range(5))
    assert statuses(tmp_path) == ["done", "waiting", "waiting", "waiting", "waiting"]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("is_resumed", [False, True])
def test_killed_at_any_write_a_sweep_starts_again(tmp_path: Path, is_resumed: bool, after: bool) -> None:
    for write in range(12):
        path = tmp_path / str(write)
        if is_resumed:
            close_folder(path, 1, 2, 3)
            end(path, 0, "done")
            end(path, 1, "failed")
        with killed_at(write, after=after):
            close_folder(path, 1, 2, 3)
        close_folder(path, 1, 2, 3)
        assert statuses(path) == ["done" if is_resumed else "waiting", "waiting", "waiting"]
        frozen = [cell_file(path, number, "yaml").read_text() for number in range(3)]
        assert frozen == [cell.frozen for cell in frozen_cells(1, 2, 3)]


def test_a_damaged_sweep_is_named(tmp_path: Path) -> None:
    close_folder(tmp_path / "s", 1)
    (tmp_path / "s/sweep.json").write_text('{"format": 1, "cells"')
    with pytest.raises(DataError, match="not readable"):
        SweepPlan.read(tmp_path / "s")
    with pytest.raises(DataError, match="not the folder of a sweep"):
        SweepPlan.read(tmp_path)
