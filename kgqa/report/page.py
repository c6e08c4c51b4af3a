"""A page of a template, with its styles and script inside it: one HTML file that needs no network."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

# what shows a question, in the order they need each other; and with it the list of them
QUESTION_SCRIPTS = ("tables.js", "unpacking.js", "graph.js", "question.js", "prompt.js", "comparison.js", "download.js")
EXPLORER = (*QUESTION_SCRIPTS, "report.js")


def page(template: str, styles: Sequence[str], scripts: Sequence[str] = (), **values: object) -> str:
    """Return the same as `page_parts`, as one text."""
    return "".join(page_parts(template, styles, scripts, **values))


def page_parts(template: str, styles: Sequence[str], scripts: Sequence[str] = (), **values: object) -> Iterator[str]:
    """Render a template of assets/ with some of its files, part by part: no page is in memory as a whole.

    It sees `style` and `script`, and `style_hash` and `script_hash` for a content security policy: nothing else runs,
    whatever a passage holds. The filter `marked` sets Markdown's code and bold; every other text is escaped.
    """
    from markupsafe import Markup

    style, script = _join(styles), _join(scripts)
    yield from (
        _environment()
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
def _environment() -> Environment:
    """Return templates are compiled once a process; a report renders its page twice."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("kgqa.report", "assets"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    environment.filters["mark_text"] = mark_text
    return environment


def mark_text(text: str) -> str:
    """Return a text as HTML: names in backticks as code, text between double asterisks as bold, everything else
    escaped.
    """
    from markupsafe import Markup, escape

    coded = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Markup(re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", coded))  # noqa: S704 - escaped above


def _join(names: Sequence[str]) -> str:
    return "".join((files("kgqa.report") / "assets" / name).read_text(encoding="utf-8") for name in names)


def _source_hash(source: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}"
