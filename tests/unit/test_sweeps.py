"""Parts of sweeps that need no run: axes, order, budgets, marks, estimates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kgqa.artifacts.metrics import Estimate, Metrics
from kgqa.artifacts.sweep import Cell, CellState, Sweep, cell_file, sweep_name
from kgqa.config.composing import expand_grid, parse_axes
from kgqa.config.files import Config
from kgqa.config.overrides import describe_changes
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.check import find_warnings
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.experiment import Experiment
from kgqa.report.columns import (
    Measured,
    choose_keys,
    columns,
    describe_costs,
    explain_names,
    find_differing,
    name_by_settings,
)
from kgqa.report.shares import RunShares
from kgqa.report.sweep_rows import SweepRow, find_frontier
from kgqa.report.sweeps import choose_axes, compare_with_best, mark_best
from kgqa.runtime.costs import Budget, Spent, limited
from kgqa.runtime.display import QUIET
from kgqa.runtime.monitor import monitor_work, read_heartbeats
from kgqa.sweeps.cells import (
    check_settings,
    differing_settings,
    experiment_of,
    freeze,
    freeze_cells,
    group_by_models,
    load_cell,
    repeat_cells,
)
from kgqa.sweeps.grid import SweepRequest
from kgqa.sweeps.running import add_cells, open_sweep
from kgqa.util.fs import replace_file
from tests.unit.killing import contents, killed_at

RUN = Path(__file__).parents[1] / "golden/artefacts/trace"


def cells(overrides: list[str]) -> list[list[str]]:
    return [words for _, words in expand_grid(parse_axes(overrides))]


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        (["method=golden"], ["repeat=1", "repeat=2"]),
        (["method=golden", "seed=1,2"], [f"seed={s} repeat={r}" for s in (1, 2) for r in (1, 2)]),
    ],
    ids=["one cell", "several cells"],
)
def test_repeats_are_named_by_what_differs(overrides: list[str], names: list[str]) -> None:
    repeats = repeat_cells(expand_grid(parse_axes(overrides)), 2)
    assert [cell.name for cell in repeats] == names


OTHERS = "To sweep it for the others only: kgqa run -m method={method} method.{key}=VALUE. "


@pytest.mark.parametrize("repeats", [None, 2], ids=["no repeats", "repeats"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "method=no_context,search_agent,trace method.temperature=0,1",
            "method.temperature: method=no_context,trace have no such setting. "
            + OTHERS.format(method="search_agent", key="temperature"),
        ),
        (
            "method=ircot,trace method.passages_per_step=2",
            "method.passages_per_step: method=trace has no such setting. "
            + OTHERS.format(method="ircot", key="passages_per_step"),
        ),
        ("method=no_context,trace method.temperature=1", "method.temperature=1: unknown key. "),
        ("method=trace method.candidate=1,2", "method.candidate=1: unknown key. Did you mean "),
    ],
    ids=["two lack it", "one lacks it", "all lack it", "one method"],
)
def test_methods_without_a_swept_key_are_named(
    words: str, message: str, repeats: int | None
) -> None:
    count = [f"repeats={repeats}"] if repeats else []
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        _ = SweepRequest.of([*words.split(), "dataset=demo", *count]).cells


def test_colon_in_a_value_has_no_backslash() -> None:
    assert expand_grid(parse_axes(["method.function=agents:good,agents:bad"])) == [
        ("method.function=agents:good", ["method.function=agents:good"]),
        ("method.function=agents:bad", ["method.function=agents:bad"]),
    ]


def test_cells_of_an_experiment_are_checked() -> None:
    words = ["method=no_context", "dataset=demo", "experiment=results", "model=qwen3_8b"]
    check_settings(freeze_cells([("right", words)]))
    with pytest.raises(ConfigError, match=r"no cell was run\. cell 0: engine\.dtype=wrong"):
        check_settings(freeze_cells([("wrong", [*words, "engine.dtype=wrong"])]))


@pytest.mark.parametrize(
    ("methods", "count"),
    [
        pytest.param(("golden", "no_context"), 2, id="no cell uses it"),
        pytest.param(("golden", "trace"), 0, id="another cell uses it"),
    ],
)
def test_key_of_another_cell_is_not_warned_of(methods: tuple[str, ...], count: int) -> None:
    words = ("dataset=demo", "engine=scripted", "ranker=lexical")
    frozen = freeze_cells([(name, (f"method={name}", *words)) for name in methods])
    warnings = [warning for cell in frozen for warning in find_warnings(experiment_of(cell))]
    assert [text for text in warnings if "ranker=lexical has no effect" not in text] == []
    assert len(warnings) == count


def test_axes_groups_and_settings_of_cells() -> None:
    plan = cells(["method=trace,golden", "seed=choice(3,4)", "ids=[a,b]", "~ranker"])
    pairs = [("trace", 3), ("trace", 4), ("golden", 3), ("golden", 4)]
    assert plan == [
        [f"method={method}", f"seed={seed}", "ids=[a,b]", "~ranker"] for method, seed in pairs
    ]
    assert cells(["seed=range(0,6,2)"]) == [["seed=0"], ["seed=2"], ["seed=4"]]
    assert [name for name, _ in expand_grid(parse_axes(["method=trace", "seed=1,1,2"]))] == [
        "seed=1",
        "seed=2",
    ]
    same = [cell(number, model=model) for number, model in enumerate("abab")] + [
        cell(4, model="b", judge="j")
    ]
    assert [[each.number for each in group] for group in group_by_models(same)] == [
        [0, 2],
        [1, 3],
        [4],
    ]
    first = cell(0, choices={"method": "a"}, method={"_target_": "x", "k": 1, "only": 3}, seed=0)
    second = cell(1, choices={"method": "b"}, method={"_target_": "y", "k": 2}, seed=0)
    assert differing_settings([first, second]) == {"method": ("a", "b"), "method.k": (1, 2)}


@pytest.mark.parametrize(
    ("values", "name"),
    [
        pytest.param(
            {"method": "trace", "retriever": "minilm", "method.beam": "5"},
            "trace · minilm · beam 5",
            id="method and retriever",
        ),
        pytest.param(
            {"retriever": "minilm", "ranker": "minilm"},
            "minilm · ranker minilm",
            id="same choice twice",
        ),
        pytest.param(
            {"seed": "0", "method.exact": "false", "method.top": "null"},
            "seed 0 · no exact",
            id="switches",
        ),
        pytest.param({}, "", id="no settings"),
    ],
)
def test_name_of_a_cell_has_its_settings(values: dict[str, str], name: str) -> None:
    assert name_by_settings(values) == name


@pytest.mark.parametrize(
    ("count", "keys"), [(0, ["size", "set"]), (3, ["size", "set", "fixed"])], ids=["few", "more"]
)
def test_keys_that_separate_runs_are_first(count: int, keys: list[str]) -> None:
    values = [("x", "1", "a"), ("x", "1", "b"), ("x", "2", "a"), ("y", "3", "a")]
    runs = [dict(zip(("fixed", "size", "set"), each, strict=True)) for each in values]
    assert choose_keys(["fixed", "size", "set"], runs, count) == keys


SETS = ("method.demonstration_set", "method.few_shot.sample")


@pytest.mark.parametrize(
    ("runs", "keys"),
    [
        pytest.param([{"beam": "5"}, {"beam": "7"}], ["beam"], id="one"),
        pytest.param([{"beam": "5", "new": "1"}, {"beam": "7"}], ["beam"], id="key of one run"),
        pytest.param([{"run_name": "a"}, {"run_name": "b"}], [], id="name"),
        pytest.param(
            [dict.fromkeys(("repeat", *SETS), number) for number in "123"], ["repeat"], id="repeats"
        ),
        pytest.param(
            [dict.fromkeys(SETS, number) for number in "123"], [SETS[0]], id="few-shot sets"
        ),
        pytest.param(
            [{"ranker": name, "ranker.model": f"{name}.bin"} for name in "ab"],
            ["ranker"],
            id="component",
        ),
        pytest.param(
            [
                {
                    "beam": one,
                    "engine": "openai",
                    "engine.concurrency": one,
                    "max_failure_rate": one,
                }
                for one in "12"
            ],
            ["beam"],
            id="settings of the work",
        ),
        pytest.param([{"max_failure_rate": one} for one in "12"], [], id="only it"),
        pytest.param([], [], id="no runs"),
    ],
)
def test_differing_settings_name_runs(runs: list[dict[str, str]], keys: list[str]) -> None:
    assert find_differing(runs) == keys


def test_settings_of_the_work_are_minor() -> None:
    runs = [
        {"beam": one, "engine": "openai", "engine.concurrency": one, "max_failure_rate": one}
        for one in "12"
    ]
    assert find_differing(runs, is_minor=True) == ["engine.concurrency", "max_failure_rate"]


@pytest.mark.parametrize(
    ("name", "word"),
    [("ircot · repeat 2", "repeat 2: "), ("ircot · few-shot set 3", "few-shot set 2: ")],
    ids=["repeat", "set"],
)
def test_words_of_names_are_explained(name: str, word: str) -> None:
    (sentence,) = explain_names(["ircot · beam 5", name])
    assert sentence.startswith(word)


def cell(number: int, **config: Any) -> Cell:
    return freeze(number, f"cell {number}", replace(plain_experiment(), config=config))


def test_budgets_are_paid_and_dollars_need_prices() -> None:
    budget = Budget.of("2.50USD")
    budget.pay(Spent(120, 1.0))
    budget.pay(Spent(120))  # on this machine
    assert not budget.spent()
    assert budget.left().limit == 1.5
    engine = {"budget_tokens": None, "budget_usd": 7.0}
    config = {"engine": engine, "model": {"name": "m", "prices": {"input": 1}}}
    assert limited(config, budget.left())["engine"] == {"budget_tokens": None, "budget_usd": 1.5}
    assert limited({"engine": {"threads": 1}}, budget.left()) == {"engine": {"threads": 1}}
    budget.pay(Spent(0, 1.5))
    assert budget.spent()
    with pytest.raises(ConfigError, match="model=m has no prices"):
        limited({**config, "model": {"name": "m", "prices": None}}, Budget.of("1usd"))


@pytest.mark.parametrize(
    "value",
    [
        "3",
        "3 euro",
        "usd",
        "0usd",
        "1.5tokens",
        "-1usd",
    ],
)
def test_invalid_budget_is_rejected(value: str) -> None:
    with pytest.raises(ConfigError, match="expected dollars or tokens"):
        Budget.of(value)


def shares(right: int, of: int = 40) -> dict[str, float | None]:
    return {str(n): float(n < right) for n in range(of)}


@pytest.mark.parametrize(
    ("points", "frontier"),
    [
        pytest.param({0: (1, 10), 1: (2, 5), 2: (3, 20)}, [0, 2], id="one is beaten"),
        pytest.param({0: (3, 20), 1: (1, 10), 2: (2, 15)}, [1, 2, 0], id="all in order of cost"),
        pytest.param({0: (1, 10), 1: (1, 10), 2: (1, 9)}, [0, 1], id="equal points stay"),
        pytest.param({}, [], id="no points"),
    ],
)
def test_frontier_has_what_no_other_beats(
    points: dict[int, tuple[float, float]], frontier: list[int]
) -> None:
    assert find_frontier(points) == frontier


@pytest.mark.parametrize(
    ("label", "changes", "expected"),
    [
        ("failed questions", ({"failed": 2}, {"failed": 0}, {"failed": 1}), "3 of 18"),
        ("failed questions", ({"failed": 0}, {"failed": 2}), "2 of 12"),
        ("failed questions", ({"failed": 0}, {"failed": 0}), None),
        ("judge accuracy, corrected", ({"judge": None}, {"judge": None}), None),
    ],
    ids=["failed", "one run failed", "none failed", "not judged"],
)
def test_repeats_add_up_their_counts(
    label: str, changes: Sequence[Mapping[str, Any]], expected: str | None
) -> None:
    metrics = Metrics.read(RUN).replace(questions=6)
    repeats = [SimpleNamespace(metrics=metrics.replace(**each)) for each in changes]
    column = next(column for column in columns() if column.label == label)
    measured = SweepRow(cast(Any, repeats)).measure(column)
    assert (measured and str(measured)) == expected


@pytest.mark.parametrize(
    ("failed", "calls", "has_note"),
    [(0, "3.3", False), (4, "10.0", True), (6, None, True)],
    ids=["none", "some", "all"],
)
def test_costs_are_per_answered_question(failed: int, calls: str | None, has_note: bool) -> None:
    metrics = fake_metrics_of_costs(failed)
    column = next(column for column in columns() if column.label == "calls / question")
    measured = column.measure(metrics)
    assert (measured and str(measured)) == calls
    assert bool(describe_costs([("a", metrics)])) == has_note


def test_costs_of_all_rows_have_one_note() -> None:
    rows = [(name, fake_metrics_of_costs(failed)) for name, failed in [("a", 1), ("b", 2)]]
    note = "a, b: costs are per answered question, and contain the calls of failed ones."
    assert describe_costs([*rows, ("c", fake_metrics_of_costs(0))]) == [note]


def fake_metrics_of_costs(failed: int) -> Metrics:
    metrics = Metrics.read(RUN)
    method = metrics.cost.method.replace(calls=20)
    cost = metrics.cost.replace(method=method, extraction=None)
    return metrics.replace(questions=6, failed=failed, cost=cost)


def test_frontier_takes_no_score_that_is_best_if_low() -> None:
    metrics = Metrics.read(RUN)
    noisy = [
        metrics.replace(
            scores={
                "em": metrics.scores["em"],
                "noise": Estimate(mean=mean, low=0.0, high=100.0, n=3),
            }
        )
        for mean in (10.0, 20.0)
    ]
    fakes = [
        SimpleNamespace(
            metrics=each, read=RunShares((), {"em": shares(1), "noise": shares(1)}, None)
        )
        for each in noisy
    ]
    compared = choose_axes([SweepRow(cast(Any, [each])) for each in fakes])
    assert compared is not None
    assert compared[0].score == "em"


def test_cost_that_a_repeat_lacks_has_no_mean() -> None:
    metrics = Metrics.read(RUN)
    priced = metrics.replace(cost=metrics.cost.replace(method=metrics.cost.method.replace(usd=1.0)))
    unpriced = metrics.replace(
        cost=metrics.cost.replace(method=metrics.cost.method.replace(usd=None))
    )
    column = next(column for column in columns() if column.label == "USD / question")
    rows = [
        SweepRow(cast(Any, [SimpleNamespace(metrics=each) for each in repeats]))
        for repeats in ((priced, priced), (priced, unpriced))
    ]
    assert [row.measure(column) for row in rows] == [column.measure(priced), None]


def test_only_significant_differences_get_a_star() -> None:
    figures = [Measured(each, 0.0, 100.0) for each in (75.0, 70.0, 25.0, 75.0)]
    entries = mark_best(figures, [[shares(30)], [shares(28)], [shares(10)], [shares(30)]])
    assert [entry.mark for entry in entries] == ["best", "second", "", "best"]
    assert [entry.worse for entry in entries] == [False, False, True, False]
    # The best was judged on few questions, and of these the other has more
    best = {str(n): 0.0 if n < 20 else 1.0 if n < 60 else None for n in range(100)}
    other: dict[str, float | None] = {str(n): 1.0 if n < 60 else 0.0 for n in range(100)}
    judged = mark_best([Measured(66.7, 0.0, 100.0), Measured(60.0, 0.0, 100.0)], [[best], [other]])
    assert [entry.worse for entry in judged] == [False, False]
    entries = mark_best(
        [*figures[:3], None], [[shares(30)], [shares(28)], [shares(10)], []], lower_is_better=True
    )
    assert [entry.mark for entry in entries] == ["", "second", "best", ""]
    assert [entry.worse for entry in entries] == [True, True, False, False]
    costs = mark_best([Measured(3.0, None, None), Measured(4.0, None, None)], [[], []])
    assert [(cost, cost.mark) for cost in costs] == [("3", ""), ("4", "")]
    assert list(mark_best([Measured(50.0, 40.0, 60.0), None], [[], []])) == [
        "50.0 [40.0, 60.0]",
        "–",
    ]
    column = next(column for column in columns() if column.label == "failed questions")
    metrics = Metrics.read(RUN)
    assert column.measure(metrics) is None
    assert column.measure(metrics.replace(failed=2)) == Measured(2, of=metrics.questions)


def test_zero_of_noise_leaves_the_others_their_places() -> None:
    figures = [Measured(each, 0.0, 100.0) for each in (0.0, 5.0, 9.0)]
    entries = mark_best(figures, [[]] * 3, lower_is_better=True)
    assert [entry.mark for entry in entries] == ["", "second", ""]


def test_differences_from_the_best_have_corrected_p() -> None:
    figures = [Measured(each, 0.0, 100.0) for each in (75.0, 70.0, 25.0)]
    tested = compare_with_best(figures, [[shares(30)], [shares(28)], [shares(10)]])
    assert list(tested) == [(0, 1), (0, 2)]
    assert [each.difference for each in tested.values()] == [-5, -50]
    # by McNemar's exact test: 2 and 20 questions of which none is better
    assert [each.p for each in tested.values()] == pytest.approx([0.5, 2 / 2**20])
    assert [each.adjusted for each in tested.values()] == pytest.approx([0.5, 4 / 2**20])


def test_better_score_of_fewer_questions_has_no_test() -> None:
    few: dict[str, float | None] = {str(n): None if n < 40 else 1.0 for n in range(100)}
    figures = [Measured(75.0, 0.0, 100.0), Measured(100.0, 0.0, 100.0, fewer=60)]
    assert compare_with_best(figures, [[shares(75, of=100)], [few]]) == {}


@pytest.mark.parametrize(
    "figures",
    [[Measured(50.0, 0.0, 100.0)] * 2, [Measured(50.0, 0.0, 100.0), None]],
    ids=["equal", "one score"],
)
def test_without_a_best_no_difference_is_tested(figures: list[Measured | None]) -> None:
    assert compare_with_best(figures, [[shares(20)], [shares(20)]]) == {}


def test_an_upper_bound_is_neither_marked_nor_tested() -> None:
    figures = [Measured(each, 0.0, 100.0) for each in (75.0, 70.0, 25.0)]
    entries = mark_best(figures, [[shares(30)], [shares(28)], [shares(10)]], unranked={0})
    assert [entry.mark for entry in entries] == ["", "best", "second"]
    assert [entry.worse for entry in entries] == [False, False, True]
    assert [entry.mark for entry in mark_best(figures[:1], [[shares(30)]], unranked={0})] == [""]


@pytest.mark.parametrize(
    ("values", "marks"),
    [
        pytest.param((75.0, 0.0, 0.0), ["best", "", ""], id="shared second"),
        pytest.param((50.0, 50.0), ["", ""], id="all equal"),
        pytest.param((75.0, 0.0), ["best", ""], id="a score of 0"),
    ],
)
def test_shared_places_and_zeros_have_no_mark(values: tuple[float, ...], marks: list[str]) -> None:
    entries = mark_best([Measured(each, 0.0, 100.0) for each in values], [[]] * len(values))
    assert [entry.mark for entry in entries] == marks


@cache
def plain_experiment() -> Experiment:
    return compose_experiment(["method=golden", "dataset=demo", "engine=scripted"])


@cache
def frozen_cell(number: int, seed: int) -> Cell:
    config = {**plain_experiment().config, "seed": seed}
    return freeze(number, f"seed={seed}", replace(plain_experiment(), config=config))


def frozen_cells(*seeds: int) -> list[Cell]:
    return [frozen_cell(number, seed).model_copy() for number, seed in enumerate(seeds)]


def sweep_in(path: Path, search: str | None = None) -> Sweep:
    return Sweep(path=path, search=search, command=(), axes={}, cells=[])


def open_folder(path: Path, *seeds: int, search: str | None = None) -> AbstractContextManager[None]:
    return open_sweep(sweep_in(path, search), frozen_cells(*seeds))


def close_folder(path: Path, *seeds: int, search: str | None = None) -> None:
    with open_folder(path, *seeds, search=search):
        pass


def test_sweep_continues_with_other_neutral_settings(tmp_path: Path) -> None:
    """After an outage a user raises the timeout, or the server has moved."""

    def open_with(config: Config, **engine: object) -> AbstractContextManager[None]:
        cell = freeze(
            0, "all", replace(base, config={**config, "engine": {**config["engine"], **engine}})
        )
        return open_sweep(sweep_in(tmp_path), [cell])

    words = [
        "method=retrieve_only",
        "dataset=demo",
        "engine=openai",
        "engine.deployment=mine",
        "engine.server=vllm",
    ]
    base = compose_experiment([*words, "model=qwen3_8b", "engine.server_timeout=30"])
    with open_with(base.config, server_timeout=30.0):
        end(tmp_path, 0, "done")
    changed = {**base.config, "max_parallel_questions": 7, "max_failure_rate": 0.5, "tracker": None}
    with open_with(changed, server_timeout=900.0, timeout=5.0, base_url="http://127.0.0.1:9/v1"):
        assert statuses(tmp_path) == ["done"]
        assert load_cell(tmp_path, 0).config["engine"]["server_timeout"] == 900.0
    other: list[tuple[Config, dict[str, str], str]] = [
        ({**changed, "seed": 5}, {}, r"seed \(0 → 5\)"),
        ({**changed, "limit": 2}, {}, r"limit \(null → 2\)"),
        (changed, {"server": "sglang"}, r"engine\.server \(vllm → sglang\)"),
    ]
    for config, engine, change in other:
        with (
            pytest.raises(ConfigError, match=rf"another configuration in cell 0: {change}\. Set"),
            open_with(config, **engine),
        ):
            pass


def end(path: Path, number: int, status: Any) -> None:
    CellState(status=status, run=None, seconds=1.0, error=None).write(path, number)


def statuses(path: Path) -> list[str]:
    return [cell.status for cell in Sweep.read(path).cells]


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        pytest.param((1, 3), "configuration in cell 1", id="other cell"),
        pytest.param((2, 1), "in cell 0, 1", id="other order"),
        pytest.param((1,), "2 cells, not 1", id="fewer cells"),
    ],
)
def test_other_cells_are_another_sweep(
    tmp_path: Path, seeds: tuple[int, ...], message: str
) -> None:
    close_folder(tmp_path, 1, 2)
    with pytest.raises(ConfigError, match=f"contains another sweep: .*{message}"):
        close_folder(tmp_path, *seeds)
    names = {sweep_name([cell.frozen for cell in frozen_cells(*each)]) for each in (seeds, (1, 2))}
    assert len(names) == 2


@pytest.mark.parametrize(
    ("path", "seeds", "status", "is_listed"),
    [
        pytest.param("b", (1, 2, 3), "done", False, id="finished elsewhere"),
        pytest.param("b", (1, 2), "failed", True, id="failed elsewhere"),
        pytest.param("b", (1, 3), "done", True, id="other cells"),
        pytest.param("a", (1, 2), "done", True, id="same folder"),
    ],
)
def test_stopped_sweep_is_listed_until_finished(
    path: str,
    seeds: tuple[int, ...],
    status: str,
    is_listed: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    sweeps = Path("outputs/sweeps")
    with (
        pytest.raises(KeyboardInterrupt),
        monitor_work(QUIET, "sweep", sweeps / "a"),
        open_folder(sweeps / "a", 1, 2),
    ):
        raise KeyboardInterrupt
    close_folder(sweeps / path, *seeds)
    for number in range(len(seeds)):
        end(sweeps / path, number, status)
    replace_file(sweeps / path / "report.html", "")
    assert [beat.folder for beat in read_heartbeats()] == ["outputs/sweeps/a"] * is_listed


def test_changed_values_are_named_as_typed() -> None:
    changes = describe_changes({"limit": 3, "shard": "1/2"}, {"limit": 5, "extra": True})
    assert changes == ["limit (3 → 5)", "shard (1/2 → null)", "extra (null → true)"]


def test_damaged_or_busy_sweep_is_rejected(tmp_path: Path) -> None:
    close_folder(tmp_path, 1, 2)
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match="contains another sweep: another search"):
        close_folder(tmp_path, search="f1")
    assert contents(tmp_path) == before
    with open_folder(tmp_path / "s", 1), pytest.raises(ConfigError, match="another kgqa process"):
        close_folder(tmp_path / "s", 1)
    close_folder(tmp_path / "s", 1)
    (tmp_path / "s/sweep.json").write_text('{"format": 1, "cells"')
    with pytest.raises(DataError, match="not readable"):
        Sweep.read(tmp_path / "s")
    with pytest.raises(DataError, match="not the folder of a sweep"):
        Sweep.read(tmp_path / "nowhere")


def test_searches_and_restarts_keep_finished_cells(tmp_path: Path) -> None:
    for _ in range(2):
        sweep = sweep_in(tmp_path, "f1")
        with open_sweep(sweep, []):
            add_cells(sweep, frozen_cells(1))
            end(tmp_path, 0, "failed")
            add_cells(sweep, frozen_cells(1, 2)[1:])
            assert statuses(tmp_path) == ["failed", "waiting"]
    with pytest.raises(ConfigError, match="another search"):
        close_folder(tmp_path, search="em")
    path = tmp_path / "again"
    close_folder(path, *range(5))
    for number, status in enumerate(("done", "failed", "running", "not run")):
        end(path, number, status)
    close_folder(path, *range(5))
    assert statuses(path) == ["done", "waiting", "waiting", "waiting", "waiting"]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("is_resumed", [False, True])
def test_killed_at_any_write_a_sweep_starts_again(
    tmp_path: Path, is_resumed: bool, after: bool
) -> None:
    for write in range(8):  # two cells have fewer
        path = tmp_path / str(write)
        if is_resumed:
            close_folder(path, 1, 2)
            end(path, 0, "done")
            end(path, 1, "failed")
        with killed_at(write, after=after):
            close_folder(path, 1, 2)
        close_folder(path, 1, 2)
        assert statuses(path) == ["done" if is_resumed else "waiting", "waiting"]
        files = [cell_file(path, number, "yaml").read_text() for number in range(2)]
        assert files == [cell.frozen for cell in frozen_cells(1, 2)]
