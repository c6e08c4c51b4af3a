"""A published cell by its paper's protocol: runs on dev, the choice among them, and runs on test with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.tuning import Outcome
from kgqa.config.axes import parse_axes
from kgqa.config.overrides import override_key
from kgqa.errors import KgqaError
from kgqa.experiment.session.budget import Budget
from kgqa.experiment.session.experiment import Experiment
from kgqa.reproduce.protocol import SETS, Among, Protocol
from kgqa.runtime.display import Display
from kgqa.sweeps.cells import Cell, CellResult, Status
from kgqa.sweeps.running import open_sweep, run_cells
from kgqa.sweeps.tune_split import Tuning, parts
from kgqa.sweeps.tuning import Candidates, TuneRequest, on_part, run_tuning
from kgqa.util.fs import text_digest
from kgqa.util.redaction import redact


@dataclass(frozen=True)
class Ran:
    """The runs that a published cell's value comes from; `tried`: those on dev that one of was chosen."""

    tests: Sequence[CellResult]
    tried: Sequence[CellResult] = ()
    chosen: str = ""
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stages:
    cell: Cell
    protocol: Protocol
    table: str

    @property
    def among(self) -> Among:
        return self.protocol.among(self.cell.experiment)

    @property
    def sets(self) -> tuple[str, ...]:
        return self.protocol.sets_of(self.cell.experiment)

    @property
    def name(self) -> str:
        """Of its folders in outputs/sweeps: of all that it is, so that the same command goes on in them."""
        said = [*self.cell.experiment.overrides, self.protocol.model_dump_json()]
        return f"{self.table.replace('/', '-')}-{text_digest(' '.join(said), 8)}"

    @cached_property
    def request(self) -> TuneRequest:
        """Return what `kgqa tune` is asked for."""
        among, experiment = self.among, self.cell.experiment
        given = [override for override in experiment.overrides if override_key(override) not in among]
        given += [f"{key}={','.join(map(str, values))}" for key, values in among.items()]
        own = {"metric": self.protocol.metrics.get(self.table, self.protocol.metric), **self._ask, "name": self.name}
        if self.sets:
            own["sets"] = ",".join(self.sets)
        command = ("kgqa", "tune", *given, *(f"tune.{key}={value}" for key, value in own.items()))
        return TuneRequest(Tuning.of(own), parse_axes(given), None, command)

    @cached_property
    def candidates(self) -> Candidates:
        return Candidates.of(self.request)

    def tried(self) -> list[Cell]:
        """Return the runs on dev; none where nothing is chosen."""
        return self.candidates.on_dev if self.among else []

    def tests(self) -> list[Cell]:
        """Return the runs on test: where something is chosen, those that the first choice would have."""
        if self.among:
            return self.candidates.on_test(self.candidates.cells[0], self.sets)
        experiment, protocol = self.cell.experiment, self.protocol
        if protocol.dev is not None:  # the questions that cells with a choice are asked
            _, test = parts(experiment, Tuning.of({"metric": protocol.metric, **self._ask}))
            keys = [[f"{SETS}={name}"] for name in self.sets] or [[]]
            return [on_part(self._with(number, key), test, "test") for number, key in enumerate(keys)]
        few = protocol.test is None or protocol.test >= sum(1 for _ in experiment.dataset.questions())
        return [self._with(0, [] if few else [f"sample={protocol.test}", f"seed={protocol.seed}"])]

    def run(self, display: Display, budget: Budget | None) -> Ran:
        """Run all cells. A cell that cannot run becomes a failed result and stops no other."""
        try:
            return self._tune(display, budget) if self.among else self._plain(display, budget)
        except KgqaError as error:
            return Ran([CellResult(self.cell, "failed", None, None, 0.0, " ".join(redact(error).split()))])

    def _tune(self, display: Display, budget: Budget | None) -> Ran:
        record = run_tuning(self.candidates, replace(self.request, budget=budget), display).record
        tests = [_result(self.cell, outcome) for outcome in record.result.runs] if record.result else []
        tried = [_result(self.cell, outcome) for outcome in record.tried]
        return Ran(tests, tried, record.chosen.settings if record.chosen else "", self.request.command)

    def _plain(self, display: Display, budget: Budget | None) -> Ran:
        cells = self.tests()
        command = ("kgqa", "run", *cells[0].experiment.overrides) if len(cells) == 1 else ()
        with open_sweep(cells, command, {}, self.name) as folder, display.cells(folder.path):
            return Ran(run_cells(cells, folder, budget=budget), command=command)

    def _with(self, number: int, overrides: Sequence[str]) -> Cell:
        """Return the cell with further overrides."""
        name = " ".join(overrides) or self.cell.name
        return Cell(number, name, Experiment.of([*self.cell.experiment.overrides, *overrides]))

    @property
    def _ask(self) -> dict[str, str]:
        """Return the keys of `kgqa tune` that say which questions are asked."""
        protocol = self.protocol
        counts = {"dev": protocol.dev, "dev_split": protocol.dev_split, "test": protocol.test, "seed": protocol.seed}
        return {key: str(value) for key, value in counts.items() if value is not None}


def _result(cell: Cell, outcome: Outcome) -> CellResult:
    run = Path(outcome.run) if outcome.run else None
    metrics = Metrics.read(run) if run and outcome.status == "done" else None
    status: Status = "done" if outcome.status == "done" else "not run" if outcome.status == "not run" else "failed"
    return CellResult(cell, status, run, metrics, 0.0, outcome.error)
