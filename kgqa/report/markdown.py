"""A run's report as Markdown: scores, cost, breakdowns, and every setting with the source of its value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kgqa.artifacts.run import FinishedRun
from kgqa.report.content import Section, sections
from kgqa.report.notices import notices


def markdown(run: FinishedRun) -> str:
    return document(run.title, sections(run), notices(run))


def document(title: str, content: Sequence[Section], told_first: Sequence[str] = ()) -> str:
    """Return the first section stands under the title, and before it what is to be known before any figure."""
    first, *others = content
    parts = [f"# {title}\n", *(f"> {text}\n" for text in told_first), *_body(first)]
    for section in others:
        parts += [f"## {section.title}\n", *_body(section)]
    return "\n".join(parts)


def _body(section: Section) -> list[str]:
    header = section.header or ("",) * len(section.rows[0])
    alarm = [f"**Alarm**: {section.alarm}\n"] if section.alarm else []
    return [*(f"{text}\n" for text in section.text), *alarm, table(header, section.rows)]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return cells may hold Markdown; each stays on its line."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |\n" for row in lines
    )
