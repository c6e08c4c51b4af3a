"""`progress.jsonl`: what a trainer says while it works, a line each; a crash leaves it behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kgqa.artefacts.form import LEFT_OUT, Number, as_json, checked
from kgqa.errors import DataError
from kgqa.json_values import NotJson, decoded
from kgqa.storage import begun, storing

PROGRESS = "progress.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """`event`: begin, step, held_out, saved, note, end. `tokens` and `seconds`: of all steps so far."""

    event: str
    step: int = 0
    steps: int | None = field(default=None, metadata=LEFT_OUT)
    epoch: Number | None = field(default=None, metadata=LEFT_OUT)
    loss: Number | None = field(default=None, metadata=LEFT_OUT)  # nats a token, or a pair
    learning_rate: Number | None = field(default=None, metadata=LEFT_OUT)
    tokens: int | None = field(default=None, metadata=LEFT_OUT)
    seconds: Number | None = field(default=None, metadata=LEFT_OUT)
    text: str | None = field(default=None, metadata=LEFT_OUT)


class Progress:
    """Where the trainer writes; of several processes only the first does."""

    def __init__(self, folder: Path, *, writes: bool = True) -> None:
        self._file = folder / PROGRESS if writes else None

    def say(self, said: Said) -> None:
        """Raises StorageError: the disk is full or refuses."""
        if self._file is None:
            return
        with storing(self._file), begun(self._file).open("a", encoding="utf-8") as lines:
            lines.write(f"{json.dumps(as_json(said))}\n")

    def held_out(self, step: int, loss: float | None) -> None:
        """loss: None where no examples are held out."""
        if loss is not None:
            self.say(Said(event="held_out", step=step, loss=loss))


class Listener:
    """What is said from now on."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / PROGRESS
        self._at = self._file.stat().st_size if self._file.is_file() else 0

    def heard(self) -> Iterator[Said]:
        """What came since the last time; a line that is not written to its end comes the next time."""
        if not self._file.is_file():
            return
        with self._file.open("rb") as lines:
            lines.seek(self._at)
            for line in lines:
                if not line.endswith(b"\n"):
                    return
                self._at += len(line)
                if said := _said(line, str(self._file)):
                    yield said


def told(folder: Path) -> list[Said]:
    """All that was said, of each step what was said last: one that was taken again after a crash stands there once."""
    file = folder / PROGRESS
    if not file.is_file():
        return []
    by_place: dict[tuple[str, int], Said] = {}
    for line in file.read_bytes().splitlines():
        if said := _said(line, str(file)):
            by_place.pop((said.event, said.step), None)
            by_place[said.event, said.step] = said
    return list(by_place.values())


def _said(line: bytes, place: str) -> Said | None:
    """None for half a line, which a crash or a full disk leaves."""
    try:
        return checked(Said, decoded(line), place)
    except (NotJson, DataError):
        return None
