"""A run's folder: what is in it, who may write it, and what makes two runs the same."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kgqa.errors import ConfigError, DataError
from kgqa.runtime.codec import call_json, traced_reply_json
from kgqa.runtime.scheduler import Record
from kgqa.storage import OUT_ELSEWHERE, digest, json_text, jsonl_text, locked, replace_file, storing
from kgqa.types import Answer, Json, Passage, Question

IDENTITY = "identity.json"
PREDICTIONS = "predictions.jsonl"
TRACE = "trace.jsonl.zst"
VERDICTS = "verdicts.jsonl"
_QUESTION = '{"question": '  # how a trace's line begins


class RunFolder:
    """One run's files. Opening it claims it: for this configuration, and against other processes.

    Raises:
        ConfigError: the folder belongs to another configuration, or another process is writing it.
        StorageError: it cannot be created or written.
    """

    def __init__(self, path: Path, identity: Mapping[str, Json]) -> None:
        self.path = path
        with storing(path, OUT_ELSEWHERE), ExitStack() as opened:
            opened.enter_context(locked(path / ".lock", self._refuse, OUT_ELSEWHERE))
            self._claim(identity)
            self._trace = opened.enter_context((path / "trace.partial.jsonl.zst").open("wb"))
            self._partial = opened.enter_context(
                (path / "predictions.partial.jsonl").open(
                    "w",
                    encoding="utf-8",
                    errors="backslashreplace",  # a lone surrogate becomes JSON's own escape
                )
            )
            self._opened = opened.pop_all()

    def record(self, question: Question, answer: Answer | Exception, records: Iterable[Record]) -> None:
        """Keep one finished question: its prediction, and every call it made as a zstd frame of its own."""
        import zstandard

        line = json.dumps(prediction_json(question, answer), ensure_ascii=False)
        traced = json.dumps(_trace_json(question, answer, records), ensure_ascii=False)
        frame = zstandard.ZstdCompressor(level=3).compress(f"{traced}\n".encode("utf-8", "backslashreplace"))
        with storing(self.path, OUT_ELSEWHERE):
            self._partial.write(f"{line}\n")
            self._partial.flush()
            self._trace.write(frame)
            self._trace.flush()

    def write(self, name: str, text: str) -> Path:
        """Replace a file of the folder as a whole."""
        return replace_file(self.path / name, text)

    def write_json(self, name: str, value: Json) -> Path:
        return self.write(name, json_text(value))

    def finish(self, predictions: Iterable[Mapping[str, Json]]) -> None:
        """Write `predictions.jsonl` in the order given; only now the files of an earlier run give way."""
        self.write(PREDICTIONS, jsonl_text(predictions))
        with storing(self.path, OUT_ELSEWHERE):
            (self.path / "trace.partial.jsonl.zst").replace(self.path / TRACE)
            (self.path / "predictions.partial.jsonl").unlink(missing_ok=True)

    def close(self) -> None:
        self._opened.close()

    def _refuse(self) -> None:
        raise ConfigError(f"{self.path}: another kgqa process is writing this run; wait for it or give name=")

    def _claim(self, identity: Mapping[str, Json]) -> None:
        target = self.path / IDENTITY
        if target.exists():
            differing = _differences(_read_identity(target), identity)
            if differing:
                raise ConfigError(
                    f"{self.path} belongs to another configuration; it differs in {', '.join(differing)}; "
                    f"give another name= or out=, or remove the folder"
                )
        else:
            target.write_text(json.dumps(identity, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def run_name(identity: Mapping[str, Json]) -> str:
    """8 hex digits of everything that can change an answer."""
    return digest(identity, 8)


def prediction_json(question: Question, answer: Answer | Exception) -> dict[str, Json]:
    """A line of `predictions.jsonl`. It holds no times, so that equal runs give equal bytes."""
    if isinstance(answer, Exception):
        error = f"{type(answer).__name__}: {answer}"
        return {"question_id": question.id, "answer": None, "error": error, "evidence": []}
    return {
        "question_id": question.id,
        "answer": answer.text,
        "error": None,
        "evidence": list(answer.evidence),
        "evidence_titles": list(answer.evidence_titles),
        "context_tokens": answer.context_tokens,
        "flags": dict(answer.flags),
        "figures": dict(answer.figures),
    }


def read_trace(folder: Path) -> Iterator[dict[str, Json]]:
    """The questions of a run's trace, in the order they finished.

    Raises:
        DataError: there is no trace, or it is damaged. A last frame cut short by an interruption is left out.
    """
    return _trace_lines(folder, json.loads)


def read_questions(folder: Path) -> Iterator[Question]:
    """The same without what was asked for them, which is most of a trace; `support_titles` and more are not in it."""
    decoder = json.JSONDecoder()
    for kept in _trace_lines(folder, lambda line: decoder.raw_decode(line, len(_QUESTION))[0]):
        passages = tuple(Passage(each["id"], each["title"], each["text"]) for each in kept["passages"])
        yield Question(
            kept["id"],
            kept["text"],
            tuple(kept["answers"]),
            passages,
            frozenset(kept["support"]),
            kept["hops"],
            kept["type"],
        )


def _trace_lines(folder: Path, parsed: Callable[[str], Any]) -> Iterator[Any]:
    import zstandard

    whole, partial = folder / TRACE, folder / "trace.partial.jsonl.zst"
    path = whole if whole.is_file() else partial
    if not path.is_file():
        raise DataError(
            f"{folder}: not the folder of a run (no trace.jsonl.zst); give the folder that kgqa run printed"
        )
    with path.open("rb") as file:
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        lines = io.TextIOWrapper(reader, encoding="utf-8")
        try:
            for line in lines:
                if line.endswith("\n"):
                    yield parsed(line)
        except (zstandard.ZstdError, ValueError) as error:
            raise DataError(f"{path}: damaged trace ({error}); run the same command again to rewrite it") from error


def _trace_json(question: Question, answer: Answer | Exception, records: Iterable[Record]) -> dict[str, Json]:
    return {
        "question": {
            "id": question.id,
            "text": question.text,
            "answers": list(question.answers),
            "hops": question.hops,
            "type": question.type,
            "support": sorted(question.support),
            "passages": [{"id": p.id, "title": p.title, "text": p.text} for p in question.passages],
        },
        **prediction_json(question, answer),
        "notes": {} if isinstance(answer, Exception) else dict(answer.notes),
        "calls": [
            {
                "path": list(r.path),
                **call_json(r.call),
                "reply": traced_reply_json(r.call, r.reply),
                "cached": r.cached,
                "queued": round(r.queued, 6),
            }
            for r in records
        ],
    }


def _read_identity(path: Path) -> Mapping[str, Json]:
    try:
        value: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path}: not readable ({error}); remove the folder or give another name=") from error
    return value if isinstance(value, dict) else {}


def _differences(old: Mapping[str, Json], new: Mapping[str, Json], prefix: str = "") -> list[str]:
    """`key: old → new` for every key that differs, nested keys joined by dots."""
    found = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            found += _differences(before, after, f"{prefix}{key}.")
        elif before != after:
            found.append(f"{prefix}{key} ({before} → {after})")
    return found
