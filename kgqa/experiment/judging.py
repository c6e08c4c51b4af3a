"""Judge answers: the verdicts in the order of the questions, and their summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kgqa.artifacts.metrics import JudgeMetrics
from kgqa.artifacts.schema import extend
from kgqa.artifacts.verdicts import Fate, Judgement
from kgqa.experiment.session import Session
from kgqa.identity.program_code import program_hash
from kgqa.judge import ROLE
from kgqa.judge.judges import JudgedAnswer, Verdict
from kgqa.prompting import template_hash
from kgqa.runtime.display import Display
from kgqa.scoring.questions import ScoredQuestion
from kgqa.scoring.summary import summarise_verdicts
from kgqa.util.fs import digest
from kgqa.util.redaction import describe_error


@dataclass(frozen=True)
class Judged:
    lines: list[Judgement]  # of verdicts.jsonl
    metrics: JudgeMetrics


def judge_answers(session: Session, rows: Sequence[ScoredQuestion], display: Display, reader: str = "") -> Judged:
    """Judge every answer with the experiment's judge. A failed question has no answer and is not sent.

    reader: the preset that answered, "" if unknown.

    Raises:
        EngineDied: all verdicts so far are in the call cache.
    """
    experiment, judge = session.experiment, session.experiment.judge
    assert judge is not None, "no judge is set"
    engines = session.judge_engines
    answers = {
        row.id: JudgedAnswer(row.question.text, row.question.answers, row.answer)
        for row in rows
        if row.answer is not None
    }
    verdicts: dict[str, Verdict | Exception] = {}
    with session.runner(engines=engines) as runner, display.stage("verdicts", len(answers), runner.ledger) as stage:
        programs = ((key, judge.judge(answer)) for key, answer in answers.items())
        for ended in runner.run(programs):
            verdicts[ended.key] = ended.result
            stage.finish(failed=isinstance(ended.result, Exception))
    labels = {role: engines.label(role) for role in judge.roles}
    identity = identify_judge(session)
    lines = [_judgement(row, verdicts.get(row.id), identity) for row in rows]
    grades_itself = any(label.partition("@")[0] == reader for label in labels.values())
    metrics = extend(
        JudgeMetrics,
        summarise_verdicts(lines, [bool(row.em) for row in rows]),
        judge=experiment.name(ROLE),
        models=labels,
        prompts={template: template_hash(template) for template in judge.templates},
        identity=identity,
        cost=runner.ledger.costs(len(answers)),
        warnings=[f"the judge is the reader: {reader} grades its own answers"] if grades_itself else [],
    )
    return Judged(lines, metrics)


def identify_judge(session: Session) -> str:
    """Return who judges: the judge's name, its models, and a hash of settings, code, prompts and engines."""
    experiment, judge = session.experiment, session.experiment.judge
    assert judge is not None, "no judge is set"
    engines = session.judge_engines
    decides = [experiment.config[ROLE], program_hash(judge), engines.identities()]
    return " ".join([experiment.name(ROLE), *(engines.label(role) for role in judge.roles), digest(decides, 16)])


def _judgement(row: ScoredQuestion, verdict: Verdict | Exception | None, judge: str) -> Judgement:
    """Return the line of a question. `verdict`: None if the question failed."""
    given = verdict if isinstance(verdict, Verdict) else Verdict(None)
    fate: Fate = "failed" if verdict is None else "judged" if given.votes or given.label is None else "exact"
    return Judgement(
        question_id=row.id,
        verdict=given.label,
        fate=fate,
        answer=row.answer,
        votes=given.votes,
        error=describe_error(verdict) if isinstance(verdict, Exception) else None,
        judge=judge,
    )
