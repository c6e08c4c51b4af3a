"""A teacher's part in collecting: the model of the role `teacher`, what it is asked of, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kgqa.artefacts.metrics import Costs
from kgqa.artefacts.stage import StageManifest
from kgqa.artefacts.verification import STAGE, VERDICTS, read_verdicts
from kgqa.calls import Program
from kgqa.errors import ConfigError, UsageError
from kgqa.examples import NotTaught, Recipe, Taught
from kgqa.experiment.config.overrides import override_values
from kgqa.experiment.run.planning import Plan, Planner, Shared
from kgqa.experiment.session.engines import Engines, role_nodes
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.session import Session
from kgqa.methods.safe_teaching import ROLE
from kgqa.redaction import told
from kgqa.runtime.display import Display
from kgqa.types import Json, Question

Programs = Sequence[tuple[str, Program[Any]]]


class Asks(Protocol):
    """As a recipe's `Asking`."""

    def ask(self, programs: Programs) -> Mapping[str, object]: ...


@dataclass
class Answering:
    """Every call through the call cache, so that the same command asks what is missing."""

    session: Session
    display: Display
    cost: Costs | None = field(default=None, init=False)

    def ask(self, programs: Programs) -> Mapping[str, object]:
        """Raises UsageError: some questions failed; the others' replies are kept."""
        engines, ended = teachers(self.session), dict[str, object]()
        with (
            self.session.runner(engines=engines) as runner,
            self.display.stage("questions", len(programs), runner.ledger) as stage,
        ):
            for end in runner.run(programs, stage.recorded):
                ended[end.key] = end.result
                stage.finished(failed=_failed(end.result))
            self.cost = runner.ledger.costs(len(programs), engines.prices)
        failed = {key: result for key, result in ended.items() if _failed(result)}
        for key, result in failed.items():
            why = f"{len(failed):,} of {len(programs):,} questions failed, the first: {told(result)}"  # type: ignore[arg-type]
            raise UsageError(f"{why} ({key}); every reply is kept, the same command asks what failed again")
        return ended


@dataclass
class Imagining:
    """The same with replies made up: `plan` counts them."""

    planner: Planner
    engines: Engines

    @property
    def plan(self) -> Plan:
        return self.planner.plan

    def ask(self, programs: Programs) -> Mapping[str, object]:
        return self.planner.imagine(programs, self.engines)


@contextmanager
def asking(recipe: Recipe, experiment: Experiment, display: Display) -> Iterator[Answering | None]:
    """None: the recipe asks nobody."""
    if not (isinstance(recipe, Taught) and recipe.asks):
        yield None
        return
    with Session(experiment) as session:
        yield Answering(session, display)


@contextmanager
def imagining(recipe: Recipe, experiment: Experiment) -> Iterator[Imagining | None]:
    """None: the recipe asks nobody."""
    if not (isinstance(recipe, Taught) and recipe.asks):
        yield None
        return
    with Session(experiment) as session:
        yield Imagining(Planner(session, Shared()), teachers(session))


def teachers(session: Session) -> Engines:
    """Of the role alone, which is the reader's unless it has a model of its own."""
    nodes = role_nodes(session.experiment.config)
    return session.engines_of({role: node for role, node in nodes.items() if role in ("", "reader", ROLE)})


def teacher_identity(experiment: Experiment) -> Json:
    with Session(experiment) as session:
        return dict(teachers(session)(ROLE).identity())


def refusal(recipe: Taught, overrides: Sequence[str], runs: Sequence[Path]) -> str | None:
    """Why nothing would come of these words and runs, in one line."""
    teacher = override_values(overrides).get(f"roles.{ROLE}", "null")
    if teacher != "null" and not recipe.asks:
        return f"roles.{ROLE}={teacher}: rules ask no teacher; give collect.teacher=model"
    if runs and not recipe.asks:
        return f"--from {runs[0]}: only a teacher finds hard cases; give collect.teacher=model"
    if runs and not recipe.hard_cases:
        return f"--from {runs[0]}: collect.hard_cases=0 wants none; leave --from out"
    return None


def wants_noise(recipe: Recipe) -> bool:
    return isinstance(recipe, Taught) and recipe.noise > 0


def flagged_questions(experiment: Experiment) -> tuple[Question, ...]:
    """Those that the data set's verification found to be noise, in the file's order.

    Raises:
        ConfigError: no verification is named, or it flagged none.
    """
    name, folder = experiment.name("dataset"), experiment.config["dataset"].get("verified")
    if folder is None or experiment.verified is None:
        raise ConfigError(
            f"collect.noise: which questions of {name} are flagged? give dataset.verified=FOLDER of kgqa verify, "
            f"or of several data sets 'collect.verdicts={{{name}:FOLDER,…}}'"
        )
    verdicts = read_verdicts(StageManifest.read(Path(folder), STAGE).file(Path(folder), VERDICTS))
    noise = {line.id for line in verdicts if line.verdict == "noise"}
    if not noise:
        raise ConfigError(f"collect.noise: {folder} flags no question of {name}; give collect.noise=0")
    return tuple(question for question in experiment.whole.questions() if question.id in noise)


def _failed(result: object) -> bool:
    return isinstance(result, Exception) and not isinstance(result, NotTaught)
