"""Choose hyperparameters on dev by a named metric, then run test with the choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev

from kgqa.artifacts.sweep import sweep_name
from kgqa.artifacts.tuning import TUNE, Choice, OnTest, Outcome, TuneRecord
from kgqa.config.axes import Axis, expand_grid, parse_axes
from kgqa.config.overrides import override_values, parse_override
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.session.budget import Budget
from kgqa.experiment.session.experiment import Experiment
from kgqa.report.markdown import document
from kgqa.report.tuning import tuning_sections
from kgqa.runtime.display import Display
from kgqa.runtime.monitor import monitor_work
from kgqa.runtime.sweep_folder import SweepFolder
from kgqa.sweeps.cells import Cell, CellResult, folder_of, freeze_cells
from kgqa.sweeps.metric import score_of
from kgqa.sweeps.running import freeze_texts, open_sweep, run_cells, write_reports
from kgqa.sweeps.tune_split import Part, Tuning, parts
from kgqa.types import Json
from kgqa.util.fs import json_text, outputs, replace_file, text_digest


@dataclass(frozen=True)
class TuneRequest:
    """The parsed command line of `kgqa tune`."""

    tuning: Tuning
    axes: list[Axis]
    budget: Budget | None
    command: tuple[str, ...]

    @classmethod
    def of(cls, arguments: Sequence[str]) -> TuneRequest:
        """Raise ConfigError: an unknown key under `tune.`, or nothing to choose from."""
        own = [argument.removeprefix("tune.") for argument in arguments if argument.startswith("tune.")]
        tuning = Tuning.of(override_values(own))
        budget = next((Budget.of(parse_override(a).value) for a in arguments if a.startswith("budget=")), None)
        given = parse_axes([argument for argument in arguments if not argument.startswith(("tune.", "budget="))])
        _refuse_no_hyperparameters(given)
        return cls(tuning, given, budget, ("kgqa", "tune", *arguments))


@dataclass(frozen=True)
class Candidates:
    """The cells to choose from, frozen, and the questions of dev and test."""

    cells: list[Cell]
    dev: Part
    test: Part

    @classmethod
    def of(cls, request: TuneRequest) -> Candidates:
        """
        Raises:
            ConfigError: a key that would have no effect, or a metric that no run will have.
            DataError: dev and test overlap, or dev names an unknown question.
        """
        cells = freeze_cells(expand_grid(request.axes))
        first = cells[0].experiment
        _refuse_unheeded(first, request.tuning)
        return cls(cells, *parts(first, request.tuning))

    @property
    def dry_run(self) -> bool:
        return self.cells[0].experiment.settings.dry_run

    @cached_property
    def on_dev(self) -> list[Cell]:
        return [on_part(cell, self.dev, "dev") for cell in self.cells]

    def on_test(self, chosen: Cell, sets: Sequence[str]) -> list[Cell]:
        """Return the chosen one, once with each of the sets of demonstrations if there are any."""
        overrides = chosen.experiment.overrides
        keys = [f"method.demonstration_set={name}" for name in sets]
        cells = freeze_cells([(key, [*overrides, key]) for key in keys] or [(chosen.name, overrides)])
        return [on_part(cell, self.test, "test") for cell in cells]


@dataclass(frozen=True)
class Tuned:
    file: Path  # tune.json
    record: TuneRecord  # what it says
    whole: bool  # every cell, of dev and of test, was run to its end


def run_tuning(candidates: Candidates, request: TuneRequest, display: Display) -> Tuned:
    """Try the cells on dev, run test with the best, and keep both in `tune.json`.

    Raises:
        ConfigError: the folder holds another choice, or the runs have no such score.
        DataError: no cell on dev has a score.
    """
    tuning = request.tuning
    tried, test = candidates.on_dev, candidates.test
    name = tuning.name or f"tune-{sweep_name([*freeze_texts(tried), tuning.metric, *test.ids, *tuning.sets])}"
    _refuse_another(name, tuning, test)
    sweeps = _Sweeps(name, request, display)
    results = sweeps.run(tried, "", {axis.key: list(axis.values) for axis in request.axes if axis.swept})
    record = TuneRecord(
        command=request.command,
        metric=tuning.metric,
        sets=tuning.sets,
        dev=candidates.dev.record(),
        test=test.record(),
        tried=tuple(_outcome(result, tuning.metric) for result in results),
    )
    sweeps.keep(record)  # what was tried stays, whatever becomes of the test
    best = _best(results, tuning.metric)
    finals = candidates.on_test(candidates.cells[best.number], tuning.sets)
    ended = sweeps.run(finals, "-test", {"method.demonstration_set": tuning.sets} if tuning.sets else {})
    record = record.replace(chosen=Choice(cell=best.number, settings=best.name), result=_on_test(ended, tuning.metric))
    whole = all(result.status in ("done", "skipped") for result in [*results, *ended])
    return Tuned(sweeps.keep(record), record, whole)


@dataclass(frozen=True)
class _Sweeps:
    """Dev and test cells as two sweeps, `NAME` and `NAME-test`; the record lies with the first."""

    name: str
    request: TuneRequest
    display: Display

    def run(self, cells: Sequence[Cell], suffix: str, swept: Mapping[str, Sequence[Json]]) -> list[CellResult]:
        with self._claim(cells, swept, self.name + suffix) as folder:
            self.display.line(f"{len(cells)} cell{'s' if len(cells) > 1 else ''} in {folder.path}")
            with monitor_work(self.display, "sweep", folder.path) as told, told.cells(folder.path):
                results = run_cells(cells, folder, budget=self.request.budget)
            write_reports(folder.path)
        return results

    def _claim(self, cells: Sequence[Cell], swept: Mapping[str, Sequence[Json]], name: str) -> SweepFolder:
        """Return the claim in the words of this command."""
        try:
            return open_sweep(cells, self.request.command, swept, name)
        except ConfigError as error:
            raise ConfigError(str(error).replace("sweep.name=", "tune.name=")) from error

    def keep(self, record: TuneRecord) -> Path:
        folder = outputs() / "sweeps" / self.name
        if record.result:
            replace_file(folder / "tune.md", document("What was tuned", tuning_sections(record)))
        return replace_file(folder / TUNE, json_text(record.json()))


def on_part(cell: Cell, part: Part, name: str) -> Cell:
    """Return the cell over a part's questions, in a run folder of its own: what a run is called does not depend on
    them.
    """
    frozen = cell.experiment.config
    moved = {**frozen["dataset"], **({"path": part.path} if part.path else {})}
    config = {**frozen, "dataset": moved, "limit": None, "sample": None}
    overrides = cell.experiment.overrides
    digest = text_digest(" ".join(part.ids), 8)
    run = f"{folder_of(Experiment.of(overrides, config)).name}-{name}-{digest}"
    path = [f"dataset.path='{part.path}'"] if part.path else []
    given = (*overrides, *path, "limit=null", f"name={run}", f"ids=[{','.join(part.ids)}]")
    return replace(cell, experiment=Experiment.of(given, {**config, "name": run, "ids": list(part.ids)}))


def _refuse_no_hyperparameters(given: Sequence[Axis]) -> None:
    swept = [axis.key for axis in given if axis.swept]
    if not swept:
        raise ConfigError("nothing to choose from: give a key several values, e.g. method.passages_per_step=2,4,6,8")
    for key in swept:
        scoring = ("dataset", "collection", "judge", "limit", "sample", "ids", "seed", "profile", "roles.judge")
        if key in scoring or key.partition(".")[0] in ("dataset", "collection", "judge"):
            raise ConfigError(f"{key}: is no hyperparameter; tune for one value of it at a time")


def _refuse_unheeded(experiment: Experiment, tuning: Tuning) -> None:
    """Raise ConfigError: a key that would have no effect, or a metric that no run will have."""
    if experiment.settings.out or experiment.settings.name:
        raise ConfigError("out= and name=: dev and test runs have folders of their own; give tune.name=")
    settings = experiment.settings
    if any(chosen is not None for chosen in (settings.limit, settings.sample, settings.ids)):
        raise ConfigError(
            "limit=, sample=, ids=: which questions are asked is for tune.dev=, tune.test=, tune.dev_ids="
        )
    if tuning.metric == "judge" and experiment.judge is None:
        raise ConfigError("tune.metric=judge: the runs have no such score (give judge=NAME)")


def _refuse_another(name: str, tuning: Tuning, test: Part) -> None:
    """Raise ConfigError: the folder holds the record of another choice. That dev is the same, `open_sweep` sees."""
    folder = outputs() / "sweeps" / name
    if not (folder / TUNE).is_file():
        return
    kept = TuneRecord.read(folder)
    if (kept.metric, kept.sets, kept.test) != (tuning.metric, tuning.sets, test.record()):
        raise ConfigError(
            f"{folder / TUNE}: the record of another metric, test or sets; give another tune.name=, or remove it"
        )


def _outcome(result: CellResult, metric: str) -> Outcome:
    return Outcome(
        cell=result.cell.number,
        settings=result.cell.name,
        run=str(result.run) if result.run else None,
        status="done" if result.status == "skipped" else result.status,
        error=result.error,
        score=score_of(result, metric),
    )


def _best(results: Sequence[CellResult], metric: str) -> Cell:
    """Return the first of those with the highest mean."""
    scores = [(score, result.cell) for result in results if (score := score_of(result, metric))]
    means = [(score.mean, cell) for score, cell in scores if score.mean is not None]
    if not means:
        raise DataError(f"none of the {len(results)} cells on dev has a score, the first: {results[0].error}")
    return max(means, key=lambda scored: scored[0])[1]


def _on_test(ended: Sequence[CellResult], metric: str) -> OnTest:
    runs = tuple(_outcome(result, metric) for result in ended)
    means = [run.score.mean for run in runs if run.score and run.score.mean is not None]
    whole = len(means) == len(runs)
    return OnTest(
        runs=runs, mean=fmean(means) if whole else None, std=stdev(means) if whole and len(runs) > 1 else None
    )
