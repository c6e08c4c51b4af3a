"""Pages with the trace explorer: a run's report, and the page of one question.

Each question is compressed on its own, so that a browser unpacks only what is opened. The page of a large run has the
calls of some questions and the rows of all.
"""

from __future__ import annotations

import base64
import re
import shlex
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from urllib.parse import quote

from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.schema import Artifact, Count
from kgqa.artifacts.trace import TracedCall
from kgqa.report.flags import explain_flag
from kgqa.report.page import EXPLORER, page_parts
from kgqa.report.questions import QuestionRow, ReportedQuestion, RunQuestions, is_right
from kgqa.report.run_report import headlines, title_with_settings
from kgqa.report.section import Section
from kgqa.scoring.own_metrics import list_own_metrics
from kgqa.scoring.questions import METRICS, ScoredQuestion
from kgqa.types import Json
from kgqa.util.jsonio import encode_json
from kgqa.util.text import shorten

# of passages and calls: those of 100 questions with most methods. `kgqa show` prints the others
TRACE_BYTES = 2_000_000
# the key of an object that replaces a text: {"\0": [numbers of its paragraphs]}
REFERENCE = "\x00"
# characters: a shorter text is not replaced
_SHARABLE = 40
# questions in which texts are looked for that all questions share
_SAMPLE = 10
# failed questions listed below the scores
_FAILED = 20
# characters of an answer in the list of questions
_ANSWER = 2_000
_BEST = 10  # texts of a ranking
# of fractions, as the page shows them
_DIGITS = 4


class Quotation(Artifact):
    """A sentence that supports an answer, with its place and its triple."""

    # head, relation, tail. None: the method has no triples
    triple: tuple[str, ...] | None
    # that shares most words with the triple, or with question and answer
    sentence: str
    # None: the passage is not from a document
    file: str | None
    # such as "page 3", only for PDFs
    page: str | None
    # from 1, only for text files
    line: Count | None
    title: str
    passage: str  # its id
    # file with page or line, or the title
    where: str


def run_page(
    run: FinishedRun,
    sections: Sequence[Section],
    notices: Sequence[str],
    scored: Iterable[ScoredQuestion] = (),
) -> Iterator[str]:
    """Yield the parts of a run's page. Raises DataError: the trace lacks a question that was answered.

    scored: see `RunQuestions`.
    """
    questions = RunQuestions(run, scored)
    rows = questions.rows
    # addresses cannot contain half a character, as in question.js
    failed = [
        ("#q=" + quote(re.sub("[\ud800-\udfff]", "\ufffd", question_id), safe=""), row)
        for question_id, row in rows.items()
        if row["error"]
    ]
    order = sorted(rows, key=lambda id_: (rows[id_]["error"] is None, is_right(rows[id_])))
    shared, lines = _pack_first(questions, order)
    yield from page_parts(
        "report.html.j2",
        EXPLORER,
        run=run,
        title=title_with_settings(run),
        command=shlex.join(run.manifest.command),
        notices=notices,
        headlines=headlines(run.metrics),
        sections=sections,
        failed=failed[:_FAILED],
        index=_deflate([_abridge_row(row) for row in rows.values()]),
        count=len(rows),
        shown=len(lines),
        lines=[shared, *(lines.get(question_id, "") for question_id in rows)],
    )


def _pack_first(questions: RunQuestions, order: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return the texts that questions share, and as many questions of this order as a page has room for, packed."""
    sample = order[:: len(order) // _SAMPLE + 1]
    shared = _find_shared(_trace(questions.question(question_id)) for question_id in sample)
    first, lines = _deflate(shared), dict[str, str]()
    room = TRACE_BYTES - len(first)
    for question_id in order:
        line = pack(_trace(questions.question(question_id)), shared)
        room -= len(line)
        if room < 0 and lines:
            break
        lines[question_id] = line
    return first, lines


def _find_shared(traces: Iterable[Json]) -> list[str]:
    """Return the paragraphs that several questions have, such as instructions and few-shot examples."""
    counts = Counter[str]()
    for trace in traces:
        paragraphs: dict[str, int] = {}
        _refer(trace, paragraphs)
        counts.update(paragraphs.keys())
    return [text for text, count in counts.items() if count > 1]


def _abridge_row(row: QuestionRow) -> QuestionRow:
    """Return a row of the list with the start of its answer. The complete one is in the question's calls."""
    answer = row["answer"]
    return row if answer is None else {**row, "answer": shorten(answer, _ANSWER)}


def question_page(
    question: ReportedQuestion,
    facts: Sequence[tuple[str, str]],
    steps: Sequence[Quotation] | None = None,
    supported: bool = True,
    links: Sequence[tuple[str, str]] = (),
    notices: Sequence[str] = (),
    rows: Sequence[QuestionRow] = (),
) -> Iterator[str]:
    """Yield the parts of the page of one question.

    Args:
        facts: names and values about the model and the documents, shown as a table.
        steps: the quoted sentences. None: the answer is not checked against documents.
        supported: whether one of them contains the answer.
        links: names and addresses of the pages that led here, shown below the question.
        notices: warnings above the answer.
        rows: the list of questions that it is shown with. The calls of the others are on their own pages.
    """
    rows = rows or [question.row]
    calls = pack(_trace(question))
    yield from page_parts(
        "question_page.html.j2",
        EXPLORER,
        row=question.row,
        facts=Section("", (), facts),
        steps=steps,
        supported=supported,
        links=links,
        notices=notices,
        shown=len(rows),
        count=len(rows),
        index=_deflate([_abridge_row(row) for row in rows]),
        lines=[_deflate([]), *(calls if row is question.row else "" for row in rows)],
    )


def _trace(question: ReportedQuestion) -> dict[str, Json]:
    traced, judgement = question.traced, question.judgement
    judged = {**judgement.json(), "verdict": judgement.shown} if judgement else None
    return {
        **traced.json(),
        "calls": list(map(abridge_call, traced.calls)),
        "judgement": judged,
        "meanings": {flag: explain_flag(flag) for flag in question.row["flags"]},
        "own_scores": {
            METRICS[name].title: question.row[name]
            for name in list_own_metrics()
            if question.row.get(name) is not None
        },
    }


def abridge_call(call: TracedCall) -> dict[str, Json]:
    """Return a call as JSON. A ranking has only its best texts and their total number (`of`), to keep pages small."""
    record = call.json()
    if record["call"] != "rank" or not isinstance(record["reply"], list):
        return record
    best = sorted(zip(record["reply"], record["texts"], strict=True), key=lambda pair: -pair[0])[
        :_BEST
    ]
    texts, scores = [text for _, text in best], [score for score, _ in best]
    return {**record, "of": len(record["texts"]), "texts": texts, "reply": scores}


def pack(value: Json, shared: Sequence[str] = ()) -> str:
    """Return a value on one line. Long texts are cut into paragraphs that are stored once: prompts repeat passages.

    shared: paragraphs that the page has elsewhere. Their numbers are the first ones.
    """
    paragraphs = {text: number for number, text in enumerate(shared)}
    packed = _refer(value, paragraphs)
    return _deflate({"value": packed, "paragraphs": list(paragraphs)[len(shared) :]})


def _refer(value: Json, paragraphs: dict[str, int]) -> Json:
    if isinstance(value, str):
        if len(value) < _SHARABLE:
            return value
        numbers = [paragraphs.setdefault(each, len(paragraphs)) for each in value.split("\n\n")]
        return {REFERENCE: numbers}
    if isinstance(value, float):
        return round(value, _DIGITS) if isfinite(value) else str(value)  # JSON has no infinity
    if isinstance(value, dict):
        return {key: _refer(part, paragraphs) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_refer(part, paragraphs) for part in value]
    return value


def _deflate(value: Json) -> str:
    """Return JSON deflated and in base64, which has no character with a meaning in HTML."""
    deflate = zlib.compressobj(
        3, zlib.DEFLATED, -zlib.MAX_WBITS
    )  # without header: the browser's deflate-raw
    return base64.b64encode(deflate.compress(encode_json(value)) + deflate.flush()).decode()
