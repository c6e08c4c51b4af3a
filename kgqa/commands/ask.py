"""`kgqa ask`: a question put to somebody's own documents."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from kgqa.commands.parsing import Parser
from kgqa.errors import ConfigError, EngineDied, EngineError, UsageError
from kgqa.inert import inert, inert_json, one_line
from kgqa.redaction import without_secrets

if TYPE_CHECKING:
    from kgqa.experiment.run.events import Tell
    from kgqa.experiment.run.own_documents import Asker
    from kgqa.runtime.display import Display

NAME = "ask"
SUMMARY = "put a question to your own documents"
FILES = 1_000_000  # as many as a shell gives
PASSAGES = 8
NOTES = """Files are text, Markdown, HTML, DOCX and PDF (pip install 'kgqa[pdf]'); of a folder all below it. Each
question stands alone: in a chat, name again what you mean. The largest model whose weights are here answers, unless
model= names another. method=trace, the default, builds chains of sentences from the best passages, with the values of
experiment=ask; method.units=triples builds them of extracted triples, experiment=null takes the paper's values. Ask
method=kgp about the structure of PDFs, e.g. "what does table 2 say". What was read, extracted and asked is kept in
outputs/. Exit codes as of kgqa run."""


def arguments(parser: Parser) -> None:
    parser.takes_places("QUESTION", "in quotes; with --chat there is none", least=0)
    parser.takes_places("FILE", "your documents: files and folders", least=0, most=FILES)
    parser.takes_keys("as for kgqa run, e.g. model=qwen2_5_coder_1_5b method=kgp")
    parser.add_argument("--chat", action="store_true", help="one question a line, until :quit or Ctrl-D; models stay")
    parser.add_argument("--json", action="store_true", help="a JSON object a question; progress goes to stderr")
    parser.add_argument("--events", action="store_true", help="a JSON object for each step as it happens, for programs")
    parser.add_argument(
        "--passages", metavar="N", type=int, default=PASSAGES,
        help=f"the best so many are read by a method that does not search for itself ({PASSAGES})",
    )  # fmt: skip
    parser.notes = NOTES
    parser.examples = (
        'kgqa ask "Where was the builder of the mill born?" notes/',
        "kgqa ask --chat report.pdf minutes.docx model=qwen2_5_coder_1_5b",
    )


def run(given: Namespace) -> int:
    from kgqa.experiment.run.own_documents import Asker
    from kgqa.runtime.display import log_lines
    from kgqa.terminal.asked import questions_asked

    question, places = _parted(given)
    if given.passages < 1:
        raise ConfigError(f"--passages {given.passages}: must be at least 1")
    if given.chat and any(override.startswith("out=") for override in given.overrides):
        raise ConfigError("out=: names one question's page; leave it out with --chat")
    display, tell = _audience(given)
    with log_lines(display), closing(Asker.of(places, given.overrides, given.passages, display, tell)) as asker:
        if question:
            answered = asker.ask(question).error is None
        else:
            ended = [_answered_in_chat(asker, asked) for asked in questions_asked()]
            answered = all(ended)
        asker.tell_left_out()
    return 0 if answered else 2


def _audience(given: Namespace) -> tuple[Display, Tell]:
    """Who is told of the work, and who of each event."""
    from kgqa.experiment.run.event_display import EventDisplay
    from kgqa.experiment.run.events import Answered, Event, event_json
    from kgqa.runtime.display import PlainLines
    from kgqa.terminal.asked import show
    from kgqa.terminal.console import Terminal

    def printed(event: Event) -> None:
        print(inert_json(json.dumps(event_json(event), ensure_ascii=False)), flush=True)

    if given.events:
        return EventDisplay(printed), printed
    display: Display = PlainLines(sys.stderr) if given.json else Terminal()

    def told(event: Event) -> None:
        show(event, display)
        if isinstance(event, Answered):
            printed(event) if given.json else print(inert(event.page), flush=True)

    return display, told


def _parted(given: Namespace) -> tuple[str, list[Path]]:
    """The question, "" of a chat, and the places of the documents."""
    words, parser = given.places, given.parser
    question = "" if given.chat else " ".join(words[:1]).strip()
    places = [Path(word).expanduser() for word in (words if given.chat else words[1:])]
    if not given.chat and (not words or not question):
        raise parser.missing("QUESTION")
    if question and Path(question).exists():
        raise ConfigError(f"{question}: is a file or folder; the question comes first, or --chat asks for it")
    if not places:
        raise parser.missing("FILE")
    return question, places


def _answered_in_chat(asker: Asker, question: str) -> bool:
    """Whether there is an answer; neither Ctrl-C nor a question that fails ends more than itself."""
    from kgqa.experiment.run.events import Failed, Stopped

    try:
        return asker.ask(question).error is None
    except KeyboardInterrupt:
        asker.tell(Stopped())
    except EngineDied:
        raise
    except (EngineError, UsageError) as error:
        asker.tell(Failed(one_line(without_secrets(str(error)))))
    return False
