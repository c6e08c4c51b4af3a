"""A run's score card and tables of sections as HTML fragments, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from kgqa.artifacts.run import FinishedRun
from kgqa.report.content import Section
from kgqa.report.summary import summary_rows


def card(run: FinishedRun) -> str:
    """Return what the terminal shows when a run ends: scores in percent with 95 % intervals, and what they cost."""
    alarms = [run.simulation_note] if run.simulation_note else []
    alarms += [run.metrics.retrieval.alarm] if run.metrics.retrieval and run.metrics.retrieval.alarm else []
    alarms += run.metrics.judge.warnings if run.metrics.judge else ()
    where = f"<p><code>{escape(str(run.folder / 'report.html'))}</code></p>"
    return f"<h4>{escape(run.title)}</h4>{_alarms(alarms)}{_table((), summary_rows(run.metrics))}{where}"


def cards(heading: str, sections: Iterable[Section]) -> str:
    """Return sections one after the other, below lines that say what they are about."""
    shown = [f"<p>{'<br>'.join(map(escape, heading.splitlines()))}</p>"]
    for section in sections:
        text = "".join(f"<p>{escape(line)}</p>" for line in section.text)
        alarm = _alarms([section.alarm] if section.alarm else [])
        table = _table(section.header, section.rows) if section.rows else ""
        shown.append(f"<h4>{escape(section.title)}</h4>{alarm}{table}{text}")
    return "".join(shown)


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = f"<thead>{_row('th', header)}</thead>" if header else ""
    return f"<table>{head}<tbody>{''.join(_row('td', row) for row in rows)}</tbody></table>"


def _row(tag: str, cells: Iterable[object]) -> str:
    shown = (f'<{tag} style="text-align: left">{escape(str(cell))}</{tag}>' for cell in cells)
    return f"<tr>{''.join(shown)}</tr>"


def _alarms(lines: Iterable[str]) -> str:
    return "".join(f'<p style="color: #b00020">{escape(line)}</p>' for line in lines)
