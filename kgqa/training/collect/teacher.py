"""The calls of a teacher (the model of the role `teacher`) and their cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kgqa.artifacts.examples import NotTaught, Recipe, Taught
from kgqa.artifacts.metrics import Costs
from kgqa.artifacts.stage import StageManifest
from kgqa.artifacts.verification import STAGE, VERDICTS, read_verdicts
from kgqa.calls import Program
from kgqa.config.overrides import override_values
from kgqa.errors import ConfigError, UsageError
from kgqa.experiment.run.planning import Plan, Planner, Shared
from kgqa.experiment.session.engines import Engines, role_nodes
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.session import Session
from kgqa.methods.safe_teaching import ROLE
from kgqa.runtime.display import Display
from kgqa.types import Json, Question
from kgqa.util.redaction import describe_error

Programs = Sequence[tuple[str, Program[Any]]]


class TeacherCalls(Protocol):
    """Runs the programs of a recipe with a teacher."""

    def ask(self, programs: Programs) -> Mapping[str, object]: ...


@dataclass
class LiveCalls:
    """Calls through the call cache, so that the same command repeats only what is missing."""

    session: Session
    display: Display
    cost: Costs | None = field(default=None, init=False)

    def ask(self, programs: Programs) -> Mapping[str, object]:
        """Run the programs. Raises UsageError: some questions failed; replies are saved."""
        engines, ended = teacher_engines(self.session), dict[str, object]()
        with (
            self.session.runner(engines=engines) as runner,
            self.display.stage("questions", len(programs), runner.ledger) as stage,
        ):
            for end in runner.run(programs, stage.record):
                ended[end.key] = end.result
                stage.finish(failed=_is_failure(end.result))
            self.cost = runner.ledger.costs(len(programs), engines.prices)
        failed = {key: result for key, result in ended.items() if _is_failure(result)}
        for key, result in failed.items():
            why = f"{len(failed):,} of {len(programs):,} questions failed, the first: {describe_error(result)}"  # type: ignore[arg-type]
            raise UsageError(f"{why} ({key}); all replies are saved, and the same command repeats what failed")
        return ended


@dataclass
class SimulatedCalls:
    """Calls with simulated replies, counted in `plan`."""

    planner: Planner
    engines: Engines

    @property
    def plan(self) -> Plan:
        return self.planner.plan

    def ask(self, programs: Programs) -> Mapping[str, object]:
        return self.planner.imagine(programs, self.engines)


@contextmanager
def open_teacher(recipe: Recipe, experiment: Experiment, display: Display) -> Iterator[LiveCalls | None]:
    """Open the teacher of a recipe. None: it uses none."""
    if not (isinstance(recipe, Taught) and recipe.asks):
        yield None
        return
    with Session(experiment) as session:
        yield LiveCalls(session, display)


@contextmanager
def simulate_teacher(recipe: Recipe, experiment: Experiment) -> Iterator[SimulatedCalls | None]:
    """Simulate the teacher of a recipe. None: it uses none."""
    if not (isinstance(recipe, Taught) and recipe.asks):
        yield None
        return
    with Session(experiment) as session:
        yield SimulatedCalls(Planner(session, Shared()), teacher_engines(session))


def teacher_engines(session: Session) -> Engines:
    """Return the engines with only the role `teacher`, which is the reader's unless it has its own model."""
    nodes = role_nodes(session.experiment.config)
    return session.engines_of({role: node for role, node in nodes.items() if role in ("", "reader", ROLE)})


def teacher_identity(experiment: Experiment) -> Json:
    with Session(experiment) as session:
        return dict(teacher_engines(session)(ROLE).identity())


def find_conflict(recipe: Taught, overrides: Sequence[str], runs: Sequence[Path]) -> str | None:
    """Return why the recipe cannot use these overrides and runs, in one line."""
    teacher = override_values(overrides).get(f"roles.{ROLE}", "null")
    if teacher != "null" and not recipe.asks:
        return f"roles.{ROLE}={teacher}: rules use no teacher; set collect.teacher=model"
    if runs and not recipe.asks:
        return f"--from {runs[0]}: only a teacher finds hard cases; set collect.teacher=model"
    if runs and not recipe.hard_cases:
        return f"--from {runs[0]}: collect.hard_cases=0 uses no runs; remove --from"
    return None


def uses_noise(recipe: Recipe) -> bool:
    return isinstance(recipe, Taught) and recipe.noise > 0


def noise_questions(experiment: Experiment) -> tuple[Question, ...]:
    """Return the questions that the verification of the dataset found to be noise, in the order of the file.

    Raises:
        ConfigError: no verification is named, or it flagged none.
    """
    name, folder = experiment.name("dataset"), experiment.config["dataset"].get("verified")
    if folder is None or experiment.verified is None:
        raise ConfigError(
            f"collect.noise: which questions of {name} are flagged? give dataset.verified=FOLDER of kgqa data verify, "
            f"or of several data sets 'collect.verdicts={{{name}:FOLDER,…}}'"
        )
    verdicts = read_verdicts(StageManifest.read(Path(folder), STAGE).file(Path(folder), VERDICTS))
    noise = {line.id for line in verdicts if line.verdict == "noise"}
    if not noise:
        raise ConfigError(f"collect.noise: {folder} flags no question of {name}; give collect.noise=0")
    return tuple(question for question in experiment.whole.questions() if question.id in noise)


def _is_failure(result: object) -> bool:
    return isinstance(result, Exception) and not isinstance(result, NotTaught)
