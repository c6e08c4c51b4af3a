"""Write the reference pages of the site from the code and conf/ when the site is built, so that they cannot differ.

mkdocs calls the hooks `on_files` and `on_page_markdown`. All other functions turn parts of kgqa into Markdown.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgqa.cli.commands import BY_NAME, PROGRAM, help_of
from kgqa.config import building
from kgqa.config.composing import compose
from kgqa.config.files import describe_choice, groups, load_yaml
from kgqa.config.keys import list_keys, load_node
from kgqa.config.run_keys import list_run_keys
from kgqa.report.flags import ANSWERS, EXTRACTIONS, REPLIES
from kgqa.reproduce.tables import PublishedTable, load_table, table_ids
from kgqa.util.places import package_conf

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
# a link to what is no page of the site
OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+([^)#]*)[^)]*\)")
NOTEBOOK = "docs/kgqa.ipynb"
WORKER = Path(__file__).with_name("iframe-worker.js")
# by group: heading, title of the last column, command
ZOO = {
    "method": ("Methods", "needs", "method=NAME dataset=musique"),
    "dataset": ("Datasets", "license", "method=retrieve_read dataset=NAME"),
    "retriever": ("Retrievers", "class", "method=retrieve_only dataset=musique retriever=NAME"),
    "model": ("Models", "license, size", "method=trace dataset=musique model=NAME"),
}
KEY_HEADER = ("key", "meaning", "default", "source")
KEY_GROUPS = tuple(dict.fromkeys(("method", "dataset", "model", "engine", *groups())))
CAN = {
    "run": "with the models and data named",
    "needs training": "after its model is trained",
    "model retired": "with another model instead of the retired one",
    "human": "no: human judgments",
    "quoted": "no: figures of another paper",
    "not built": "not yet",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages (a hook of mkdocs)."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "wide.css", content=".md-grid { max-width: 84rem; }\n"))
    files.append(File.generated(config, WORKER.name, content=WORKER.read_text(encoding="utf-8")))
    for name, page in PAGES.items():
        files.append(File.generated(config, name, content=page()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs'
    """Show links to files outside the site as plain text, and leave logs out of the search (a hook of mkdocs)."""
    if page.file.src_uri.startswith("dev/"):
        page.meta["search"] = {"exclude": True}
    markdown = markdown.replace("[kgqa.ipynb](kgqa.ipynb)", f"`{NOTEBOOK}`{_colab_badge()}")
    return OUTSIDE.sub(lambda link: f"{link[1]} (`{link[2]}`)", markdown)


def _colab_badge() -> str:
    """Return a link that opens the notebook in Colab, or "" unless GitHub builds the site for a repository."""
    repository = os.environ.get("GITHUB_REPOSITORY")
    if not repository:
        return ""
    image = "https://colab.research.google.com/assets/colab-badge.svg"
    return f", [![Open in Colab]({image})](https://colab.research.google.com/github/{repository}/blob/main/{NOTEBOOK})"


def index() -> str:
    """Return README with its links as seen from docs/."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"\]\(docs/([^)]*)\)", r"](\1)", text)
    return re.sub(
        r"\]\((?!https?:|#|[\w.-]+\.(?:md|png|webp|gif|svg)\b)([^)]*)\)",
        r"](../\1)",
        _root_files(text),
    )


def _root_files(text: str) -> str:
    here = "|".join(re.escape(file.name) for file in ROOT.glob("*.md"))
    return re.sub(rf"\]\(({here})\)", r"](../\1)", text)


def commands() -> str:
    """Return the help of every command."""
    parts = ["# Commands"]
    for command in (PROGRAM, *BY_NAME.values()):
        level = len(command.program.split()) + 1
        parts.append(
            f"{'#' * level} {command.program}\n\n```text\n{help_of(command).rstrip()}\n```"
        )
    return "\n\n".join(parts) + "\n"


def configuration() -> str:
    """Return the keys of every run, and links to the keys of each group."""
    names = {group: ", ".join(f"`{name}`" for name in groups()[group]) for group in KEY_GROUPS}
    links = "\n".join(
        f"- [`{group}=`](keys-{group}.md): {listed}" for group, listed in names.items()
    )
    parts = [
        "# Keys",
        "The keys of `kgqa run`. Their classes declare them. `conf/` has one file per choice with what differs.",
        "## Keys of every run",
        _table(KEY_HEADER, [_key_row("", key) for key in list_run_keys()]),
        "## Keys of one choice",
        links,
    ]
    return "\n\n".join(parts) + "\n"


def group_keys(group: str) -> str:
    """Return every choice of a group with its keys, their defaults and sources."""
    parts = [f"# Keys of {group}="]
    for name in groups()[group]:
        parts.append(f"## {group}={name}\n\n{_cell(describe_choice(group, name))}")
        parts.append(
            _table(KEY_HEADER, [_key_row(f"{group}.", key) for key in list_keys(group, name)])
        )
    return "\n\n".join(part for part in parts if part) + "\n"


def _key_row(group: str, key: Any) -> tuple[str, ...]:
    return (
        f"`{group}{key.name}`",
        key.meaning,
        f"`{key.default}`" if key.default else "",
        key.source.text,
    )


def zoo() -> str:
    """Return one table per group: every method, dataset, retriever and model."""
    sources = load_yaml(package_conf() / "downloads.yaml")
    parts = ["# Catalog", "Everything you can choose, and the command that runs it."]
    for group, (heading, title, command) in ZOO.items():
        rows = [
            (f"`{name}`", describe_choice(group, name), _last_column(group, name, sources))
            for name in groups()[group]
        ]
        parts += [
            f"## {heading}",
            f"`kgqa run {command}`",
            _table((f"{group}=", "description", title), rows),
        ]
    return "\n\n".join(parts) + "\n"


def _last_column(group: str, name: str, sources: Mapping[str, Any]) -> str:
    config = load_node(group, name)
    if group == "dataset":
        return str(sources.get(name, {}).get("license", "your own"))
    if group == "model":
        card = config.get("about") or {}
        size = f", {card['parameters']:g} billion" if card.get("parameters") else ""
        return f"{card.get('licence', '')}{size}"
    if group == "method":
        return ", ".join(sorted(building.method(compose([f"method={name}"])["method"]).uses))
    return f"`{config['_target_']}`"


def matrix() -> str:
    """Return every published table and figure, with its cells by what they need."""
    rows = [_matrix_row(load_table(table_id)) for table_id in table_ids()]
    head = ("id", "what it shows", "where", "published values", "cells, and whether they run")
    parts = [
        "# Tables and figures of the papers",
        "`kgqa reproduce ID` shows your value next to each published value, `kgqa reproduce ID --plan` the cost.",
        _table(head, rows),
        "Terms of the last column:",
        _table(("cells", "run"), list(CAN.items())),
    ]
    return "\n\n".join(parts) + "\n"


def _matrix_row(table: PublishedTable) -> tuple[str, ...]:
    values = sum(value is not None for cell in table.cells for value in cell.values)
    kinds = Counter(cell.availability for cell in table.cells if not cell.mean_of)
    shares = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return f"`{table.id}`", table.title, table.place, f"{values:,}", shares


def flags() -> str:
    """Return every flag with its meaning."""
    kinds = {
        "Of answers": ANSWERS,
        "Of replies of a model or server": REPLIES,
        "Of the extraction of triples": EXTRACTIONS,
    }
    parts = [
        "# Flags",
        "A flag counts anomalies. It changes no score. The section Flags of a report explains those of its run.",
    ]
    for title, meanings in kinds.items():
        rows = [(f"`{flag}`", meaning) for flag, meaning in sorted(meanings.items())]
        parts += [f"## {title}", _table(("flag", "meaning"), rows)]
    return "\n\n".join(parts) + "\n"


def python() -> str:
    """Return the Python API: what `import kgqa` exports, from its docstrings."""
    return "# Python\n\n::: kgqa.api\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [
        " | ".join(head),
        " | ".join("---" for _ in head),
        *(" | ".join(map(_cell, row)) for row in rows),
    ]
    return "\n".join(f"| {line} |" for line in lines)


def _cell(text: str) -> str:
    return (
        re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;").replace("][", "]&#91;")
    )


PAGES: dict[str, Callable[[], str]] = {
    "index.md": index,
    "zoo.md": zoo,
    "matrix.md": matrix,
    "reference/commands.md": commands,
    "reference/keys.md": configuration,
    **{f"reference/keys-{group}.md": partial(group_keys, group) for group in KEY_GROUPS},
    "reference/flags.md": flags,
    "reference/python.md": python,
}
