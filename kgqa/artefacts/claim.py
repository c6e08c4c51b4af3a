"""What a process that works says of itself, for `kgqa status`: one small file below `outputs/.running`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kgqa.artefacts.form import Number, as_json, read
from kgqa.storage import outputs
from kgqa.types import Json

SUFFIX = ".json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Times are seconds since 1970. Rates and `seconds_left` are of the last minutes; None: nothing is known yet.

    `ended`, `failed`, `count`: of what `stage` counts; a `count` of None is not known. `usd` is None where a price is
    not known. `waits_for`: what keeps the work from going on, if something does.
    """

    what: str  # run, sweep, kg build, index build, judge, verify
    folder: str
    command: str  # "" from Python
    host: str
    pid: int
    started: Number
    updated: Number
    stage: str = ""
    ended: int = 0
    failed: int = 0
    count: int | None = None
    calls: int = 0  # of models, paid in this command
    tokens: int = 0
    usd: Number | None = None
    per_minute: Number | None = None
    tokens_per_second: Number | None = None
    seconds_left: Number | None = None
    waits_for: str | None = None

    @classmethod
    def read(cls, file: Path) -> Claim:
        """Raises DataError: it is gone, or damaged."""
        return read(cls, file, missing="the work has ended", remedy="remove it")

    def json(self) -> dict[str, Json]:
        written: dict[str, Json] = as_json(self)
        return written


def claims_folder(root: Path | None = None) -> Path:
    """Of `outputs/`, or of another folder in its place."""
    return (root or outputs()) / ".running"
