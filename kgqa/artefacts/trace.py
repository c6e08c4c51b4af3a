"""`trace.jsonl.zst`: every question with what was answered and every call that led there, a zstd frame each."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kgqa.artefacts.form import AGAIN, Number, checked
from kgqa.artefacts.predictions import Prediction
from kgqa.artefacts.traced_calls import check_call
from kgqa.errors import DataError
from kgqa.json_texts import json_bytes
from kgqa.json_values import decoded_trace, first_value
from kgqa.types import Json, Question, Usage

TRACE = "trace.jsonl.zst"
PARTIAL_TRACE = "trace.partial.jsonl.zst"  # while a run works
_QUESTION = '{"question":'  # how a line begins; until 0.2 a blank followed
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TracedCall:
    """One answered call. `path` places it in its program: the n-th await, then (after a gather) slot and n-th await."""

    path: tuple[int, ...]
    kind: str  # generate, choose, count_tokens, rank, search, triples, neighbours
    request: Mapping[str, Json]  # what else the call says; see `kgqa.runtime.codec.call_json`
    reply: Json
    cached: bool
    queued: Number | None = None  # seconds it waited for its engine

    @property
    def role(self) -> str | None:
        """Who asked a model; None where none was asked."""
        role: str | None = self.request.get("role")
        return role

    @property
    def template(self) -> str | None:
        """Of the prompt, if it had one."""
        template: str | None = (self.request.get("prompt") or {}).get("template")
        return template

    @property
    def text(self) -> str | None:
        """What a model wrote."""
        text: str | None = self.reply.get("text") if isinstance(self.reply, dict) else None
        return text

    @property
    def error(self) -> str | None:
        """Why it was not answered; None: it was."""
        failed = isinstance(self.reply, dict) and "error" in self.reply
        return f"{self.reply['error']}: {self.reply['message']}" if failed else None

    @property
    def usage(self) -> Usage | None:
        """None where no model replied."""
        used = self.reply.get("usage") if isinstance(self.reply, dict) else None
        return Usage(*used) if used else None

    @property
    def items(self) -> list[Json] | None:
        """A reply of several: scores, passages, triples; None where it is none of these, as after an error."""
        return self.reply if isinstance(self.reply, list) else None

    def json(self) -> dict[str, Json]:
        call = {"path": list(self.path), "call": self.kind, **self.request, "reply": self.reply, "cached": self.cached}
        return call if self.queued is None else {**call, "queued": self.queued}


@dataclass(frozen=True, slots=True)
class TracedQuestion:
    """`prediction`: with its notes."""

    question: Question
    prediction: Prediction
    calls: tuple[TracedCall, ...]

    @property
    def notes(self) -> Mapping[str, Json]:
        return self.prediction.notes

    def json(self) -> dict[str, Json]:
        return {
            "question": _question_json(self.question),
            **self.prediction.json(),
            "notes": dict(self.prediction.notes),
            "calls": [call.json() for call in self.calls],
        }

    def line(self) -> bytes:
        """Of the trace, its end included."""
        return json_bytes(self.json()) + b"\n"


def read_trace(folder: Path) -> Iterator[TracedQuestion]:
    """The questions of a run's trace, in the order they finished.

    Raises:
        DataError: there is no trace, or it is damaged. A last frame cut short by an interruption is left out.
    """
    for place, line in _lines(folder, decoded_trace):
        yield _traced(line, place)


def traced_of_line(line: str, place: str) -> TracedQuestion:
    """Raises DataError: it is no line of a trace; `place` is where it stands, for the message."""
    try:
        return _traced(decoded_trace(line), place)
    except ValueError as error:
        raise DataError(f"{place}: damaged trace ({error}); {AGAIN}") from error


def traced_of_json(value: Json, place: str) -> TracedQuestion:
    """The same of what was decoded already."""
    return _traced(value, place)


def read_questions(folder: Path) -> Iterator[Question]:
    """The same without their calls, which are most of a trace; `support_titles` and more are not in it."""
    for place, question in _lines(folder, _begun_line):
        yield checked(_QuestionLine, {"question": question}, place).question


def question_of_line(line: str, place: str) -> Question:
    """What such a line begins with. Raises DataError as `traced_of_line`."""
    try:
        return checked(_QuestionLine, {"question": _begun_line(line)}, place).question
    except ValueError as error:
        raise DataError(f"{place}: damaged trace ({error}); {AGAIN}") from error


def _begun_line(line: str) -> Json:
    at = len(_QUESTION)
    question: Json = first_value(line, at + line[at:].startswith(" "))[0]
    return question


@dataclass(frozen=True, slots=True)
class _QuestionLine:
    question: Question


@dataclass(frozen=True, slots=True)
class _Line(_QuestionLine):
    """What a line must have; of its prediction see `Prediction.of_json`."""

    question_id: str
    notes: Mapping[str, Json]
    calls: tuple[_Call, ...]


@dataclass(frozen=True, slots=True)
class _Call:
    path: tuple[int, ...]
    call: str
    reply: Json
    cached: bool
    queued: Number | None = None


def _traced(line: Json, place: str) -> TracedQuestion:
    kept = checked(_Line, line, place)
    prediction = Prediction.of_json(line, kept.question_id, place, kept.notes)
    calls = zip(kept.calls, line["calls"], strict=True)
    return TracedQuestion(kept.question, prediction, tuple(_traced_call(call, raw, place) for call, raw in calls))


def _traced_call(call: _Call, raw: Mapping[str, Json], place: str) -> TracedCall:
    check_call(raw, place)
    own = _Call.__dataclass_fields__
    request = {key: value for key, value in raw.items() if key not in own}
    return TracedCall(call.path, call.call, request, call.reply, call.cached, call.queued)


def _question_json(question: Question) -> dict[str, Json]:
    return {
        "id": question.id,
        "text": question.text,
        "answers": list(question.answers),
        "hops": question.hops,
        "type": question.type,
        "support": sorted(question.support),
        "passages": [{"id": p.id, "title": p.title, "text": p.text} for p in question.passages],
    }


def _lines(folder: Path, parsed: Callable[[str], T]) -> Iterator[tuple[str, T]]:
    """What is made of each line, with its place for messages."""
    import zstandard

    whole, partial = folder / TRACE, folder / PARTIAL_TRACE
    path = whole if whole.is_file() else partial
    if not path.is_file():
        raise DataError(
            f"{folder}: not the folder of a run (no trace.jsonl.zst); give the folder that kgqa run printed"
        )
    with path.open("rb") as file:
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        lines = io.TextIOWrapper(reader, encoding="utf-8")
        place = str(path)
        try:
            for number, line in enumerate(lines, start=1):
                place = f"{path}:{number}"
                if line.endswith("\n"):
                    yield place, parsed(line)
        except (zstandard.ZstdError, OSError, ValueError) as error:
            raise DataError(f"{place}: damaged trace ({error}); {AGAIN}") from error
