"""Lay out tables in a number of columns.

Lines break between words only, never inside a word, a figure or its interval. If a table is too wide for a terminal, it
loses its least important columns, then a column gets its own line in each row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from kgqa.util.text import escape_control, score_text

# between two columns of a table
GAP = 2
# before the line of a row below its name
INDENT = 2
# a longer text is folded in no fewer columns, and in no fewer if the table is still too wide
FOLDED, NARROW = 24, 12
# spaces next to a word, and after a comma that is not in brackets. Others belong to a figure: 45.2 [40, 51]
_BREAK = re.compile(r"\s+(?=[^\W\d_]{2})|(?<=[^\W\d_]{2})\s+|(?<=,)\s+(?![^\[(]{0,20}[\])])")
_FIGURE = re.compile(r"$|–|[-−+–<~]?[\d,.:]+(?!\w)")

Cell = str | Text | int | float | None  # None is empty
Cells = Sequence[Cell]  # of one row


@dataclass(frozen=True)
class _Column:
    name: Text
    cells: Sequence[Text]

    @cached_property
    def is_figures(self) -> bool:
        texts = [cell.plain for cell in self.cells]
        return bool(self.name.plain) and any(texts) and all(map(_FIGURE.match, texts))

    @cached_property
    def natural(self) -> int:
        """Return the width without folded lines."""
        return max(_width(self.name), self._longest)

    @cached_property
    def longest_piece(self) -> int:
        """Return the width of the longest word or figure."""
        lines = (line for text in (self.name, *self.cells) for line in text.plain.split("\n"))
        return max(cell_len(piece) for line in lines for piece in _BREAK.split(line))

    def least(self, folded: int) -> int:
        """Return the width in which words and figures are complete, and a long text has `folded` columns."""
        return max(min(self._longest, folded), self.longest_piece)

    @cached_property
    def _longest(self) -> int:
        return max(map(_width, self.cells), default=0)


@dataclass(frozen=True)
class Layout:
    """The columns of a table that fit.

    folded: the least columns of a long text. stacked: the number of the column on its own line.
    """

    columns: Sequence[_Column]
    folded: int = FOLDED
    stacked: int | None = None

    @property
    def header(self) -> list[str]:
        return [column.name.plain for column in self.columns]

    @cached_property
    def inner(self) -> list[_Column]:
        """Return the columns that are next to each other."""
        return [each for number, each in enumerate(self.columns) if number != self.stacked]

    @property
    def indent(self) -> int:
        return 0 if self.stacked is None else INDENT

    @property
    def widths(self) -> list[int]:
        """Return the least widths of the columns that are next to each other."""
        return [each.least(self.folded) for each in self.inner]

    @property
    def least(self) -> int:
        return sum(width + GAP for width in self.widths) - GAP + self.indent

    def lines(self, width: int) -> Iterator[Text]:
        """Yield the header in bold, if there is one, and the rows."""
        widths = self._share(width)
        if any(self.header):
            header = [Text(column.name.plain, "bold") for column in self.columns]
            if self.stacked is not None:
                yield header[self.stacked]
            yield from self._row(header, widths, is_header=True)
        heading: Text | None = None
        for row in zip(*(column.cells for column in self.columns), strict=True):
            # rows with the same text on its own line have it once, as their heading
            if self.stacked is not None and row[self.stacked] != heading:
                heading = row[self.stacked]
                yield from fold(heading, width)
            yield from self._row(row, widths)

    def _share(self, width: int) -> list[int]:
        """Return the widths of the columns: what is left goes to those that fold texts."""
        widths = self.widths
        left = width - self.least
        while wider := [n for n, each in enumerate(self.inner) if each.natural > widths[n]]:
            if left <= 0:
                break
            share = max(1, left // len(wider))
            for number in wider:
                more = min(share, left, self.inner[number].natural - widths[number])
                widths[number] += more
                left -= more
        return widths

    def _row(
        self, row: Sequence[Text], widths: Sequence[int], *, is_header: bool = False
    ) -> Iterator[Text]:
        texts = [cell for number, cell in enumerate(row) if number != self.stacked]
        cells = [fold(cell, width) for cell, width in zip(texts, widths, strict=True)]
        height = max(map(len, cells), default=0)
        for number in range(height):
            line = Text(" " * self.indent)
            for column, width, folded in zip(self.inner, widths, cells, strict=True):
                # the last lines of a header are above the figures
                at = number - (height - len(folded)) * is_header
                text = folded[at] if 0 <= at < len(folded) else Text()
                space = " " * (width - cell_len(text.plain))
                line.append(space if column.is_figures else "")
                line.append_text(text)
                line.append(" " * GAP if column.is_figures else f"{space}{' ' * GAP}")
            line.rstrip()
            yield line


def lay_out(
    header: Sequence[str],
    rows: Sequence[Cells],
    width: int,
    *,
    optional: int = 0,
    stack: int | None = None,
    narrows: bool = True,
) -> Layout:
    """Return the layout of a table.

    First the last `optional` columns are omitted, then texts are folded more, then a column is stacked, then more
    columns are omitted. Each with brief cells, if the complete ones do not fit, and tables with a stacked column then
    with the briefest ones. stack: the column for its own line (default: the first one, or that with the
    longest word, without columns of figures). Without `narrows` all columns stay side by side, and the table can be
    wider.
    """
    count = max(len(header), *map(len, rows), 0)
    tables = [_list_columns(header, rows, count)]
    brief, briefest = (
        (_shorten(header, size), [_shorten(row, size) for row in rows])
        for size in ("brief", "briefest")
    )
    # measuring all words of a long table takes time
    if brief != (list(header), list(map(list, rows))):
        tables.append(_list_columns(*brief, count))
    stacked_tables = [*tables, *([_list_columns(*briefest, count)] if briefest != brief else [])]
    layouts = [Layout(columns) for columns in tables]
    if narrows:
        least = max(0, count - optional)
        layouts = [Layout(each[:last]) for last in range(count, least - 1, -1) for each in tables]
        if stack is None:
            layouts.append(Layout(tables[-1][:least], NARROW))
        layouts += [
            Layout(each[:last], NARROW, stacked)
            for last in range(count, 1, -1)
            for each in stacked_tables
            for stacked in _list_stacked(each[:last], stack)
        ]
    return next((layout for layout in layouts if layout.least <= width), layouts[-1])


def _shorten(cells: Cells, size: str) -> list[Any]:
    """Return the "brief" or "briefest" texts of cells, and others as they are."""
    return [getattr(cell, size, cell) for cell in cells]


def _list_stacked(columns: Sequence[_Column], wanted: int | None) -> list[int | None]:
    """Return the columns that can have their own line, the best first. A table of figures has none."""
    if wanted is not None and wanted < len(columns):
        return [wanted]
    sizes = {
        number: (each.longest_piece, each.natural)
        for number, each in enumerate(columns)
        if not each.is_figures
    }
    return [min(sizes), max(sizes, key=lambda number: sizes[number])] if sizes else [None]


def _list_columns(header: Sequence[str], rows: Sequence[Cells], count: int) -> list[_Column]:
    names = [style_text(name) for name in header] or [Text()] * count
    cells = [[_format_cell(cell) for cell in row] for row in rows]
    return [_Column(name, [row[number] for row in cells]) for number, name in enumerate(names)]


def _width(text: Text) -> int:
    return max(map(cell_len, text.plain.split("\n")))


def fold(text: Text, width: int) -> list[Text]:
    """Break the lines of a text before a word or figure that does not fit."""
    folded = list[Text]()
    for line in text.split("\n", allow_blank=True):
        breaks = [match.span() for match in _BREAK.finditer(line.plain)]
        start = 0
        for (end, following), (stop, _) in pairwise([*breaks, (len(line), len(line))]):
            # a break before the first word is an indent
            if end > start and cell_len(line.plain[start:stop]) > width:
                folded.append(line[start:end])
                start = following
        folded.append(line[start:])
    return folded


def style_text(text: str, style: str = "") -> Text:
    """Return a text with a style, for a cell of a table."""
    return Text(escape_control(text).expandtabs(), style=style)


def _format_cell(cell: Cell) -> Text:
    """Write counts with commas, and scores with one decimal."""
    match cell:
        case Text():
            return cell
        case int():
            return Text(f"{cell:,}")
        case float():
            return Text(score_text(cell))
        case _:
            return style_text(cell or "")
