"""The papers' own protocols: which questions choose hyperparameters, which are asked, and what is averaged over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol as Interface

from kgqa.artifacts.sweep import Cell, Sweep
from kgqa.config.building import read_keys
from kgqa.config.files import flatten
from kgqa.config.overrides import override_key
from kgqa.errors import ConfigError, KgqaError
from kgqa.experiment.experiment import Experiment
from kgqa.reproduce.tables import Strict, read_conf
from kgqa.runtime.costs import Budget
from kgqa.runtime.display import Display
from kgqa.sweeps.cells import experiment_of, freeze_cells, place_cells
from kgqa.sweeps.launching import run_all
from kgqa.sweeps.running import open_sweep, sweep_path
from kgqa.util.digests import text_digest
from kgqa.util.redaction import redact
from kgqa.util.registry import load_registered
from kgqa.util.validators import Count

PROTOCOL = "protocol."
SETS = "method.demonstration_set"


class Candidates(Strict):
    """The values to choose from, of the cells that have all of these choices."""

    # choices of groups and values that a cell has
    when: tuple[str, ...]
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
    tune: tuple[Candidates, ...]

    def decides(self) -> set[str]:
        """Return the keys with the paper's values."""
        return {
            "limit",
            *(key for entry in self.tune for key in entry.among),
            *([SETS] if self.sets else []),
        }

    def short(self) -> str:
        """Return what a run without the protocol omits."""
        tuned = "no tuning on development questions" if self.tune and self.dev else ""
        sets = "one set of demonstrations" if self.sets else ""
        return ", ".join(filter(None, [tuned, sets, "the questions listed below"]))

    def describe(self) -> str:
        split = f" of the {self.dev_split} split" if self.dev_split else ""
        choice = f"hyperparameters chosen on {self.dev:,} questions{split}" if self.dev else ""
        asked = f"{self.test:,} questions" if self.test else "all questions"
        sets = f"the mean over {len(self.sets)} sets of demonstrations" if self.sets else ""
        return f"{', '.join(filter(None, [choice, asked, sets]))} ({self.source})"


def protocol_of(table_id: str) -> Protocol | None:
    """Return the paper's protocol, if it describes how the cells of this table were made."""
    protocols: dict[str, Protocol] = read_conf("protocols.yaml", dict[str, Protocol])
    protocol = protocols.get(table_id.partition("/")[0])
    return protocol if protocol and (not protocol.tables or table_id in protocol.tables) else None


@dataclass(frozen=True)
class ProtocolNumbers:
    """The keys under `protocol.`: numbers of questions, if fewer than in the paper."""

    dev: Count | None = None
    test: Count | None = None


def find_protocol(table_id: str, numbers: Sequence[str]) -> Protocol:
    """Return the protocol of `protocol=paper` with these numbers.

    Raises ConfigError: a number is invalid, or the paper has no protocol for this table.
    """
    changed = vars(read_keys(ProtocolNumbers, numbers, PROTOCOL))
    protocol = protocol_of(table_id)
    if protocol is None:
        raise ConfigError(f"protocol=paper: {table_id} has no other protocol. Remove protocol=")
    return protocol.model_copy(
        update={key: value for key, value in changed.items() if value is not None}
    )


class TuningResult(Interface):
    """The cells on dev and on test, and the number of the one that was chosen on dev."""

    tried: Sequence[Cell]
    tests: Sequence[Cell]
    chosen: int | None


class TuningRequest(Interface):
    """A request of `kgqa tune`, which the extra tuning reads from `key=value` words."""

    budget: Budget | None
    command: tuple[str, ...]

    @property
    def cells(self) -> list[Cell]: ...

    @property
    def on_dev(self) -> list[Cell]: ...

    def on_test(self, cell: Cell) -> list[Cell]: ...

    def run(self, display: Display) -> TuningResult: ...


@dataclass
class CellRuns:
    """The runs that the values of published cells with equal settings come from.

    Without a protocol, it is the only run. With the paper's, it is runs on dev, the choice among them, and runs on test
    with the choice.
    """

    cell: Cell
    protocol: Protocol | None
    table: str
    tests: Sequence[Cell] = ()  # (): not run yet
    tried: Sequence[Cell] = ()  # on dev
    chosen: str = ""
    command: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.protocol is None:
            self.tests = [self.cell]

    @cached_property
    def experiment(self) -> Experiment:
        return experiment_of(self.cell)

    @cached_property
    def among(self) -> Mapping[str, Sequence[int]]:
        """Return the values to choose from, by key."""
        if self.protocol is None or self.protocol.dev is None:
            return {}
        config = self.cell.config
        has = {f"{key}={value}" for key, value in {**flatten(config), **config["choices"]}.items()}
        return next((entry.among for entry in self.protocol.tune if has.issuperset(entry.when)), {})

    @cached_property
    def tuning(self) -> TuningRequest | None:
        """Return the request of `kgqa tune` with the protocol's dev questions. It can have nothing to choose."""
        protocol = self.protocol
        if protocol is None or protocol.dev is None:
            return None
        overrides = [
            override for override in self.cell.overrides if override_key(override) not in self.among
        ]
        overrides += [f"{key}={','.join(map(str, values))}" for key, values in self.among.items()]
        sets = protocol.sets if SETS in flatten(self.cell.config) else ()
        keys = {
            "metric": protocol.metrics.get(self.table, protocol.metric),
            "dev": protocol.dev,
            "dev_split": protocol.dev_split,
            "test": protocol.test,
            "seed": protocol.seed,
            "name": self._name,
            "sets": ",".join(sets) or None,
        }
        own = [f"tune.{key}={value}" for key, value in keys.items() if value is not None]
        tuning: TuningRequest = load_registered("tuning")([*overrides, *own])
        return tuning

    def plan_dev(self) -> list[Cell]:
        """Return the runs to choose from."""
        return self.tuning.on_dev if self.tuning and self.among else []

    def plan_tests(self) -> list[Cell]:
        """Return the runs on test. If something is chosen, they are those of the first choice."""
        if self.tuning:
            return self.tuning.on_test(self.tuning.cells[0])
        words, protocol = list[str](), self.protocol
        if (
            protocol
            and protocol.test
            and protocol.test < sum(1 for _ in experiment_of(self.cell).data.all_questions())
        ):
            words = [f"sample={protocol.test}", f"seed={protocol.seed}"]
        return freeze_cells([(" ".join(words) or self.cell.name, [*self.cell.overrides, *words])])

    def run(self, display: Display, budget: Budget | None) -> None:
        """Run all cells of a protocol. A cell that cannot run becomes a failed result and stops no other."""
        try:
            if self.tuning and self.among:
                self.tuning.budget = budget
                tuned = self.tuning.run(display)
                tests, tried, self.command = tuned.tests, tuned.tried, self.tuning.command
                self.chosen = "" if tuned.chosen is None else tried[tuned.chosen].name
                self.tried = [cell.replace(name=self.cell.name) for cell in tried]
            else:
                tests = self.plan_tests()
                place_cells(tests)
                self.command = ("kgqa", "run", *tests[0].overrides) if len(tests) == 1 else ()
                sweep = Sweep(
                    path=sweep_path(self._name, tests), command=self.command, axes={}, cells=[]
                )
                with open_sweep(sweep, tests):
                    run_all(tests, sweep.path, (), display, budget=budget)
        except KgqaError as error:
            tests = [self.cell.replace(status="failed", error=" ".join(redact(error).split()))]
        self.tests = [test.replace(name=self.cell.name) for test in tests]

    @property
    def _name(self) -> str:
        """Return the name of its folders in outputs/sweeps, so that the same command resumes."""
        assert self.protocol is not None
        text = " ".join([*self.cell.overrides, self.protocol.model_dump_json()])
        return f"{self.table.replace('/', '-')}-{text_digest(text, 8)}"
