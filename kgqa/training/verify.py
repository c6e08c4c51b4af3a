"""Verify questions with a model or a list, and write the folder with the verdicts and the report: `kgqa data verify`.

A list has flagged questions, one text per line, as SAFE's authors publish them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from kgqa.artifacts.manifest import StageManifest
from kgqa.artifacts.metrics import Agreement, Costs
from kgqa.artifacts.verdicts import STAGE, VERDICTS, VerificationOutcome, VerifiedQuestion, read_verified
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.dry_run import Plan, Planner, Shared
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.manifest import origin
from kgqa.experiment.session import Session
from kgqa.identity.component import identity_of
from kgqa.identity.program_code import program_hash
from kgqa.kg.verification import ROLE
from kgqa.report.section import Section, markdown
from kgqa.report.training import Published, verification_sections
from kgqa.runtime.costs import Budget
from kgqa.runtime.display import Display
from kgqa.runtime.folder import ArtifactDir
from kgqa.runtime.monitor import monitor_work
from kgqa.scoring.comparison import agreement
from kgqa.scoring.intervals import estimate
from kgqa.training.role_calls import Programs, role_engines, run_programs
from kgqa.types import Json, Question
from kgqa.util.fs import ids_digest, outputs, replace_file, sha256
from kgqa.util.redaction import describe_error

REPORT = "report.md"
PATH_FIGURE = "triples in the path"  # of valid questions only; other figures count 0 where they are missing


@dataclass(frozen=True)
class Verification:
    """A finished verification."""

    folder: Path
    outcome: VerificationOutcome
    title: str
    sections: list[Section]
    errors: tuple[str, ...] = ()  # of the first failed questions
    failure: str | None = None  # if too many questions failed


def verify(
    session: Session, display: Display, budget: Budget | None = None, published: Published | None = None
) -> Verification:
    """Verify the questions of an experiment. Questions that failed before are tried again.

    published: the counts of the paper, for the report.

    Raises:
        BudgetSpent, EngineDied: all replies so far are in the call cache.
        UsageError: the folder belongs to something else, or an input is missing.
    """
    experiment, folder, errors, failure = session.experiment, verification_folder(session), tuple[str, ...](), None
    if outcome := load_verification(session):
        display.line(f"{folder.path}: verified with this code, data and settings, so there are no model calls")
    else:
        outcome, errors = _run(session, folder, display, budget)
    limit = experiment.settings.max_failure_rate
    if outcome.failed > limit * outcome.questions:
        counts = f"{outcome.failed} of {outcome.questions} questions failed"
        failure = f"{counts}, above max_failure_rate={limit:g}: {errors[0]}"
    others = compare_verifications(folder.path, experiment.data_sha256, _parent(experiment))
    title = f"Verification of {outcome.dataset}, {outcome.split}: {outcome.name}"
    sections = verification_sections(outcome, others, published)
    replace_file(folder.path / REPORT, markdown(title, sections))
    return Verification(folder.path, outcome, title, sections, errors, failure)


def load_verification(session: Session) -> VerificationOutcome | None:
    """Return the outcome, if it is finished with this code, data and settings and no question failed."""
    outcome = verification_folder(session).outcome(VerificationOutcome)
    return None if outcome is None or outcome.failed else outcome


def plan_verification(session: Session, shared: Shared, first: int | None = None) -> Plan:
    """Return the planned model calls, only of the first N questions if `first` is set. A list needs none."""
    planner = Planner(session, shared)
    if session.experiment.verification.list is None:
        planner.imagine(_programs(session.experiment, first), role_engines(session, ROLE))
    return planner.plan


def verification_folder(session: Session) -> ArtifactDir:
    """Return the folder of the verdicts: `output_dir=`, or one named by everything that can change a verdict.

    Raises UsageError: a setting or its file is invalid.
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
        identity["verifier"] = identity_of(role_engines(session, ROLE)(ROLE))
    return ArtifactDir.for_identity(STAGE, _parent(experiment), identity, experiment.settings.output_dir)


def _parent(experiment: Experiment) -> Path:
    return outputs() / "verified" / experiment.name("dataset")


def _run(
    session: Session, folder: ArtifactDir, display: Display, budget: Budget | None
) -> tuple[VerificationOutcome, tuple[str, ...]]:
    """Return the outcome and the first errors."""
    experiment = session.experiment
    program, questions = experiment.verification, experiment.questions
    with folder.lock(), monitor_work(display, STAGE, folder.path) as shown:
        if program.list is not None:
            file = Path(program.list)
            lines = read_list(file)
            if unmatched := find_unmatched(file, lines, experiment.whole.questions()):
                shown.line(f"{file}: {len(unmatched)} of {len(lines)} lines match no question: {unmatched[0]}, …")
            verdicts = verify_by_list(lines, questions)
            outcome = summarize(experiment, verdicts, f"list {file.name}")
        else:
            results, cost = run_programs(session, ROLE, _programs(experiment), len(questions), shown, budget)
            verdicts = [_verdict(question, results[question.id]) for question in questions]
            outcome = summarize(experiment, verdicts, role_engines(session, ROLE).label(ROLE), cost=cost)
        folder.write_lines(VERDICTS, verdicts)
        folder.finish(outcome, origin((STAGE, *experiment.overrides)))
    failed = [f"{line.id}: {line.error}" for line in verdicts if line.error]
    return outcome, tuple(failed[:3])


def _programs(experiment: Experiment, first: int | None = None) -> Programs:
    answers = choose_answers(experiment.questions, swapped=experiment.verification.swap_answers)
    return ((each.id, experiment.verification.verify(each, answers[each.id])) for each in experiment.questions[:first])


def _verdict(question: Question, result: object) -> VerifiedQuestion:
    if isinstance(result, VerifiedQuestion):
        return result
    error = describe_error(result)  # type: ignore[arg-type]
    return VerifiedQuestion(id=question.id, question=question.text, verdict="unverified", error=error)


def summarize(
    experiment: Experiment,
    verdicts: Sequence[VerifiedQuestion],
    by: str,
    cost: Costs | None = None,
) -> VerificationOutcome:
    """Count the verdicts, and average the figures of each question."""
    counts = Counter(line.verdict for line in verdicts)
    flags = sum((Counter(line.flags) for line in verdicts), Counter[str]())
    return VerificationOutcome(
        dataset=experiment.name("dataset"),
        split=str(experiment.config["dataset"].get("split", "")),
        by=by,
        swapped=experiment.verification.swap_answers,
        questions=len(verdicts),
        valid=counts["valid"],
        noise=counts["noise"],
        unverified=counts["unverified"],
        failed=sum(line.error is not None for line in verdicts),
        noise_percent=estimate([float(line.verdict == "noise") for line in verdicts]),
        figures=_mean_figures(verdicts),
        flags=dict(sorted(flags.items())),
        cost=cost,
    )


def _mean_figures(verdicts: Sequence[VerifiedQuestion]) -> dict[str, float]:
    """Return means over the verified questions. A gleaning round that no passage reached has added 0 triples."""
    verified = [line.figures for line in verdicts if line.figures]
    sums, counts = Counter[str](), Counter[str]()
    for figures in verified:
        sums.update(figures)
        counts.update(figures.keys())
    return {name: round(sums[name] / (counts[name] if name == PATH_FIGURE else len(verified)), 4) for name in counts}


def compare_verifications(folder: Path, sha256: str, parent: Path) -> dict[str, Agreement]:
    """Return the agreement with each other verification of the same data, over the questions that both have.

    sha256: of the dataset. Damaged and unfinished verifications are skipped.
    """
    own, agreements = _labels(folder / VERDICTS), dict[str, Agreement]()
    others = sorted(parent.iterdir()) if parent.is_dir() else []
    for other in (each for each in others if each.resolve() != folder.resolve()):
        with suppress(DataError):
            manifest = StageManifest.read(other, STAGE)
            if manifest.identity["dataset"]["sha256"] == sha256:
                name = f"{manifest.read_outcome(VerificationOutcome, other).name} ({other.name})"
                labels = _labels(manifest.file(other, VERDICTS))
                if shared := [id_ for id_ in own if id_ in labels]:
                    agreements[name] = agreement([own[id_] for id_ in shared], [labels[id_] for id_ in shared])
    return agreements


def _labels(file: Path) -> dict[str, str | None]:
    return {line.id: line.label for line in read_verified(file)}


def read_list(file: Path) -> list[str]:
    """Read the distinct texts of a file, one question per line, with normal spaces and without empty lines.

    Raises DataError: it cannot be read, is not text, or has no line.
    """
    try:
        lines = [_normalize(line) for line in file.read_text(encoding="utf-8-sig").split("\n")]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"verify.list={file}: {reason}. Name a UTF-8 file with one question per line") from error
    if not any(lines):
        raise DataError(f"verify.list={file}: the file is empty. Name a file with one question per line")
    return list(dict.fromkeys(line for line in lines if line))


def find_unmatched(file: Path, lines: Sequence[str], questions: Iterable[Question]) -> list[str]:
    """Return the lines that are no question of the dataset. Raises DataError: none of them is."""
    known = {_normalize(question.text) for question in questions}
    unmatched = [line for line in lines if line not in known]
    if len(unmatched) == len(lines):
        raise DataError(
            f"verify.list={file}: none of its {len(lines):,} questions is in the dataset, the first is "
            f"{lines[0]!r:.80}. Is it for another dataset= or dataset.split=?"
        )
    return unmatched


def verify_by_list(lines: Iterable[str], questions: Iterable[Question]) -> list[VerifiedQuestion]:
    """Return noise for the questions in the list, and valid for all others."""
    noise = {*lines}
    return [
        VerifiedQuestion(id=each.id, question=each.text, verdict="noise" if _normalize(each.text) in noise else "valid")
        for each in questions
    ]


def choose_answers(questions: Sequence[Question], *, swapped: bool) -> dict[str, str]:
    """Return by question id the answer to look for: the first gold answer.

    swapped: use the answer of the next question that has a different one. The last question continues with the first.

    Raises:
        ConfigError: there is no different answer.
        DataError: a question has no answer, or no question names a gold passage.
    """
    for question in questions:
        if not question.answers:
            raise DataError(f"question {question.id}: it has no gold answer to verify. Choose another dataset=")
    if not any(question.support for question in questions):
        raise DataError("no question names its gold passages, so they cannot be verified")
    answers = {question.id: question.answers[0] for question in questions}
    for index, question in enumerate(questions if swapped else ()):
        own = {_normalize(answer).casefold() for answer in question.answers}
        others = (questions[other].answers[0] for other in chain(range(index + 1, len(questions)), range(index)))
        other = next((answer for answer in others if _normalize(answer).casefold() not in own), None)
        if other is None:
            raise ConfigError(
                f"verify.swap_answers=true: no question has another answer than {question.id}. Use more of them"
            )
        answers[question.id] = other
    return answers


def _normalize(text: str) -> str:
    return " ".join(text.split())
