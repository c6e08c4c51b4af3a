"""A run's folder while it is written: who may, for which experiment, and each question as it ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

from kgqa.artefacts.metrics import METRICS
from kgqa.artefacts.predictions import PARTIAL_PREDICTIONS, PREDICTIONS, Prediction
from kgqa.artefacts.run import IDENTITY
from kgqa.artefacts.trace import PARTIAL_TRACE, TRACE, TracedCall, TracedQuestion
from kgqa.errors import ConfigError, DataError
from kgqa.json_values import decoded
from kgqa.runtime.codec import traced_call_json, traced_reply_json
from kgqa.runtime.scheduler import CallRecord
from kgqa.storage import OUT_ELSEWHERE, begun, digest, filled, json_text, jsonl_text, locked, replace_file, storing
from kgqa.types import Json, Question


class RunFolder:
    """One run's files. Opening it claims it: for this configuration, and against other processes.

    Raises:
        ConfigError: the folder belongs to another configuration, or another process is writing it.
        StorageError: it cannot be created or written.
    """

    def __init__(self, path: Path, identity: Mapping[str, Json]) -> None:
        self.path = path
        self.heard: Callable[[TracedQuestion], None] = lambda _: None  # told of each question
        with storing(path, OUT_ELSEWHERE), ExitStack() as opened:
            opened.enter_context(locked(path / ".lock", self._refuse, OUT_ELSEWHERE))
            claim_for(path, identity)
            self._trace = opened.enter_context(begun(path / PARTIAL_TRACE).open("wb"))
            self._partial = opened.enter_context(
                begun(path / PARTIAL_PREDICTIONS).open(
                    "w",
                    encoding="utf-8",
                    errors="backslashreplace",  # a lone surrogate becomes JSON's own escape
                )
            )
            self._opened = opened.pop_all()

    def record(self, question: Question, prediction: Prediction, records: Iterable[CallRecord]) -> None:
        """Keep one finished question: its prediction, and every call it made as a zstd frame of its own."""
        import zstandard

        line = json.dumps(prediction.json(), ensure_ascii=False)
        traced = traced_question(question, prediction, records)
        frame = zstandard.ZstdCompressor(level=3).compress(traced.line())
        with storing(self.path, OUT_ELSEWHERE):
            self._partial.write(f"{line}\n")
            self._partial.flush()
            self._trace.write(frame)
            self._trace.flush()
        self.heard(traced)

    def write(self, name: str, text: str) -> Path:
        """Replace a file of the folder as a whole."""
        return replace_file(self.path / name, text)

    def write_json(self, name: str, value: Json) -> Path:
        return self.write(name, json_text(value))

    def finish(self, predictions: Iterable[Prediction]) -> None:
        """Write `predictions.jsonl` in the order given; only now the files of an earlier run give way, first its
        metrics, without which a run has not ended."""
        with storing(self.path, OUT_ELSEWHERE):
            (self.path / METRICS).unlink(missing_ok=True)
        self.write(PREDICTIONS, jsonl_text(prediction.json() for prediction in predictions))
        with storing(self.path, OUT_ELSEWHERE):
            (self.path / PARTIAL_TRACE).replace(self.path / TRACE)
            (self.path / PARTIAL_PREDICTIONS).unlink(missing_ok=True)

    def close(self) -> None:
        """Raises StorageError: what the disk did not take before, it does not take now either."""
        with storing(self.path, OUT_ELSEWHERE):
            self._opened.close()

    def _refuse(self) -> None:
        raise ConfigError(f"{self.path}: another kgqa process is writing this run; wait for it or give name=")


def claim_for(folder: Path, identity: Mapping[str, Json]) -> None:
    """Note whose a folder is. Raises ConfigError: it is another configuration's; the keys that differ are named."""
    target = folder / IDENTITY
    if not filled(target):
        replace_file(target, json_text(identity))  # half of it would lock the folder's owner out
    elif differing := _differences(_read_identity(target), identity):
        raise ConfigError(
            f"{folder} belongs to another configuration; it differs in {', '.join(differing)}; "
            f"give another name= or out=, or remove the folder"
        )


def run_name(identity: Mapping[str, Json]) -> str:
    """8 hex digits of everything that can change an answer."""
    return digest(identity, 8)


def traced_question(question: Question, prediction: Prediction, records: Iterable[CallRecord]) -> TracedQuestion:
    """A question with its calls, as a trace tells it."""
    return TracedQuestion(question, prediction, tuple(map(_traced, records)))


def _traced(record: CallRecord) -> TracedCall:
    written = traced_call_json(record.call)
    kind = written.pop("call")
    reply = traced_reply_json(record.call, record.reply)
    return TracedCall(record.path, kind, written, reply, record.cached, round(record.queued, 6))


def _read_identity(path: Path) -> Mapping[str, Json]:
    try:
        value = decoded(path.read_bytes())
    except ValueError as error:
        raise DataError(f"{path}: not readable ({error}); remove the folder or give another name=") from error
    return value if isinstance(value, dict) else {}


def _differences(old: Mapping[str, Json], new: Mapping[str, Json], prefix: str = "") -> list[str]:
    """`key: old → new` for every key that differs, nested keys joined by dots."""
    lines = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            lines += _differences(before, after, f"{prefix}{key}.")
        elif before != after:
            lines.append(f"{prefix}{key} ({before} → {after})")
    return lines
