"""The runs and sweeps that lie in `outputs/`, and the one that a word stands for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from kgqa.artifacts.metrics import METRICS, Metrics
from kgqa.artifacts.predictions import PREDICTIONS
from kgqa.artifacts.run import IDENTITY
from kgqa.artifacts.sweep import SWEEP
from kgqa.errors import ConfigError, DataError
from kgqa.types import Json
from kgqa.util.fs import outputs

LAST = "last"
LEVELS = 4  # outputs/<dataset>/<method>/<model>/<name>
TOLD_BY = (IDENTITY, METRICS, PREDICTIONS, SWEEP)  # one of them is in every folder of a run or sweep
SHOWN = 5  # of several that a word may stand for


@dataclass(frozen=True, slots=True)
class Kept:
    """A run or a sweep. `written`: when it last was, as its files say, in seconds since 1970."""

    folder: Path
    parts: tuple[str, ...]  # of a run: dataset, method, model (of a method that asks none: retriever), name
    written: float
    ended: bool

    @property
    def name(self) -> str:
        """Return the name, which can be typed wherever a run is expected."""
        return "/".join(self.parts)


def list_runs(root: Path | None = None) -> list[Kept]:
    """List the runs below `outputs/` or another folder, newest first, also unfinished ones.

    Runs with `out=DIR` can be elsewhere.
    """
    return sorted(_runs(root or outputs()), key=lambda run: (-run.written, run.parts))


def list_sweeps(root: Path | None = None) -> list[Kept]:
    """List the sweeps, newest first. Their names start with "sweeps/"."""
    folders = _folders((root or outputs()) / "sweeps", 1)
    sweeps = (_find_readable(folder, folder.parts[-2:], "report.html", SWEEP) for folder in folders)
    return sorted((sweep for sweep in sweeps if sweep), key=lambda sweep: (-sweep.written, sweep.parts))


def find_run(text: str, *, sweeps: bool = False) -> Path:
    """Find a folder by its path, "last", or the start of a run's name, e.g. "bee" or "trace/smol".

    "last" is the one that ended last. `sweeps`: it may be a sweep, too.

    Raises:
        ConfigError: there is none, or there are several.
    """
    if any((Path(text) / file).is_file() for file in TOLD_BY):
        return Path(text)
    known = list_runs() + (list_sweeps() if sweeps else [])
    if text == LAST:
        ended = [kept for kept in known if kept.ended]
        if not ended:
            raise ConfigError(f"last: no run in {outputs()}/ has ended; see kgqa runs")
        return max(ended, key=lambda kept: kept.written).folder
    matches = matching(text, known)
    if not matches and Path(text).is_dir():
        return Path(text)  # whoever reads it says what it lacks
    if not matches:
        raise ConfigError(f"{text}: not the folder of a run that ended, nor how a run's name begins; see kgqa runs")
    if len(matches) > 1:
        more = f" and {len(matches) - SHOWN} more" if len(matches) > SHOWN else ""
        names = ", ".join(kept.name for kept in matches[:SHOWN])
        raise ConfigError(f"{text}: stands for several: {names}{more}; give more of it")
    return matches[0].folder


def matching(text: str, known: Sequence[Kept]) -> list[Kept]:
    """Return the runs with a name, or an end of it after a slash, that equals this text, otherwise those that start
    with it.
    """
    text = text.removeprefix(f"{outputs()}/").rstrip("/")
    ends = {kept: ["/".join(kept.parts[place:]) for place in range(len(kept.parts))] for kept in known}
    return [kept for kept in known if text in ends[kept]] or [
        kept for kept in known if any(end.startswith(text) for end in ends[kept])
    ]


def _runs(root: Path) -> Iterator[Kept]:
    for folder in _folders(root, LEVELS):
        if run := _find_readable(folder, folder.parts[-LEVELS:], METRICS, IDENTITY):
            yield run


def _find_readable(folder: Path, parts: tuple[str, ...], ending: str, beginning: str) -> Kept | None:
    """Return None for another folder."""
    ended = _read_time(folder / ending)
    written = _read_time(folder / beginning) if ended is None else ended
    return None if written is None else Kept(folder, parts, written, ended is not None)


def _read_time(file: Path) -> float | None:
    try:
        return file.stat().st_mtime
    except OSError:
        return None


def _folders(root: Path, levels: int) -> Iterable[Path]:
    """Return the folders `levels` down, without hidden ones."""
    try:
        with os.scandir(root) as entries:
            below = [Path(entry.path) for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
    except OSError:  # none, or removed meanwhile
        return []
    return below if levels == 1 else [folder for parent in below for folder in _folders(parent, levels - 1)]


def run_json(run: Kept) -> dict[str, Json]:
    """Return a run for other programs. Scores are None if it is not finished or its metrics cannot be read."""
    dataset, method, model, _ = run.parts
    try:
        metrics = Metrics.read(run.folder) if run.ended else None
    except DataError:
        metrics = None
    return {
        "folder": str(run.folder),
        "dataset": dataset,
        "method": method,
        "model": model,
        "written": datetime.fromtimestamp(run.written).astimezone().isoformat(timespec="seconds"),
        "ended": run.ended,
        "questions": metrics.questions if metrics else None,
        "failed": metrics.failed if metrics else None,
        "em": metrics.scores.em.mean if metrics else None,
        "f1": metrics.scores.f1.mean if metrics else None,
    }
