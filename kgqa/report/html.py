"""A run's report as one HTML file that needs no network: the tables, and every question with what led to its answer.

The questions lie in the file compressed, one by one, so that a browser unpacks only what is opened. What several
questions share, such as demonstrations, is kept once; the rest of a file's size is the questions' own text. Where that
is more than a page has room for, it holds the calls of some questions and says which; every question's row is there.
"""

from __future__ import annotations

import json
import shlex
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from types import MappingProxyType

from kgqa.artifacts.run import FinishedRun
from kgqa.artifacts.trace import TracedQuestion
from kgqa.artifacts.verdicts import Judgement
from kgqa.report.content import estimates, sections
from kgqa.report.notices import notices
from kgqa.report.packing import Packing, abridge_trace, compact_json, pack_line, pack_list
from kgqa.report.page import EXPLORER, page_parts
from kgqa.report.questions import (
    QuestionRow,
    ReportedQuestion,
    build_row,
    load_reported_questions,
    order_ids,
    same_questions,
)
from kgqa.report.selection import Group, Selection
from kgqa.types import Json
from kgqa.util.jsonio import encode_json

PAGE = 20  # megabytes: a browser opens it within two seconds
_MEGABYTE = 1_000_000
_NOTE = 1000  # bytes, of what the page says of a selection


@dataclass(frozen=True)
class PackedQuestions:
    """`index`: the rows of all questions, in the data file's order."""

    ids: list[str]
    index: str
    shared: str
    traces: Selection

    def lines(self) -> Iterator[str]:
        """Yield the shared texts, then a line for each row: its trace, or nothing where it was left out."""
        yield self.shared
        for question_id in self.ids:
            yield f"\n{self.traces.line(question_id)}"


class GatheredQuestions:
    """The questions of a page, added one by one, with a limit on their size in memory."""

    def __init__(self, megabytes: float = PAGE) -> None:
        self.room = int(megabytes * _MEGABYTE)
        self._packing, self._rows, self._traces = Packing(), dict[str, bytes](), Selection(self.room)

    def add(self, row: QuestionRow, trace: Callable[[], Json], other: QuestionRow | None = None) -> None:
        """`other`: the answer of the run it stands against, with its error and scores."""
        beside = other and {"answer": other.answer, "error": other.error, "em": other.em, "f1": other.f1}
        self._rows[row.id] = encode_json({**asdict(row), "other": beside})
        group = _group(row, other)
        if self._traces.wants(row.id, group):
            self._traces.add(row.id, group, self._packing.pack(trace()))

    def add_ended(self, traced: TracedQuestion, profile: str) -> None:
        """A question that has just ended: the trace need not be read again."""
        self.add(build_row(traced, profile), partial(_render_section, traced))

    def packed(self, run: FinishedRun) -> PackedQuestions:
        """Raise DataError: the run answered a question that is not among them."""
        ids = list(order_ids(run, self._rows))
        index = pack_list(self._rows[question_id] for question_id in ids)
        return PackedQuestions(ids, index, pack_line(self._packing.shared), self._traces)


def html(
    run: FinishedRun,
    against: FinishedRun | None = None,
    megabytes: float = PAGE,
    gathered: GatheredQuestions | None = None,
) -> Iterator[str]:
    """Yield the page's parts, one after another.

    against: another run on the same questions, whose answers stand beside; questions that flipped are a filter.
    megabytes: how large the page may be; tables and rows stand in it in any case.
    gathered: all questions of the run, where its trace need not be read; for a page of as many megabytes.

    Raises:
        DataError: the two are not on the same questions.
    """
    gathered = gathered or _read(run, against, megabytes)
    room, questions = gathered.room, gathered.packed(run)
    render = partial(
        page_parts,
        "report.html.j2",
        ["report.css"],
        EXPLORER,
        run=run,
        against=against,
        command=shlex.join(run.manifest.command),
        notices=notices(run),
        sections=sections(run),
        estimates=estimates(run),
        index=questions.index,
        traces=questions.traces,
    )
    bare = sum(len(part.encode("utf-8", "backslashreplace")) for part in render(lines=()))  # as it is written
    ends = len(questions.ids)  # of lines, empty ones too
    questions.traces.shrink(room - bare - len(questions.shared) - ends - _NOTE)
    yield from render(lines=questions.lines())


def _read(run: FinishedRun, against: FinishedRun | None, megabytes: float) -> GatheredQuestions:
    """Return the questions of the run's trace."""
    others = same_questions(run, against) if against else {}
    ways, gathered = _ways(against) if against else {}, GatheredQuestions(megabytes)
    for reported in load_reported_questions(run):
        gathered.add(reported.row, partial(question_trace, reported, ways), others.get(reported.row.id))
    return gathered


def _group(row: QuestionRow, other: QuestionRow | None) -> Group:
    """Return the group of a question that the page's filters use."""
    if row.error is not None:
        return Group.FAILED
    judged = row.verdict is not None and row.em is not None
    if (judged and (row.verdict == "correct") != (row.em == 1)) or (other and other.em != row.em):
        return Group.DISPUTED
    return Group.FLAGGED if row.flags else Group.OTHER


def _ways(other: FinishedRun) -> dict[str, bytes]:
    """Return how the other run came to each answer, deflated, for all of it is in memory: evidence, notes, what it
    cost.
    """
    ways = {}
    for reported in load_reported_questions(other):
        prediction, row = reported.traced.prediction, reported.row
        shown = {
            "of": other.title,
            "evidence": list(prediction.evidence or ()),
            "evidence_titles": list(prediction.evidence_titles),
            "notes": dict(prediction.notes),
            **{name: getattr(row, name) for name in ("model_calls", "prompt_tokens", "output_tokens")},
        }
        ways[row.id] = zlib.compress(compact_json(shown).encode())
    return ways


def question_trace(reported: ReportedQuestion, ways: Mapping[str, bytes] = MappingProxyType({})) -> dict[str, Json]:
    """Return the trace's line with the judge's and, beside another run, `other`: what the page shows of a question."""
    other = {"other": json.loads(zlib.decompress(ways[reported.row.id]))} if ways else {}
    return {**_render_section(reported.traced, reported.judgement), **other}


def _render_section(traced: TracedQuestion, judgement: Judgement | None = None) -> dict[str, Json]:
    judged = {**judgement.json(), "verdict": judgement.shown} if judgement else None
    return {**traced.json(), "calls": list(map(abridge_trace, traced.calls)), "judgement": judged}
