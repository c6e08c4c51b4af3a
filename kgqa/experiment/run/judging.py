"""A run's answers before a judge: verdicts in the run's order, and what they come to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kgqa.experiment.config.composing import Config
from kgqa.experiment.session.engines import Engines, chosen_nodes
from kgqa.experiment.session.session import Session
from kgqa.judge.judges import ROLE, AnyJudge, Case, Verdict
from kgqa.prompting import template_hash
from kgqa.runtime.display import Display
from kgqa.scoring.metrics import score
from kgqa.scoring.summary import ScoredQuestion
from kgqa.scoring.verdicts import Fate, JudgedQuestion, summarise_verdicts
from kgqa.types import Json


@dataclass(frozen=True)
class Judged:
    lines: list[dict[str, Json]]  # of verdicts.jsonl
    summary: dict[str, Json]


def judge_engines(session: Session, judge: AnyJudge) -> Engines:
    """Each of the judge's roles with its own model, else that of roles.judge, else that of the configuration."""
    config = session.experiment.config
    general = config["roles"][ROLE]
    default = chosen_nodes(f"roles.{ROLE}", general) if general else (config["model"], config["engine"])
    key = f"{ROLE}.model" if ROLE in judge.roles else f"{ROLE}.members"
    return session.engines_of({role: chosen_nodes(key, own) if own else default for role, own in judge.roles.items()})


def reader_preset(config: Config) -> str:
    own = config["roles"]["reader"]
    return str(own.partition("@")[0] if own else config["model"]["name"])


def judge_answers(
    session: Session,
    rows: Sequence[ScoredQuestion],
    questions: Mapping[str, str],
    display: Display,
    reader: str | None = None,
) -> Judged:
    """Ask the experiment's judge about every answer; a failed question has none and is not sent.

    questions: their texts by id. reader: the preset that answered them, "" where it is not known; None: that
    of the configuration.

    Raises:
        EngineDied: what was judged so far is in the call cache.
    """
    experiment, judge = session.experiment, session.experiment.judge
    assert judge is not None, "there is no judge to ask"
    engines = judge_engines(session, judge)
    cases = {
        row.question_id: Case(questions[row.question_id], row.golds, row.prediction)
        for row in rows
        if row.prediction is not None
    }
    verdicts: dict[str, Verdict | Exception] = {}
    with session.runner(engines=engines) as runner, display.stage("verdicts", len(cases), runner.ledger) as stage:
        programs = ((key, judge.judge(case)) for key, case in cases.items())
        for ended in runner.run(programs, stage.recorded):
            verdicts[ended.key] = ended.result
            stage.finished(failed=isinstance(ended.result, Exception))
    labels = {role: engines.label(role) for role in judge.roles}
    name = experiment.name(ROLE)
    prompts = {template: template_hash(template) for template in judge.templates}
    identity = " ".join([name, *labels.values(), *prompts.values()])
    judged = [_judged(row, verdicts.get(row.question_id)) for row in rows]
    summary = {
        "judge": name,
        "models": labels,
        "prompts": prompts,
        **summarise_verdicts(judged, seed=experiment.settings.seed),
        "cost": runner.ledger.json(len(cases), engines.prices),
        "warnings": _warnings(labels.values(), reader_preset(experiment.config) if reader is None else reader),
    }
    lines = [_line(row, verdicts.get(row.question_id), each, identity) for row, each in zip(rows, judged, strict=True)]
    return Judged(lines, summary)


def _judged(row: ScoredQuestion, verdict: Verdict | Exception | None) -> JudgedQuestion:
    exact = bool(score(row.prediction, row.golds, row.profile)["em"])
    if verdict is None:
        return JudgedQuestion(None, "failed", exact)
    if isinstance(verdict, Exception):
        return JudgedQuestion(None, "judged", exact)
    fate: Fate = "judged" if verdict.votes else "exact"
    return JudgedQuestion(verdict.label, fate, exact)


def _line(
    row: ScoredQuestion, verdict: Verdict | Exception | None, judged: JudgedQuestion, identity: str
) -> dict[str, Json]:
    asked = verdict if isinstance(verdict, Verdict) else None
    return {
        "question_id": row.question_id,
        "verdict": judged.label,
        "fate": judged.fate,
        "answer": row.prediction,
        "votes": [
            {"verdict": vote.label, "replies": list(vote.replies), "error": vote.error}
            for vote in (asked.votes if asked else ())
        ],
        "error": f"{type(verdict).__name__}: {verdict}" if isinstance(verdict, Exception) else None,
        "judge": identity,
    }


def _warnings(labels: Iterable[str], reader: str) -> list[str]:
    grades_itself = any(label.partition("@")[0] == reader for label in labels)
    return [f"the judge is the reader: {reader} grades its own answers"] if grades_itself else []
