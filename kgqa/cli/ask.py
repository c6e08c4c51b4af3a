"""`kgqa ask`: answer a question from the user's own documents."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

from kgqa.cli.parsing import Parser
from kgqa.errors import ConfigError
from kgqa.util.terminal_text import escape_control, escape_json

NAME = "ask"
SUMMARY = "put a question to your own documents"
MAX_FILES = 1_000_000
NOTES = """Files are text, Markdown, HTML, DOCX and PDF (pip install 'kgqa[pdf]'). A folder is read with all folders in
it. The largest model whose weights are on this machine answers, unless you set model=. The default method=trace builds
chains of sentences from the best passages, with the values of experiment=ask. Set method.units=triples for chains of
extracted triples, and experiment=null for the values of the paper. Use method=kgp for the structure of PDFs, e.g. "what
does table 2 say". The answer, its page, indexes, triples and replies are saved in outputs/. Exit codes as of kgqa
run."""


def arguments(parser: Parser) -> None:
    parser.takes_places("QUESTION", "in quotes", least=0)
    parser.takes_places("FILE", "your documents: files and folders", least=0, most=MAX_FILES)
    parser.takes_keys("as for kgqa run, e.g. model=qwen2_5_coder_1_5b method=kgp")
    parser.add_argument("--json", action="store_true", help="print the answer as a JSON object, progress on stderr")
    parser.add_argument(
        "--passages", metavar="N", type=int,
        help="how many of the best passages a method gets that does not search by itself (default: 8)",
    )  # fmt: skip
    parser.notes = NOTES
    parser.examples = (
        'kgqa ask "Where was the builder of the mill born?" notes/',
        'kgqa ask "What does table 2 say?" report.pdf method=kgp model=qwen2_5_coder_1_5b',
    )


def run(given: Namespace) -> int:
    from kgqa import api
    from kgqa.cli.terminal.ask import show_answer
    from kgqa.cli.terminal.console import Terminal
    from kgqa.experiment.run.ask import PASSAGES
    from kgqa.runtime.display import Display, PlainLines

    question, sources = _split(given)
    passages = PASSAGES if given.passages is None else given.passages
    if passages < 1:
        raise ConfigError(f"--passages {passages}: must be at least 1")
    display: Display = PlainLines(sys.stderr) if given.json else Terminal()
    answer = api.ask_documents(question, sources, *given.overrides, passages=passages, display=display)
    show_answer(answer, display)
    print(escape_json(json.dumps(answer.json(), ensure_ascii=False)) if given.json else escape_control(answer.page))
    return 0 if answer.error is None else 2


def _split(given: Namespace) -> tuple[str, list[str]]:
    """Return the question and the documents."""
    question = " ".join(given.places[:1]).strip()
    if not question:
        raise given.parser.missing("QUESTION")
    if Path(question).exists():
        raise ConfigError(f"{question}: is a file or folder; put the question before your documents")
    if len(given.places) < 2:
        raise given.parser.missing("FILE")
    return question, given.places[1:]
