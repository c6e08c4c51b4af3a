"""Pages with the trace explorer: a run's report, and the page of one question.

Each question is compressed on its own, so that a browser unpacks only what is opened. If the calls of all questions are
too large for the page, it has the calls of some questions and the rows of all.
"""

from __future__ import annotations

import base64
import re
import shlex
import zlib
from collections.abc import Iterator, Sequence
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
_SHARABLE = 40  # characters: a shorter text is not replaced
_FAILED = 20  # failed questions listed below the scores
_BEST = 10  # texts of a ranking
_DIGITS = 4  # of fractions, as the page shows them
_NOTE = 1000  # bytes for the numbers in the page's note on its selection


def run_page(
    run: FinishedRun, sections: Sequence[Section], notices: Sequence[str], limit: int = PAGE_BYTES
) -> Iterator[str]:
    """Yield the parts of a run's page, which has at most `limit` bytes unless its tables and rows alone have more.

    Raises:
        DataError: the trace lacks a question that was answered.
    """
    judgements, rows, offsets = Judgements(run.folder), dict[str, QuestionRow](), dict[str, int]()
    for offset, traced in read_frames(run.folder):
        row = load_reported_question(run, traced, judgements).row
        rows[row.question_id], offsets[row.question_id] = row, offset
    ids = list(order_ids(run, rows))
    failed = [(question_address(question_id), rows[question_id]) for question_id in ids if rows[question_id].error]
    render = partial(
        page_parts,
        "report.html.j2",
        EXPLORER,
        run=run,
        command=shlex.join(run.manifest.command),
        notices=notices,
        headlines=headlines(run.metrics),
        sections=sections,
        failed=failed[:_FAILED],
        index=_deflate([rows[question_id].json() for question_id in ids]),
        count=len(ids),
    )
    bare = sum(len(part.encode("utf-8", "backslashreplace")) for part in render(shown=0, lines=()))
    room, lines = limit - bare - len(ids) - _NOTE, dict[str, str]()
    for question_id in sorted(ids, key=lambda question_id: _priority(rows[question_id])):
        traced = read_question(run.folder, offsets[question_id])
        line = pack(_trace(load_reported_question(run, traced, judgements)))
        room -= len(line)
        if room < 0:
            break
        lines[question_id] = line
    yield from render(shown=len(lines), lines=(f"{lines.get(question_id, '')}\n" for question_id in ids))


def question_page(
    question: ReportedQuestion,
    facts: Sequence[tuple[str, str]],
    steps: Sequence[Quotation] | None = None,
    supported: bool = True,
) -> Iterator[str]:
    """Yield the parts of the page of one question.

    Args:
        facts: names and values about the model and the documents, shown as a table.
        steps: the quoted sentences. None: the answer is not checked against documents.
        supported: whether one of them contains the answer.
    """
    yield from page_parts(
        "question_page.html.j2",
        EXPLORER,
        row=question.row,
        facts=Section("", (), facts),
        steps=steps,
        supported=supported,
        shown=1,
        count=1,
        index=_deflate([question.row.json()]),
        lines=[pack(_trace(question))],
    )


def question_address(question_id: str) -> str:
    """Return the address of a question in the page. Addresses cannot contain half a character, as in question.js."""
    return "#q=" + quote(re.sub("[\ud800-\udfff]", "\ufffd", question_id), safe="")


def _priority(row: QuestionRow) -> int:
    """Return the rank of a question if the page has no room for all calls: failed, disputed, flagged, others."""
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
    """Return a call as JSON. A ranking has only its best texts and their total number (`of`), to keep pages small."""
    shown = call.json()
    if shown["call"] != "rank" or not isinstance(shown["reply"], list):
        return shown
    best = sorted(zip(shown["reply"], shown["texts"], strict=True), key=lambda pair: -pair[0])[:_BEST]
    texts, scores = [text for _, text in best], [score for score, _ in best]
    return {**shown, "of": len(shown["texts"]), "texts": texts, "reply": scores}


def pack(value: Json) -> str:
    """Return a value on one line. Long texts are cut into paragraphs that are stored once: prompts repeat passages."""
    paragraphs: dict[str, int] = {}
    packed = _refer(value, paragraphs)
    return _deflate({"value": packed, "paragraphs": list(paragraphs)})


def _refer(value: Json, paragraphs: dict[str, int]) -> Json:
    match value:
        case str() if len(value) >= _SHARABLE:
            return {REFERENCE: [paragraphs.setdefault(each, len(paragraphs)) for each in value.split("\n\n")]}
        case float():
            return round(value, _DIGITS) if isfinite(value) else str(value)  # JSON has no infinity
        case dict():
            return {key: _refer(part, paragraphs) for key, part in value.items()}
        case list() | tuple():
            return [_refer(part, paragraphs) for part in value]
    return value


def _deflate(value: Json) -> str:
    """Return JSON deflated and in base64, which has no character with a meaning in HTML."""
    deflate = zlib.compressobj(3, zlib.DEFLATED, -zlib.MAX_WBITS)  # without header: the browser's deflate-raw
    return base64.b64encode(deflate.compress(encode_json(value)) + deflate.flush()).decode()
