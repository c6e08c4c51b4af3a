"""`kgqa verify`: each question asked about, or looked up in a list; the folder with the verdicts, and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kgqa.artefacts.metrics import Agreement, Costs
from kgqa.artefacts.verification import STAGE, VERDICTS, VerificationOutcome, VerifiedQuestion
from kgqa.errors import BudgetSpent
from kgqa.experiment.run.manifest import origin
from kgqa.experiment.run.planning import Plan, Planner, Shared
from kgqa.experiment.session.budget import Budget
from kgqa.experiment.session.engines import Engines, role_nodes
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.method_code import program_hash
from kgqa.experiment.session.session import Session
from kgqa.experiment.verify.agreeing import agreements
from kgqa.experiment.verify.flagged import by_list, matched_lines, read_list
from kgqa.experiment.verify.given_answers import given_answers
from kgqa.experiment.verify.summing import summed
from kgqa.kg.verification import ROLE
from kgqa.redaction import told
from kgqa.report.content import Section
from kgqa.report.markdown import document
from kgqa.report.verification import Published, verification_sections
from kgqa.runtime.costs import Spent
from kgqa.runtime.display import Display
from kgqa.runtime.stages import StageFolder
from kgqa.runtime.watch import watched
from kgqa.storage import ids_digest, jsonl_text, outputs, replace_file, sha256
from kgqa.types import Json

REPORT = "report.md"


@dataclass(frozen=True)
class Verified:
    """A verification that has ended, in its folder."""

    folder: Path
    outcome: VerificationOutcome
    agreements: Mapping[str, Agreement]  # by whom it is compared with
    published: Published | None
    errors: tuple[str, ...] = ()  # of the first questions that failed
    failure: str | None = None  # in one line, where more of them failed than `fail_above` lets

    @property
    def title(self) -> str:
        return f"Verification of {self.outcome.dataset}, {self.outcome.split}: {self.outcome.name}"

    def sections(self) -> list[Section]:
        return verification_sections(self.outcome, self.agreements, self.published)


def verify(
    session: Session, display: Display, budget: Budget | None = None, published: Published | None = None
) -> Verified:
    """Verify the experiment's questions, unless they are already; what failed is asked again.

    published: the paper's counts, for the report.

    Raises:
        BudgetSpent: everything answered so far is in the call cache.
        EngineDied: likewise.
        UsageError: the folder is another's, or something is missing.
    """
    experiment, stage, errors = session.experiment, stage_of(session), tuple[str, ...]()
    outcome = ended_verification(session)
    if outcome is None:
        outcome, errors = _made(session, stage, display, budget)
    else:
        display.line(f"{stage.path}: verified with this code, data and settings; nothing is asked")
    others = agreements(stage.path, experiment.data_sha256, _parent(experiment))
    failure = None
    if outcome.failed > experiment.settings.fail_above * outcome.questions:
        limit = f"above fail_above={experiment.settings.fail_above:g}"
        failure = f"{outcome.failed} of {outcome.questions} questions failed, {limit}: {errors[0]}"
    verified = Verified(stage.path, outcome, others, published, errors, failure)
    replace_file(stage.path / REPORT, document(verified.title, verified.sections()))
    return verified


def ended_verification(session: Session) -> VerificationOutcome | None:
    """What it came to, if it has ended with this code, data and settings, and nothing failed."""
    outcome = stage_of(session).outcome(VerificationOutcome)
    return None if outcome is None or outcome.failed else outcome


def planned_verification(session: Session, shared: Shared) -> Plan:
    """What it would ask; nothing where a list says all."""
    experiment, planner = session.experiment, Planner(session, shared)
    if experiment.verification.list is None:
        program = experiment.verification
        answers = given_answers(experiment.questions, swapped=program.swap_answers)
        programs = ((question.id, program.verify(question, answers[question.id])) for question in experiment.questions)
        planner.imagine(programs, verifiers(session))
    return planner.plan


def verifiers(session: Session) -> Engines:
    """Of the role alone, which is the reader's unless it has a model of its own."""
    nodes = role_nodes(session.experiment.config)
    return session.engines_of({role: node for role, node in nodes.items() if role in ("", "reader", ROLE)})


def stage_of(session: Session) -> StageFolder:
    """Where the verdicts are or will be: `out=`, else a folder named after all that can change one.

    Raises:
        UsageError: something of the configuration or its files is wrong.
    """
    experiment = session.experiment
    program, config = experiment.verification, experiment.config
    dataset: dict[str, Json] = {"name": experiment.name("dataset"), "sha256": experiment.data_sha256}
    identity: dict[str, Json] = {
        "dataset": dataset,
        "questions": ids_digest(question.id for question in experiment.questions),
        "seed": experiment.settings.seed,
    }
    if program.list is not None:
        read_list(Path(program.list))
        identity["list"] = sha256(Path(program.list))
    else:
        identity["verify"] = {key: value for key, value in config["verify"].items() if key not in ("_target_", "list")}
        identity["code"] = program_hash(program)
        identity["verifier"] = dict(verifiers(session)(ROLE).identity())
    if experiment.settings.out is not None:
        return StageFolder(STAGE, Path(experiment.settings.out), identity)
    return StageFolder.named(STAGE, _parent(experiment), identity)


def _parent(experiment: Experiment) -> Path:
    return outputs() / "verified" / experiment.name("dataset")


def _made(
    session: Session, stage: StageFolder, display: Display, budget: Budget | None
) -> tuple[VerificationOutcome, tuple[str, ...]]:
    """The outcome, and the first errors."""
    experiment = session.experiment
    with stage.claimed(), watched(display, STAGE, stage.path) as display:
        if experiment.verification.list is not None:
            file = Path(experiment.verification.list)
            lines = read_list(file)
            listed = matched_lines(file, lines, experiment.whole.questions())
            verdicts = by_list(lines, experiment.questions)
            outcome = summed(experiment, verdicts, by=f"list {file.name}", listed=listed)
        else:
            verdicts, cost = _asked(session, display, budget)
            outcome = summed(experiment, verdicts, by=verifiers(session).label(ROLE), cost=cost)
        stage.write(VERDICTS, (jsonl_text([line.json()]) for line in verdicts))
        stage.finish(outcome, origin((STAGE, *experiment.overrides)))
    failed = [f"{line.id}: {line.error}" for line in verdicts if line.error]
    return outcome, tuple(failed[:3])


def _asked(session: Session, display: Display, budget: Budget | None) -> tuple[list[VerifiedQuestion], Costs]:
    """The verdicts in the questions' order, and what they cost."""
    experiment, engines = session.experiment, verifiers(session)
    program, questions = experiment.verification, experiment.questions
    answers = given_answers(questions, swapped=program.swap_answers)
    places = {question.id: place for place, question in enumerate(questions)}
    ended: dict[str, VerifiedQuestion] = {}
    programs = ((question.id, program.verify(question, answers[question.id])) for question in questions)
    with (
        session.runner(engines=engines) as runner,
        display.stage("questions", len(questions), runner.ledger) as stage,
    ):
        for end in runner.run(programs, stage.recorded):
            if isinstance(end.result, VerifiedQuestion):
                ended[end.key] = end.result
            else:
                text, error = questions[places[end.key]].text, told(end.result)
                ended[end.key] = VerifiedQuestion(id=end.key, question=text, verdict="unverified", error=error)
            stage.finished(failed=ended[end.key].error is not None)
            _stop_where_spent(budget, runner.spent())
    return [ended[id_] for id_ in places], runner.ledger.costs(len(questions), engines.prices)


def _stop_where_spent(budget: Budget | None, spent: Spent) -> None:
    """Of an engine that counts nothing itself: what is under way now is paid for, and no more."""
    if budget is not None and (paid := replace(budget, paid=spent)).spent():
        raise BudgetSpent(
            f"{paid.so_far()}: it is spent; everything answered is saved, the same command goes on with a raised budget"
        )
