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
from kgqa.inert import inert, inert_json

if TYPE_CHECKING:
    from kgqa.experiment.run.own_documents import Asker, Told
    from kgqa.runtime.display import Display

NAME = "ask"
SUMMARY = "put a question to your own documents"
FILES = 1_000_000  # as many as a shell gives
PASSAGES = 8
NOTES = """Files are text, Markdown, HTML, DOCX and PDF (pip install 'kgqa[pdf]'); of a folder all below it. Each
question stands alone: in a chat, name again what you mean. The largest model whose weights are here answers, unless
model= names another. method=trace, the default, builds chains of sentences from the best passages, with the values of
experiment=ask; method.units=triples builds them of extracted triples, experiment=null takes the paper's values. Ask
method=kgp about the structure of PDFs, e.g. "what does table 2 say". What was read, extracted and asked is remembered
in outputs/. Exit codes as of kgqa run."""


def arguments(parser: Parser) -> None:
    parser.takes_places("QUESTION", "in quotes; with --chat there is none", least=0)
    parser.takes_places("FILE", "your documents: files and folders", least=0, most=FILES)
    parser.takes_keys("as for kgqa run, e.g. model=qwen2_5_coder_1_5b method=kgp")
    parser.add_argument("--chat", action="store_true", help="one question a line, until :quit or Ctrl-D; models stay")
    parser.add_argument("--json", action="store_true", help="a JSON object a question; progress goes to stderr")
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
    from kgqa.runtime.display import PlainLines, log_lines
    from kgqa.terminal.asked import questions_asked
    from kgqa.terminal.console import Terminal

    question, places = _parted(given)
    if given.passages < 1:
        raise ConfigError(f"--passages {given.passages}: must be at least 1")
    if given.chat and any(override.startswith("out=") for override in given.overrides):
        raise ConfigError("out=: names one question's page; leave it out with --chat")
    display: Display = PlainLines(sys.stderr) if given.json else Terminal()
    with log_lines(display), closing(Asker.of(places, given.overrides, given.passages, display)) as asker:
        if question:
            answered = _answered(asker, question, in_json=given.json)
        else:
            ended = [_answered_in_chat(asker, asked, in_json=given.json) for asked in questions_asked()]
            answered = all(ended)
        asker.tell_left_out()
    return 0 if answered else 2


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


def _answered_in_chat(asker: Asker, question: str, *, in_json: bool) -> bool:
    """The same, where neither Ctrl-C nor a question that fails ends more than itself."""
    try:
        return _answered(asker, question, in_json=in_json)
    except KeyboardInterrupt:
        asker.display.line("stopped; what was extracted and answered so far is kept")
    except EngineDied:
        raise
    except (EngineError, UsageError) as error:
        asker.display.line(f"failed: {error}", alarm=True)
    return False


def _answered(asker: Asker, question: str, *, in_json: bool) -> bool:
    """Ask, and show what came; whether there is an answer."""
    from kgqa.terminal.asked import Way, show_answer

    told = asker.ask(question, Way(asker.display))
    show_answer(told, asker.display)
    if in_json:
        print(inert_json(json.dumps(_json(asker, told), ensure_ascii=False)), flush=True)
    else:
        print(inert(str(told.page)), flush=True)
    return told.asked.traced.prediction.error is None


def _json(asker: Asker, told: Told) -> dict[str, object]:
    asked, documents = told.asked, asker.documents
    prediction = asked.traced.prediction
    return {
        "question": asked.traced.question.text,
        "answer": prediction.answer,
        "error": prediction.error,
        "said_by_a_sentence": asked.says_so,
        "steps": [step.json() for step in asked.steps],
        "passages": [
            {"title": passage.title, "where": str(documents.where(passage)), "text": passage.text}
            for passage in told.passages
        ],
        **dict(asked.about[:3]),
        "left_out": {str(file): reason for file, reason in documents.unreadable.items()},
        "seconds": round(told.seconds, 1),
        "page": str(told.page),
    }
