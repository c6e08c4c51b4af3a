"""`choice.json`: trainings that differ in some values, what each came to, and which of them was chosen."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kgqa.artefacts.form import LEFT_OUT, Number, as_json, read
from kgqa.types import Json

CHOICE = "choice.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedTraining:
    """`loss`: of the held-out examples after it, nats a label; None where it has not ended.

    above: how much more than the chosen one's, the mean over the same held-out examples with its 95 % paired bootstrap
    interval; None of the chosen one, and where there is no loss of each example.
    """

    settings: str  # the values that differ
    folder: str
    error: str | None = None
    loss: Number | None = None
    above: tuple[Number, Number, Number] | None = field(default=None, metadata=LEFT_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingChoice:
    """`chosen`: its place among those tried, the first with the lowest loss. `untrained`: the loss before."""

    command: tuple[str, ...]
    recipe: str
    held_out: int  # examples
    untrained: Number | None
    tried: tuple[TriedTraining, ...]
    chosen: int

    @classmethod
    def read(cls, folder: Path) -> TrainingChoice:
        """Raises DataError: not a record of `kgqa train -m`; the key is named."""
        return read(cls, folder / CHOICE, remedy="run its command again")

    def json(self) -> dict[str, Json]:
        written: dict[str, Json] = as_json(self)
        return written
