"""The papers' own protocols: which questions choose hyperparameters, which are asked, and what is averaged over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from kgqa.artifacts.sweep import SweepPlan
from kgqa.config.building import read_keys
from kgqa.config.files import flatten
from kgqa.config.overrides import override_key
from kgqa.errors import ConfigError, KgqaError
from kgqa.experiment.experiment import Experiment
from kgqa.reproduce.tables import Strict, read_conf
from kgqa.runtime.costs import Budget
from kgqa.runtime.display import Display
from kgqa.sweeps.cells import Cell, place_cells
from kgqa.sweeps.running import open_sweep, run_cells, sweep_path
from kgqa.sweeps.tuning import Tuning, on_part, run_tuning, split_questions
from kgqa.util.fs import text_digest
from kgqa.util.redaction import redact
from kgqa.util.validators import Count

SETS = "method.demonstration_set"


class Tuned(Strict):
    when: tuple[str, ...]  # choices of groups and values that a cell has
    among: dict[str, tuple[int, ...]]


class Protocol(Strict):
    """An entry of conf/reproduce/protocols.yaml."""

    source: str
    tables: tuple[str, ...]
    dev: int | None
    dev_split: str | None
    test: int | None
    seed: int
    metric: str
    metrics: dict[str, str]  # by table
    sets: tuple[str, ...]
    tune: tuple[Tuned, ...]

    def decides(self) -> set[str]:
        """Return the keys with the paper's values."""
        return {"limit", *(key for entry in self.tune for key in entry.among), *([SETS] if self.sets else [])}

    def short(self) -> str:
        """Return what a run without the protocol omits."""
        tuned = "no tuning on development questions" if self.tune and self.dev else ""
        sets = "one set of demonstrations" if self.sets else ""
        return ", ".join(filter(None, [tuned, sets, "the questions listed below"]))

    def describe(self) -> str:
        split = f" of the {self.dev_split} split" if self.dev_split else ""
        chosen = f"hyperparameters chosen on {self.dev:,} questions{split}" if self.dev else ""
        asked = f"{self.test:,} questions" if self.test else "all questions"
        sets = f"the mean over {len(self.sets)} sets of demonstrations" if self.sets else ""
        return f"{', '.join(filter(None, [chosen, asked, sets]))} ({self.source})"


def protocol_of(table_id: str) -> Protocol | None:
    """Return the paper's protocol, if it describes how the cells of this table were made."""
    protocols: dict[str, Protocol] = read_conf("protocols.yaml", dict[str, Protocol])
    found = protocols.get(table_id.partition("/")[0])
    return found if found and (not found.tables or table_id in found.tables) else None


@dataclass(frozen=True)
class ProtocolNumbers:
    """The keys under `protocol.`: numbers of questions, if fewer than in the paper."""

    dev: Count | None = None
    test: Count | None = None


def find_protocol(table_id: str, numbers: Mapping[str, str]) -> Protocol:
    """Return the protocol of `protocol=paper` with these numbers.

    Raises ConfigError: a number is invalid, or the paper has no protocol for this table.
    """
    changed = vars(read_keys(ProtocolNumbers, numbers, "protocol."))
    protocol = protocol_of(table_id)
    if protocol is None:
        raise ConfigError(f"protocol=paper: {table_id} has no other protocol. Remove protocol=")
    return protocol.model_copy(update={key: value for key, value in changed.items() if value is not None})


@dataclass(frozen=True)
class CellRuns:
    """The runs that a published cell's value comes from, () before. `tried`: on dev, to choose one of them."""

    tests: Sequence[Cell]
    tried: Sequence[Cell] = ()
    chosen: str = ""
    command: tuple[str, ...] = ()


NOT_RUN = CellRuns(())


@dataclass(frozen=True)
class ProtocolRuns:
    """A published cell by its paper's protocol: runs on dev, the choice among them, and runs on test with it."""

    cell: Cell
    protocol: Protocol
    table: str

    @cached_property
    def among(self) -> Mapping[str, Sequence[int]]:
        """Return the values to choose from, by key."""
        if self.protocol.dev is None:
            return {}
        config = self.cell.experiment.config
        has = {f"{key}={value}" for key, value in {**flatten(config), **config["choices"]}.items()}
        return next((entry.among for entry in self.protocol.tune if has.issuperset(entry.when)), {})

    @property
    def sets(self) -> tuple[str, ...]:
        return self.protocol.sets if SETS in flatten(self.cell.experiment.config) else ()

    @cached_property
    def tuning(self) -> Tuning:
        """Return the request of `kgqa tune`."""
        among, experiment = self.among, self.cell.experiment
        overrides = [override for override in experiment.overrides if override_key(override) not in among]
        overrides += [f"{key}={','.join(map(str, values))}" for key, values in among.items()]
        protocol = self.protocol
        keys = {
            "metric": protocol.metrics.get(self.table, protocol.metric),
            "dev": protocol.dev,
            "dev_split": protocol.dev_split,
            "test": protocol.test,
            "seed": protocol.seed,
            "name": self._name,
            "sets": ",".join(self.sets) or None,
        }
        return Tuning.of([*overrides, *(f"tune.{key}={value}" for key, value in keys.items() if value is not None)])

    def tried(self) -> list[Cell]:
        """Return the runs on dev."""
        return self.tuning.on_dev if self.among else []

    def tests(self) -> list[Cell]:
        """Return the runs on test. If something is chosen, they are those of the first choice."""
        if self.among:
            return self.tuning.on_test(self.tuning.cells[0])
        experiment, protocol = self.cell.experiment, self.protocol
        if protocol.dev is not None:  # the same questions as of cells with a choice
            _, test = split_questions(
                experiment, protocol.dev, protocol.test, protocol.seed, dev_split=protocol.dev_split
            )
            keys = [[f"{SETS}={name}"] for name in self.sets] or [[]]
            return [on_part(self._with(number, key), test, "test") for number, key in enumerate(keys)]
        is_whole = protocol.test is None or protocol.test >= sum(1 for _ in experiment.all_questions())
        return [self._with(0, [] if is_whole else [f"sample={protocol.test}", f"seed={protocol.seed}"])]

    def run(self, display: Display, budget: Budget | None) -> CellRuns:
        """Run all cells. A cell that cannot run becomes a failed result and stops no other."""
        try:
            return self._tune(display, budget) if self.among else self._test(display, budget)
        except KgqaError as error:
            return CellRuns([replace(self.cell, status="failed", error=" ".join(redact(error).split()))])

    def _tune(self, display: Display, budget: Budget | None) -> CellRuns:
        self.tuning.budget = budget
        tuned = run_tuning(self.tuning, display)
        tests, tried = ([replace(cell, name=self.cell.name) for cell in cells] for cells in (tuned.tests, tuned.tried))
        chosen = next((each.settings for each in tuned.record.tried if each.cell == tuned.record.chosen), "")
        return CellRuns(tests, tried, chosen, self.tuning.command)

    def _test(self, display: Display, budget: Budget | None) -> CellRuns:
        cells = self.tests()
        command = ("kgqa", "run", *cells[0].experiment.overrides) if len(cells) == 1 else ()
        place_cells(cells)
        plan = SweepPlan(command=command, axes={}, cells=())
        with open_sweep(sweep_path(self._name, cells), plan, cells) as folder:
            run_cells(cells, folder.path, display, budget=budget)
        return CellRuns(cells, command=command)

    def _with(self, number: int, overrides: Sequence[str]) -> Cell:
        name = " ".join(overrides) or self.cell.name
        return Cell(number, name, Experiment.of([*self.cell.experiment.overrides, *overrides]))

    @property
    def _name(self) -> str:
        """Return the name of its folders in outputs/sweeps, so that the same command resumes."""
        text = " ".join([*self.cell.experiment.overrides, self.protocol.model_dump_json()])
        return f"{self.table.replace('/', '-')}-{text_digest(text, 8)}"
