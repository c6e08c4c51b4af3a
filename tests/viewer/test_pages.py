"""The viewer: pages of runs, and who may read them."""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html import unescape
from importlib.metadata import PackageNotFoundError
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

import kgqa as api
from kgqa.artifacts.evaluation import EVALUATION
from kgqa.artifacts.manifest import MANIFEST
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.sweep import CellState, Sweep
from kgqa.artifacts.trace import TRACE, read_frames
from kgqa.artifacts.verdicts import VERDICTS
from kgqa.cli.main import main
from kgqa.errors import DataError
from kgqa.extras.viewer import table
from kgqa.extras.viewer.answers import compare_scores, side_by_side
from kgqa.extras.viewer.application import BACK
from kgqa.extras.viewer.table import Row, find_row, group_cells, list_cells, read_rows
from kgqa.report.columns import Measured, columns
from kgqa.report.exports import write_report
from kgqa.report.page import svg
from kgqa.report.plots import NARROW, Bar, BarPlot
from kgqa.report.questions import RunQuestions
from kgqa.report.sweeps import SweepReport
from kgqa.runtime.monitor import Heartbeat
from kgqa.scoring.questions import BUILT_IN, Metric
from kgqa.util import optional_deps as extras
from kgqa.util.optional_deps import install_command
from tests.e2e.browser import Browser
from tests.e2e.conftest import QUICK, interrupt_run, run_in
from tests.viewer.conftest import HOSTILE, SCRIPT
from tests.viewer.viewing import Viewing


def row(name: str, em: float | None = None, kind: str = "run", **settings: str) -> Row:
    figures = (
        {}
        if em is None
        else {"EM": Measured(em, em - 1, em + 1), "tokens / question": Measured(1234, None, None)}
    )
    return Row(
        name, Path(name), kind, name, "done", 0.0, "bee", "trace", "tiny", 12, figures, settings
    )


BAR_NAME = r'<text x="0" y="[^"]*">([^<]*)<'
ROWS = [row("one", 40.0, beam="5"), row("two", 50.5, beam="10"), row("lengths", kind="sweep")]


def keys_of(page: str) -> list[str]:
    return re.findall(r'data-key="([^"]*)"', page)


def test_filters_and_order_of_the_table() -> None:
    for text, names in [
        ("", "one two lengths"), ("TWO", "two"), ("two sweep", ""), ("sweep", "lengths"),
        ("beam=10", "two"), ("beam=1", ""), ("nothing=1", ""), ("done beam=5", "one"), ("done", "one two lengths"),
    ]:  # fmt: skip
        assert [each.name for each in ROWS if table.has_words(each, text)] == names.split()
    assert [each.name for each in table.sort_rows(ROWS, "-EM")] == ["two", "one", "lengths"]
    assert [each.name for each in table.sort_rows(ROWS, "name")] == ["lengths", "one", "two"]


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("tow", "No run has tow. Did you mean two?"),
        ("done BEEM=5", "No run has BEEM=5. Did you mean beam=5?"),
        ("zebra", f"No run has zebra. {table.FILTERS}"),
        ("sweep=length", "No run has sweep=length. Did you mean sweep=lengths?"),
        (
            "f1>50",
            f"f1>50: figures cannot be compared here. Click a column to sort by it. {table.FILTERS}",
        ),
        ("two beam=5", "No run has all of these words: two beam=5."),
        ("two beam=9", "No run has beam=9. Did you mean beam=10?"),
    ],
)
def test_filter_without_a_match_is_explained(text: str, remark: str) -> None:
    assert table.explain_no_match(ROWS, text) == remark


def test_filter_suggests_values_of_its_key() -> None:
    settings: Any = {"method": "trace", "method.ranker": "true"}
    rows = [row("one", **settings)]
    remark = table.explain_no_match(rows, "method=trcae")
    assert remark == "No run has method=trcae. Did you mean method=trace?"


@pytest.mark.parametrize(
    ("rows", "example"),
    [(ROWS[2:], "key=value"), ([row("a", method="kgp"), *ROWS], "method=trace")],
    ids=["no run", "a run"],
)
def test_filter_has_an_example_of_the_runs(rows: list[Row], example: str) -> None:
    assert table.suggest_filter(rows) == example


def test_page_explains_a_filter_without_a_match(viewing: Viewing) -> None:
    assert "No run has method=trase. Did you mean method=trace?" in viewing.get(
        "/?filter=method%3Dtrase"
    )
    assert "No run has" not in viewing.get("/?filter=method%3Dtrace")


@pytest.mark.parametrize(
    ("text", "names"),
    [("len", "cell lengths"), ("sweep", "lengths"), ("cell", "cell"), ("len nothing=1", "")],
    ids=["name of a sweep", "any sweep", "cell", "no match"],
)
def test_filter_by_a_sweep_has_its_cells(text: str, names: str) -> None:
    rows = [row("cell"), row("other"), replace(ROWS[2], runs=("cell",))]
    assert [each.name for each in table.filter_rows(rows, text)] == names.split()


def test_filter_by_failed_has_failed_questions() -> None:
    failed = replace(row("bad"), figures={"failed questions": Measured(3, of=12)})
    assert table.filter_rows([*ROWS, failed], "failed") == [failed]


@pytest.mark.parametrize(
    ("text", "count"), [("sweep=rep", 9), ("sweep=rep method=ircot", 4), ("sweep=other", 0)]
)
def test_filter_by_the_name_of_a_sweep(repeated: Path, text: str, count: int) -> None:
    # the sweep, and its two means of three repeats each
    assert len(table.filter_rows(read_rows(repeated / "outputs"), text)) == count


def test_filter_of_repeats_has_them_below_their_mean(repeated: Path) -> None:
    rows = table.filter_rows(read_rows(repeated / "outputs"), "method=ircot")
    grouped = [(each.kind, each.mean) for each in table.group_cells(rows)]
    assert grouped == [("mean", ""), *[("run", "sweeps/rep/3")] * 3]


def test_texts_bars_and_points_of_runs() -> None:
    assert str(Measured(8.333, 1, 20)) == "8.3 [1.0, 20.0]"
    assert str(Measured(1234.5, None, None)) == "1,234"
    assert str(Measured(0.012345678, None, None)) == "0.0123"
    assert (ROWS[2].text("EM"), ROWS[0].text("questions")) == ("", "12")
    runs = [
        replace(each, settings={**each.settings, "engine.base_url": each.name}) for each in ROWS[:2]
    ]
    named = table.name_rows([*runs, replace(row("far", beam="7"), dataset="wasp"), ROWS[2]])
    assert {each.key: each.title for each in named} == {
        "one": "trace · beam 5",
        "two": "trace · beam 10",
        "far": "trace",
        "lengths": "sweep lengths",
    }
    far = replace(row("<far>", 10.0), dataset="wasp<i>", method="<b>")
    rows = [*ROWS, far]
    groups = {each.key: each.dataset for each in rows}
    picture = table.draw_plots(rows, groups, "tokens / question", "EM")
    plots = {key: (svg(bars), svg(points)) for key, (bars, points) in picture.items()}
    assert list(plots) == ["bee", "wasp<i>"]
    bars, points = plots["bee"]
    assert len(re.findall(r"<circle", points)) == 2
    assert "EM against tokens / question" in points
    assert [name for name in ("beam 5", "beam 10", "lengths") if f">trace · {name}<" in points] == [
        "beam 5",
        "beam 10",
    ]
    # numbers are before the bars, and names above them
    assert re.findall(r'text-anchor="end" font-weight="600">([^<]*)<', bars) == ["50.5", "40.0"]
    assert re.findall(BAR_NAME, bars) == ["trace · beam 10", "trace · beam 5"]
    assert re.findall(BAR_NAME, plots["wasp<i>"][0]) == ["&lt;b&gt;"]
    assert table.draw_plots(ROWS[2:], groups, "tokens / question", "EM") == {}
    failed = replace(ROWS[0], figures={"failed questions": Measured(3, of=12)})
    assert failed.mark == ("! some failed", "wrong")
    assert replace(ROWS[0], trouble="metrics.json: no JSON").mark == ("! damaged", "wrong")
    assert ROWS[0].mark == ("✓ done", "right")
    assert replace(ROWS[2], status="not finished", cells="1 of 3 cells").mark == (
        "○ 1 of 3 cells",
        "hint",
    )


def test_cell_is_below_every_sweep_that_uses_it() -> None:
    sweeps = [replace(row(name, kind="sweep"), runs=("shared", "own")) for name in ("new", "old")]
    runs = [row("shared"), row("alone")]
    grouped = [(each.name, each.sweep) for each in table.group_cells([*sweeps, *runs])]
    below = [("new", ""), ("shared", "new"), ("old", ""), ("shared", "old")]
    assert grouped == [*below, ("alone", "")]


@pytest.fixture
def shared() -> list[Row]:
    """Two sweeps with the same run, and a run with a model."""
    sweeps = [replace(row(name, kind="sweep"), runs=("shared",)) for name in ("new", "old")]
    runs = [replace(row("shared", 1.0), is_simulated=True), row("alone", 2.0)]
    return table.group_cells([*sweeps, *runs])


def test_warning_counts_the_repeats_of_a_mean(repeated: Path) -> None:
    rows = read_rows(repeated / "outputs")
    mixed = [*rows, row("alone", 2.0)]
    assert "in 6 of 7 runs," in table.warn_of_simulation(mixed)[0]


def test_warning_counts_a_shared_run_once(shared: list[Row]) -> None:
    (warning,) = table.warn_of_simulation(shared)
    assert "no model was called in 1 of 2 runs," in warning


def test_warning_about_the_judge_is_shown_once() -> None:
    warning = "the judge is the reader: a-model grades its own answers"
    rows = [replace(each, judge_warnings=(warning,)) for each in ROWS[:2]]
    assert table.warn_of_judges([*rows, row("other", 30.0), ROWS[2]]) == [
        f"2 of 3 runs: {warning}."
    ]


def test_table_counts_a_shared_run_once(shared: list[Row]) -> None:
    assert table.count_rows(shared) == "2 runs, 2 sweeps"


def test_cells_have_the_same_names_in_all_plots() -> None:
    # the sweep was written between its cells
    cells = [
        row("new", 50.0, passages="3"),
        row("old", 40.0, passages="5"),
        row("bad", passages="9"),
    ]
    sweep = replace(
        row("s", kind="sweep"), axes=("passages",), runs=("new", "old"), failed=("bad",)
    )
    rows = [cells[0], sweep, *cells[1:]]
    listed = {each.key: each for each in rows}
    names = ["trace · passages 3", "trace · passages 5"]
    assert table.name_points(table.expand_sweeps(rows, listed)[:2]) == names
    assert table.name_points(table.expand_sweeps([sweep], listed)) == names


def test_mean_has_the_figures_of_the_report(
    repeated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repeated)
    listed = {each.key: each for each in read_rows(repeated / "outputs")}
    means = [listed[key] for key in listed["sweeps/rep"].means]
    ((_, _, rows),) = SweepReport.read(Path("outputs/sweeps/rep")).groups
    assert [mean.key for mean in means] == ["sweeps/rep/0", "sweeps/rep/3"]
    assert [mean.figures for mean in means] == [
        {column.label: figure for column in columns() if (figure := each.measure(column))}
        for each in rows
    ]


def test_repeats_are_below_their_mean(repeated: Path) -> None:
    named = table.name_rows(group_cells(read_rows(repeated / "outputs")))
    golden = [(each.kind, each.title) for each in named if "golden" in each.title]
    assert golden == [
        ("mean", "golden"),
        *(("run", f"golden · repeat {number}") for number in (1, 2, 3)),
    ]
    assert {each.mean for each in named} == {"", "sweeps/rep/0", "sweeps/rep/3"}


def test_cells_with_other_questions_are_in_no_mean(repeated: Path, tmp_path: Path) -> None:
    shutil.copytree(repeated / "outputs", tmp_path / "outputs")
    sweep = tmp_path / "outputs/sweeps/rep"
    state = CellState.read(sweep, 1)
    assert state
    state.asked = "other questions"
    state.write(sweep, 1)
    means = {each.key: each for each in read_rows(tmp_path / "outputs") if each.kind == "mean"}
    assert [len(means[f"sweeps/rep/{number}"].runs) for number in (0, 3)] == [2, 3]


@pytest.mark.parametrize("ticked", ["all", "sweep", "mean and repeats"])
def test_plots_have_means_instead_of_repeats(repeated: Path, ticked: str) -> None:
    listed = {each.key: each for each in read_rows(repeated / "outputs")}
    mean = listed["sweeps/rep/3"]
    rows, names = {
        "all": (list(listed.values()), ["golden", "ircot"]),
        "sweep": ([listed["sweeps/rep"]], ["golden", "ircot"]),
        "mean and repeats": ([mean, *(listed[key] for key in mean.runs)], ["ircot"]),
    }[ticked]
    assert sorted(table.name_points(table.expand_sweeps(rows, listed))) == names


def test_repeats_are_folded_until_a_click(chromium: Browser, repeated: Path) -> None:
    viewing = Viewing.start(repeated)
    chromium.resize(1400, 900)
    chromium.visit(viewing.address)
    shown = "[...document.querySelectorAll('.runs tbody tr')].filter((each) => each.offsetHeight).length"
    counts = [chromium.value(shown)]
    # the second mean, then the sweep twice: what was open is open again, also with a filter
    for selector in (".mean:nth-of-type(6) .fold", ".sweep .fold", ".sweep .fold"):
        chromium.value(f"document.querySelector('{selector}').click()")
        counts.append(chromium.value(shown))
    chromium.visit(f"{viewing.base}?filter=method%3Dircot")
    counts.append(chromium.value(shown))
    viewing.interrupt()
    assert counts == [3, 6, 1, 6, 4]


@pytest.mark.parametrize(
    ("rows", "is_allowed"),
    [(["run"], False), (["run", "run"], True), (["sweep"], True), (["sweep", "run"], True)],
    ids=["one run", "two runs", "a sweep", "a sweep and its cell"],
)
@pytest.mark.parametrize("most", [6, 2])
def test_side_by_side_needs_few_runs(
    browser: Browser, rows: list[str], is_allowed: bool, most: int
) -> None:
    # the sweep has three cells
    is_allowed = is_allowed and (most > 2 or "sweep" not in rows)
    browser.value(f"document.querySelector('[formaction=\"/compare\"]').dataset.most = {most}")
    for number, kind in enumerate(rows):
        place = ".sweep" if kind == "sweep" else f".of-sweep:nth-child({number + 1} of .of-sweep)"
        browser.value(f"document.querySelector('{place} input').click()")
    button = "document.querySelector('[formaction=\"/compare\"]')"
    assert browser.value(f"{button}.disabled") is not is_allowed


def test_plot_names_what_separates_a_run_from_cells() -> None:
    cells = [row("a", 50.0, passages="3", beam="1"), row("b", 40.0, passages="5", beam="1")]
    sweep = replace(row("s", kind="sweep"), axes=("passages",), runs=("a", "b"))
    rows = [sweep, *cells, row("c", 30.0, passages="3", beam="2")]
    runs = table.expand_sweeps(rows, {each.key: each for each in rows})
    assert table.name_points(runs) == [
        "trace · passages 3 · beam 1",
        "trace · passages 5 · beam 1",
        "trace · passages 3 · beam 2",
    ]


def test_title_has_the_setting_that_separates_runs() -> None:
    alike = {f"method.option_{n}": "on" for n in range(4)}
    runs = [
        row("a", None, **alike, beam="3", answer="10"),
        row("b", None, **alike, beam="3", answer="25"),
        row("far", None, **dict.fromkeys(alike, "off"), beam="5", answer="25"),
    ]
    titles = [each.title for each in table.name_rows(runs)]
    assert titles[:2] == [
        "trace · option 0 on · answer 10 · option 1 on · …",
        "trace · option 0 on · answer 25 · option 1 on · …",
    ]
    sweep = replace(row("sweep", kind="sweep"), axes=("answer",), runs=("a", "b"))
    cells = table.name_rows(table.group_cells([sweep, *runs]))[1:3]
    assert [each.title for each in cells] == ["trace · answer 10", "trace · answer 25"]


def test_cells_of_two_sweeps_differ_in_the_title() -> None:
    runs = [row("a", None, answer="10", beam="3"), row("b", None, answer="10", beam="5")]
    sweeps = [
        replace(row(f"of {key}", kind="sweep"), axes=("answer",), runs=(key,)) for key in "ab"
    ]
    named = table.name_rows(table.group_cells([*sweeps, *runs]))
    assert [each.title for each in named if each.kind == "run"] == [
        "trace · answer 10 · beam 3",
        "trace · answer 10 · beam 5",
    ]


def test_run_is_named_by_what_separates_it_from_cells() -> None:
    runs = [row(name, None, answer=name, beam="3") for name in ("10", "25", "50")]
    sweep = replace(row("sweep", kind="sweep"), axes=("answer",), runs=("10", "25"))
    *_, single = table.name_rows(table.group_cells([sweep, *runs]))
    assert single.title == "trace · answer 50"


def test_mean_next_to_a_run_is_no_setting() -> None:
    rows = [
        replace(row("mean", kind="mean", repeat="mean", beam="3"), sweep="a", axes=("repeat",)),
        replace(row("other", kind="mean", repeat="mean", beam="5"), sweep="b", axes=("repeat",)),
        replace(row("run", repeat="1", beam="3"), sweep="c", axes=("method",)),
    ]
    titles = [each.title for each in table.name_rows(rows)]
    assert titles == ["trace · beam 3", "trace · beam 5", "trace"]


def test_cells_of_two_sweeps_differ_in_a_prompt(tmp_path: Path) -> None:
    words = ("run", "-m", "method=no_context,golden", "limit=1", *QUICK)
    assert run_in(tmp_path, *words, "sweep.name=before").code == 0
    assert run_in(tmp_path, "new", "prompt", "reader/answer").code == 0
    own = tmp_path / "prompts/reader/answer.j2"
    own.write_text(own.read_text(encoding="utf-8").replace("briefly", "shortly"), encoding="utf-8")
    assert run_in(tmp_path, *words, "sweep.name=after").code == 0
    named = table.name_rows(group_cells(read_rows(tmp_path / "outputs")))
    titles = {(each.sweep, each.title) for each in named if each.method == "no_context"}
    assert titles == {
        ("sweeps/before", "no_context · prompt reader/answer of kgqa"),
        ("sweeps/after", "no_context · prompts/reader/answer.j2"),
    }


def test_title_has_five_settings_at_most() -> None:
    # each run differs from the others in another setting
    runs = [
        row(
            name, None, **{f"method.{each}": "on" if each == name else "off" for each in "abcdefgh"}
        )
        for name in "abcdefgh"
    ]
    titles = [each.title for each in table.name_rows(runs)]
    assert titles[0] == "trace · a on · b off · c off · d off · e off · …"


@pytest.mark.parametrize(
    ("column", "head"),
    [("model s / question", "model\N{NO-BREAK SPACE}s"), ("failed questions", "failed")],
    ids=["unit", "count"],
)
def test_head_of_a_column_is_short(column: str, head: str) -> None:
    assert table.shorten_name(column) == head


def test_plot_names_start_with_the_models_that_differ() -> None:
    several = [replace(each, model=each.name) for each in ROWS[:2]]
    assert table.name_points(several) == [
        "one · trace · beam 5",
        "two · trace · beam 10",
    ]
    assert table.name_points(ROWS[:2]) == ["trace · beam 5", "trace · beam 10"]


def test_long_name_of_a_bar_has_two_lines() -> None:
    names = [f"trace · beam 5 · chains 5 · max answer tokens {count}" for count in (10, 25)]
    drawn = svg(BarPlot("EM", [Bar(name, 50.0) for name in names]), NARROW)
    lines = re.findall(BAR_NAME, drawn)
    joined = [" ".join(pair) for pair in zip(lines[::2], lines[1::2], strict=True)]
    assert joined == names


@pytest.mark.parametrize(
    ("bar", "marks"),
    [
        (Bar("low score", 0.0, 0.0, 16.1), ["0", "25", "50", "75", "100"]),
        (Bar("high score", 93.9, 80.0, 99.0), ["0", "25", "50", "75", "100"]),
        (Bar("tokens", 1_900.0), ["0", "500", "1,000", "1,500", "2,000"]),
    ],
    ids=lambda value: value.name if isinstance(value, Bar) else "",
)
def test_bars_have_an_axis(bar: Bar, marks: list[str]) -> None:
    drawn = svg(BarPlot("EM", [bar]))
    assert re.findall(r'text-anchor="middle">([^<]*)<', drawn) == marks


@pytest.mark.slow
def test_table_shows_figures_settings_and_the_sweep(viewing: Viewing, keys: dict[str, str]) -> None:
    page = viewing.get("/")
    assert len(keys_of(page)) == 6
    assert "3 of 3 cells" in page
    assert "8.3 <small>[" in page
    classes = re.findall(r'<tr data-key="[^"]*"(?: class="([^"]*)")?', page)
    at = classes.index("sweep")
    assert classes[at : at + 4] == ["sweep", "of-sweep", "of-sweep", "of-sweep"]
    assert classes.count("of-sweep") == 3
    assert keys_of(viewing.get("/?filter=dataset%3Dmusique+method%3Dno_context")) == [
        keys["no_context"]
    ]
    assert keys_of(viewing.get("/?sort=-EM"))[0] == keys["no_context"]
    assert len(keys_of(viewing.get("/?filter=method.max_answer_tokens%3D2+dataset%3Ddemo"))) == 1
    assert keys_of(viewing.get("/?from=5")) == keys_of(page)[5:]
    assert "from='x': must be a number" in viewing.error("/?from=x")
    page = viewing.get("/plots?run=sweeps/lengths")
    assert "3 runs of sweep lengths" in page
    assert "<output>1 run with scores</output>" in viewing.get(f"/plots?run={keys['trace']}")
    assert "EM against tokens / question" in page
    assert "F1 against calls / question" in viewing.get("/plots?y=F1&x=calls+%2F+question")


def test_plots_count_the_runs_with_bars(viewing: Viewing) -> None:
    # only the run of trace has passages
    page = viewing.get(f"/plots?{urlencode({'y': 'support recall'})}")
    assert "<output>1 run with scores</output>" in page


@pytest.mark.slow
def test_failed_cells_have_their_reasons(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "outputs", tmp_path / "outputs")
    sweep = tmp_path / "outputs/sweeps/lengths"
    for number, error in ((1, "<no> server"), (2, "no disk")):
        CellState(status="failed", run=None, seconds=1.0, error=error).write(sweep, number)
    viewing = Viewing.start(tmp_path)
    page = viewing.get("/")
    viewing.interrupt()
    assert "! 1 of 3 cells, 2 failed" in page
    assert re.findall("cell [12] failed: [^<]* · ([^<]*)<", page) == [
        "&lt;no&gt; server",
        "no disk",
    ]


def test_failed_cell_is_below_its_sweep(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "outputs", tmp_path / "outputs")
    root = tmp_path / "outputs"
    sweep = Sweep.read(root / "sweeps/lengths")
    run = sweep.cells[1].run
    CellState(status="failed", run=run, seconds=1.0, error="boom").write(sweep.path, 1)
    rows = read_rows(root)
    (top,) = [row for row in rows if row.name == "lengths"]
    below = [row for row in group_cells(rows) if row.sweep == top.key]
    assert len(top.runs) == 2
    assert [row.key for row in below] == [*top.runs, *top.failed]
    # its scores are in no plot
    assert {row.key for row in list_cells(top, {row.key: row for row in rows})} == {*top.runs}


def test_row_is_read_again_only_when_its_files_change(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "outputs", tmp_path / "outputs")
    root = tmp_path / "outputs"
    before = read_rows(root)
    run = next(each for each in before if each.kind == "run")
    file = run.folder / "metrics.json"
    stat, text = file.stat(), file.read_text(encoding="utf-8")
    file.write_text("{", encoding="utf-8")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert read_rows(root) == before
    os.utime(file)
    (damaged,) = [each for each in read_rows(root) if each.key == run.key]
    assert damaged.trouble
    assert not damaged.figures
    file.write_text(text, encoding="utf-8")
    assert find_row(root, run.key).figures == run.figures


def test_judge_of_a_later_evaluation_is_shown(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folder / "outputs", tmp_path / "outputs")
    monkeypatch.chdir(tmp_path)
    before = next(each for each in read_rows(tmp_path / "outputs") if each.dataset == "musique")
    assert main(["evaluate", str(before.folder), "judge=em"]) == 0
    run = find_row(tmp_path / "outputs", before.key)
    assert run.figures["judge accuracy"].value == pytest.approx(run.figures["EM"].value)
    assert "judge accuracy" not in before.figures


@pytest.mark.parametrize(
    ("judges", "note"),
    [
        (("em", "em"), "judge: em"),
        (("em", "containment"), "because the runs have different judges: "),
        (("em",), "because there are no verdicts of B."),
    ],
    ids=["one judge", "two judges", "a run without"],
)
def test_verdicts_of_one_judge_are_tested_side_by_side(
    folder: Path,
    keys: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    judges: tuple[str, ...],
    note: str,
) -> None:
    shutil.copytree(folder / "outputs", tmp_path / "outputs")
    monkeypatch.chdir(tmp_path)
    runs = [find_row(tmp_path / "outputs", keys[name]) for name in ("no_context", "trace")]
    for run, judge in zip(runs, judges, strict=False):
        assert main(["evaluate", str(run.folder), f"judge={judge}"]) == 0
    tests = compare_scores(runs)
    means = {each.metric: each.means for each in tests.differences}
    assert means.get("judge accuracy") == (means["EM"] if judges == ("em", "em") else None)
    assert [note in each for each in tests.notes] == [True]


def test_lower_score_wins_side_by_side(
    folder: Path, keys: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = Metric("errors", "Errors", lambda row: 1 - row.em, tested=True, lower_is_better=True)
    monkeypatch.setitem(BUILT_IN, "errors", errors)
    shutil.copytree(folder / "outputs", tmp_path / "outputs")
    runs = [find_row(tmp_path / "outputs", keys[name]) for name in ("no_context", "trace")]
    wins = {each.metric: each.wins for each in compare_scores(runs).differences}
    assert wins["Errors"] == wins["EM"]
    assert wins["EM"][0] != wins["EM"][1]


def test_winner_follows_a_changed_metric(
    folder: Path, keys: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folder / "outputs", tmp_path / "outputs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "wordy.py").write_text(
        "def share(question, answer):\n    return min(1.0, len(answer) / 99)\n"
    )
    file = tmp_path / "conf/metric/wordy.yaml"
    file.parent.mkdir(parents=True)
    runs = [find_row(tmp_path / "outputs", keys[name]) for name in ("no_context", "trace")]

    def count_wins(second: int, direction: str) -> tuple[int, int]:
        file.write_text(f"_target_: wordy.share\nlower_is_better: {direction}\n")
        os.utime(file, (second, second))
        return next(
            each.wins for each in compare_scores(runs).differences if each.metric == "wordy"
        )

    higher, lower = count_wins(1, "false"), count_wins(2, "true")
    assert higher == lower[::-1]
    assert higher[0] != higher[1]


def test_damaged_trace_is_an_error_with_its_place(
    folder: Path, keys: dict[str, str], tmp_path: Path
) -> None:
    whole = (folder / "outputs" / keys["trace"] / TRACE).read_bytes()
    starts = [at for at, _ in read_frames(folder / "outputs" / keys["trace"])]
    (tmp_path / MANIFEST).write_text("{}")
    (tmp_path / TRACE).write_bytes(whole[: starts[2]] + b"no frame" + whole[starts[2] :])
    with pytest.raises(DataError, match=f"at byte {starts[2]:,}: damaged trace"):
        list(read_frames(tmp_path))


def test_answers_side_by_side(viewing: Viewing, keys: dict[str, str]) -> None:
    both = urlencode([("run", keys["trace"]), ("run", keys["no_context"])])

    def count(**query: str) -> int:
        page = viewing.get(f"/compare?{both}&{urlencode(query)}")
        return page.partition('class="answers"')[2].count('<tr><th scope="row">')

    flipped = viewing.get(f"/compare?{both}&which=flipped")
    assert "Which bridge was opened first" in flipped
    (row,) = re.findall(r'<th scope="row"[^>]*>EM</th>.*', flipped)
    assert re.findall(r"(?:-8.3 \[|1\.000)", row) == ["-8.3 [", "1.000", "1.000"]
    assert "✓ the Candle Bridge" in flipped
    assert (count(), count(which="flipped"), count(search="bridge OPENED first")) == (12, 1, 1)
    small = next(
        key for key in keys_of(viewing.get("/?filter=dataset%3Ddemo")) if key.startswith("demo/")
    )
    page = viewing.get(f"/compare?{urlencode([('run', keys['trace']), ('run', small)])}")
    # run A has 12 questions and the other one 2, of which one is shared
    assert page.count("not in this run") == 12
    assert "1 run chosen. Choose 2 to 6 runs" in viewing.error(f"/compare?run={keys['trace']}")
    assert "no run in" in viewing.error("/run/no/such/run/here")


@pytest.mark.parametrize("and_a_cell", [False, True], ids=["alone", "and its cell"])
def test_sweep_is_its_cells_side_by_side(viewing: Viewing, folder: Path, and_a_cell: bool) -> None:
    (sweep,) = [row for row in read_rows(folder / "outputs") if row.kind == "sweep"]
    chosen = [sweep.key, *sweep.runs[1:2]] if and_a_cell else [sweep.key]
    page = viewing.get(f"/compare?{urlencode([('run', key) for key in chosen])}")
    assert re.findall(r'<th scope="col">([A-Z] [^<]*)</th>', page) == [
        f"{letter} no_context · max answer tokens {count}"
        for letter, count in zip("ABC", (3, 1, 2), strict=True)
    ]


@pytest.mark.parametrize(
    "keys", [["sweeps/rep"], ["sweeps/rep/0", "sweeps/rep/3"]], ids=["sweep", "means"]
)
def test_means_are_compared_over_all_repeats(
    repeated: Path, monkeypatch: pytest.MonkeyPatch, keys: list[str]
) -> None:
    monkeypatch.chdir(repeated)
    listed = {each.key: each for each in read_rows(repeated / "outputs")}
    runs = table.expand_sweeps([listed[key] for key in keys], listed)
    assert compare_scores(runs).differences == api.compare("rep").differences


def test_equal_means_of_two_sweeps_are_one(repeated: Path) -> None:
    listed = {each.key: each for each in read_rows(repeated / "outputs")}
    mean = listed["sweeps/rep/3"]
    rows = table.expand_sweeps([mean, replace(mean, key="sweeps/copy/3")], listed)
    assert [each.name for each in rows] == ["mean of 3 repeats"]


@pytest.fixture(scope="module")
def compared(repeated: Path) -> str:
    viewing = Viewing.start(repeated)
    page = viewing.get("/compare?run=sweeps/rep")
    viewing.interrupt()
    return page


def test_repeats_have_one_column_side_by_side(compared: str) -> None:
    assert re.findall(r'<th scope="col">([A-Z] [^<]*)</th>', compared) == ["A golden", "B ircot"]
    assert "with the spread between repeats in intervals" in compared
    assert "<h2>2 runs side by side</h2>" in compared


def test_links_to_sweeps_fit_a_phone(chromium: Browser, repeated: Path, tmp_path: Path) -> None:
    shutil.copytree(repeated / "outputs", tmp_path / "outputs")
    for name in ("second", "a_long_name_" * 5):
        shutil.copytree(tmp_path / "outputs/sweeps/rep", tmp_path / "outputs/sweeps" / name)
    run = next(each for each in read_rows(tmp_path / "outputs") if each.kind == "run")
    viewing = Viewing.start(tmp_path)
    chromium.resize(390, 900)
    chromium.visit(viewing.address)
    chromium.visit(f"{viewing.base}run/{run.key}", "document.querySelector('nav a') !== null")
    links = "[...document.querySelectorAll('nav[aria-label=Back] a')]"
    heights = chromium.value(f"{links}.map((each) => each.offsetHeight)")
    width = chromium.value("document.documentElement.scrollWidth")
    viewing.interrupt()
    assert len(heights) == 4
    # one line each
    assert max(heights) < 40
    assert width <= 390


def test_means_of_a_pair_are_apart(chromium: Browser, repeated: Path) -> None:
    viewing = Viewing.start(repeated)
    chromium.visit(viewing.address)
    chromium.visit(f"{viewing.base}compare?run=sweeps/rep")
    text = chromium.value("document.querySelector('td[data-head=means]').innerText")
    viewing.interrupt()
    assert re.fullmatch(r"[\d.]+  [\d.]+", text)


def test_scripted_runs_are_marked_among_others() -> None:
    far = replace(row("far", 10.0), dataset="wasp", model=table.NO_MODEL, is_simulated=True)
    rows = [*ROWS[:2], far]
    assert table.warn_of_simulation(rows) == [
        (
            "Scripted replies: no model was called in 1 of 3 runs, which are marked “no model”. "
            "Their scores are meaningless."
        )
    ]
    groups = {each.key: each.dataset for each in rows}
    plots = table.draw_plots(rows, groups, "tokens / question", "EM")
    names = {dataset: [bar.name for bar in bars.bars] for dataset, (bars, _) in plots.items()}
    assert names == {"bee": ["trace · beam 5", "trace · beam 10"], "wasp": ["no model · trace"]}


def test_means_warn_of_scripted_replies(compared: str) -> None:
    assert "Scripted replies: no model was called. The scores are meaningless." in compared


def test_answers_of_repeats_are_counted(compared: str) -> None:
    (row,) = re.findall(
        r'<tr><th scope="row">[^<]*architect of the Candle.*?</tr>', compared, re.DOTALL
    )
    counts = [re.findall(r"<small>(\d of 3)</small>", cell) for cell in row.split("<td")[2:]]
    assert counts == [["3 of 3"], ["1 of 3"] * 3]


def test_flipped_questions_are_those_of_all_repeats(repeated: Path) -> None:
    listed = {each.key: each for each in read_rows(repeated / "outputs")}
    sides = side_by_side(table.expand_sweeps([listed["sweeps/rep"]], listed), "flipped", "")
    assert [side[0][0].row["answer"] for side in sides] == ["Pellery"]


def test_sweep_without_finished_cells_is_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "outputs", tmp_path / "outputs")
    sweep = tmp_path / "outputs/sweeps/lengths"
    for number in range(3):
        CellState(status="failed", run=None, seconds=1.0, error="boom").write(sweep, number)
    viewing = Viewing.start(tmp_path)
    error = viewing.error("/compare?run=sweeps/lengths")
    viewing.interrupt()
    assert "Choose a finished run" in error


def test_methods_without_passages_have_no_support(keys: dict[str, str], folder: Path) -> None:
    rows = {each.key: each for each in read_rows(folder / "outputs")}
    assert rows[keys["no_context"]].text("support recall") == ""
    assert rows[keys["trace"]].text("support recall") != ""
    run = FinishedRun.read(folder / "outputs" / keys["no_context"])
    assert {each["support_recall"] for each in RunQuestions(run).rows.values()} == {None}
    assert "support" not in write_report(run, "md").read_text(encoding="utf-8")


def test_only_headline_scores_show_their_interval(viewing: Viewing) -> None:
    page = viewing.get("/")
    assert re.search(r'data-name="EM" class="figure score">8.3 <small>\[', page)
    assert re.search(
        r'data-name="containment" title="95 % interval \[[^"]*\]" class="figure">[\d.]+</td>', page
    )


def test_phone_shows_scores_first_and_all_figures(browser: Browser, viewing: Viewing) -> None:
    browser.resize(390, 844)
    browser.visit(f"{viewing.base}?sort=-EM")
    cells = "[...document.querySelectorAll('tbody tr:first-child td[data-name]')]"
    order = ".sort((a, b) => a.offsetTop - b.offsetTop).map((each) => each.dataset.name)"
    shown = browser.value(f"{cells}.filter((each) => each.offsetHeight){order}")
    assert shown[:2] == ["EM", "F1"]
    assert {"containment", "calls", "tokens", "questions"} <= set(shown[2:])
    assert browser.value(PHONE) <= 390


def test_own_metric_is_among_the_first_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Metric("brevity", "Brevity", lambda row: 1.0, column=True, tested=True)
    monkeypatch.setitem(BUILT_IN, "brevity", own)
    assert table.list_scores()[:3] == ["EM", "F1", "Brevity"]


def test_empty_folder_has_an_example(tmp_path: Path) -> None:
    (tmp_path / "outputs").mkdir()
    viewing = Viewing.start(tmp_path)
    pages = [viewing.get(path) for path in ("/", "/plots")]
    viewing.interrupt()
    assert "No runs in outputs." in pages[0]
    assert "No run here has figures." in pages[1]
    assert [page.count("<form") for page in pages] == [0, 0]


def test_no_match_has_no_empty_table(viewing: Viewing) -> None:
    page = viewing.get("/?filter=zebra")
    assert "No run has zebra." in page
    assert '<form id="runs"' not in page


def test_scripted_replies_are_no_model(viewing: Viewing) -> None:
    page = viewing.get("/")
    assert set(re.findall(r'data-name="model" class="">([^<]*)<', page)) == {"no model"}


def test_sweep_names_its_keys_and_its_cells(viewing: Viewing) -> None:
    (row,) = re.findall(r'<tr data-key="sweeps/lengths".*?</tr>', viewing.get("/"), re.DOTALL)
    texts = [text for text in re.findall(r">([^<>]+)<", row) if text.strip()]
    assert texts[:4] == ["sweep lengths", "by max_answer_tokens", "·", "✓ 3 of 3 cells"]
    assert '<a href="/sweep/sweeps/lengths">sweep lengths</a>' in row
    assert '<a href="/plots?run=sweeps/lengths">plots</a>' in row


@pytest.mark.parametrize("hash_", ["sha256-", "older-"], ids=["this version", "older"])
def test_report_of_a_sweep_is_sandboxed(viewing: Viewing, folder: Path, hash_: str) -> None:
    file = folder / "outputs/sweeps/lengths/report.html"
    text = file.read_text(encoding="utf-8")
    try:
        file.write_text(text.replace("sha256-", hash_), encoding="utf-8")
        response, page = viewing.ask("/sweep/sweeps/lengths", {"Cookie": viewing.cookie})
    finally:
        file.write_text(text, encoding="utf-8")
    assert (response.getheader("content-security-policy") or "").startswith("sandbox")
    assert re.sub('href="[^"]*"', "", page.replace(BACK.format(""), "")) == re.sub(
        'href="[^"]*"', "", text
    )


def test_report_of_a_sweep_links_to_its_runs(
    browser: Browser, viewing: Viewing, folder: Path
) -> None:
    (sweep,) = [row for row in read_rows(folder / "outputs") if row.kind == "sweep"]
    browser.visit(
        f"{viewing.base}sweep/{sweep.key}", ready="document.querySelector('main td a') !== null"
    )
    browser.value("document.querySelector('main td a').focus()")
    browser.press("Enter")
    browser.wait("document.querySelector('.headlines') !== null")
    assert browser.value("location.href") in [f"{viewing.base}run/{key}" for key in sweep.runs]
    back = "document.querySelectorAll('header nav a')[1]"
    assert browser.value(f"{back}.textContent") == "← sweep lengths"
    browser.value(f"{back}.click()")
    browser.wait(f"location.href === '{viewing.base}sweep/{sweep.key}'")


def test_report_of_a_sweep_has_a_choice_of_scores(browser: Browser, viewing: Viewing) -> None:
    browser.visit(
        f"{viewing.base}sweep/sweeps/lengths", ready="document.querySelector('.choice') !== null"
    )
    figures = "[...document.querySelectorAll('figure')].filter((each) => each.offsetHeight)"
    titles = f"{figures}.map((each) => each.querySelector('figcaption').textContent)"
    shown = [browser.value(titles)]
    choice = "document.querySelector('.choice select')"
    names = browser.value(f"[...{choice}.options].map((each) => each.value)")
    browser.value(f"{choice}.value = '{names[1]}', {choice}.dispatchEvent(new Event('input'))")
    shown.append(browser.value(titles))
    assert sorted(names) == ["EM", "F1"]
    assert shown == [[f"{name} with 95 % intervals", f"{name} against cost"] for name in names]


def test_report_has_no_link_out_of_the_folder(viewing: Viewing, folder: Path) -> None:
    file = folder / "outputs/sweeps/lengths/report.html"
    text = file.read_text(encoding="utf-8")
    try:
        file.write_text(text.replace('href="../../', 'href="../../../away/'), encoding="utf-8")
        page = viewing.get("/sweep/sweeps/lengths")
    finally:
        file.write_text(text, encoding="utf-8")
    assert "max answer tokens" in page
    assert "away" not in page


@pytest.mark.parametrize("key", ["sweeps/none", "sweeps/../.."])
def test_unknown_sweep_has_no_report(viewing: Viewing, key: str) -> None:
    assert "no sweep with a report" in viewing.error(f"/sweep/{key}")


def test_side_by_side_names_the_tested_runs(viewing: Viewing, keys: dict[str, str]) -> None:
    runs = urlencode([("run", keys["trace"]), ("run", keys["no_context"])])
    page = viewing.get(f"/compare?{runs}")
    assert 'data-brief="A – B" data-head="runs">trace – no_context</td>' in page
    assert '<th scope="col">A trace</th><th scope="col">B no_context</th>' in page


def test_side_by_side_names_an_unjudged_run(
    viewing: Viewing, keys: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert main(["evaluate", f"outputs/{keys['trace']}", "judge=em"]) == 0
    page = viewing.get(f"/compare?run={keys['no_context']}&run={keys['trace']}")
    # other tests read the runs without a judge
    for file in (EVALUATION, VERDICTS):
        (folder / "outputs" / keys["trace"] / file).unlink()
    # above the tests, which are folded if there are many
    above = page.partition("Paired tests")[0]
    assert "Judge accuracy is not compared, because there are no verdicts of A. Run kgqa" in above


def test_side_by_side_explains_missing_tests(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "outputs", tmp_path / "outputs")
    (first, second, *_) = next(
        row.runs for row in read_rows(tmp_path / "outputs") if row.kind == "sweep"
    )
    # as if this run had been scored by other rules
    config = tmp_path / "outputs" / second / "config.yaml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("profile: musique", "profile: 2wiki"), encoding="utf-8")
    viewing = Viewing.start(tmp_path)
    page = viewing.get(f"/compare?run={first}&run={second}")
    viewing.interrupt()
    assert "No paired tests: scored by 2wiki and musique." in page


WARNED_PAGES = ("/", "/plots", "/compare?")


@pytest.mark.parametrize("page", WARNED_PAGES, ids=["runs", "plots", "side by side"])
def test_pages_warn_of_scripted_replies(viewing: Viewing, keys: dict[str, str], page: str) -> None:
    if page.startswith("/compare"):
        page += urlencode([("run", keys["trace"]), ("run", keys["no_context"])])
    warned = viewing.error(page)
    assert warned == "Scripted replies: no model was called. The scores are meaningless."


def test_question_page_warns_of_scripted_replies(viewing: Viewing, keys: dict[str, str]) -> None:
    page = viewing.get(f"/question/{keys['trace']}?id=2hop__demo_02")
    assert '<p class="alarm">Scripted replies: no model was called.' in page


@pytest.mark.parametrize(
    "page", ["/?filter=dataset%3Ddemo", "/compare?"], ids=["runs", "side by side"]
)
def test_tables_warn_of_scores(viewing: Viewing, page: str) -> None:
    if page.startswith("/compare"):
        keys = [key for key in keys_of(viewing.get("/")) if key.startswith("demo/")]
        page += urlencode([("run", key) for key in keys])
    warned = viewing.get(page)
    assert warned.count('<div class="wrong">2 of 2 answers are cut at max_tokens<') == 2


def test_costs_name_the_extraction_they_lack(viewing: Viewing) -> None:
    pattern = r'<p class="hint">trace: costs without the extraction of triples \([1-9]'
    assert re.search(pattern, viewing.get("/"))


def test_other_questions_side_by_side_are_marked(viewing: Viewing, keys: dict[str, str]) -> None:
    small = next(
        key for key in keys_of(viewing.get("/?filter=dataset%3Ddemo")) if key.startswith("demo/")
    )
    runs = urlencode([("run", keys["trace"]), ("run", small)])
    warning = "The runs have different questions: A 12, B 2, and 1 in all of them."
    assert warning in viewing.error(f"/compare?{runs}")
    same = urlencode([("run", keys["trace"]), ("run", keys["no_context"])])
    assert "different questions" not in viewing.error(f"/compare?{same}")


@pytest.mark.parametrize("is_turned", [False, True], ids=["larger first", "smaller first"])
@pytest.mark.parametrize(
    ("which", "count"), [("", "1–13 of 13"), ("in all runs", "1–1 of 1"), ("flipped", "0")]
)
def test_side_by_side_has_the_questions_of_all_runs(
    viewing: Viewing, folder: Path, keys: dict[str, str], which: str, count: str, is_turned: bool
) -> None:
    (small,) = [row.runs[0] for row in read_rows(folder / "outputs") if row.kind == "sweep"]
    runs = [keys["trace"], small][:: -1 if is_turned else 1]
    query = urlencode([*(("run", key) for key in runs), ("which", which)])
    assert f"<output>{count} questions</output>" in viewing.get(f"/compare?{query}")


def test_different_judges_side_by_side_are_marked(
    viewing: Viewing, keys: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    for name, judge in (("trace", "em"), ("no_context", "containment")):
        assert main(["evaluate", f"outputs/{keys[name]}", f"judge={judge}"]) == 0
    runs = urlencode([("run", keys["trace"]), ("run", keys["no_context"])])
    warning = "Judge accuracy is by different judges, and neither ranked nor tested: em (A), containment (B)."
    page = viewing.error(f"/compare?{runs}")
    # other tests read the runs without a judge
    for name, file in product(("trace", "no_context"), (EVALUATION, VERDICTS)):
        (folder / "outputs" / keys[name] / file).unlink()
    assert warning in page


def test_plots_separate_runs_with_other_questions(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert main(["run", "method=no_context", "dataset=demo", "limit=3", *QUICK]) == 0
    rows = [each for each in read_rows(folder / "outputs") if each.figures]
    names = table.name_groups(rows)
    assert set(names.values()) == {"demo, 2 questions", "demo, 3 questions", "musique"}
    shutil.rmtree(next(row.folder for row in rows if names[row.key] == "demo, 3 questions"))


def test_other_selections_are_numbered_and_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [row(name) for name in ("a", "b", "c", "d")]
    monkeypatch.setattr(
        table, "_read_question_set", lambda folder, _: "abca"["abcd".index(folder.name)]
    )
    names = table.name_groups(runs)
    first = "bee, 12 questions"
    assert list(names.values()) == [
        first,
        f"{first} (selection 2)",
        f"{first} (selection 3)",
        first,
    ]
    (hint,) = table.explain_groups(names.values())
    assert hint.startswith("selection 2: another selection")
    assert table.explain_groups([first]) == []


PHONE = "document.documentElement.scrollWidth"


@pytest.mark.parametrize("page", ["run", "question", "compare", "plots"])
def test_pages_fit_a_phone(
    browser: Browser, viewing: Viewing, keys: dict[str, str], page: str
) -> None:
    paths = {
        "run": f"run/{keys['trace']}",
        "question": f"question/{keys['trace']}?id=2hop__demo_02",
        "compare": f"compare?run={keys['trace']}&run={keys['no_context']}",
        "plots": "plots",
    }
    browser.resize(390, 844)
    browser.visit(viewing.base + paths[page])
    assert browser.value(PHONE) <= 390


@pytest.mark.parametrize("page", ["run", "compare"])
def test_tables_fit_a_phone(
    browser: Browser, viewing: Viewing, keys: dict[str, str], page: str
) -> None:
    paths = {
        "run": f"run/{keys['no_context']}",
        "compare": f"compare?run={keys['trace']}&run={keys['no_context']}",
    }
    browser.resize(390, 844)
    browser.visit(viewing.base + paths[page])
    wide = "[...document.querySelectorAll('.wide')].filter(each => each.scrollWidth > each.clientWidth)"
    assert browser.value(f"{wide}.map(each => each.textContent)") == []


def test_table_of_a_sweep_fits_a_phone(browser: Browser, folder: Path) -> None:
    browser.resize(390, 844)
    report = folder / "outputs/sweeps/lengths/report.html"
    browser.open(report, ready="document.readyState === 'complete'")
    tables = "[...document.querySelectorAll('.wide')]"
    assert browser.value(f"{tables}.every(each => each.scrollWidth <= each.clientWidth)")


def test_values_of_all_tables_start_at_one_place(
    browser: Browser, folder: Path, keys: dict[str, str]
) -> None:
    browser.open(folder / "outputs" / keys["trace"] / "report.html")
    browser.value("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    cells = "[...document.querySelectorAll('table.text:not(.settings) tr:first-child td')]"
    starts = browser.value(f"{cells}.map((each) => each.getBoundingClientRect().left)")
    assert len(starts) > 2
    # a name can be longer than the others
    assert max(starts) - min(starts) < 120


def test_table_of_repeats_fits_a_phone(browser: Browser, repeated: Path) -> None:
    browser.resize(390, 844)
    report = repeated / "outputs/sweeps/rep/report.html"
    browser.open(report, ready="document.readyState === 'complete'")
    browser.value("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    titles = browser.value("[...document.querySelectorAll('h2')].map((each) => each.textContent)")
    assert [title for title in titles if title.startswith("Repeats: ")]
    wide = "[...document.querySelectorAll('.wide')].filter((each) => each.scrollWidth > each.clientWidth)"
    assert browser.value(f"{wide}.map((each) => each.textContent)") == []


def test_status_breaks_between_words(browser: Browser, viewing: Viewing) -> None:
    browser.resize(900, 844)
    browser.value("document.querySelector('td.status').textContent = '○ not finished'")
    cell = "document.querySelector('td.status')"
    assert browser.value(
        f"{cell}.scrollHeight < 3 * parseFloat(getComputedStyle({cell}).lineHeight)"
    )


@pytest.mark.parametrize(("width", "is_tall"), [(390, True), (1400, False)])
def test_phone_has_a_chain_from_top_to_bottom(
    browser: Browser, viewing: Viewing, keys: dict[str, str], width: int, is_tall: bool
) -> None:
    browser.resize(width, 844)
    browser.visit(viewing.base + f"run/{keys['trace']}#questions")
    triples = '[["Bridge", "designer", "Ilse"], ["Ilse", "born in", "Pellery"]]'
    chain = f"graphView({triples}, 'Pellery', true).querySelector('svg')"
    assert (
        browser.value(f"{chain}.viewBox.baseVal.height > {chain}.viewBox.baseVal.width") is is_tall
    )


@pytest.mark.parametrize("page", ["plots", "sweep/sweeps/lengths"])
def test_letters_of_plots_are_readable_on_a_phone(
    browser: Browser, viewing: Viewing, page: str
) -> None:
    browser.resize(390, 844)
    browser.visit(f"{viewing.base}{page}", ready="document.readyState === 'complete'")
    plots = "[...document.querySelectorAll('svg.plot')].filter((each) => each.getBoundingClientRect().width)"
    scale = "each.getBoundingClientRect().width / each.viewBox.baseVal.width"
    scales = browser.value(f"{plots}.map((each) => {scale})")
    assert len(scales) >= 2
    # of letters of 12 pixels
    assert min(scales) > 0.9
    texts = f"{plots}.flatMap((each) => [...each.querySelectorAll('text')])"
    assert (
        browser.value(f"Math.max(...{texts}.map((each) => each.getBoundingClientRect().right))")
        <= 390
    )
    assert browser.value(PHONE) <= 390


@pytest.mark.parametrize(("width", "are_hidden"), [(390, True), (1400, False)])
def test_phone_hides_spare_ticks(
    browser: Browser, viewing: Viewing, width: int, are_hidden: bool
) -> None:
    browser.resize(width, 844)
    browser.visit(viewing.base + "plots?x=tokens+%2F+question")
    spare = "[...document.querySelectorAll('.tick.spare')]"
    hidden = browser.value(f"{spare}.map(tick => getComputedStyle(tick).display == 'none')")
    assert set(hidden) == {are_hidden}


def test_question_has_the_widest_column(
    browser: Browser, viewing: Viewing, keys: dict[str, str]
) -> None:
    browser.resize(1400, 900)
    browser.visit(viewing.base + f"compare?run={keys['trace']}&run={keys['no_context']}")
    widths = browser.value(
        "[...document.querySelectorAll('.answers tbody tr:first-child > *')].map(cell => cell.offsetWidth)"
    )
    question, gold, first, second = widths
    assert question > 450
    assert gold < first
    assert abs(first - second) <= 1


def without_additions(page: str) -> str:
    """Return the page of a run without what the viewer adds."""
    return re.sub(' data-pages="[^"]*"', "", page.replace(BACK.format(""), ""), count=1)


def test_report_of_another_version_has_working_scripts(
    viewing: Viewing, keys: dict[str, str], folder: Path
) -> None:
    # the policy allows only the scripts of this version
    file = folder / "outputs" / keys["trace"] / "report.html"
    text = file.read_text(encoding="utf-8")
    try:
        file.write_text(re.sub(r"sha256-[^']+", "sha256-older", text), encoding="utf-8")
        assert without_additions(viewing.get(f"/run/{keys['trace']}")) == text
    finally:
        file.write_text(text, encoding="utf-8")


def test_pages_of_runs_and_questions_are_sandboxed(
    viewing: Viewing, keys: dict[str, str], folder: Path
) -> None:
    cookie = {"Cookie": viewing.cookie}
    response, text = viewing.ask(f"/run/{keys['trace']}", cookie)
    file = folder / "outputs" / keys["trace"] / "report.html"
    assert without_additions(text) == file.read_text(encoding="utf-8")
    policy = dict(
        part.split(" ", 1)
        for part in (response.getheader("content-security-policy") or "").split("; ")
    )
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert (
        f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"
        in policy["script-src"].split()
    )
    assert (policy["sandbox"], policy["default-src"]) == (
        "allow-scripts allow-downloads allow-popups",
        "'none'",
    )
    assert "unsafe" not in " ".join(policy.values())
    response, text = viewing.ask(
        f"/question/{keys['no_context']}?id={quote(HOSTILE, safe='')}", cookie
    )
    assert (response.getheader("content-security-policy") or "").startswith("sandbox")
    assert SCRIPT not in text
    assert SCRIPT in unescape(text)
    assert "no such question" in viewing.error(f"/question/{keys['trace']}?id=x")


@pytest.mark.parametrize("page", ["run", "question"])
def test_sandboxed_page_links_to_the_table(
    browser: Browser, viewing: Viewing, keys: dict[str, str], page: str
) -> None:
    path = {"run": keys["trace"], "question": f"{keys['trace']}?id=2hop__demo_02"}[page]
    browser.visit(f"{viewing.base}{page}/{path}")
    browser.value("document.querySelector('header a').focus()")
    browser.press("Enter")
    browser.wait("document.querySelector('table.runs') !== null")
    assert browser.value("location.href") == viewing.base


def test_question_page_links_to_its_run(
    browser: Browser, viewing: Viewing, keys: dict[str, str]
) -> None:
    browser.visit(f"{viewing.base}question/{keys['trace']}?id=2hop__demo_02")
    link = "document.querySelector('header p a')"
    name = keys["trace"].rpartition("/")[2]
    assert browser.value(f"{link}.textContent") == f"trace on musique with scripted · {name}"
    browser.value(f"{link}.focus()")
    browser.press("Enter")
    browser.wait("document.querySelector('.headlines') !== null")
    assert browser.value("location.href") == f"{viewing.base}run/{keys['trace']}"


PLACE = "document.getElementById('place')?.children[1]?.textContent"


def wait_for_page(browser: Browser, question_id: str, place: str) -> None:
    browser.wait(
        f"location.pathname.startsWith('/question/') && location.hash === '#q={question_id}' && {PLACE} === '{place}'"
    )


def test_keys_step_through_the_questions_of_the_run(
    browser: Browser, viewing: Viewing, keys: dict[str, str]
) -> None:
    browser.visit(f"{viewing.base}question/{keys['trace']}?id=2hop__demo_02#q=2hop__demo_02")
    assert browser.value(PLACE) == "2 of 12"
    browser.press("j")
    wait_for_page(browser, "3hop1__demo_03", "3 of 12")
    assert "the calls" not in browser.value("byId('opened').textContent")
    browser.press("k")
    wait_for_page(browser, "2hop__demo_02", "2 of 12")


def test_keys_step_through_the_filtered_questions(
    browser: Browser, viewing: Viewing, keys: dict[str, str]
) -> None:
    page = f"{viewing.base}question/{keys['trace']}?id=2hop__demo_02&hops=2"
    browser.visit(f"{page}#q=2hop__demo_02")
    ids = browser.value("visible.map((place) => rows[place].question_id)")
    assert 2 < len(ids) < 12
    browser.press("j")
    wait_for_page(browser, ids[2], f"3 of {len(ids)}")
    assert browser.value("byId('hops').value") == "2"


def test_question_has_the_list_side_by_side(
    browser: Browser, viewing: Viewing, keys: dict[str, str]
) -> None:
    runs = f"run={keys['trace']}&run={keys['no_context']}"
    browser.visit(f"{viewing.base}compare?{runs}&search=which")
    link = "document.querySelectorAll('.answers tbody td a')"
    count = browser.value(f"{link}.length") // 2
    assert 1 < count < 12
    browser.value(f"{link}[0].click()")
    browser.wait(f"{PLACE} === '1 of {count}'")
    browser.press("j")
    browser.wait(f"{PLACE} === '2 of {count}'")
    browser.value("document.querySelector('header p a').click()")
    browser.wait("document.querySelector('.answers') !== null")
    assert browser.value(f"{link}.length") // 2 == count


def test_question_side_by_side_links_to_the_other_run(
    viewing: Viewing, keys: dict[str, str]
) -> None:
    beside = urlencode([("beside", keys["trace"]), ("beside", keys["no_context"])])
    page = viewing.get(f"/question/{keys['trace']}?id=2hop__demo_02&{beside}")
    links = dict(
        re.findall(r'<a href="/home\?run=([^&]*)&amp;id=2hop__demo_02&[^"]*">([^<]*)<', page)
    )
    assert links == {quote(keys["no_context"], safe=""): "B no_context"}


def test_run_page_opens_questions_it_has_no_calls_of(
    browser: Browser, viewing: Viewing, keys: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    browser.visit(f"{viewing.base}run/{keys['trace']}#questions")
    browser.wait("document.querySelector('#opened h2') !== null")
    # as if the page had no room for this one
    browser.value("packed[3] = ''")
    browser.value("location.hash = '#q=3hop1__demo_03'")
    wait_for_page(browser, "3hop1__demo_03", "3 of 12")


def test_run_links_to_every_sweep_that_uses_it(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "outputs", tmp_path / "outputs")
    sweeps = tmp_path / "outputs/sweeps"
    shutil.copytree(sweeps / "lengths", sweeps / "<a&b>")
    (run, *_) = next(row.runs for row in read_rows(tmp_path / "outputs") if row.kind == "sweep")
    viewing = Viewing.start(tmp_path)
    page = viewing.get(f"/run/{run}")
    viewing.interrupt()
    links = re.findall(r'<a href="/home\?sweep=([^"]*)">([^<]*)</a>', page)
    assert sorted(links) == [
        ("sweeps%2F%3Ca%26b%3E", "← sweep &lt;a&amp;b&gt;"),
        ("sweeps%2Flengths", "← sweep lengths"),
    ]


def test_repeat_links_to_its_sweep_only(repeated: Path) -> None:
    (run,) = next(row.runs[:1] for row in read_rows(repeated / "outputs") if row.kind == "mean")
    viewing = Viewing.start(repeated)
    page = viewing.get(f"/run/{run}")
    viewing.interrupt()
    assert re.findall(r">(← sweep [^<]*)<", page) == ["← sweep rep"]


@pytest.mark.parametrize("key", ["//evil.example", '"><script>', "a\\b", "/../x;url=//b"])
def test_address_of_a_run_stays_in_the_viewer(viewing: Viewing, key: str) -> None:
    page = viewing.ask(f"/home?{urlencode({'run': key})}", {})[1]
    (address,) = re.findall(r'content="0; url=([^"]*)">$', page)
    assert re.fullmatch(r"/run/[\w./%-]+", address)


def test_running_work_is_shown(folder: Path, viewing: Viewing) -> None:
    assert viewing.get("/work").strip() == ""
    work: Any = {
        "what": "run",
        "folder": "outputs/a/b/c/d",
        "command": "kgqa run",
        "stage": "questions",
        "pid": 1,
    }
    now = time.time()
    beat = Heartbeat(**work, host=socket.gethostname(), started=now, updated=now, ended=3, count=9)
    file = folder / "outputs/.running/other.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(beat.model_dump_json())
    assert "questions 3 of 9" in viewing.get("/work")
    file.unlink()


def test_interrupted_run_shows_how_to_continue(tmp_path: Path) -> None:
    words = ("run", "method=golden", "limit=2", *QUICK)
    run = run_in(tmp_path, *words).folder
    interrupt_run(tmp_path, run, *words)
    command = f"kgqa {' '.join(words)}"
    viewing = Viewing.start(tmp_path)
    page, error = viewing.get("/"), viewing.error(f"/run/{run.relative_to('outputs')}")
    viewing.interrupt()
    # above the table, and in the row
    assert page.count(f"to continue: <code>{command}</code>") == 2
    assert f"not finished. Continue with: {command}" in error


def test_stopped_work_fits_a_phone(browser: Browser, viewing: Viewing, folder: Path) -> None:
    beat = Heartbeat(
        what="run",
        folder="outputs/a/b/c/d",
        command="kgqa run",
        stage="questions",
        pid=1,
        host="another-machine.example.org",
        started=time.time() - 900,
        updated=time.time() - 600,
        ended=3,
        count=9,
    )
    (folder / beat.folder).mkdir(parents=True)
    file = folder / "outputs/.running/stopped.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(beat.model_dump_json())
    browser.resize(390, 844)
    browser.visit(viewing.base)
    text = browser.value("document.getElementById('work').textContent")
    assert "no heartbeat" in text
    assert "to continue: kgqa run" in text
    assert browser.value(PHONE) <= 390
    file.unlink()
    shutil.rmtree(folder / "outputs/a")


def test_keys_and_token_in_a_browser(browser: Browser, viewing: Viewing) -> None:
    assert browser.value("location.href") == viewing.base
    assert browser.value("document.cookie") == ""
    browser.press("/")
    browser.wait("document.activeElement.name === 'filter'")
    for width in (1400, 390):
        browser.resize(width, 844)
        assert browser.value("document.documentElement.scrollWidth") <= width


def test_keys_step_through_the_runs(browser: Browser) -> None:
    names = browser.value(
        "[...document.querySelectorAll('#runs tbody th > a')].map((each) => each.textContent)"
    )
    focus = "document.activeElement.textContent"
    places = []
    for key in "jjk":
        browser.press(key)
        places.append(browser.value(focus))
    assert places == [names[0], names[1], names[0]]
    browser.press("Enter")
    browser.wait("document.querySelector('table.runs') === null")


def test_requests_without_the_token_are_rejected(viewing: Viewing) -> None:
    for path in ("/", "/?token=guess", "/?token=", "/work", "/assets/viewer.js", "/run/a/b/c/d"):
        response, text = viewing.ask(path, {"Cookie": f"kgqa_view_{viewing.port}=guess"})
        assert response.status == 403
        assert text.count("\n") == 1
        assert not response.getheader("set-cookie")
    response, _ = viewing.ask(viewing.address.partition(f"{viewing.port}")[2], {})
    assert response.status == 200
    assert (
        response.getheader("set-cookie") == f"{viewing.cookie}; Path=/; HttpOnly; SameSite=Strict"
    )
    assert viewing.ask("/", {"Cookie": viewing.cookie})[0].status == 200


def test_other_hosts_and_sites_cannot_read_or_change(viewing: Viewing) -> None:
    """DNS rebinding: a page's own name that suddenly points here; its browser would send it the cookie's answer."""
    for host in (
        "evil.example",
        f"evil.example:{viewing.port}",
        "127.0.0.1",
        f"127.0.0.1:{viewing.port}.evil.example",
    ):
        assert viewing.ask("/work", {"Cookie": viewing.cookie, "Host": host})[0].status == 403
    assert (
        viewing.ask("/work", {"Cookie": viewing.cookie, "Host": f"localhost:{viewing.port}"})[
            0
        ].status
        == 200
    )
    mine = {"Cookie": viewing.cookie}
    assert viewing.ask("/work", mine | {"Origin": "http://evil.example"})[0].status == 403
    other_name = mine | {"Origin": f"http://localhost:{viewing.port}"}
    assert viewing.ask("/work", other_name)[0].status == 403
    assert viewing.ask("/work", mine, "POST", "")[0].status == 403


def test_every_reply_forbids_inline_scripts(viewing: Viewing, keys: dict[str, str]) -> None:
    both = f"/compare?run={keys['trace']}&run={keys['no_context']}"
    for path in ("/", both, "/plots", "/work", "/assets/viewer.js", "/nowhere", "/run/no/such"):
        response, text = viewing.ask(path, {"Cookie": viewing.cookie})
        policy = response.getheader("content-security-policy") or ""
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
        assert response.getheader("x-content-type-options") == "nosniff"
        if "text/html" in (response.getheader("content-type") or ""):
            assert not re.findall(r"<script(?![^>]*src=)|<style|<\w[^<>]* (?:style|on\w+)=", text)


def test_other_files_are_not_served(viewing: Viewing) -> None:
    for path in (
        "/assets/../guard.py",
        "/assets/%2e%2e%2fguard.py",
        "/run/../../../etc/passwd",
        "/run/%2e%2e/x",
    ):
        response, text = viewing.ask(path, {"Cookie": viewing.cookie})
        assert response.status in (400, 404)
        assert "root:" not in text
        assert "DNS" not in text


def test_start_error_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def view(*words: str) -> str:
        assert main(["view", "--no-browser", *words]) == 2
        return capsys.readouterr().err

    outputs, nowhere = str(folder / "outputs"), str(folder / "nowhere")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert f"kgqa: --port {port}: Address already in use. Use another" in view(
            outputs, "--port", str(port)
        )
    assert f"{nowhere}: no such folder" in view(nowhere)
    assert "must be from 0 to 65535" in view("--port", "70000")

    def absent(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(extras, "version", absent)
    assert install_command("view") in view(outputs)
