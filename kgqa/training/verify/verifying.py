"""Verify questions with a model or a list, and write the folder with the verdicts and the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kgqa.artifacts.metrics import Agreement, Costs
from kgqa.artifacts.stage import StageManifest
from kgqa.artifacts.verification import (
    STAGE,
    VERDICTS,
    MatchedLines,
    VerificationOutcome,
    VerifiedQuestion,
    read_verdicts,
)
from kgqa.errors import BudgetSpent, DataError
from kgqa.experiment.run.manifest import origin
from kgqa.experiment.run.planning import Plan, Planner, Shared
from kgqa.experiment.session.budget import Budget
from kgqa.experiment.session.engines import Engines, role_nodes
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.method_code import program_hash
from kgqa.experiment.session.session import Session
from kgqa.kg.verification import ROLE
from kgqa.report.content import Section
from kgqa.report.markdown import document
from kgqa.report.verification import Published, verification_sections
from kgqa.runtime.artifact_dir import ArtifactDir
from kgqa.runtime.display import Display
from kgqa.runtime.monitor import monitor_work
from kgqa.scoring.agreement import agreement
from kgqa.scoring.intervals import estimate
from kgqa.training.verify.inputs import choose_answers, match_lines, read_list, verify_by_list
from kgqa.types import Json
from kgqa.util.fs import ids_digest, jsonl_text, outputs, replace_file, sha256
from kgqa.util.redaction import describe_error

REPORT = "report.md"
PATH_FIGURE = "triples in the path"  # of valid questions only; other figures count 0 where they are missing


@dataclass(frozen=True)
class Verification:
    """A finished verification. `agreements`: by the name of the verification that it is compared with."""

    folder: Path
    outcome: VerificationOutcome
    agreements: Mapping[str, Agreement]
    published: Published | None
    errors: tuple[str, ...] = ()  # of the first failed questions
    failure: str | None = None  # if too many questions failed

    @property
    def title(self) -> str:
        return f"Verification of {self.outcome.dataset}, {self.outcome.split}: {self.outcome.name}"

    def sections(self) -> list[Section]:
        return verification_sections(self.outcome, self.agreements, self.published)


def verify(
    session: Session, display: Display, budget: Budget | None = None, published: Published | None = None
) -> Verification:
    """Verify the questions of an experiment. Questions that failed before are tried again.

    published: the counts of the paper, for the report.

    Raises:
        BudgetSpent, EngineDied: all replies so far are in the call cache.
        UsageError: the folder belongs to something else, or an input is missing.
    """
    experiment, folder, errors = session.experiment, verification_folder(session), tuple[str, ...]()
    outcome = load_verification(session)
    if outcome is None:
        outcome, errors = _run(session, folder, display, budget)
    else:
        display.line(f"{folder.path}: verified with this code, data and settings; no model calls")
    failure = None
    if outcome.failed > experiment.settings.max_failure_rate * outcome.questions:
        limit = f"above max_failure_rate={experiment.settings.max_failure_rate:g}"
        failure = f"{outcome.failed} of {outcome.questions} questions failed, {limit}: {errors[0]}"
    others = compare_verifications(folder.path, experiment.data_sha256, _parent(experiment))
    verification = Verification(folder.path, outcome, others, published, errors, failure)
    replace_file(folder.path / REPORT, document(verification.title, verification.sections()))
    return verification


def load_verification(session: Session) -> VerificationOutcome | None:
    """Return the outcome, if it is finished with this code, data and settings and no question failed."""
    outcome = verification_folder(session).outcome(VerificationOutcome)
    return None if outcome is None or outcome.failed else outcome


def plan_verification(session: Session, shared: Shared) -> Plan:
    """Return the planned model calls. A list needs none."""
    experiment, planner = session.experiment, Planner(session, shared)
    program = experiment.verification
    if program.list is None:
        answers = choose_answers(experiment.questions, swapped=program.swap_answers)
        programs = ((question.id, program.verify(question, answers[question.id])) for question in experiment.questions)
        planner.imagine(programs, verifier_engines(session))
    return planner.plan


def verifier_engines(session: Session) -> Engines:
    """Return the engines with only the role `verifier`, which is the reader's unless it has its own model."""
    nodes = role_nodes(session.experiment.config)
    return session.engines_of({role: node for role, node in nodes.items() if role in ("", "reader", ROLE)})


def verification_folder(session: Session) -> ArtifactDir:
    """Return the folder of the verdicts: `out=`, or one named by everything that can change a verdict.

    Raises:
        UsageError: a setting or its file is invalid.
    """
    experiment = session.experiment
    program, config = experiment.verification, experiment.config
    identity: dict[str, Json] = {
        "dataset": {"name": experiment.name("dataset"), "sha256": experiment.data_sha256},
        "questions": ids_digest(question.id for question in experiment.questions),
        "seed": experiment.settings.seed,
    }
    if program.list is not None:
        read_list(Path(program.list))
        identity["list"] = sha256(Path(program.list))
    else:
        identity["verify"] = {key: value for key, value in config["verify"].items() if key not in ("_target_", "list")}
        identity["code"] = program_hash(program)
        identity["verifier"] = dict(verifier_engines(session)(ROLE).identity())
    if experiment.settings.out is not None:
        return ArtifactDir(STAGE, Path(experiment.settings.out), identity)
    return ArtifactDir.for_identity(STAGE, _parent(experiment), identity)


def _parent(experiment: Experiment) -> Path:
    return outputs() / "verified" / experiment.name("dataset")


def _run(
    session: Session, folder: ArtifactDir, display: Display, budget: Budget | None
) -> tuple[VerificationOutcome, tuple[str, ...]]:
    """Return the outcome and the first errors."""
    experiment = session.experiment
    with folder.lock(), monitor_work(display, STAGE, folder.path) as shown:
        if experiment.verification.list is not None:
            file = Path(experiment.verification.list)
            lines = read_list(file)
            listed = match_lines(file, lines, experiment.whole.questions())
            verdicts = verify_by_list(lines, experiment.questions)
            outcome = summarize(experiment, verdicts, f"list {file.name}", listed)
        else:
            verdicts, cost = _call_verifier(session, shown, budget)
            outcome = summarize(experiment, verdicts, verifier_engines(session).label(ROLE), cost=cost)
        folder.write(VERDICTS, (jsonl_text([line.json()]) for line in verdicts))
        folder.finish(outcome, origin((STAGE, *experiment.overrides)))
    failed = [f"{line.id}: {line.error}" for line in verdicts if line.error]
    return outcome, tuple(failed[:3])


def _call_verifier(session: Session, display: Display, budget: Budget | None) -> tuple[list[VerifiedQuestion], Costs]:
    """Return the verdicts in the order of the questions, and the cost."""
    experiment, engines = session.experiment, verifier_engines(session)
    program, questions = experiment.verification, {question.id: question for question in experiment.questions}
    answers = choose_answers(experiment.questions, swapped=program.swap_answers)
    verdicts: dict[str, VerifiedQuestion] = {}
    programs = ((id_, program.verify(question, answers[id_])) for id_, question in questions.items())
    with (
        session.runner(engines=engines) as runner,
        display.stage("questions", len(questions), runner.ledger) as stage,
    ):
        for end in runner.run(programs, stage.record):
            verdict = end.result
            if not isinstance(verdict, VerifiedQuestion):
                text, error = questions[end.key].text, describe_error(verdict)
                verdict = VerifiedQuestion(id=end.key, question=text, verdict="unverified", error=error)
            verdicts[end.key] = verdict
            stage.finish(failed=verdict.error is not None)
            # for engines that do not count themselves: calls in progress are still paid for
            if budget is not None and (used := replace(budget, paid=runner.spent())).spent():
                raise BudgetSpent(
                    f"{used.so_far()}: it is spent; all replies are saved, and the same command continues with a "
                    "higher budget"
                )
    return [verdicts[id_] for id_ in questions], runner.ledger.costs(len(questions), engines.prices)


def summarize(
    experiment: Experiment,
    verdicts: Sequence[VerifiedQuestion],
    by: str,
    listed: MatchedLines | None = None,
    cost: Costs | None = None,
) -> VerificationOutcome:
    """Count the verdicts, and average the figures of each question."""
    counts = Counter(line.verdict for line in verdicts)
    flags = sum((Counter(line.flags) for line in verdicts), Counter[str]())
    return VerificationOutcome(
        dataset=experiment.name("dataset"),
        split=str(experiment.config["dataset"].get("split", "")),
        by=by,
        swapped=experiment.verification.swap_answers and listed is None,
        questions=len(verdicts),
        valid=counts["valid"],
        noise=counts["noise"],
        unverified=counts["unverified"],
        failed=sum(line.error is not None for line in verdicts),
        noise_percent=estimate([float(line.verdict == "noise") for line in verdicts], experiment.settings.seed),
        figures=_mean_figures(verdicts),
        flags=dict(sorted(flags.items())),
        listed=listed,
        cost=cost,
    )


def _mean_figures(verdicts: Sequence[VerifiedQuestion]) -> dict[str, float]:
    """Return means over the verified questions. A gleaning round that no passage reached has added 0 triples."""
    verified = [line.figures for line in verdicts if line.figures]
    means = {}
    for name in dict.fromkeys(name for figures in verified for name in figures):
        values = [figures[name] for figures in verified if name in figures]
        means[name] = round(sum(values) / (len(values) if name == PATH_FIGURE else len(verified)), 4)
    return means


def compare_verifications(folder: Path, sha256: str, parent: Path) -> dict[str, Agreement]:
    """Return the agreement with each other verification of the same data, over the questions that both have.

    sha256: of the dataset. Damaged and unfinished verifications are skipped.
    """
    own = _labels(folder / VERDICTS)
    agreements = {}
    for other in sorted(parent.iterdir()) if parent.is_dir() else ():
        if other.resolve() == folder.resolve():
            continue
        try:
            manifest = StageManifest.read(other, STAGE)
            if manifest.identity["dataset"]["sha256"] != sha256:
                continue
            name = f"{manifest.read_outcome(VerificationOutcome, other).name} ({other.name})"
            labels = _labels(manifest.file(other, VERDICTS))
        except DataError:
            continue
        if shared := [id_ for id_ in own if id_ in labels]:
            agreements[name] = agreement([own[id_] for id_ in shared], [labels[id_] for id_ in shared])
    return agreements


def _labels(file: Path) -> dict[str, str | None]:
    return {line.id: line.label for line in read_verdicts(file)}
