"""Pages with the trace explorer: a run's report, and the page of one question.

The questions are in the file compressed, one by one, so that a browser unpacks only what is opened. Paragraphs that
several questions have, such as few-shot examples, are stored once. If the calls of all questions are too large for the
page, it has those of some questions and says so. Every question's row is there.
"""

from __future__ import annotations

import base64
import re
import shlex
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from math import isfinite
from urllib.parse import quote

from kgqa.artifacts.predictions import Quotation
from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.trace import TracedCall, read_frames, read_question
from kgqa.artifacts.verdicts import Judgements
from kgqa.report.page import EXPLORER, page_parts
from kgqa.report.questions import QuestionRow, ReportedQuestion, load_reported_question, order_ids
from kgqa.report.section import Section
from kgqa.report.summary import headlines
from kgqa.types import Json
from kgqa.util.jsonio import encode_json

PAGE_BYTES = 20_000_000  # a browser opens it within two seconds
REFERENCE = "\x00"  # the key of an object that replaces a text: {"\0": [numbers of its paragraphs]}
SHARED = 2_000_000  # characters of paragraphs stored for all questions: a browser unpacks them with the first one
_SHARABLE = 40  # characters: shorter texts are not worth a reference
_FAILED = 20  # failed questions listed below the scores
_BEST = 10  # texts of a ranking
_DIGITS = 4  # of a fraction, as the page shows them: log-probabilities have sixteen, all random
_NOTE = 1000  # bytes for the numbers in the page's note on its selection


def run_page(
    run: FinishedRun, sections: Sequence[Section], notices: Sequence[str], limit: int = PAGE_BYTES
) -> Iterator[str]:
    """Yield the parts of a run's page, which has at most `limit` bytes unless its tables and rows alone have more.

    Raises:
        DataError: the trace lacks a question that was answered.
    """
    judgements = Judgements(run.folder)
    rows, sort_keys, failed = dict[str, bytes](), dict[str, tuple[int, int]](), list[tuple[str, QuestionRow]]()
    for offset, traced in read_frames(run.folder):
        row = load_reported_question(run, traced, judgements).row
        rows[row.question_id], sort_keys[row.question_id] = encode_json(row.json()), (_priority(row), offset)
        if row.error is not None and len(failed) < _FAILED:
            failed.append((question_address(row.question_id), row))
    ids = list(order_ids(run, rows))
    render = partial(
        page_parts,
        "report.html.j2",
        EXPLORER,
        run=run,
        command=shlex.join(run.manifest.command),
        notices=notices,
        headlines=headlines(run.metrics),
        sections=sections,
        failed=failed,
        index=_deflate([b"[", b",".join(rows[question_id] for question_id in ids), b"]"]),
        count=len(ids),
    )
    bare = sum(len(part.encode("utf-8", "backslashreplace")) for part in render(shown=0, lines=()))
    room, packing, lines = limit - bare - len(ids) - _NOTE, Packing(), dict[str, str]()
    for question_id in sorted(ids, key=lambda question_id: sort_keys[question_id][0]):
        traced = read_question(run.folder, sort_keys[question_id][1])
        line = packing.pack(_trace(load_reported_question(run, traced, judgements)))
        if len(line) > room:
            break
        lines[question_id] = line
        room -= len(line)
    shared = pack_line(list(packing.shared))
    while lines and len(shared) > room:
        room += len(lines.popitem()[1])
    yield from render(shown=len(lines), lines=[shared, *(f"\n{lines.get(question_id, '')}" for question_id in ids)])


def question_page(
    question: ReportedQuestion,
    facts: Sequence[tuple[str, str]],
    steps: Sequence[Quotation] | None = None,
    supported: bool = True,
) -> Iterator[str]:
    """Yield the parts of the page of one question.

    Args:
        facts: names and values of what answered, shown as a table.
        steps: the quoted sentences; None if the answer is not checked against documents.
        supported: whether one of them contains the answer.
    """
    packing = Packing()
    line = packing.pack(_trace(question))
    yield from page_parts(
        "question_page.html.j2",
        EXPLORER,
        row=question.row,
        facts=Section("", (), facts),
        steps=steps,
        supported=supported,
        shown=1,
        count=1,
        index=pack_line([question.row.json()]),
        lines=[pack_line(list(packing.shared)), f"\n{line}"],
    )


def question_address(question_id: str) -> str:
    """Return where the page shows a question. Half a character has no place in an address, as in question.js."""
    return "#q=" + quote(re.sub("[\ud800-\udfff]", "\ufffd", question_id), safe="")


def _priority(row: QuestionRow) -> int:
    """Return which questions keep their calls in a page that cannot have all: failed, disputed, flagged, others."""
    if row.error is not None:
        return 0
    if row.verdict is not None and row.em is not None and (row.verdict == "correct") != row.is_right:
        return 1
    return 2 if row.flags else 3


def _trace(question: ReportedQuestion) -> dict[str, Json]:
    traced, judgement = question.traced, question.judgement
    judged = {**judgement.json(), "verdict": judgement.shown} if judgement else None
    return {**traced.json(), "calls": list(map(abridge_call, traced.calls)), "judgement": judged}


def abridge_call(call: TracedCall) -> dict[str, Json]:
    """Return a call as JSON. A ranking has only its best texts, best first, and their total number (`of`).

    Every step of a chain ranks the whole graph again, which would be most of the file.
    """
    shown = call.json()
    if shown["call"] != "rank" or not isinstance(shown["reply"], list):
        return shown
    best = sorted(zip(shown["reply"], shown["texts"], strict=True), key=lambda pair: -pair[0])[:_BEST]
    texts, scores = [text for _, text in best], [score for score, _ in best]
    return {**shown, "of": len(shown["texts"]), "texts": texts, "reply": scores}


class Packing:
    """Makes values small: long texts are cut into paragraphs, and a paragraph is stored once.

    Prompts of one question repeat its passages, and prompts of all questions repeat the same few-shot examples. A
    paragraph of a second question goes to `shared`, until that holds SHARED characters.
    """

    def __init__(self) -> None:
        self.shared: dict[str, int] = {}  # number by paragraph
        self._room = SHARED
        self._seen: set[int] = set()  # hashes of paragraphs; equal ones of two would only share a paragraph too many

    def pack(self, value: Json) -> str:
        """Return a line with the value and its paragraphs: own ones as texts, shared ones as their numbers."""
        own: dict[str, int] = {}
        packed = self._pack(value, own)
        return pack_line({"value": packed, "paragraphs": [self._reference(paragraph) for paragraph in own]})

    def _pack(self, value: Json, own: dict[str, int]) -> Json:
        match value:
            case str() if len(value) >= _SHARABLE:
                return {REFERENCE: [own.setdefault(paragraph, len(own)) for paragraph in value.split("\n\n")]}
            case float():
                return round(value, _DIGITS) if isfinite(value) else str(value)  # JSON has no infinity
            case dict():
                return {key: self._pack(part, own) for key, part in value.items()}
            case list() | tuple():
                return [self._pack(part, own) for part in value]
        return value

    def _reference(self, paragraph: str) -> str | int:
        if paragraph in self.shared:
            return self.shared[paragraph]
        is_new = hash(paragraph) not in self._seen
        self._seen.add(hash(paragraph))
        if is_new or not _SHARABLE <= len(paragraph) <= self._room:
            return paragraph
        self._room -= len(paragraph)
        return self.shared.setdefault(paragraph, len(self.shared))


def pack_line(value: Json) -> str:
    return _deflate([encode_json(value)])


def _deflate(texts: Iterable[bytes]) -> str:
    """Return texts deflated and in base64, which has no character with a meaning in HTML."""
    deflate = zlib.compressobj(3, zlib.DEFLATED, -zlib.MAX_WBITS)  # without header: the browser's deflate-raw
    parts = list(map(deflate.compress, texts))
    return base64.b64encode(b"".join([*parts, deflate.flush()])).decode()
