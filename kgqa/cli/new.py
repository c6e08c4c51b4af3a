"""`kgqa new`: the first files of a method, dataset or retriever of one's own."""

from __future__ import annotations

from argparse import Namespace

from kgqa.cli.parsing import Parser
from kgqa.util.terminal_text import escape_control

NAME = "new"
SUMMARY = "start a method, dataset or retriever of your own, with its test"
STARTS = {
    "method": "a module, its prompts, its configuration, and a test with scripted replies",
    "dataset": "a reader of a JSONL file, two questions to begin with, its configuration, and a test",
    "retriever": "a module, its configuration, and a test",
}
TRY = {
    "method": "kgqa run method={name} dataset=demo engine=scripted limit=3",
    "dataset": "kgqa run dataset={name} method=all_documents engine=scripted",
    "retriever": "kgqa run retriever={name} method=retrieve_only dataset=demo",
}


def arguments(parser: Parser) -> None:
    for group, written in STARTS.items():
        own = parser.command(group, written)
        own.takes_places("NAME", f"of the {group} and its module, e.g. my_{group}; docs/OWN_CODE.md")
        own.examples = (f"kgqa new {group} my_{group}",)
    parser.examples = ("kgqa new method my_method",)


def run(given: Namespace) -> int:
    from kgqa.config.scaffold import write_scaffold

    group, name = given.action, given.places[0]
    written = write_scaffold(group, name)
    for file in written:
        print(escape_control(str(file)))
    test = next(file for file in written if file.name.startswith("test_"))
    after = f"\nIt runs as it is; change it to yours:\n  {TRY[group].format(name=name)}\n  python -m pytest {test}"
    print(escape_control(after))
    return 0
