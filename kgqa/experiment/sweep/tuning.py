"""`kgqa tune`: choose hyperparameters on dev by a named metric, then run test with the choice."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from kgqa.errors import ConfigError, DataError
from kgqa.experiment.config.axes import Axis, axes, grid
from kgqa.experiment.run.executing import yaml_text
from kgqa.experiment.session.session import Session
from kgqa.experiment.sweep.budget import SweepBudget
from kgqa.experiment.sweep.estimates import plan_cells
from kgqa.experiment.sweep.parts import Part, Tuning, parts
from kgqa.experiment.sweep.running import Cell, CellResult, frozen_cells, open_sweep, run_cells
from kgqa.report.content import Section
from kgqa.report.evaluation import print_sections
from kgqa.report.markdown import document
from kgqa.report.summary import interval_text
from kgqa.report.sweep_progress import board
from kgqa.report.sweep_writing import write_sweep_report
from kgqa.runtime.sweep_folder import SweepFolder, sweep_name
from kgqa.storage import json_text, outputs, replace_file, text_digest
from kgqa.types import Json

if TYPE_CHECKING:
    from rich.console import Console


def tune(arguments: Sequence[str]) -> int:
    """Try the grid on dev, run test with the best, keep both in `tune.json`; that file is the last line printed.

    Gives 2 if a cell failed or was not run, of dev or of test.
    """
    from rich.console import Console

    own = [each.removeprefix("tune.").partition("=") for each in arguments if each.startswith("tune.")]
    tuning = Tuning.of({key: value for key, _, value in own})
    budget = next((SweepBudget.of(a.partition("=")[2]) for a in arguments if a.startswith("budget=")), None)
    found = axes([each for each in arguments if not each.startswith(("tune.", "budget="))])
    _refuse_no_hyperparameters(found)
    candidates = frozen_cells(grid(found))
    with Session(candidates[0].overrides, candidates[0].config) as session:
        _refuse_unheeded(session, tuning)
        dev, test = parts(session, tuning)
    if candidates[0].config["dry_run"]:
        return plan_cells([over(cell, dev, "dev") for cell in candidates], Console(), budget)
    tried = [over(cell, dev, "dev") for cell in candidates]
    frozen = [yaml_text(cell.config) for cell in tried]
    name = tuning.name or f"tune-{sweep_name([*frozen, tuning.metric, *test.ids, *tuning.sets])}"
    _refuse_another(name, tuning, test)
    runs = _Runs(["kgqa", "tune", *arguments], name, budget, Console(width=None if sys.stdout.isatty() else 160))
    results = runs.of(tried, "", {axis.key: list(axis.values) for axis in found if axis.swept})
    record: dict[str, Json] = {
        "command": runs.command,
        "metric": tuning.metric,
        "sets": list(tuning.sets),
        "dev": dev.json(),
        "test": test.json(),
        "tried": [_outcome(result, tuning.metric) for result in results],
    }
    runs.keep(record)  # what was tried stays, whatever becomes of the test
    best = _best(results, tuning.metric)
    record["chosen"] = {"cell": best.number, "settings": best.name}
    finals = _finals(candidates[best.number], test, tuning.sets)
    ended = runs.of(finals, "-test", {"method.demonstration_set": list(tuning.sets)} if tuning.sets else {})
    record["result"] = _summary(ended, tuning.metric)
    file = runs.keep(record)
    print_sections(runs.console, f"{tuning.metric} chosen on dev, measured on test", sections(record))
    sys.stdout.write(f"{file}\n")
    return 0 if all(result.status in ("done", "skipped") for result in [*results, *ended]) else 2


@dataclass(frozen=True)
class _Runs:
    """Dev and test cells as two sweeps, `NAME` and `NAME-test`; the record lies with the first."""

    command: list[str]
    name: str
    budget: SweepBudget | None
    console: Console

    def of(self, cells: Sequence[Cell], suffix: str, swept: Mapping[str, Json]) -> list[CellResult]:
        with self._claimed(cells, swept, self.name + suffix) as folder:
            said = f"{len(cells)} cell{'s' if len(cells) > 1 else ''} in {folder.path}"
            self.console.print(said, highlight=False, markup=False, soft_wrap=True)
            with board(folder.path, self.console):
                results = run_cells(cells, folder, budget=self.budget)
            for form in ("md", "html"):
                write_sweep_report(folder.path, form)
        return results

    def _claimed(self, cells: Sequence[Cell], swept: Mapping[str, Json], name: str) -> SweepFolder:
        """In the words of this command."""
        try:
            return open_sweep(cells, self.command, swept, name)
        except ConfigError as error:
            raise ConfigError(str(error).replace("sweep.name=", "tune.name=")) from error

    def keep(self, record: Mapping[str, Json]) -> Path:
        folder = outputs() / "sweeps" / self.name
        if "result" in record:
            replace_file(folder / "tune.md", document("What was tuned", sections(record)))
        return replace_file(folder / "tune.json", json_text(record))


def over(cell: Cell, part: Part, name: str) -> Cell:
    """The cell over a part's questions, in a run folder of its own: what a run is called does not depend on them."""
    moved = {**cell.config["dataset"], **({"path": part.path} if part.path else {})}
    config = {**cell.config, "dataset": moved, "limit": None}
    with Session(cell.overrides, config) as session:
        digest = text_digest(" ".join(part.ids), 8)
        run = f"{session.folder.name}-{name}-{digest}"
    path = [f"dataset.path='{part.path}'"] if part.path else []
    given = (*cell.overrides, *path, "limit=null", f"name={run}", f"ids=[{','.join(part.ids)}]")
    return replace(cell, overrides=given, config={**config, "name": run, "ids": list(part.ids)})


def sections(record: Mapping[str, Json]) -> list[Section]:
    """What `tune.md` and the terminal show."""
    tried = [
        (f"{'→ ' if each['cell'] == record['chosen']['cell'] else ''}{each['settings']}", _shown(each))
        for each in record["tried"]
    ]
    counts = f"{record['dev']['questions']:,} dev and {record['test']['questions']:,} test questions, none in both"
    measured = record["result"]
    ended = [(each["settings"], _shown(each)) for each in measured["runs"]]
    if measured["mean"] is not None and measured["std"] is not None:
        ended.append(("mean ± standard deviation", f"{measured['mean']:.1f} ± {measured['std']:.1f}"))
    return [
        Section("Tried on dev", ("settings", record["metric"]), tried, (f"{counts}; their ids are in tune.json.",)),
        Section("On test, with the choice", ("settings", record["metric"]), ended),
    ]


def _refuse_no_hyperparameters(found: Sequence[Axis]) -> None:
    swept = [axis.key for axis in found if axis.swept]
    if not swept:
        raise ConfigError("nothing to choose from: give a key several values, e.g. method.passages_per_step=2,4,6,8")
    for key in swept:
        scoring = ("dataset", "collection", "judge", "limit", "ids", "seed", "profile", "roles.judge")
        if key in scoring or key.partition(".")[0] in ("dataset", "collection", "judge"):
            raise ConfigError(f"{key}: is no hyperparameter; tune for one value of it at a time")


def _refuse_unheeded(session: Session, tuning: Tuning) -> None:
    """Raises ConfigError: a key that would have no effect, or a metric that no run will have."""
    if session.settings.out or session.settings.name:
        raise ConfigError("out= and name=: dev and test runs have folders of their own; give tune.name=")
    if session.settings.limit is not None or session.settings.ids is not None:
        raise ConfigError("limit= and ids=: which questions are asked is for tune.dev=, tune.test=, tune.dev_ids=")
    if tuning.metric == "judge" and session.judge is None:
        raise ConfigError("tune.metric=judge: the runs have no such score (give judge=NAME)")


def _refuse_another(name: str, tuning: Tuning, test: Part) -> None:
    """Raises ConfigError: the folder holds the record of another choice. That dev is the same, `open_sweep` sees."""
    file = outputs() / "sweeps" / name / "tune.json"
    if not file.is_file():
        return
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        same = (kept["metric"], kept["sets"], kept["test"]) == (tuning.metric, list(tuning.sets), test.json())
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file}: not a record of kgqa tune ({error!r}); give another tune.name=") from error
    if not same:
        raise ConfigError(f"{file}: the record of another metric, test or sets; give another tune.name=, or remove it")


def _finals(chosen: Cell, test: Part, sets: Sequence[str]) -> list[Cell]:
    given = [
        (f"method.demonstration_set={each}", [*chosen.overrides, f"method.demonstration_set={each}"]) for each in sets
    ]
    return [over(cell, test, "test") for cell in frozen_cells(given or [(chosen.name, chosen.overrides)])]


def measured(result: CellResult, metric: str, key: str = "tune.metric") -> Mapping[str, Json] | None:
    """Raises ConfigError: the run has no such score."""
    metrics = result.metrics
    if metrics is None or result.status in ("failed", "not run"):
        return None
    if metric.startswith("recall@"):
        recall = metrics.get("retrieval", {}).get("recall", {})
        found = recall.get(metric.partition("@")[2])
        known = ", ".join(f"recall@{budget}" for budget in recall) or "none: the method does not retrieve"
    else:
        found = metrics.get("judge", {}).get("accuracy") if metric == "judge" else metrics["scores"][metric]
        known = "give judge=NAME" if metric == "judge" else "the data set does not define it for these questions"
    if found is None or found["mean"] is None:
        raise ConfigError(f"{key}={metric}: the runs have no such score ({known})")
    score: Mapping[str, Json] = found
    return score


def _outcome(result: CellResult, metric: str) -> dict[str, Json]:
    score = measured(result, metric)
    return {
        "cell": result.cell.number,
        "settings": result.cell.name,
        "run": str(result.run) if result.run else None,
        "status": "done" if result.status == "skipped" else result.status,
        "error": result.error,
        "score": dict(score) if score else None,
    }


def _best(results: Sequence[CellResult], metric: str) -> Cell:
    """The first of those with the highest mean."""
    means = [(score["mean"], result.cell) for result in results if (score := measured(result, metric))]
    if not means:
        raise DataError(f"none of the {len(results)} cells on dev has a score, the first: {results[0].error}")
    return max(means, key=lambda each: each[0])[1]


def _summary(ended: Sequence[CellResult], metric: str) -> dict[str, Json]:
    runs = [_outcome(result, metric) for result in ended]
    means = [each["score"]["mean"] for each in runs if each["score"]]
    return {
        "runs": runs,
        "mean": fmean(means) if len(means) == len(runs) else None,
        "std": stdev(means) if len(means) == len(runs) > 1 else None,
    }


def _shown(outcome: Mapping[str, Json]) -> str:
    return interval_text(outcome["score"]) if outcome["score"] else f"{outcome['status']}: {outcome['error']}"
