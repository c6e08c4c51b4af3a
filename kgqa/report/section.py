"""Sections of a report, and their writers: Markdown, LaTeX and CSV. `page` writes HTML."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from typing_extensions import Self

from kgqa.artifacts.metrics import Estimate
from kgqa.report.plots import BarPlot, Plot
from kgqa.scoring.comparison import explain_direction
from kgqa.util.text import score_text

FILES = {
    "html": "report.html",
    "md": "report.md",
    "csv": "report.csv",
    "latex": "report.tex",
}  # by format
_NUMBER_START = "0123456789+-–−~<"
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?(\d[\d,]*)?\.?\d+(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--",
    "−": "$-$", "±": r"$\pm$", "↓": r"$\downarrow$", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
}  # fmt: skip

_LATEX_TABLE = r"""\begin{%s}[t]
\centering%s
\caption{%s}
%s
\end{%s}
"""
TABULAR = r"""\begin{tabular}{%s}
\toprule
%s
\midrule
%s
\bottomrule
\end{tabular}"""
# points of a page's text in the class article, upright and turned
_PAGE, _TURNED = 345, 550
# points of a character, and of the space of a column, in normal size and in footnote size
_NORMAL, _SMALL = (5.0, 12.0), (4.2, 6.0)
_FOOTNOTE_SIZE = "\n\\footnotesize\n\\setlength{\\tabcolsep}{3pt}"
# packages by the command that needs them
_PACKAGES = {"booktabs": r"\toprule", "rotating": "{sidewaystable*}", "graphicx": r"\resizebox"}


class MarkedCell(str):
    """The text of a table's cell with what a writer may show in addition.

    mark: "best" or "second" in its column, or the lower-case verdict on a value. worse: significantly worse than the
    best. link: an address. brief: a shorter text for a terminal. briefest: one for a terminal in which a column has its
    own line (default: `brief`).
    """

    mark: str
    worse: bool
    link: str
    brief: str
    briefest: str

    def __new__(
        cls,
        text: str,
        mark: str = "",
        *,
        worse: bool = False,
        link: str = "",
        brief: str = "",
        briefest: str = "",
    ) -> Self:
        cell = super().__new__(cls, text)
        cell.mark, cell.worse, cell.link = mark, worse, link
        cell.brief = brief or text
        cell.briefest = briefest or cell.brief
        return cell


class Legend(str):
    """A text below a table that explains one of its columns. A terminal without this column omits it."""

    column: str

    def __new__(cls, column: str, text: str) -> Self:
        legend = super().__new__(cls, text)
        legend.column = column
        return legend


Value = str | int | float | Estimate | None  # of a table's cell


@dataclass(frozen=True)
class Section:
    """A table with texts and plots.

    header: empty for a table with a name and a value per row. values: rows, or values by name. alarm: what is probably
    wrong with the figures. optional: the number of last columns that a narrow terminal omits. instead: texts for a
    column that it omits. stack: the column that gets its own line there.
    """

    title: str
    header: Sequence[str]
    values: Sequence[Sequence[Value]] | Mapping[str, Value]
    text: Sequence[str] = ()
    alarm: str = ""
    plots: Sequence[Plot | BarPlot] = ()
    is_folded: bool = False
    optional: int = 0
    instead: Mapping[str, Sequence[str]] = field(default_factory=dict)
    stack: int | None = None

    @cached_property
    def rows(self) -> list[tuple[str, ...]]:
        """Return the cells as texts."""
        rows = self.values.items() if isinstance(self.values, Mapping) else self.values
        return [tuple(map(cell_text, row)) for row in rows]

    def numeric_columns(self) -> list[bool]:
        """Return for each column of a table with a header whether all its cells are numbers."""
        columns = zip(*self.rows, strict=True) if self.header else ()
        return [all(map(_is_number, column)) for column in columns]


def _is_number(cell: str) -> bool:
    """Return whether a cell starts with a number and is no list, such as "3 (cell 0); 5 (cell 1)"."""
    return cell[:1] in _NUMBER_START and ";" not in cell


def cell_text(value: Value) -> str:
    """Return a value as text: numbers with separators of thousands and two decimals, "–" for None."""
    match value:
        case str():
            return value
        case float():
            return f"{value:,.2f}"
        case int():
            return f"{value:,}"
        case Estimate(mean=float(mean), low=low, high=high):
            ends = ", ".join(score_text(end, digits=0) for end in (low, high))
            return MarkedCell(str(value), brief=f"{score_text(mean)} [{ends}]")
    return "–" if value is None else str(value)


def markdown(title: str, sections: Sequence[Section], notices: Sequence[str] = ()) -> str:
    """Return a document. The first section is directly below the title, and notices are between them.

    Texts can contain messages of servers, so HTML, links and pictures in them are escaped.
    """
    parts = [
        f"# {escape_markdown(title)}\n",
        *(f"> {escape_markdown(notice)}\n" for notice in notices),
    ]
    for index, section in enumerate(sections):
        parts += [f"## {escape_markdown(section.title)}\n"] if index else []
        parts += [f"{escape_markdown(text)}\n" for text in section.text]
        parts += [f"**Alarm**: {escape_markdown(section.alarm)}\n"] if section.alarm else []
        if section.rows:
            header = section.header or ("",) * len(section.rows[0])
            lines = [header, ["---"] * len(header), *section.rows]
            parts.append(
                "".join(f"| {' | '.join(map(_markdown_cell, line))} |\n" for line in lines)
            )
    return "\n".join(parts)


def escape_markdown(text: str) -> str:
    """Return a text on one line in which no HTML, link or picture is live. Emphasis and code stay."""
    line = " ".join(text.splitlines()).strip()
    # "p < 0.05" is no tag, and a reader of the file can read it
    escaped = re.sub(r"<(?=[a-zA-Z/!?])", "&lt;", line).replace("![", "!\\[")
    return re.sub(r"\](?=[(\[:])", r"]\\", escaped)


def latex(title: str, sections: Iterable[Section], notices: Iterable[str] = ()) -> str:
    """Return the tables that have a header (package booktabs). Notices become comments."""
    comments = "".join(f"% {_one_line(notice.replace('**', ''))}\n" for notice in notices)
    tables = "\n".join(
        _latex_table(_caption(title, each), each) for each in sections if each.header
    )
    needs = [name for name, command in _PACKAGES.items() if name == "booktabs" or command in tables]
    return f"% needs \\usepackage{{{','.join(needs)}}}\n{comments}\n{tables}"


def _caption(title: str, section: Section) -> str:
    scores = (*section.header, *(row[0] for row in section.rows))
    return ". ".join([f"{section.title}: {title}", *explain_direction(scores)])


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Return rows as CSV with lines that end in "\\n".

    A text that a spreadsheet would take for a formula starts with an added ', see `unquote_formula`.
    """
    lines = []
    for row in rows:
        line = io.StringIO(newline="")
        # Python quotes a lone CR only if lines end in one, and readers would end the line there
        csv.writer(line, lineterminator="\r\n").writerow(map(quote_formula, row))
        lines.append(line.getvalue().removesuffix("\r\n") + "\n")
    return "".join(lines)


def quote_formula(value: object) -> object:
    """Return the value, with ' before a text that starts with = + - @, tab or CR (after any ') and is no number."""
    if not isinstance(value, str) or not _FORMULA.match(value) or _NUMBER.fullmatch(value):
        return value
    return f"'{value}"


def unquote_formula(cell: str) -> str:
    """Return the text that `quote_formula` wrote."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def escape_latex(text: str) -> str:
    """Return a text for LaTeX's text mode, on one line."""
    return re.sub(r"[\\~^–−±↓<>|&%$#_{}]", lambda match: _LATEX[match[0]], _one_line(text))


def _latex_table(caption: str, section: Section) -> str:
    """Return a table. One that is wider than a page has a smaller font, then is turned, then scaled."""
    header, *rows = [
        " & ".join(map(latex_cell, row)) + r" \\" for row in (section.header, *section.rows)
    ]
    columns = "l" + "r" * (len(section.header) - 1)
    tabular = TABULAR % (columns, header, "\n".join(rows))
    cells = (section.header, *section.rows)
    size, width = choose_latex_size(cells), _estimate_width(cells, _SMALL)
    # as wide as the page, also where a page has two columns
    environment = "sidewaystable*" if width > _PAGE else "table*"
    if width > _TURNED:
        tabular = f"\\resizebox{{\\linewidth}}{{!}}{{%\n{tabular}}}"
    return _LATEX_TABLE % (environment, size, escape_latex(caption), tabular, environment)


def choose_latex_size(rows: Sequence[Sequence[str]]) -> str:
    """Return the commands for a smaller font and less space between columns, "" if rows of cells fit a page."""
    return _FOOTNOTE_SIZE if _estimate_width(rows, _NORMAL) > _PAGE else ""


def _estimate_width(rows: Sequence[Sequence[str]], size: tuple[float, float]) -> float:
    """Return about how many points wide a table is. size: those of a character and of the space of a column."""
    character, space = size
    return sum(character * max(map(len, column)) + space for column in zip(*rows, strict=True))


def _markdown_cell(cell: str) -> str:
    formats: dict[str, Callable[[str], str]] = {
        "best": "**{}**".format,
        "second": "<u>{}</u>".format,
    }
    text = escape_markdown(cell).replace("|", "\\|")
    if isinstance(cell, MarkedCell):
        text = formats.get(cell.mark, str)(text) + ("\\*" if cell.worse else "")
        text = f"[{text}]({cell.link})" if cell.link else text
    return text


def latex_cell(cell: str) -> str:
    """Return a cell for LaTeX's text mode, with its mark."""
    commands = {"best": "textbf", "second": "underline"}
    text = escape_latex(cell)
    if isinstance(cell, MarkedCell):
        text += "$^*$" if cell.worse else ""
        text = rf"\{commands[cell.mark]}{{{text}}}" if cell.mark in commands else text
    return text


def _one_line(text: str) -> str:
    return " ".join(text.split())
