"""The folders of finished runs: read one, list and find them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from kgqa.artifacts.evaluation import read_judged_metrics
from kgqa.artifacts.manifest import Manifest, check_hash
from kgqa.artifacts.metrics import METRICS, Metrics
from kgqa.artifacts.predictions import PREDICTIONS
from kgqa.artifacts.schema import Artifact, read
from kgqa.errors import ConfigError, DataError, SeveralRunsError, nearest
from kgqa.types import Json
from kgqa.util.fs import sha256
from kgqa.util.places import outputs
from kgqa.util.settings import name_of

IDENTITY = "identity.json"
# the name of the server in a run's identity
DEPLOYMENT = "engine.deployment"
SETTINGS = "settings.json"
SWEEP = "sweep.json"
NAMED = ("method", "dataset", "retriever", "reranker", "model", "engine")  # in a report's title
# the engine without a model, in its identity
SCRIPTED = "scripted"
# a preset for quick tests
SMALL_MODEL = "smollm2_135m"
SCRIPTED_TARGET = "kgqa.engines.scripted.Scripted"  # in its configuration
MADE_UP = "engine=scripted calls no model, so the scores are meaningless"
# methods that read the gold passages, so that tables do not rank them
UPPER_BOUNDS = ("golden",)
# roles that use the reader's model if they have none
AS_READER = ("explorer", "completer", "teacher", "fact_filter", "summarizer")
Setting = tuple[str, str, str]  # key, value, source


class Chosen(Artifact):
    """`settings.json`: the choices and settings of the groups that the run uses."""

    choices: Mapping[str, str]
    settings: tuple[Setting, ...]


class _ListedCell(Artifact):
    number: int
    name: str
    run: str | None


class _ListedSweep(Artifact):
    """The part of `sweep.json` that a message names. The module of sweeps imports this one."""

    cells: tuple[_ListedCell, ...]


def choose_named(choices: Mapping[str, str]) -> dict[str, str]:
    """Return the choices that name a run, by group. A scripted engine calls no model, so it has none."""
    is_scripted = choices.get("engine") == SCRIPTED
    groups = [group for group in NAMED if not (is_scripted and group == "model")]
    return {group: choices[group] for group in groups if group in choices}


def read_identity(folder: Path) -> dict[str, Any]:
    """Return what identifies a run. Raises DataError: the file is missing or damaged."""
    return read(dict[str, Any], folder / IDENTITY)


def read_settings(folder: Path) -> dict[str, str]:
    """Return the choices and settings of a run by key, with its seed and the number of its repetition.

    `engine.deployment` has the address of the server if it had no name. Raises DataError: a file is missing or damaged.
    """
    stored = read(Chosen, folder / SETTINGS)
    # copied runs can lack it
    identity = read_identity(folder) if (folder / IDENTITY).exists() else {}
    own = {"seed": f"{identity.get('seed', 0)}", "repeat": f"{identity.get('repeat', 1)}"}
    settings = {key: value for key, value, _ in stored.settings}
    with suppress(KeyError, TypeError):
        settings[DEPLOYMENT] = str(identity["answering"]["default"]["deployment"])
    return {**stored.choices, **own, **settings}


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A finished run.

    metrics: with the judge of the verdicts in its folder, also if it is of a later `kgqa evaluate`.
    shares: the scores of each question by metric, if this process made the run. They are not in its files.
    """

    folder: Path
    choices: Mapping[str, str]
    settings: tuple[Setting, ...]
    manifest: Manifest
    metrics: Metrics
    shares: Mapping[str, Mapping[str, float | None]] | None = None

    @classmethod
    def read(cls, folder: Path) -> FinishedRun:
        """Read a finished run. Raises DataError: it is none, is damaged, or its predictions changed after scoring."""
        metrics, manifest = read_judged_metrics(folder), Manifest.read(folder)
        predictions = folder / PREDICTIONS
        if (
            metrics.predictions
            and predictions.is_file()
            and sha256(predictions) != metrics.predictions
        ):
            raise DataError(
                f"{predictions}: changed after it was scored. Run its command again. "
                "To score other answers: kgqa evaluate --predictions FILE"
            )
        settings = read(Chosen, folder / SETTINGS)
        check_hash(folder, SETTINGS)
        return cls(folder, settings.choices, settings.settings, manifest, metrics)

    @property
    def title(self) -> str:
        _, _, *named = choose_named(self.choices).values()
        models = f" with {', '.join(named)}" if named else ""
        answered = f": {self.metrics.answered_text}" if self.metrics.failed else ""
        return f"{self.choices['method']} on {self.choices['dataset']}{models}{answered}"

    @property
    def simulation_note(self) -> str:
        """Return a warning if no model was called, otherwise ""."""
        return (
            MADE_UP
            if SCRIPTED in (name_of(identity) for identity in self.manifest.models.values())
            else ""
        )


LAST = "last"
LEVELS = 4  # outputs/<dataset>/<method>/<model>/<name>
# runs with the same start of the name
SHOWN = 5


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A run, a sweep or a training."""

    folder: Path
    # of a run: dataset, method, model or retriever, name
    parts: tuple[str, ...]
    written: float  # seconds since 1970
    ended: bool

    @property
    def name(self) -> str:
        """Return the name for command lines."""
        return "/".join(self.parts)

    @property
    def when(self) -> str:
        """Return when its last file was written, in local time."""
        return f"{datetime.fromtimestamp(self.written):%Y-%m-%d %H:%M}"


def list_runs(root: Path | None = None) -> list[RunEntry]:
    """List the runs below `outputs/` or another folder, newest first, also unfinished ones.

    Runs with `output_dir=DIR` can be elsewhere.
    """
    return list_folders(root or outputs(), "/".join(["[!.]*"] * LEVELS), METRICS, IDENTITY)


def list_sweeps(root: Path | None = None) -> list[RunEntry]:
    """List the sweeps, newest first. Their names start with "sweeps/"."""
    return list_folders(root or outputs(), "sweeps/[!.]*", "report.html", SWEEP)


def list_folders(root: Path, pattern: str, last_file: str, first_file: str) -> list[RunEntry]:
    """Return the folders with one of these files, newest first. Those with the last file are finished."""
    listed = []
    for folder in root.glob(pattern):
        for file in (last_file, first_file):
            with suppress(OSError):
                mtime = (folder / file).stat().st_mtime
                listed.append(
                    RunEntry(folder, folder.relative_to(root).parts, mtime, file == last_file)
                )
                break
    return sorted(listed, key=lambda entry: (-entry.written, entry.parts))


def find_run(text: str, *, sweeps: bool = False) -> Path:
    """Find a folder by its path, "last" (the run that finished last), or the start of a name such as "trace/smol".

    SWEEP/METHOD is the run of a sweep with this method, SWEEP/NUMBER that of the cell with this number.

    Raises:
        ConfigError: no folder matches, or several do.
    """
    if not sweeps and (Path(text) / SWEEP).is_file():
        raise _refuse_sweep(text, f"{text} is a sweep", _list_cells(Path(text)))
    if any((Path(text) / file).is_file() for file in (IDENTITY, METRICS, PREDICTIONS, SWEEP)):
        return Path(text)
    entries = list_runs() + (list_sweeps() if sweeps else [])
    if text == LAST:
        ended = [entry for entry in entries if entry.ended]
        if not ended:
            raise ConfigError(f"last: no finished run in {outputs()}/. List runs: kgqa runs")
        return max(ended, key=lambda entry: entry.written).folder
    matches = matching(text, entries)
    if not matches and Path(text).is_dir():
        # its reader reports what is missing
        return Path(text)
    if not matches:
        if run := find_cell(text):
            return run
        raise refuse_unknown(text)
    if len(matches) > 1:
        more = f" and {len(matches) - SHOWN} more" if len(matches) > SHOWN else ""
        names = ", ".join(entry.name for entry in matches[:SHOWN])
        newest = sorted(matches, key=lambda entry: -entry.written)
        raise SeveralRunsError(
            f"{text}: matches several runs: {names}{more}. Add more of the name. kgqa runs shows how they differ.",
            text,
            [entry.name for entry in newest if entry.ended] or [newest[0].name],
        )
    return matches[0].folder


def find_cell(text: str) -> Path | None:
    """Return the finished run that SWEEP/METHOD or SWEEP/NUMBER names, or None.

    Raises ConfigError if several runs of the sweep have this method.
    """
    name, _, chosen = text.rpartition("/")
    folder = find_sweep(name)
    cells = _list_cells(folder) if folder else {}
    cells = {
        run: cell for run, cell in cells.items() if chosen in (f"{cell.number}", read_method(run))
    }
    if len(cells) > 1:
        raise _refuse_sweep(text, f"{text}: several runs of this sweep have this method", cells)
    return next(iter(cells), None)


def read_method(run: Path) -> str | None:
    """Return the method of a run, or None if its file is missing or damaged."""
    with suppress(DataError):
        return read(Chosen, run / SETTINGS).choices.get("method")
    return None


def refuse_unknown(text: str) -> ConfigError:
    """Return the error for a name that no run has."""
    if Path(text).is_file():
        return ConfigError(
            f"{text}: a file, not a run. To score answers of another program: "
            f"kgqa evaluate --predictions {text} dataset=NAME"
        )
    if folder := find_sweep(text.rstrip("/")):
        return _refuse_sweep(text, f"{text.rstrip('/')} is a sweep", _list_cells(folder))
    # SWEEP/METHOD without such a cell
    name, _, cell_name = text.rpartition("/")
    if folder := find_sweep(name):
        cells = _list_cells(folder)
        known = {f"{cell.number}" for cell in cells.values()} | {
            *filter(None, map(read_method, cells))
        }
        return ConfigError(
            f"{text}: no finished cell {cell_name} in the sweep {name}. {nearest(cell_name, known)}"
        )
    # as many parts of a name as the text has
    depth = text.count("/") + 1
    names = {
        "/".join(entry.parts[start : start + depth])
        for entry in list_runs() + list_sweeps()
        for start in range(len(entry.parts) - depth + 1)
    }
    close = nearest(text, {*names, LAST})
    remedy = close if close.startswith("Did you mean") else "List runs: kgqa runs"
    if "," in text:
        remedy = "Separate names by spaces"
    return ConfigError(f"{text}: no finished run matches. {remedy}")


def find_sweep(text: str) -> Path | None:
    """Return the folder of the sweep with this name or path."""
    if text and (Path(text) / SWEEP).is_file():
        return Path(text)
    entries = list_sweeps()
    return next(
        (entry.folder for entry in entries if text in (entry.name, entry.parts[-1])),
        None,
    )


def _list_cells(sweep: Path) -> dict[Path, _ListedCell]:
    """Return the finished runs of a sweep with their cells."""
    listed: tuple[_ListedCell, ...] = ()
    with suppress(DataError):
        listed = read(_ListedSweep, sweep / SWEEP).cells
    runs = {Path(cell.run): cell for cell in listed if cell.run}
    return {run: cell for run, cell in runs.items() if (run / METRICS).is_file()}


def _refuse_sweep(word: str, problem: str, runs: Mapping[Path, _ListedCell]) -> ConfigError:
    """Return the error for a word that means several runs of a sweep. It lists the runs."""
    if not runs:
        return ConfigError(f"{problem} without finished runs. List runs: kgqa runs")
    paths = {run: str(run).removeprefix(f"{outputs()}/") for run in runs}
    names = [f"{paths[run]} ({cell.name})" for run, cell in list(runs.items())[:SHOWN]]
    more = f" and {len(runs) - SHOWN} more" if len(runs) > SHOWN else ""
    newest = sorted(runs, key=lambda run: -(run / METRICS).stat().st_mtime)
    message = f"{problem}: name one of its runs: {', '.join(names)}{more}"
    return SeveralRunsError(message, word, [paths[run] for run in newest])


def matching(text: str, entries: Sequence[RunEntry]) -> list[RunEntry]:
    """Return the runs whose name, or its end after a slash, equals this text, or otherwise starts with it."""
    text = text.removeprefix(f"{outputs()}/").rstrip("/")
    equal = [entry for entry in entries if f"/{entry.name}".endswith(f"/{text}")]
    return equal or [entry for entry in entries if f"/{text}" in f"/{entry.name}"]


def run_json(run: RunEntry) -> dict[str, Json]:
    """Return a run as JSON. Scores are None if it is not finished or its metrics cannot be read."""
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
        "em": metrics.score("em").mean if metrics else None,
        "f1": metrics.score("f1").mean if metrics else None,
    }
