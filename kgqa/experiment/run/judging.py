"""A run's answers before a judge: verdicts in the run's order, and what they come to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kgqa.errors import ConfigError
from kgqa.experiment.config.building import build
from kgqa.experiment.session.engines import Engines, chosen_nodes
from kgqa.experiment.session.runner import Workbench
from kgqa.judge.judges import ROLE, AnyJudge, Case, Verdict
from kgqa.prompting import template_hash
from kgqa.protocols import Ranker
from kgqa.report.progress import stage
from kgqa.runtime.cache import CallCache
from kgqa.scoring.metrics import score
from kgqa.scoring.summary import ScoredQuestion
from kgqa.scoring.verdicts import Fate, JudgedQuestion, summarise_verdicts
from kgqa.storage import call_cache
from kgqa.types import Json

if TYPE_CHECKING:
    from kgqa.experiment.session.session import Session


@dataclass(frozen=True)
class Judged:
    lines: list[dict[str, Json]]  # of verdicts.jsonl
    summary: dict[str, Json]


def chosen_judge(config: Mapping[str, Any]) -> AnyJudge | None:
    """Raises ConfigError naming what is wrong with the judge or its model."""
    if config.get(ROLE) is None:
        return None
    judge: AnyJudge = build(config[ROLE], ROLE)
    return judge


def judge_engines(config: Mapping[str, Any], judge: AnyJudge) -> Engines:
    """Each of the judge's roles with its own model, else that of roles.judge, else that of the configuration."""
    general = config["roles"][ROLE]
    default = chosen_nodes(f"roles.{ROLE}", general) if general else (config["model"], config["engine"])
    key = f"{ROLE}.model" if ROLE in judge.roles else f"{ROLE}.members"
    return Engines({role: chosen_nodes(key, own) if own else default for role, own in judge.roles.items()})


def reader_preset(config: Mapping[str, Any]) -> str:
    own = config["roles"]["reader"]
    return str(own.partition("@")[0] if own else config["model"]["name"])


def judge_answers(
    session: Session,
    judge: AnyJudge,
    rows: Sequence[ScoredQuestion],
    texts: Mapping[str, str],
    reader: str | None = None,
) -> Judged:
    """Ask the judge about every answer; a failed question has none and is not sent.

    texts: the questions by id. reader: the preset that answered them, "" where it is not known; None: that
    of the configuration.

    Raises:
        EngineDied: what was judged so far is in the call cache.
    """
    engines = judge_engines(session.config, judge)
    cases = {
        row.question_id: Case(texts[row.question_id], row.golds, row.prediction)
        for row in rows
        if row.prediction is not None
    }
    verdicts: dict[str, Verdict | Exception] = {}
    with closing(CallCache(call_cache())) as cache, closing(Workbench(cache, engines, _no_ranker)) as bench:
        settings = session.settings
        session.benches.append(bench)
        with stage("verdicts", len(cases), session.console) as shown:
            programs = ((key, judge.judge(case)) for key, case in cases.items())
            for each in bench.run(programs, shown.record, width=settings.width, seed=settings.seed):
                verdicts[each.key] = each.result
                shown.finished(failed=isinstance(each.result, Exception))
        labels = {role: engines.label(role) for role in judge.roles}
        cost = shown.ledger.json(len(cases), engines.prices)
    name = session.name(ROLE)
    prompts = {template: template_hash(template) for template in judge.templates}
    identity = " ".join([name, *labels.values(), *prompts.values()])
    judged = [_judged(row, verdicts.get(row.question_id)) for row in rows]
    summary = {
        "judge": name,
        "models": labels,
        "prompts": prompts,
        **summarise_verdicts(judged, seed=settings.seed),
        "cost": cost,
        "warnings": _warnings(labels.values(), reader_preset(session.config) if reader is None else reader),
    }
    lines = [_line(row, verdicts.get(row.question_id), each, identity) for row, each in zip(rows, judged, strict=True)]
    return Judged(lines, summary)


def _no_ranker(scorer: str) -> Ranker:
    raise ConfigError(f"a judge ranks nothing, so there is no {scorer}")


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
