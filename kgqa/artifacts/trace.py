"""`trace.jsonl.zst`: every question with its answer and all its calls, one zstd frame per question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import count
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

from annotated_types import MinLen
from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from kgqa.artifacts.call_schema import check_call
from kgqa.artifacts.manifest import check_hash
from kgqa.artifacts.predictions import Prediction
from kgqa.artifacts.schema import AGAIN, Artifact, Number, check_json
from kgqa.errors import ConfigError, DataError
from kgqa.types import Json, Passage, Question, Usage
from kgqa.util.fs import open_file
from kgqa.util.jsonio import (
    MOST_BYTES,
    JsonError,
    check_size,
    decode_first,
    decode_stored,
    encode_json,
)
from kgqa.util.text import contains_words

TRACE = "trace.jsonl.zst"
PARTIAL_TRACE = "trace.partial.jsonl.zst"  # while a run works
# bytes that are read at a time. They can become 40,000 times as many
_BLOCK = 1 << 10


class CallCost(Artifact):
    """The costs of a call, without its request.

    path: the number of the await in the program, and for each gather its slot and await. Calls that answer another call
    have paths below its path.
    """

    path: tuple[int, ...]
    kind: str = Field(alias="call")  # such as generate or count_tokens
    reply: Json

    @property
    def usage(self) -> Usage | None:
        """Return the usage of a model's reply, or None."""
        used = self.reply.get("usage") if isinstance(self.reply, dict) else None
        return Usage(*used) if used else None


class TracedCall(CallCost):
    """An answered call. Its further keys are the request."""

    model_config = ConfigDict(extra="allow")

    cached: bool
    # seconds that it waited for its engine
    queued: Number | None = None

    @property
    def request(self) -> Mapping[str, Json]:
        """Return the fields of the call, see `call_schema.call_json`."""
        return self.model_extra or {}

    @property
    def role(self) -> str | None:
        """Return the role of a model call, else None."""
        return self.request.get("role")

    @property
    def template(self) -> str | None:
        """Return the template of the prompt, or None."""
        return (self.request.get("prompt") or {}).get("template")

    @property
    def text(self) -> str | None:
        """Return the generated text, or None."""
        return self.reply.get("text") if isinstance(self.reply, dict) else None

    @property
    def error(self) -> str | None:
        """Return why the call failed, or None."""
        failed = isinstance(self.reply, dict) and "error" in self.reply
        return f"{self.reply['error']}: {self.reply['message']}" if failed else None

    @property
    def items(self) -> list[Json] | None:
        """Return the scores, passages or triples of a reply, or None for other replies and errors."""
        return self.reply if isinstance(self.reply, list) else None

    def json(self) -> dict[str, Json]:  # type: ignore[override]
        call = {
            "path": list(self.path),
            "call": self.kind,
            **self.request,
            "reply": self.reply,
            "cached": self.cached,
        }
        return call if self.queued is None else {**call, "queued": self.queued}


@dataclass(frozen=True, slots=True)
class TracedQuestion:
    """A question with its prediction, which includes its notes, and its calls."""

    question: Question
    prediction: Prediction
    calls: tuple[TracedCall, ...]

    @property
    def own_calls(self) -> tuple[TracedCall, ...]:
        """Return the calls of the method, see `choose_own_calls`."""
        return choose_own_calls(self.calls)

    @property
    def notes(self) -> Mapping[str, Json]:
        return self.prediction.notes

    @property
    def passages(self) -> Mapping[str, Passage]:
        """Return by id the question's own passages, then those that its searches found."""
        passages = {passage.id: passage for passage in self.question.passages}
        for call in self.calls:
            for item in call.items or ():
                if isinstance(item, dict) and {"id", "title", "text"} <= item.keys():
                    found = Passage(item["id"], item["title"], item["text"])
                    passages.setdefault(found.id, found)
        return passages

    def json(self) -> dict[str, Json]:
        question = self.question
        return {
            "question": {
                "id": question.id,
                "text": question.text,
                "answers": list(question.answers),
                "hops": question.hops,
                "type": question.type,
                "support": sorted(question.support),
                "passages": [
                    {"id": p.id, "title": p.title, "text": p.text} for p in question.passages
                ],
                **({"facts": [list(fact) for fact in question.facts]} if question.facts else {}),
                **(
                    {}
                    if question.answerable is None
                    else {"answerable": question.answerable, "twin": question.twin}
                ),
            },
            **self.prediction.json(),
            "notes": dict(self.prediction.notes),
            "calls": [call.json() for call in self.calls],
        }

    def line(self) -> bytes:
        """Return the line of the trace, with its end."""
        return encode_json(self.json()) + b"\n"


class CostedQuestion(NamedTuple):
    """A question and the costs of its calls. offset: the byte at which its frame starts."""

    offset: int
    question: Question
    calls: tuple[CallCost, ...]


AnyCall = TypeVar("AnyCall", bound=CallCost)


def choose_own_calls(calls: tuple[AnyCall, ...]) -> tuple[AnyCall, ...]:
    """Return the calls of the method, without those that answer another call, such as the extraction of triples.

    The calls of an agent are calls of the method, although the run of the agent waits for them.
    """
    paths = {call.path for call in calls if call.kind != "run_agent"}
    return tuple(
        call for call in calls if paths.isdisjoint(call.path[:n] for n in range(1, len(call.path)))
    )


class _QuestionLine(Artifact):
    question: Question


class _TraceLine(_QuestionLine):
    """The keys of a line. `Prediction.of_json` checks those of its prediction."""

    question_id: str
    notes: Mapping[str, Json]
    calls: tuple[TracedCall, ...]


class _Usage(TypedDict):
    usage: tuple[int | float, ...]


class _CallCost(CallCost):
    # of a model's reply, pydantic builds only this value
    reply: Annotated[_Usage | Json, Field(union_mode="left_to_right")]


class _CostLine(_QuestionLine):
    calls: tuple[_CallCost, ...]


def read_trace(folder: Path) -> Iterator[TracedQuestion]:
    """Return the questions of a run in the order they finished. An incomplete last frame is skipped.

    Raises:
        DataError: there is no trace, or it is damaged.
    """
    return (traced for _, traced in read_frames(folder))


def find_question(folder: Path, question_id: str) -> TracedQuestion:
    """Return a question with its prediction and all its calls.

    Raises:
        ConfigError: the run has no such question.
        DataError: as `read_trace`.
    """
    ids = []
    for traced in read_trace(folder):
        if traced.question.id == question_id:
            return traced
        ids.append(traced.question.id)
    similar = get_close_matches(question_id, ids, cutoff=0)
    close = dict.fromkeys([*(each for each in ids if question_id in each), *similar])
    raise ConfigError(
        f"{question_id}: no such question among the {len(ids):,} of {folder}. "
        f"The closest ids: {', '.join([*close][:3])}. List all: kgqa show {folder}"
    )


def read_frames(folder: Path) -> Iterator[tuple[int, TracedQuestion]]:
    """Yield the questions, each with the byte at which its frame starts. Raises DataError as `read_trace`."""
    return ((offset, _decode(line, location)) for offset, location, line in _frames(folder))


def read_costs(folder: Path) -> Iterator[CostedQuestion]:
    """Yield the questions with the costs of their calls, several times faster than `read_frames`. Raises as it does."""
    return (_decode_costs(offset, text, location) for offset, location, text in _frames(folder))


def read_questions(folder: Path) -> Iterator[Question]:
    """Yield the questions without decoding their calls. Raises DataError as `read_trace`."""
    for _, location, line in _frames(folder):
        try:
            question = decode_first(line, line.index("{", 1))[0]
        except ValueError as error:
            raise DataError(f"{location}: damaged trace ({error}). {AGAIN}") from error
        yield check_json(_QuestionLine, {"question": question}, location).question


def read_evidence(folder: Path) -> Iterator[tuple[str, tuple[Passage, ...]]]:
    """Yield the id of each question and the passages that the method used, also those that a search found.

    Raises:
        DataError: as `read_trace`.
    """
    for traced in read_trace(folder):
        passages = traced.passages
        yield (
            traced.question.id,
            tuple(passages[id_] for id_ in traced.prediction.evidence or () if id_ in passages),
        )


def read_question(folder: Path, offset: int) -> TracedQuestion:
    """Read the question with the frame that starts at this byte. Raises DataError as `read_trace`."""
    for _, location, line in _frames(folder, offset):
        return _decode(line, location)
    raise DataError(f"{folder}: no question in the trace at byte {offset:,}. {AGAIN}")


def _decode(text: str, location: str) -> TracedQuestion:
    try:
        line = decode_stored(text)
    except ValueError as error:
        raise DataError(f"{location}: damaged trace ({error}). {AGAIN}") from error
    parts = check_json(_TraceLine, line, location)
    prediction = Prediction.of_json(line, parts.question_id, location, parts.notes)
    for call in parts.calls:
        check_call(call.kind, call.request, call.reply, location)
    return TracedQuestion(parts.question, prediction, parts.calls)


def _decode_costs(offset: int, text: str, location: str) -> CostedQuestion:
    try:
        line = _CostLine.model_validate_json(check_size(text))
    except ValueError:
        # damaged, or with a value that only Python's parser reads
        traced = _decode(text, location)
        return CostedQuestion(offset, traced.question, traced.calls)
    return CostedQuestion(offset, line.question, line.calls)


def _trace_file(folder: Path) -> Path:
    for name in (TRACE, PARTIAL_TRACE):
        if (folder / name).is_file():
            return folder / name
    raise DataError(
        f"{folder}: no trace.jsonl.zst, so this is not the folder of a run. Name the folder that kgqa run printed."
    )


def _frames(folder: Path, start: int = 0) -> Iterator[tuple[int, str, str]]:
    """Yield the offset of each frame, its location for messages, and its text."""
    import zstandard

    decompressor, file = zstandard.ZstdDecompressor(), _trace_file(folder)
    offset = start
    if not start and file.name == TRACE:
        check_hash(folder, TRACE)
    try:
        with open_file(file) as source:
            source.seek(start)
            unread = b""
            for number in count(1):
                frame, parts, size = decompressor.decompressobj(), list[bytes](), 0
                while not frame.eof:
                    if not (unread := unread or source.read(_BLOCK)):
                        return
                    parts.append(frame.decompress(unread))
                    unread = frame.unused_data
                    size += len(parts[-1])
                    if size > MOST_BYTES:
                        raise JsonError(f"a question has more than {MOST_BYTES >> 20} MiB")
                location = f"{file} at byte {start:,}" if start else f"{file}:{number}"
                yield offset, location, b"".join(parts).decode("utf-8")
                offset = source.tell() - len(unread)
    except (zstandard.ZstdError, OSError, ValueError) as error:
        raise DataError(f"{file} at byte {offset:,}: damaged trace ({error}). {AGAIN}") from error


Names = Annotated[tuple[str, ...], MinLen(1)]


class NotedChain(Artifact):
    """A reasoning chain. `triples`: the parts of each, then the id of its passage."""

    score: int | float  # can be infinite
    ended: bool
    triples: tuple[Names, ...]


class Notes(Artifact):
    """The notes of a question that `kgqa show` prints, or that scores use.

    cited: the texts that name the passage they come from, each with the id of this passage at the end.
    """

    chains: tuple[NotedChain, ...] = ()
    thoughts: tuple[str, ...] = ()
    cited: tuple[Names, ...] = ()

    @classmethod
    def of(cls, traced: TracedQuestion) -> Notes:
        """Read the notes of a question. Raises DataError if one has another shape."""
        return check_json(Notes, traced.notes, f"question {traced.question.id}: its notes")


def leading_chain(traced: TracedQuestion) -> Sequence[Sequence[str]]:
    """Return the units of the likeliest chain with the answer, or of the likeliest chain; () without chains.

    Chains are in the notes of the method. A unit is a triple, a sentence or a document, and the id of its passage.
    """
    chains = [chain["triples"] for chain in traced.notes.get("chains", ()) if chain["triples"]]
    texts = (" ".join(part for unit in chain for part in unit[:-1]) for chain in chains)
    answer = traced.prediction.answer or ""
    holding = (
        chain for chain, text in zip(chains, texts, strict=True) if contains_words(text, answer)
    )
    return next(holding, chains[0] if chains else ())
