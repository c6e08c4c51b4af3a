"""Tables on a terminal: no word and no figure is broken, and what is not shown is named."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence

import pytest
from rich.console import Console
from rich.text import Text

from kgqa.cli.tables import Cells, Layout, fold, lay_out
from kgqa.cli.terminal import Terminal
from kgqa.report.section import Legend, MarkedCell, Section

NAME = "demo/simple_deep_searcher/qwen3_embedding_0_6b/1a2b3c4d"
INTERVAL = "45.2 [39, 51]"


def show(width: int, draw: Callable[[Terminal], object]) -> list[str]:
    """Return the lines on a terminal of this width."""
    terminal = Terminal(io.StringIO())
    terminal.console = Console(file=io.StringIO(), width=width, force_terminal=True)
    draw(terminal)
    stream = terminal.console.file
    assert isinstance(stream, io.StringIO)
    return re.sub(r"\x1b\[[\d;]*m", "", stream.getvalue()).splitlines()


def texts(header: Sequence[str], rows: Sequence[Cells], width: int) -> list[str]:
    return [line.plain for line in lay_out(header, rows, width).lines(width)]


@pytest.mark.parametrize(
    ("width", "header", "cell"),
    [
        (22, ["run", "score", "cost"], "long name"),
        (18, ["run", "score", "cost"], "A"),
        (11, ["run", "score"], "A"),
    ],
    ids=["wide", "brief cells", "no optional column"],
)
def test_narrow_terminal_omits_columns(width: int, header: list[str], cell: str) -> None:
    row = (MarkedCell("long name", brief="A"), "1.0", "2.0")
    layout = lay_out(("run", "score", "cost"), [row], width, optional=1)
    assert (layout.header, layout.columns[0].cells[0].plain) == (header, cell)


@pytest.mark.parametrize(("width", "cell"), [(7, "b"), (5, "c")], ids=["brief", "briefest"])
def test_stacked_table_has_the_briefest_cells(width: int, cell: str) -> None:
    cell_of_three = MarkedCell("b" * 9, brief="b" * 5, briefest="c" * 3)
    layout = lay_out(("run", "x"), [("a", cell_of_three)], width, stack=0)
    assert layout.columns[1].cells[0].plain[0] == cell


def test_header_can_be_brief() -> None:
    layout = lay_out((MarkedCell("ours (a_model)", brief="ours"),), [(1.0,)], 8)
    assert layout.header == ["ours"]


def test_long_texts_are_folded_before_words() -> None:
    lines = texts(("run", "meaning"), [("a", "word " * 5 + "end")], 28)
    assert lines == ["run  meaning", "a    word word word word", "     word end"]


def test_indent_of_a_long_word_is_no_line() -> None:
    assert [line.plain for line in fold(Text(f"  {NAME} is long"), 20)] == [f"  {NAME}", "is long"]


@pytest.mark.parametrize("width", range(20, 100, 8))
def test_words_and_figures_stay_complete(width: int) -> None:
    row = ("2026-11-30 12:35", NAME, "repeat=1 seed=2", 1234, INTERVAL)
    layout = lay_out(("written", "run", "differs in", "questions", "EM"), [row], width)
    output = "\n".join(line.plain for line in layout.lines(width))
    shown = dict(
        zip(layout.header, ("2026-11-30 12:35", NAME, "", "1,234", INTERVAL), strict=False)
    )
    assert {name: cell in output for name, cell in shown.items()} == dict.fromkeys(shown, True)


def test_long_name_is_on_its_own_line() -> None:
    assert texts(("run", "EM", "F1"), [(NAME, 1.0, 2.0), ("b", 30.0, 4.0)], 60) == [
        "run",
        "    EM   F1",
        NAME,
        "   1.0  2.0",
        "b",
        "  30.0  4.0",
    ]


def test_rows_with_the_same_name_have_one_heading() -> None:
    rows = [(NAME, "EM", 1.0), (NAME, "F1", 2.0), ("b", "EM", 3.0)]
    assert texts(("run", "metric", "mean"), rows, 60) == [
        "run",
        "  metric  mean",
        NAME,
        "  EM       1.0",
        "  F1       2.0",
        "b",
        "  EM       3.0",
    ]


@pytest.mark.parametrize("figure", [INTERVAL, "−12.5 [3, 4]", "+0.0 (p 1.000)"])
def test_column_of_figures_is_not_stacked(figure: str) -> None:
    layout = lay_out(("hops", "EM", "F1"), [(2, figure, figure)], 30)
    assert (layout.header, layout.stacked) == (["hops", "EM"], None)


@pytest.mark.parametrize(
    ("row", "stacked"),
    [(("a setting", "words", "x" * 24), 0), (("a", "b", NAME), 2)],
    ids=["first column", "longest word"],
)
def test_first_column_is_stacked_if_that_is_enough(row: Cells, stacked: int) -> None:
    layout = lay_out(("setting", "paper", "here"), [row], 36)
    assert (layout.stacked, len(layout.columns)) == (stacked, 3)


def test_chosen_column_is_stacked() -> None:
    rows = [("id_1", "an answer of words", "the question")]
    layout = lay_out(("id", "answer", "question"), rows, 24, stack=2)
    assert (layout.stacked, layout.header) == (2, ["id", "answer", "question"])


def test_list_of_numbers_is_folded_after_a_comma() -> None:
    lines = texts(("cell", "EM"), [("0, 1, 2, 3, 4, 5, 6, 7, 8, 9", INTERVAL)], 28)
    assert [line[:13].strip() for line in lines][1:] == ["0, 1, 2, 3,", "4, 5, 6, 7,", "8, 9"]


@pytest.mark.parametrize("errors_are_shown", [False, True], ids=["script", "terminal"])
def test_pipe_has_all_columns(
    errors_are_shown: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: errors_are_shown)
    header = [f"column {number}" for number in range(8)]
    Terminal().table(header, [[NAME] * 8], optional=7)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == [NAME] * 8
    assert not any(line.startswith("not shown") for line in lines)


def test_pipe_has_the_width_of_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    terminal = Terminal()
    terminal.table(("run", "EM", "tokens"), [("x" * 20, INTERVAL, INTERVAL)], optional=1)
    terminal.line("word " * 10)
    lines = capsys.readouterr().out.splitlines()
    assert "not shown in 40 columns: tokens" in lines
    assert all(len(line) <= 40 for line in lines)


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (80, ["not shown in 80 columns: tokens · all: report.html"]),
        (40, ["not shown in 40 columns: tokens", "all: report.html"]),
    ],
    ids=["one line", "two lines"],
)
def test_omitted_columns_are_named(width: int, expected: list[str]) -> None:
    row = ("x" * 40, INTERVAL, INTERVAL, INTERVAL)
    lines = show(
        width,
        lambda terminal: terminal.table(
            ("run", "EM", "F1", "tokens"), [row], optional=1, all_columns="report.html"
        ),
    )
    assert lines[-len(expected) :] == expected


@pytest.mark.parametrize(
    ("width", "expected"),
    [(80, ["about all", "p: a test"]), (12, ["about all"])],
    ids=["wide", "narrow"],
)
def test_legend_is_omitted_with_its_column(width: int, expected: list[str]) -> None:
    section = Section(
        "S", ("run", "EM", "p"), [("a", "45.2", "0.05")], ("about all", Legend("p", "p: a test")),
        optional=1,
    )  # fmt: skip
    lines = show(width, lambda terminal: terminal.sections("", [section]))
    assert [line for line in lines if line in ("about all", "p: a test")] == expected


@pytest.mark.parametrize(("width", "is_shown"), [(80, False), (20, True)], ids=["wide", "narrow"])
def test_omitted_column_is_replaced_by_texts(width: int, is_shown: bool) -> None:
    section = Section(
        "S", ("cause", "n", "meaning"), [("format", "2", "another form of the answer")],
        optional=1, instead={"meaning": ["format: another form"]},
    )  # fmt: skip
    lines = show(width, lambda terminal: terminal.sections("", [section]))
    assert ("format: another form" in lines) is is_shown


def test_section_chooses_the_column_on_its_own_line() -> None:
    question = "Who built the mill in the town?"
    section = Section("S", ("id", "text", "answer"), [("q1", question, "Ann Reed")], stack=1)
    lines = show(24, lambda terminal: terminal.sections("", [section]))
    assert lines[-3:] == ["Who built the mill in", "the town?", "  q1  Ann Reed"]


def test_table_without_rows_has_its_header() -> None:
    assert texts(("run", "EM"), [], 80) == ["run  EM"]
    assert isinstance(lay_out((), [], 80), Layout)
