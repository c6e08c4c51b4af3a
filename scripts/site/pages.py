"""Pages of the documentation that say what the code and conf/ say: made when the site is built, so they cannot differ.

mkdocs calls `on_files` and `on_page_markdown` (its hooks); everything else is plain functions from kgqa to Markdown.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kgqa
from kgqa.commands import tree
from kgqa.commands.parsing import Parser
from kgqa.experiment.config.files import groups, load_yaml, node
from kgqa.experiment.config.listing import about, keys
from kgqa.experiment.reproduce.published import PublishedTable
from kgqa.experiment.reproduce.reading import load_table, table_ids
from kgqa.places import shipped_conf

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+([^)#]*)[^)]*\)")  # a link to what is no page of the site
# by group: its heading, what the last column says, and the command
ZOO = {
    "method": ("Methods", "asks", "method=NAME dataset=musique"),
    "dataset": ("Data sets", "licence", "method=retrieve_read dataset=NAME"),
    "retriever": ("Retrievers", "made by", "method=retrieve_only dataset=musique retriever=NAME"),
    "model": ("Models", "licence, size", "method=trace dataset=musique model=NAME"),
}
METHODS = "the methods with a 1.5B model, five real questions a data set, all at one server"
NEIGHBOURS = "KnowTrace and its neighbours with a 1.5B model, five real questions a data set"
RECALL = "recall of the retrievers that have weights here"
DEMO = "a demo whose chains lead somewhere"
# what was measured, and its entry in docs/LOG.md; scores of methods and retrievers are read there
MEASURED = {
    ("dataset", "demo"): ("three questions, TRACE: EM 66.7, F1 76.2", DEMO),
    ("dataset", "hotpotqa"): (
        "20 questions, `retrieve_read`: EM 50.0, F1 56.0",
        "`retrieve_read` on 20 and TRACE on 5 real HotpotQA questions with a 1.5B model",
    ),
    ("dataset", "2wiki"): ("five questions, `retrieve_read`: EM 20, F1 20", METHODS),
    ("dataset", "musique"): ("five questions, `retrieve_read`: EM 0, F1 0", METHODS),
    ("model", "qwen2_5_coder_1_5b"): ("`dataset=demo`, golden passages: EM 63.9; no context: 11.1", DEMO),
    ("model", "smollm2_135m"): ("`kgqa demo`: EM 0", DEMO),
}
SCORES = {  # what the column of a group says
    "method": "Scores: EM / F1 of five questions a data set with a 1.5B model; so few order nothing.",
    "retriever": "Scores: percent of gold paragraphs among the first 15, of 100 to 200 questions over small corpora.",
}
CAN = {
    "run": "with the models and data named",
    "needs training": "once its artefact is trained",
    "model retired": "with a model in place of the retired one",
    "human": "no: people's judgements",
    "quoted": "no: another paper's figures",
    "not built": "not yet",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    files.append(File.generated(config, "wide.css", content=".md-grid { max-width: 84rem; }\n"))
    for name, page in PAGES.items():
        files.append(File.generated(config, name, content=page()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs'
    return OUTSIDE.sub(lambda link: f"{link[1]} (`{link[2]}`)", markdown)


def index() -> str:
    """README, its links as seen from docs/."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"\]\(docs/([^)]*)\)", r"](\1)", text)
    return re.sub(r"\]\((?!https?:|#|[\w.-]+\.(?:md|png|webp|gif|svg)\b)([^)]*)\)", r"](../\1)", _root_files(text))


def _root_files(text: str) -> str:
    here = "|".join(re.escape(file.name) for file in ROOT.glob("*.md"))
    return re.sub(rf"\]\(({here})\)", r"](../\1)", text)


def commands() -> str:
    return "# Commands\n\n" + "\n".join(_helps(tree(), ())) + "\n"


def _helps(parser: Parser, words: Sequence[str]) -> Iterator[str]:
    name = " ".join(["kgqa", *words])
    yield f"{'#' * min(len(words) + 2, 4)} {name}\n\n```text\n{parser.help_text(()).rstrip()}\n```\n"
    for word, below in parser.commands.items():
        yield from _helps(below, [*words, word])


def configuration() -> str:
    """Every choice of every group with its keys, their defaults and where each is from."""
    parts = ["# Keys", "What `kgqa run` takes. Defaults and sources stand in `conf/`, one file a choice."]
    for group, names in groups().items():
        parts.append(f"## {group}=")
        for name in names:
            listed = keys(group, name)
            parts.append(f"### {group}={name}\n\n{_cell(about(group, name))}")
            parts.append(_table(("key", "default", "source"), [_key_row(group, key) for key in listed]))
    return "\n\n".join(part for part in parts if part) + "\n"


def _key_row(group: str, key: Any) -> tuple[str, ...]:
    return f"`{group}.{key.name}`", f"`{key.default}`" if key.default else "", key.source


def zoo() -> str:
    """One row for each method, data set, retriever, model."""
    sources = load_yaml(shipped_conf() / "downloads.yaml")
    parts = [
        "# Zoo",
        "What can be chosen, and the command that runs it. Our scores: the [log](LOG.md)'s, all of small trials.",
    ]
    for group, (head, third, command) in ZOO.items():
        rows = [
            (f"`{name}`", about(group, name), _third(group, name, sources), score(group, name))
            for name in groups()[group]
        ]
        parts += [f"## {head}", f"`kgqa run {command}`", SCORES.get(group, "")]
        parts.append(_table((f"{group}=", "what it is", third, "our score"), rows))
    return "\n\n".join(part for part in parts if part) + "\n"


def score(group: str, name: str) -> str:
    """What docs/LOG.md says, with a link to its entry."""
    text, entry = MEASURED.get((group, name), ("", ""))
    for each in {"method": (METHODS, NEIGHBOURS), "retriever": (RECALL,)}.get(group, ()):
        if not text:
            text, entry = _logged(each, name, group), each
    if not text:
        return "not measured"
    heading, _ = log_entry(entry)
    slug = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())
    return f"{text} ([log](LOG.md#{slug}))"


def log_entry(words: str) -> tuple[str, str]:
    """Heading and text of the entry with these words in its heading."""
    entries = (ROOT / "docs" / "LOG.md").read_text(encoding="utf-8").split("\n## ")[1:]
    (entry,) = (entry for entry in entries if entry.partition("\n")[0].endswith(f": {words}"))
    heading, _, text = entry.partition("\n")
    return heading, text


def _logged(words: str, name: str, group: str) -> str:
    """The row of that name in an entry's table: of a method EM / F1, of a retriever its recall at 15, by data set."""
    table = [line.strip("|").split("|") for line in log_entry(words)[1].splitlines() if line.startswith("|")]
    row = next((cells for cells in table if cells[0].strip().startswith(f"`{name}`")), [])
    said = []
    for head, cell in zip(table[0][1:], row[1:], strict=False):
        figures = re.match(r"[\d.]+(?: / [\d.]+)+", cell.strip())
        shown = figures[0] if figures and group == "method" else figures[0].rpartition(" / ")[2] if figures else ""
        said.append(f"{head.split()[0].strip(',')} {shown}" if shown else "")
    return ", ".join(filter(None, said))


def _third(group: str, name: str, sources: Mapping[str, Any]) -> str:
    said = node(group, name)
    if group == "dataset":
        return str(sources.get(name, {}).get("licence", "your own"))
    if group == "model":
        card = said.get("about") or {}
        size = f", {card['parameters']:g} billion" if card.get("parameters") else ""
        return f"{card.get('licence', '')}{size}"
    if group == "method":
        return ", ".join(sorted(_uses(str(said["_target_"]))))
    return f"`{said['_target_']}`"


def _uses(target: str) -> frozenset[str]:
    module, _, name = target.rpartition(".")
    made = getattr(__import__(module, fromlist=[name]), name)
    uses: Any = getattr(made, "uses", frozenset())
    return frozenset() if callable(uses) or isinstance(uses, property) else frozenset(uses)


def matrix() -> str:
    """Every published table and figure, its cells by what they need."""
    rows = [_matrix_row(load_table(table_id)) for table_id in table_ids()]
    head = ("id", "what it shows", "where", "published values", "cells, and whether they run")
    parts = [
        "# Tables and figures of the papers",
        "`kgqa reproduce ID` puts ours beside them; `--list` says what runs here, `ID --plan` what it takes.",
        _table(head, rows),
        "Words of the last column:",
        _table(("cells", "run"), list(CAN.items())),
    ]
    return "\n\n".join(parts) + "\n"


def _matrix_row(table: PublishedTable) -> tuple[str, ...]:
    values = sum(value is not None for cell in table.cells for value in cell.values)
    kinds = Counter(cell.availability for cell in table.cells if not cell.mean_of)
    said = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return f"`{table.id}`", table.title, table.place, f"{values:,}", said


def python() -> str:
    """What `import kgqa` gives."""
    parts = ["# Python", str(inspect.getdoc(kgqa) or "")]
    for name in sorted(vars(kgqa)["__all__"]):
        thing = getattr(kgqa, name)
        parts += [f"## kgqa.{name}", f"```python\n{_signature(name, thing)}\n```", _docstring(thing)]
        if inspect.isclass(thing):
            for member, value in inspect.getmembers(
                thing, lambda it: isinstance(it, property) or inspect.isfunction(it)
            ):
                if not member.startswith("_") and inspect.getdoc(value):
                    parts += [f"### {name}.{member}", _docstring(value)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _signature(name: str, thing: Any) -> str:
    return f"{'class ' if inspect.isclass(thing) else ''}kgqa.{name}{inspect.signature(thing)}"


def _docstring(thing: object) -> str:
    """As Markdown: its headings `Raises:` in bold, its indented lines as items."""
    lines = []
    for line in str(inspect.getdoc(thing) or "").splitlines():
        if re.fullmatch(r"[A-Z]\w+:", line):
            lines.append(f"**{line}**\n")
        else:
            lines.append(re.sub(r"^    (\w+):", r"- `\1`:", line))
    return "\n".join(lines)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [" | ".join(head), " | ".join("---" for _ in head), *(" | ".join(map(_cell, row)) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines)


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;")


PAGES: dict[str, Callable[[], str]] = {
    "index.md": index,
    "zoo.md": zoo,
    "matrix.md": matrix,
    "reference/commands.md": commands,
    "reference/keys.md": configuration,
    "reference/python.md": python,
}
