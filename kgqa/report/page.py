"""HTML pages from templates, with their styles and scripts inside: one file that needs no network."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgqa.report.plots import NARROW, WIDTH, BarPlot, Plot, lay_out_bars, lay_out_points
from kgqa.report.section import Section, markdown

if TYPE_CHECKING:
    from jinja2 import Environment

# the scripts that show a question, in the order of their dependencies
QUESTION_SCRIPTS = (
    "tables.js",
    "unpacking.js",
    "graph.js",
    "question.js",
    "prompt.js",
    "download.js",
)
SECTION_SCRIPTS = ("tables.js",)
EXPLORER = (*QUESTION_SCRIPTS, "report.js")
# characters at the start of a page that contain its own policy
_HEAD = 4096


def sections_page(
    title: str, subtitle: str, sections: Sequence[Section], notices: Sequence[str] = ()
) -> str:
    """Return a page with sections."""
    return "".join(
        page_parts(
            "sections.html.j2",
            SECTION_SCRIPTS,
            title=title,
            subtitle=subtitle,
            sections=sections,
            notices=notices,
        )
    )


@dataclass(frozen=True, repr=False)
class Tables:
    """A heading and its tables, for Python. They are displayed as Markdown, in a notebook as HTML."""

    heading: str
    sections: list[Section]

    def __repr__(self) -> str:
        return markdown(self.heading, self.sections)

    def _repr_html_(self) -> str:
        return notebook_html(self.heading, self.sections)


def notebook_html(heading: str, sections: Sequence[Section]) -> str:
    """Return sections for notebooks, below a heading of one or several lines."""
    template = template_environment("kgqa.report").get_template("fragment.html.j2")
    return template.render(heading=heading.splitlines(), sections=sections)


def svg(plot: Plot | BarPlot, width: int = WIDTH) -> str:
    """Return an <svg> element. Series without points are only in the legend, which a single series lacks."""
    drawing: Any = template_environment("kgqa.report").get_template("plots.svg.j2").module
    kind = "broad" if width == WIDTH else "narrow"
    if isinstance(plot, BarPlot):
        return str(drawing.bars(kind=kind, **lay_out_bars(plot, width)))
    return str(drawing.points(kind=kind, **lay_out_points(plot, width)))


def svg_of_each_width(plot: Plot | BarPlot) -> str:
    """Return the <svg> elements of a plot: for wide pages, and for phones, where the wide one has too small letters."""
    return svg(plot) + svg(plot, NARROW)


def page_parts(template: str, scripts: Sequence[str], **values: object) -> Iterator[str]:
    """Render a template of assets/ part by part, so that a large page is never in memory.

    The template gets `style`, `script` and their hashes for a content security policy: scripts in passages do not run.
    """
    from markupsafe import Markup

    style, script = _asset("report.css"), "".join(map(_asset, (*scripts, "theme.js")))
    yield from (
        template_environment("kgqa.report")
        .get_template(template)
        .generate(
            **values,
            style=Markup(style),  # noqa: S704 - ours
            script=Markup(script),  # noqa: S704 - ours
            style_hash=_source_hash(style),
            script_hash=_source_hash(script),
        )
    )


@cache
def page_policy() -> str:
    """Return the content security policy of a page that someone else may have written: only these scripts run."""
    scripts = [
        "".join(map(_asset, (*names, "theme.js")))
        for names in (EXPLORER, QUESTION_SCRIPTS, SECTION_SCRIPTS)
    ]
    hashes = " ".join(f"'{_source_hash(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src '{_source_hash(_asset('report.css'))}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def is_current(page: Path, scripts: Sequence[str] = EXPLORER) -> bool:
    """Return whether a report has the styles and scripts of this version of kgqa, which `page_policy` allows."""
    with page.open(encoding="utf-8", errors="replace") as text:
        start = text.read(_HEAD)
    sources = (_asset("report.css"), "".join(map(_asset, (*scripts, "theme.js"))))
    return all(_source_hash(source) in start for source in sources)


@cache
def template_environment(package: str) -> Environment:
    """Return the templates in assets/ of a package, which can use those of the report. Texts are escaped."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    packages = dict.fromkeys((package, "kgqa.report"))
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(each, "assets") for each in packages]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    environment.filters.update(mark_text=mark_text, svg=svg_of_each_width)
    return environment


def mark_text(text: str) -> str:
    """Return a text as HTML with code in backticks and bold between double asterisks. The rest is escaped."""
    from markupsafe import Markup, escape

    coded = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Markup(re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", coded))  # noqa: S704 - escaped above


def _asset(name: str) -> str:
    return (files("kgqa.report") / "assets" / name).read_text(encoding="utf-8")


def _source_hash(source: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}"
