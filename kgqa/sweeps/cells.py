"""A cell of a sweep or of a paper's table: a frozen experiment with its result, or with the estimate of its calls."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from kgqa.artifacts.manifest import StageManifest
from kgqa.artifacts.metrics import Cost, Estimate, Metrics
from kgqa.artifacts.schema import as_json
from kgqa.artifacts.sweep import CellState, SweepCell, cell_file, questions_asked
from kgqa.artifacts.verdicts import STAGE, VerificationOutcome
from kgqa.cache.store import CallCache
from kgqa.config.files import flatten, format_yaml, load_yaml
from kgqa.errors import ConfigError, KgqaError
from kgqa.experiment.check import check
from kgqa.experiment.dry_run import Shared, plan_calls
from kgqa.experiment.engines import Pool
from kgqa.experiment.estimates import Estimated, Estimator, Range
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.run import find_finished_run
from kgqa.experiment.session import Session
from kgqa.runtime.costs import Spent
from kgqa.scoring.questions import METRICS
from kgqa.training.verify import load_verification, plan_verification, verification_folder
from kgqa.types import Json
from kgqa.util.fs import call_cache, text_digest

Status = Literal["waiting", "running", "done", "skipped", "failed", "not run", "interrupted", "changed"]
FINISHED = Estimated(0, 0, Range(), Range(), None)  # of a cell that needs no calls
MODELS = ("model", "engine", "roles", "judge")  # the groups that decide which engines a cell needs


@dataclass
class Cell:
    """One experiment with its frozen configuration, which stays the same if conf/ changes.

    skipped: its run was finished before. failed: no run, or one with more failed questions than `max_failure_rate`.
    outcome: instead of metrics, for a cell that verifies questions.
    """

    number: int
    name: str
    experiment: Experiment
    status: Status = "waiting"
    run: Path | None = None  # the run's folder
    seconds: float = 0.0
    error: str | None = None  # one line
    metrics: Metrics | None = None
    outcome: VerificationOutcome | None = None
    paid: Spent = field(default_factory=Spent)  # in this process

    @classmethod
    def read(cls, sweep: Path, listed: SweepCell) -> Cell:
        """Read a cell's frozen configuration."""
        config = load_yaml(cell_file(sweep, listed.number, "yaml"))
        return cls(listed.number, listed.name, Experiment.of(listed.overrides, config))

    @property
    def is_finished(self) -> bool:
        return self.status in ("done", "skipped")

    @cached_property
    def frozen(self) -> str:
        """Return the configuration as YAML."""
        return format_yaml(self.experiment.config)

    @property
    def listed(self) -> SweepCell:
        """Return the cell as `sweep.json` lists it."""
        run = str(self.run) if self.run else None
        overrides, frozen = self.experiment.overrides, text_digest(self.frozen, 16)
        return SweepCell(number=self.number, name=self.name, overrides=overrides, run=run, frozen=frozen)

    @property
    def figures(self) -> Mapping[str, Json] | None:
        """Return what the cell measured, with the number of its `questions`."""
        if self.metrics is not None:
            return self.metrics.json()
        figures: Mapping[str, Json] | None = as_json(self.outcome) if self.outcome else None
        return figures

    @property
    def costs(self) -> list[Cost]:
        """Return the costs as if nothing had been cached, with the judge's cost separate."""
        if self.metrics is None:
            return [self.outcome.cost.method] if self.outcome and self.outcome.cost else []
        judged = self.metrics.judge
        return [self.metrics.cost.method, *([judged.cost.method] if judged else [])]

    def score(self, metric: str, key: str) -> Estimate | None:
        """Return a score, or None without a finished run. Raises ConfigError if its run has no such score."""
        metrics = self.metrics
        if metrics is None or not self.is_finished:
            return None
        scores = dict(metrics.scores)
        if metrics.judge:
            scores["judge"] = metrics.judge.accuracy
        if metrics.retrieval:
            scores |= {f"recall@{budget}": recall for budget, recall in metrics.retrieval.recall.items()}
        score = scores.get(metric)
        if score is None or score.mean is None:
            known = [name for name, each in scores.items() if each.mean is not None]
            raise ConfigError(f"{key}={metric}: the runs have no such score. Choose from {', '.join(known)}")
        return score

    def write_state(self, sweep: Path) -> None:
        """Store the state. A skipped cell is done, so that an interrupted sweep ends with the same files."""
        status = "done" if self.status == "skipped" else self.status
        assert status != "waiting"
        questions = questions_asked(self.run) if status == "done" and self.run and self.metrics else None
        run = str(self.run) if self.run else None
        CellState(status=status, run=run, seconds=self.seconds, error=self.error, asked=questions).write(
            sweep, self.number
        )

    def read_state(self, sweep: Path) -> None:
        """Read how a cell ended that another process ran."""
        state = CellState.read(sweep, self.number)
        if state is None or state.status == "running":
            self.status = "not run"
            self.error = f"its process ended early. See {cell_file(sweep, self.number, 'log')}"
            self.write_state(sweep)
            return
        self.status, self.seconds, self.error = state.status, float(state.seconds), state.error
        self.run = Path(state.run) if state.run else None
        if self.run and state.status == "done":
            if self.experiment.verifies:
                self.outcome = StageManifest.read(self.run, STAGE).read_outcome(VerificationOutcome, self.run)
            else:
                self.metrics = Metrics.read(self.run)

    def skip_if_finished(self, session: Session) -> bool:
        """Take the result of a run that is finished with this configuration and these questions."""
        if self.experiment.verifies:
            self.outcome = load_verification(session)
        else:
            self.metrics = find_finished_run(session)
        if self.outcome is None and self.metrics is None:
            return False
        self.status = "skipped"
        return True


def check_metric(key: str, metric: str) -> None:
    """Raise ConfigError if there is no such score."""
    scores = [name for name, score in METRICS.items() if not score.lower_is_better]
    if metric not in (*scores, "judge") and not re.fullmatch(r"recall@[1-9]\d*", metric):
        raise ConfigError(f"{key}={metric}: choose from {', '.join(scores)}, judge, recall@K")


def freeze_cells(named: Iterable[tuple[str, Sequence[str]]]) -> list[Cell]:
    """Compose cells from names and overrides.

    Raises ConfigError for overrides that cannot be composed, or a key of a wrong value.
    """
    return [Cell(number, name, Experiment.of(overrides)) for number, (name, overrides) in enumerate(named)]


def result_folder(experiment: Experiment) -> Path:
    """Return the folder of the run, or of its verdicts."""
    if not experiment.verifies:
        return experiment.run_folder()
    with Session(experiment) as session:
        return verification_folder(session).path


def place_cells(cells: Sequence[Cell]) -> None:
    """Set where each cell's run is or will be, if nothing is missing that decides its name.

    Raises ConfigError if two cells with different settings would write one folder.
    """
    owners: dict[Path, Cell] = {}
    for cell in cells:
        with suppress(KgqaError):
            cell.run = result_folder(cell.experiment)
        if cell.run is None:
            continue
        owner = owners.setdefault(cell.run, cell)
        if owner.frozen != cell.frozen:
            raise ConfigError(
                f"cells {owner.number} ({owner.name}) and {cell.number} ({cell.name}) would write to the same run, "
                f"{cell.run}: what differs does not change answers. Make two sweeps, or remove run_name="
            )


def group_by_models(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Group cells by the models they need, in the order in which the models first occur."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        key = json.dumps([cell.experiment.config.get(key) for key in MODELS], sort_keys=True)
        groups.setdefault(key, []).append(cell)
    return list(groups.values())


def differing_settings(cells: Sequence[Cell]) -> dict[str, tuple[Json, ...]]:
    """Return the values by cell of each key that all cells have with different values. Groups have their choices."""
    if not cells:
        return {}
    configs = [cell.experiment.config for cell in cells]
    choices = [config["choices"] for config in configs]
    rows = [flatten({key: value for key, value in config.items() if key != "choices"}) for config in configs]
    keys = [key for key in rows[0] if not key.endswith("_target_") and all(key in row for row in rows)]
    columns = {group: tuple(chosen.get(group) for chosen in choices) for group in choices[0]}
    columns |= {key: tuple(row[key] for row in rows) for key in keys}
    return {key: values for key, values in columns.items() if any(value != values[0] for value in values)}


def estimate_cells(cells: Sequence[Cell], first: int | None = None) -> list[Estimated | str]:
    """Return the estimate of each cell, or the reason why it cannot run. Makes no model calls and writes no files.

    first: estimate from the first N questions of each cell only, which takes seconds where all questions take hours.
    """
    shared, estimates = Shared(), dict[int, Estimated | str]()
    with closing(CallCache(call_cache())) as cache:
        estimator = Estimator(cache)
        for group in group_by_models(cells):
            with closing(Pool()) as pool:
                for cell in group:
                    estimates[id(cell)] = _estimate(replace(cell), pool, shared, estimator, first)
    return [estimates[id(cell)] for cell in cells]


def _estimate(cell: Cell, pool: Pool, shared: Shared, estimator: Estimator, first: int | None) -> Estimated | str:
    experiment = replace(cell.experiment)  # a copy, as in `run_cell`
    try:
        with Session(experiment, pool) as session:
            if cell.skip_if_finished(session):
                return FINISHED
            if experiment.verifies:
                method, plan = "", plan_verification(session, shared, first)
            else:
                check(session)
                method, plan = experiment.choices["method"], plan_calls(session, shared, first)
            share = max(1.0, len(experiment.questions) / first) if first else 1.0
            return estimator.estimate(plan, method).scaled(share)
    except KgqaError as error:
        return " ".join(str(error).split())
