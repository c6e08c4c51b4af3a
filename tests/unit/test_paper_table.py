"""The table for a paper: marks, tests against a baseline, and its three forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from kgqa.artifacts.metrics import UNDEFINED, Estimate, Metrics
from kgqa.artifacts.run import MADE_UP
from kgqa.config.files import config_files
from kgqa.errors import ConfigError
from kgqa.report.columns import COSTS, group_judges
from kgqa.report.names import METHODS, RETRIEVERS, title_model
from kgqa.report.paper import Entry, PaperTable, name_entries, warn_of_simulation
from kgqa.report.shares import RunShares
from kgqa.scoring.questions import RESERVED

RUN = Path(__file__).parents[1] / "golden/artefacts/trace"


def fake_run(method: str, dataset: str) -> Any:
    metrics = Metrics.read(RUN).replace(profile="musique", missing_golds=None)
    choices = {"method": method, "dataset": dataset, "model": "small"}
    return SimpleNamespace(
        folder=Path("none"), choices=choices, settings=(), metrics=metrics, simulation_note=""
    )


@dataclass(frozen=True)
class Simulated(Entry):
    """A run with these shares of right answers by metric."""

    values: Mapping[str, Sequence[float]] = field(default_factory=dict)
    judge: str = ""

    @cached_property
    def shares(self) -> RunShares:
        by_score = {
            name: {f"q{n}": share for n, share in enumerate(own)}
            for name, own in self.values.items()
        }
        ids = next(iter(by_score.values()))
        judge = SimpleNamespace(
            judge=self.judge, models={}, identity=f"{self.judge} 0", warnings=()
        )
        key = (self.dataset, "musique", *ids)
        return RunShares(key, by_score, cast(Any, judge) if self.judge else None)

    def estimate(self, metric: str) -> Estimate:
        if metric not in self.values:
            return UNDEFINED
        mean = 100 * fmean(self.values[metric])
        return Estimate(mean=mean, low=mean - 1, high=mean + 1, n=len(self.values[metric]))


def entry(method: str, *em: float, dataset: str = "hotpotqa", **settings: str) -> Entry:
    return Simulated(cast(Any, fake_run(method, dataset)), settings, {"em": em})


def column(table: PaperTable) -> list[tuple[str, str]]:
    """Return text and mark of the first column."""
    return [(str(cells[0]), cells[0].mark) for cells in table.cells.values()]


def test_names_of_costs_are_reserved() -> None:
    assert COSTS.keys() <= {*RESERVED}


def test_best_and_second_are_marked_but_no_zero() -> None:
    rows = [entry("a", 0, 0, 0, 0), entry("b", 1, 0, 0, 0), entry("c", 0, 0, 0, 0)]
    assert column(PaperTable(rows, ["em"])) == [("0.0", ""), ("25.0", "best"), ("0.0", "")]


def test_zero_of_noise_leaves_the_others_their_places() -> None:
    rows = [
        Simulated(cast(Any, fake_run(name, "hotpotqa")), values={"noise": [share] * 4})
        for name, share in (("a", 0.0), ("b", 0.25), ("c", 0.5))
    ]
    assert column(PaperTable(rows, ["noise"])) == [("0.0", ""), ("25.0", "second"), ("50.0", "")]


def test_score_of_fewer_questions_has_their_number() -> None:
    rows = [
        Simulated(
            cast(Any, fake_run(name, "hotpotqa")), values={"em": [1] * 4, "support_f1": [1] * count}
        )
        for name, count in (("a", 3), ("b", 2))
    ]
    table = PaperTable(rows, ["support_f1"])
    assert [text for text, _ in column(table)] == ["100.0 of 3", "100.0 of 2"]
    assert "of N: only N questions define the score" in table.caption


def test_caption_has_the_failed_questions_of_each_row() -> None:
    run = fake_run("b", "hotpotqa")
    run.metrics = run.metrics.replace(failed=1, questions=4)
    rows = [entry("a", 1, 1), Simulated(run, values={"em": [1, 0]})]
    caption = PaperTable(rows, ["em"]).caption
    assert "Failed questions count as wrong: b 1 of 4." in caption


def test_equal_values_have_the_same_mark() -> None:
    rows = [entry("a", 1, 1, 0), entry("b", 1, 0, 1), entry("c", 1, 0, 0)]
    assert [mark for _, mark in column(PaperTable(rows, ["em"]))] == ["best", "best", "second"]


def test_an_upper_bound_is_not_ranked() -> None:
    rows = [entry("golden", 1, 1, 1), entry("b", 1, 0, 1), entry("c", 1, 0, 0)]
    table = PaperTable(rows, ["em"])
    assert [mark for _, mark in column(table)] == ["", "best", "second"]
    assert "Gold passages: an upper bound" in table.caption


def judged_table(*judges: str, datasets: Sequence[str] = ("hotpotqa",)) -> PaperTable:
    """Return a table of EM and judge accuracy with a row per judge and dataset."""
    rows = [
        Simulated(
            cast(Any, fake_run(f"by_{judge}", dataset)),
            values={
                name: [float(question < 9 * n) for question in range(20)]
                for name in ("judge", "em")
            },
            judge=f"{judge}_{dataset}",
        )
        for dataset in datasets
        for n, judge in enumerate(judges, 1)
    ]
    return PaperTable(rows, ["judge", "em"], baseline=f"by_{judges[0]}")


@pytest.mark.parametrize("datasets", [["hotpotqa"], ["hotpotqa", "musique"]], ids=["one", "mean"])
def test_different_judges_are_not_compared(datasets: Sequence[str]) -> None:
    table = judged_table("kgp", "lenient", datasets=datasets)
    cells = [[str(cell) for cell in cells] for cells in table.cells.values()]
    marks = [[cell.mark for cell in cells] for cells in table.cells.values()]
    groups = len(table.groups)
    assert cells == [["45.0", "45.0"] * groups, ["90.0", "90.0†"] * groups]
    assert marks == [["", "second"] * groups, ["", "best"] * groups]
    mixed = (
        "Judge accuracy is by different judges, and neither ranked nor tested: kgp_hotpotqa (by_kgp"
    )
    assert mixed in table.caption


def test_caption_names_the_judge() -> None:
    assert "Judge: kgp_hotpotqa." in judged_table("kgp").caption
    assert "Judge" not in replace(judged_table("kgp"), metrics=["em"]).caption


def test_judges_by_dataset_can_be_compared() -> None:
    table = judged_table("kgp", datasets=["hotpotqa", "musique"])
    judges = "Judges: kgp_hotpotqa (by_kgp on HotpotQA), kgp_musique (by_kgp on MuSiQue)."
    assert judges in table.caption


def test_judges_of_the_same_name_have_their_hash() -> None:
    judges = [
        SimpleNamespace(judge="own", models={}, identity=f"own {settings}") for settings in "aba"
    ]
    assert group_judges(zip("xyz", cast(Any, judges), strict=True)) == {
        "own a": ["x", "z"],
        "own b": ["y"],
    }


def test_column_without_differences_has_no_marks() -> None:
    assert [
        mark for _, mark in column(PaperTable([entry("a", 1, 0), entry("b", 0, 1)], ["em"]))
    ] == ["", ""]


def test_rows_are_chosen_in_order_with_other_names() -> None:
    table = PaperTable([entry("a", 1, 0), entry("b", 1, 1), entry("c", 0, 0)], ["em"])
    chosen = table.choose({"c": "Third", "a": "a"})
    assert [line.split(" | ")[0] for line in chosen.markdown().splitlines()[2:4]] == [
        "| Third",
        "| a",
    ]


def test_rows_have_the_names_of_papers() -> None:
    rows = [
        entry("trace", 1, **{"method.top": "20"}),
        entry("trace", 1, **{"method.top": "5"}),
        entry("my_method", 1),
    ]
    table = PaperTable(rows, ["em"])
    assert [table.show(row) for row in table.rows] == [
        "TRACE · top 20",
        "TRACE · top 5",
        "my_method",
    ]


@pytest.mark.parametrize(
    ("notes", "texts"),
    [
        (("", ""), []),
        (("", "none"), ["No model was called in b: their scores are meaningless."]),
        (("none", "none"), ["No model was called: the scores are meaningless."]),
    ],
    ids=["none", "one", "all"],
)
def test_scripted_rows_are_named(notes: Sequence[str], texts: list[str]) -> None:
    rows = [entry(name, 1, 0) for name in "ab"]
    for each, note in zip(rows, notes, strict=True):
        cast(Any, each.run).simulation_note = note
    assert warn_of_simulation(rows) == texts


def test_default_is_named_next_to_another_value() -> None:
    default, equal, other = entry("a"), entry("a", beam="5"), entry("a", beam="3")
    for each in (default, equal, other):
        each.run.settings = (("beam", "5", "§C.4"),)  # type: ignore[misc]
    assert list(name_entries([default, other]).values()) == ["a · beam 5", "a · beam 3"]
    assert list(name_entries([default, equal]).values()) == ["a", "a"]


@pytest.mark.parametrize("text", ["all_documents", "All documents"], ids=["key", "title"])
def test_row_is_found_by_both_names(text: str) -> None:
    rows = [entry("all_documents", 1), entry("trace", 0)]
    assert PaperTable(rows, ["em"]).find(text) == "all_documents"
    assert PaperTable(rows, ["em"]).choose({text: ""}).rows == ["all_documents"]


HUB = "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF:qwen2.5-coder.gguf"


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"hub": HUB, "name": "small", "path": "null"}, "Qwen2.5-Coder-1.5B-Instruct"),
        ({"hub": "null", "name": "gpt-4o-mini-2024-07-18"}, "gpt-4o-mini-2024-07-18"),
        ({"hub": HUB, "name": "small", "path": "weights.gguf"}, "small"),
        ({}, "small"),
    ],
    ids=["hub", "provider", "own file", "unknown"],
)
def test_model_has_the_name_of_its_weights(settings: Mapping[str, str], name: str) -> None:
    run = fake_run("golden", "demo")
    run.settings = [(f"model.{key}", value, "") for key, value in settings.items()]
    assert title_model(run) == name


def test_csv_has_model_and_retriever() -> None:
    base = entry("a", 1, 0)
    base.run.choices["retriever"] = "bm25"  # type: ignore[index]
    rows = PaperTable([base, entry("b", 1, 1, dataset="2wiki")], ["em"]).csv().splitlines()
    assert rows[0].endswith(",mark,model,retriever")
    assert rows[1].endswith(",small,BM25")
    assert [row.count(",") for row in rows] == [rows[0].count(",")] * len(rows)


def test_csv_mean_without_a_model_is_marked() -> None:
    rows = [entry("a", 1, dataset="hotpotqa"), entry("a", 1, dataset="musique")]
    cast(Any, rows[1].run).choices["engine"] = "scripted"
    cast(Any, rows[1].run).simulation_note = MADE_UP
    models = [line.split(",")[-2] for line in PaperTable(rows, ["em"]).csv().splitlines()]
    assert models == ["model", "small", "no model", "no model"]


def test_retrievers_with_names_exist() -> None:
    assert set(config_files("retriever")) >= RETRIEVERS.keys()


def test_each_method_has_a_name_for_papers() -> None:
    assert METHODS.keys() == set(config_files("method"))


@pytest.mark.parametrize(
    ("rows", "message"),
    [({"x": "x"}, "rows=x: no such row"), ({"a": "a"}, "baseline=b: not in rows=")],
    ids=["row", "baseline"],
)
def test_wrong_rows_are_rejected(rows: Mapping[str, str], message: str) -> None:
    table = PaperTable([entry("a", 1, 0), entry("b", 1, 1)], ["em"], baseline="b")
    with pytest.raises(ConfigError, match=message):
        table.choose(rows)


def test_cells_have_intervals() -> None:
    table = PaperTable([entry("a", 1, 0)], ["em"], intervals=True)
    assert column(table) == [("50.0 [49.0, 51.0]", "")]
    assert "In brackets: 95% intervals." in table.caption
    assert r"\begin{table*}[t]" in table.latex()


def test_caption_has_the_widest_interval() -> None:
    table = PaperTable([entry("a", 1, 0)], ["em"])
    assert "95% intervals: at most ±1.0 points." in table.caption
    assert r"95\% intervals: at most $\pm$1.0 points." in table.latex()


@pytest.mark.parametrize(
    ("correction", "text"), [("none", "60.0†"), ("holm", "60.0")], ids=["none", "holm"]
)
def test_correction_of_the_table_is_chosen(correction: str, text: str) -> None:
    rows = [entry("base", *[0] * 10), entry("up", *[1] * 6, *[0] * 4), entry("same", *[0] * 10)]
    table = PaperTable(rows, ["em"], baseline="base", correction=correction)
    assert column(table)[1][0] == text


def test_daggers_show_the_direction() -> None:
    rows = [entry("base", *[1] * 20, *[0] * 20), entry("up", *[1] * 40), entry("down", *[0] * 40)]
    table = PaperTable(rows, ["em"], baseline="base")
    assert [text for text, _ in column(table)] == ["50.0", "100.0†", "0.0‡"]
    assert "Holm's correction over 2 tests" in table.caption
    assert r"\textbf{100.0}$^\dagger$" in table.latex()


def test_mean_needs_all_datasets() -> None:
    rows = [entry("a", 1, 0), entry("a", 1, 1, dataset="2wiki"), entry("b", 0, 0)]
    table = PaperTable(rows, ["em"])
    assert table.groups == ["hotpotqa", "2wiki", "mean"]
    assert [str(cell) for cell in table.cells["a"]] == ["50.0", "100.0", "75.0"]
    assert [str(cell) for cell in table.cells["b"]] == ["0.0", "–", "–"]


def test_rows_name_what_differs() -> None:
    rows = [
        entry("trace", 1, **{"method.top": "20"}),
        entry("trace", 1, **{"method.top": "5"}),
        entry("golden", 1),
    ]
    assert PaperTable(rows, ["em"]).rows == ["trace · top 20", "trace · top 5", "golden"]


def test_rows_name_changed_passages_of_a_dataset() -> None:
    perturbed = {"dataset.perturb": "remove_gold"}
    rows = [
        entry("golden", 1, **{"dataset.perturb": "null"}),
        entry("golden", 0, **perturbed),
        # another path of another dataset is no other row
        entry("golden", 1, dataset="2wiki", **{"dataset.path": "dev.json"}),
    ]
    assert PaperTable(rows, ["em"]).rows == ["golden", "golden · perturb remove_gold"]


@pytest.mark.parametrize(
    ("rows", "metrics", "baseline", "message"),
    [
        ([entry("a", 1)], ["exact"], None, "metrics=exact: no such score"),
        ([entry("a", 1)], ["em"], "b", "baseline=b: no such row"),
        ([entry("a", 1), entry("a", 0)], ["em"], None, "2 runs of a on hotpotqa"),
        ([entry("a", 1), entry("b", 0, 1)], ["em"], None, "the runs have different questions"),
    ],
    ids=["metric", "baseline", "twice", "questions"],
)
def test_wrong_table_is_rejected(
    rows: list[Entry], metrics: list[str], baseline: str | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        PaperTable(rows, metrics, baseline)


@pytest.mark.parametrize("form", ["latex", "md", "csv"])
def test_forms_have_the_same_values(form: str) -> None:
    table = PaperTable([entry("a_b", 1, 0, 0), entry("c", 1, 1, 0)], ["em"])
    text = table.text(form)
    assert "33.3" in text
    assert ("a\\_b" if form == "latex" else "a_b") in text
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize(
    ("lacks", "mean"),
    [pytest.param(False, 75.0, id="all repeats"), pytest.param(True, None, id="one lacks it")],
)
def test_score_of_repeats_needs_all_of_them(
    lacks: bool, mean: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores: list[dict[str, dict[str, float | None]]] = [
        {"em": {"q0": 1.0, "q1": 1.0}},
        {} if lacks else {"em": {"q0": 1.0, "q1": 0.0}},
    ]
    shares = iter(RunShares(("hotpotqa", "musique", "q0", "q1"), each, None) for each in scores)
    monkeypatch.setattr("kgqa.report.paper.read_shares", lambda _: next(shares))
    runs = [cast(Any, fake_run("a", "hotpotqa")) for _ in scores]
    repeated = Entry(runs[0], others=runs[1:])
    assert repeated.estimate("em").mean == mean
    assert len(repeated.by_repeat("em")) == (0 if lacks else 2)


@dataclass(frozen=True)
class Repeated(Simulated):
    """Repeats with these shares of right answers, the first of them in `values`."""

    further: Sequence[Sequence[float]] = ()

    @cached_property
    def repeats(self) -> Sequence[RunShares]:
        return [self.shares, *(replace(self, values={"em": each}).shares for each in self.further)]


EXACT, STUDENT = "(McNemar's exact test, p <", "Student's t with the spread between repeats"


@pytest.mark.parametrize(
    ("second", "test"),
    [([1.0] * 8, EXACT), ([0.0] * 8, f"(a paired permutation test, or {STUDENT}")],
    ids=["equal repeats", "lucky repeat"],
)
@pytest.mark.parametrize("form", ["md", "latex"])
def test_caption_names_the_test_of_repeats(form: str, second: list[float], test: str) -> None:
    run = cast(Any, fake_run("a", "hotpotqa"))
    row = Repeated(run, {}, {"em": [1.0] * 8}, others=[run], further=[second])
    caption = PaperTable([row, entry("base", *[0.0] * 8)], ["em"], "base").text(form)
    assert test.replace("<", r"\textless{}" if form == "latex" else "<") in caption
    assert (
        "95% intervals contain this spread, by Student's t.".replace(
            "%", r"\%" if form == "latex" else "%"
        )
        in caption
    )


@pytest.mark.slow
def test_equal_methods_rarely_get_a_dagger() -> None:
    generator, tables, marked = np.random.default_rng(57), 200, 0
    for _ in range(tables):
        rows = [
            entry(method, *map(float, generator.random(80) < 0.4), dataset=dataset)
            for method in ("base", "a", "b", "c")
            for dataset in ("hotpotqa", "2wiki")
        ]
        marked += bool(PaperTable(rows, ["em"], "base").significant)
    # 5 % and two standard errors
    assert marked / tables <= 0.08
