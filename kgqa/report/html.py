"""A run's report as one HTML file that needs no network: the tables, and every question with what led to its answer.

The questions lie in the file compressed, one by one, so that a browser unpacks only what is opened. What several
questions share, such as demonstrations, is kept once; the rest of a file's size is the questions' own text.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import asdict
from itertools import repeat
from math import isfinite

from kgqa.artefacts.predictions import question_ids
from kgqa.artefacts.run import FinishedRun
from kgqa.artefacts.trace import TracedCall
from kgqa.report.content import estimates, sections
from kgqa.report.page import page
from kgqa.report.questions import ReportedQuestion, reported_questions, same_questions
from kgqa.types import Json

_SHARABLE = 40  # characters; shorter texts are not worth a reference
_BEST = 10  # texts of a ranking
_PLAIN = {int, bool, type(None)}  # what json.loads gives that is small already
_DIGITS = 4  # of a number after its point, as the page shows them: log-probabilities have sixteen, all random
REFERENCE = "\x00"  # the key of an object that stands for a text: {"\0": [numbers of its paragraphs]}


def html(run: FinishedRun, against: FinishedRun | None = None) -> str:
    """`against`: another run on the same questions, whose answers stand beside; questions that flipped are a filter.

    Raises:
        DataError: the two are not on the same questions.
    """
    index, traces = packed_questions(run, against)
    return page(
        "report.html.j2",
        ["report.css"],
        ["tables.js", "report.js"],
        run=run,
        against=against,
        sections=sections(run),
        estimates=estimates(run),
        index=index,
        traces=traces,
    )


def packed_questions(run: FinishedRun, against: FinishedRun | None = None) -> tuple[str, str]:
    """The rows of all questions, in the data file's order; and a line each for the shared texts and every trace.

    A row's `other` is the answer of the run it stands against, with its error and scores.
    """
    others = same_questions(run, against) if against else {}
    packing, packed = Packing(), {}
    for reported in reported_questions(run):
        row, other = reported.row, others.get(reported.row.id)
        beside = other and {"answer": other.answer, "error": other.error, "em": other.em, "f1": other.f1}
        packed[row.id] = ({**asdict(row), "other": beside}, packing.pack(_trace(reported)))
    ordered = [packed[question_id] for question_id in question_ids(run.folder)]
    return _line([row for row, _ in ordered]), "\n".join([_line(packing.shared), *(trace for _, trace in ordered)])


def _trace(reported: ReportedQuestion) -> dict[str, Json]:
    """The trace's line with the judge's: what the page shows of a question."""
    judgement = reported.judgement
    judged = {**judgement.json(), "verdict": judgement.shown} if judgement else None
    calls = [abridged(call) for call in reported.traced.calls]
    return {**reported.traced.json(), "calls": calls, "judgement": judged}


def abridged(call: TracedCall) -> dict[str, Json]:
    """The call as the page shows it: of a ranking only the best texts, best first, and how many there were (`of`).

    A chain's every step ranks the whole graph again, which would be most of the file.
    """
    shown = call.json()
    if call.kind != "rank" or call.items is None:
        return shown
    best = sorted(zip(call.items, call.request["texts"], strict=True), key=lambda pair: -pair[0])[:_BEST]
    return {
        **shown,
        "of": len(call.request["texts"]),
        "texts": [text for _, text in best],
        "reply": [score for score, _ in best],
    }


class Packing:
    """Makes values small: long texts are cut into paragraphs, and a paragraph is kept once.

    Prompts of one question repeat its passages, and prompts of all questions repeat the same demonstrations. A
    paragraph met in a second question goes to `shared`, so one that only one question has is never loaded for others.
    """

    def __init__(self) -> None:
        self.shared: list[str] = []
        self._numbers: dict[str, int] = {}  # of the shared paragraphs
        self._met: set[int] = set()  # hashes: a false match would share a paragraph too many, no more
        self._own: dict[str, int] = {}  # the paragraphs of the value in work

    def pack(self, value: Json) -> str:
        """A line for the value and its paragraphs: its own as texts, shared ones as their numbers.

        Takes the value apart: it is not to be used afterwards.
        """
        self._own = {}
        packed = self._packed(value)
        return _line({"value": packed, "paragraphs": [self._reference(paragraph) for paragraph in self._own]})

    def _packed(self, value: Json) -> Json:
        """In place, and whole lists at once where they are of one kind: a large run has millions of values."""
        kind = type(value)
        if kind is str:
            if len(value) < _SHARABLE:
                return value
            return {REFERENCE: [self._own.setdefault(paragraph, len(self._own)) for paragraph in value.split("\n\n")]}
        if kind is float:
            return round(value, _DIGITS) if isfinite(value) else str(value)  # JSON has no infinity
        if kind is list:
            kinds = set(map(type, value))
            if kinds == {float} and isfinite(sum(value)):
                return list(map(round, value, repeat(_DIGITS)))
            if kinds <= _PLAIN or (kinds == {str} and max(map(len, value)) < _SHARABLE):
                return value
            return [part if _is_short(part) else self._packed(part) for part in value]
        if kind is dict:
            for key, part in value.items():
                if type(part) not in _PLAIN and not _is_short(part):
                    value[key] = self._packed(part)
        return value

    def _reference(self, paragraph: str) -> str | int:
        if len(paragraph) < _SHARABLE:
            return paragraph
        if paragraph in self._numbers:
            return self._numbers[paragraph]
        if hash(paragraph) not in self._met:
            self._met.add(hash(paragraph))
            return paragraph
        self.shared.append(paragraph)
        return self._numbers.setdefault(paragraph, len(self._numbers))


def _is_short(value: Json) -> bool:
    return type(value) is str and len(value) < _SHARABLE


def _line(value: Json) -> str:
    """Deflated and in base64, whose characters mean nothing in HTML: no text can end the element it stands in."""
    text = json.dumps(value, separators=(",", ":"))  # ASCII: quicker, and half a character stays JSON's own escape
    deflate = zlib.compressobj(4, zlib.DEFLATED, -zlib.MAX_WBITS)  # without header: the browser's deflate-raw
    return base64.b64encode(deflate.compress(text.encode()) + deflate.flush()).decode()
