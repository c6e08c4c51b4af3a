"""A run's answers before a judge: verdicts in the run's order, and what they come to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kgqa.artifacts.metrics import JudgeMetrics
from kgqa.artifacts.schema import extend
from kgqa.artifacts.verdicts import Fate, Judgement, StoredVote
from kgqa.experiment.run.judge_roles import judge_engines, reader_preset
from kgqa.experiment.session.session import Session
from kgqa.judge import ROLE
from kgqa.judge.judges import JudgedAnswer, Verdict
from kgqa.prompting import template_hash
from kgqa.runtime.display import Display
from kgqa.scoring.questions import ScoredQuestion
from kgqa.scoring.verdicts import summarise_verdicts
from kgqa.util.redaction import describe_error


@dataclass(frozen=True)
class Judged:
    lines: list[Judgement]  # of verdicts.jsonl
    metrics: JudgeMetrics


def judge_answers(
    session: Session, rows: Sequence[ScoredQuestion], display: Display, reader: str | None = None
) -> Judged:
    """Ask the experiment's judge about every answer; a failed question has none and is not sent.

    reader: the preset that answered them, "" where it is not known; None: that of the configuration.

    Raises:
        EngineDied: what was judged so far is in the call cache.
    """
    experiment, judge = session.experiment, session.experiment.judge
    assert judge is not None, "there is no judge to ask"
    engines = judge_engines(session, judge)
    answers = {
        row.id: JudgedAnswer(row.question.text, row.question.answers, row.answer)
        for row in rows
        if row.answer is not None
    }
    verdicts: dict[str, Verdict | Exception] = {}
    with session.runner(engines=engines) as runner, display.stage("verdicts", len(answers), runner.ledger) as stage:
        programs = ((key, judge.judge(answer)) for key, answer in answers.items())
        for ended in runner.run(programs, stage.record):
            verdicts[ended.key] = ended.result
            stage.finish(failed=isinstance(ended.result, Exception))
    labels = {role: engines.label(role) for role in judge.roles}
    name = experiment.name(ROLE)
    prompts = {template: template_hash(template) for template in judge.templates}
    identity = " ".join([name, *labels.values(), *prompts.values()])
    lines = [_judgement(row, verdicts.get(row.id), identity) for row in rows]
    metrics = extend(
        JudgeMetrics,
        summarise_verdicts(lines, [bool(row.em) for row in rows], seed=experiment.settings.seed),
        judge=name,
        models=labels,
        prompts=prompts,
        cost=runner.ledger.costs(len(answers), engines.prices),
        warnings=_warnings(labels.values(), reader_preset(experiment.config) if reader is None else reader),
    )
    return Judged(lines, metrics)


def _judgement(row: ScoredQuestion, verdict: Verdict | Exception | None, judge: str) -> Judgement:
    """Return None if the question had failed, and was not sent."""
    given = verdict if isinstance(verdict, Verdict) else Verdict(None)
    fate: Fate = "failed" if verdict is None else "judged" if given.votes or given.label is None else "exact"
    return Judgement(
        question_id=row.id,
        verdict=given.label,
        fate=fate,
        answer=row.answer,
        votes=tuple(StoredVote(verdict=vote.label, replies=vote.replies, error=vote.error) for vote in given.votes),
        error=describe_error(verdict) if isinstance(verdict, Exception) else None,
        judge=judge,
    )


def _warnings(labels: Iterable[str], reader: str) -> list[str]:
    grades_itself = any(label.partition("@")[0] == reader for label in labels)
    return [f"the judge is the reader: {reader} grades its own answers"] if grades_itself else []
