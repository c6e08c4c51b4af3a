"""Judge answers: the verdicts in the order of the questions, and their summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from kgqa.artifacts.evaluation import Consistency
from kgqa.artifacts.metrics import Estimate, JudgeMetrics
from kgqa.artifacts.run import SCRIPTED
from kgqa.artifacts.schema import extend
from kgqa.artifacts.trace import read_evidence
from kgqa.artifacts.verdicts import RIGHT, Fate, Judgement
from kgqa.errors import ConfigError, PromptError, UnknownValue
from kgqa.experiment.experiment import Experiment
from kgqa.experiment.failures import report_failure
from kgqa.experiment.session import Session
from kgqa.identity.program_code import program_hash
from kgqa.judge import ROLE
from kgqa.judge.judges import (
    LABELS,
    SAMPLED,
    AnyJudge,
    Form,
    JudgedAnswer,
    ModelJudge,
    Verdict,
    render_prompt,
)
from kgqa.prompting import load_template, template_hash
from kgqa.runtime.display import Display
from kgqa.scoring.agreement import agreement
from kgqa.scoring.corrected import share
from kgqa.scoring.questions import ScoredQuestion
from kgqa.scoring.summary import group_verdicts, summarise_verdicts
from kgqa.types import Passage
from kgqa.util.digests import digest
from kgqa.util.redaction import describe_error, function_line
from kgqa.util.text import shorten

# to try prompts with
_EXAMPLE = JudgedAnswer("question", ("answer",), "answer", (Passage.of("title", "text"),))
# characters of a reply in a message
SHOWN = 80


@dataclass(frozen=True)
class Judged:
    lines: list[Judgement]  # of verdicts.jsonl
    metrics: JudgeMetrics


def judge_answers(
    session: Session,
    rows: Sequence[ScoredQuestion],
    display: Display,
    reader: str = "",
    trace: Path | None = None,
) -> Judged:
    """Judge every answer with the experiment's judge. A failed question has no answer and is not sent.

    Args:
        reader: the preset that answered, "" if unknown.
        trace: the folder with the passages that the method found, for a judge that sees passages.

    Raises:
        ConfigError: a template of the judge is missing or invalid.
        EngineDied: all verdicts so far are in the call cache.
    """
    experiment, judge = session.experiment, session.experiment.judge
    assert judge is not None, "no judge is set"
    check_prompts(judge)
    engines = session.judge_engines
    answers = answers_to_judge(rows, trace if judge.sees_passages else None)
    verdicts: dict[str, Verdict | Exception] = {}
    kinds, unreadable = set[str](), list[str]()
    with (
        session.runner(engines=engines) as runner,
        display.stage("verdicts", len(answers), runner.ledger) as stage,
    ):
        programs = ((key, judge.judge(answer)) for key, answer in answers.items())
        for ended in runner.run(programs):
            verdict = _check_verdict(judge, ended.result)
            if isinstance(verdict, Exception):
                line = f"{ended.key}: {describe_error(verdict)}"
                report_failure("verdict failed", verdict, line, kinds, display)
            elif why := explain_unreadable(judge, verdict):
                unreadable.append(why)
            verdicts[ended.key] = verdict
            stage.finish(failed=isinstance(verdict, Exception))
    if unreadable:
        display.line(f"{experiment.name(ROLE)}: {unreadable[0]}", alarm=True)
    labels = {role: engines.label(role) for role in judge.roles}
    identity = identify_judge(session)
    lines = [_judgement(row, verdicts.get(row.id), identity) for row in rows]
    # a scripted judge is no model
    judges = (label.partition("@") for label in labels.values())
    grades_itself = any(preset == reader and engine != SCRIPTED for preset, _, engine in judges)
    metrics = extend(
        JudgeMetrics,
        summarise_verdicts(lines, [bool(row.em) for row in rows]),
        judge=experiment.name(ROLE),
        models=labels,
        prompts={template: template_hash(template) for template in judge.templates},
        identity=identity,
        cost=runner.ledger.costs(len(answers)),
        warnings=[f"the judge is the reader: {reader} grades its own answers"]
        if grades_itself
        else [],
        **_compare_members(lines, labels),
        **group_verdicts(rows, lines),
    )
    return Judged(lines, metrics)


def explain_lost_verdicts(judged: JudgeMetrics, lines: Iterable[Judgement] = ()) -> str | None:
    """Return in one line that no answer got a verdict, or None. A scripted judge is known to give none.

    lines: the verdicts with the errors of the judge.
    """
    engines = {label.rpartition("@")[2] for label in judged.models.values()}
    if judged.has_verdicts or engines == {SCRIPTED}:
        return None
    cause = next((f": {line.error}" for line in lines if line.error), "")
    return (
        f"judge={judged.judge} gave no verdict on any answer{cause}. The answers and their other scores are saved. "
        "Correct the judge, then run the same command again"
    )


def check_prompts(judge: AnyJudge) -> None:
    """Raise ConfigError if a template of the judge is missing or invalid, or uses a value that no judge passes."""
    for template in judge.templates:
        load_template(template)
    # a judge with votes of its own can pass other values
    if isinstance(judge, ModelJudge) and type(judge).vote is ModelJudge.vote:
        for form in judge.forms:
            _try_prompt(form)


def _try_prompt(form: Form) -> None:
    """Raise UnknownValue if the prompt of a form uses a value that it does not get."""
    try:
        render_prompt(form, _EXAMPLE)
    except PromptError as error:
        # other errors can be of this example only
        if isinstance(error, UnknownValue):
            raise


def _check_verdict(judge: AnyJudge, result: object) -> Verdict | Exception:
    """Return the result of a judge, or an error if it is no Verdict with a known label."""
    if isinstance(result, Exception):
        return result
    if isinstance(result, Verdict) and (result.label is None or result.label in LABELS):
        return result
    expected = f"Verdict(label, votes) with the label {', '.join(map(repr, LABELS))} or None"
    return TypeError(
        f"{function_line(judge.judge)}: judge must return {expected}, not {result!r:.80}"
    )


def explain_unreadable(judge: AnyJudge, verdict: Verdict) -> str | None:
    """Return why the first vote that cannot be read has no verdict, or which function of the user gave none.

    None: all votes are readable.
    """
    for (form, _), vote in zip(judge.role_forms.values(), verdict.votes, strict=False):
        if vote.verdict is None and vote.replies:
            reply = shorten(vote.replies[-1], SHOWN)
            expected = judge.find_form(form)
            verdicts = ", ".join(expected.vocabulary)
            if expected.key is not None and "{" in reply:
                return f"reply {reply!r} has no key {expected.key!r} with one of {verdicts}"
            return f"reply {reply!r} is not in its vocabulary {verdicts}"
    # judges of kgqa have none if a panel disagrees
    if verdict.label is None and type(judge).judge is not ModelJudge.judge:
        return f"{function_line(judge.judge)} returned the label None"
    return None


def _compare_members(
    lines: Sequence[Judgement], models: Mapping[str, str]
) -> dict[str, Mapping[str, object]]:
    """Return the accuracy by each member of a panel and the agreement of each two. Nothing for a single judge."""
    if len(models) < 2:
        return {}
    votes = {
        f"{role} {model}": [line.votes[number].verdict for line in lines if line.votes]
        for number, (role, model) in enumerate(models.items())
    }
    right = {
        name: [verdict == RIGHT for verdict in verdicts_of_judge if verdict]
        for name, verdicts_of_judge in votes.items()
    }
    return {
        "members": {name: share(sum(verdicts), len(verdicts)) for name, verdicts in right.items()},
        "pairs": {
            f"{one} – {other}": agreement(votes[one], votes[other])
            for one, other in combinations(votes, 2)
        },
    }


def answers_to_judge(rows: Sequence[ScoredQuestion], trace: Path | None) -> dict[str, JudgedAnswer]:
    """Return the answers by question. trace: read the passages that the method used from this folder's trace."""
    evidence = dict(read_evidence(trace)) if trace is not None else {}
    return {
        row.id: JudgedAnswer(
            row.question.text,
            row.question.answers,
            row.answer,
            evidence.get(row.id) or _find_evidence(row),
            {"em": row.em, "containment": row.containment or 0.0},
        )
        for row in rows
        if row.answer is not None
    }


def _find_evidence(row: ScoredQuestion) -> tuple[Passage, ...]:
    """Return the passages of the evidence that come with the question."""
    used = set(row.prediction.passages_of(row.question) or ())
    return tuple(passage for passage in row.question.passages if passage.id in used)


def refuse_checks(experiment: Experiment) -> None:
    """Raise ConfigError if the judge calls no model, so that its consistency cannot be checked."""
    if not isinstance(experiment.judge, ModelJudge):
        raise ConfigError(
            f"--checks: judge={experiment.name(ROLE)} calls no model. Remove --checks"
        )


def check_consistency(
    session: Session,
    rows: Sequence[ScoredQuestion],
    judged: Judged,
    display: Display,
    trace: Path | None = None,
) -> Consistency:
    """Judge each answer twice more, and compare the verdicts: with another order, and with a sampled reply.

    The judge must be one that `refuse_checks` accepts.
    """
    judge, engines = session.experiment.judge, session.judge_engines
    assert isinstance(judge, ModelJudge), judge
    answers = answers_to_judge(rows, trace if judge.sees_passages else None)
    verdicts = {line.question_id: line.verdict for line in judged.lines if line.fate == "judged"}
    swapped = {f"swapped {key}": judge.poll(answers[key], swapped=True) for key in verdicts}
    repeated = {
        f"repeated {key}": judge.poll(answers[key], temperature=SAMPLED) for key in verdicts
    }
    again = dict[str, str | None]()
    count = 2 * len(verdicts)
    with (
        session.runner(engines=engines) as runner,
        display.stage("checks", count, runner.ledger) as stage,
    ):
        for ended in runner.run({**swapped, **repeated}.items()):
            again[ended.key] = ended.result.label if isinstance(ended.result, Verdict) else None
            stage.finish(failed=isinstance(ended.result, Exception))

    def agreement_with(way: str) -> Estimate:
        both = [
            (verdict, other)
            for key, verdict in verdicts.items()
            if verdict and (other := again[f"{way} {key}"])
        ]
        return share(sum(verdict == other for verdict, other in both), len(both))

    def accuracy(labels: Iterable[str | None]) -> Estimate:
        is_right = [label == RIGHT for label in labels if label]
        return share(sum(is_right), len(is_right))

    return Consistency(
        swapped=agreement_with("swapped"),
        repeated=agreement_with("repeated"),
        accuracy=accuracy(verdicts.values()),
        swapped_accuracy=accuracy(again[f"swapped {key}"] for key in verdicts),
    )


def identify_judge(session: Session) -> str:
    """Return who judges: the judge's name, its models, and a hash of settings, code, prompts and engines."""
    experiment, judge = session.experiment, session.experiment.judge
    assert judge is not None, "no judge is set"
    engines = session.judge_engines
    decides = [experiment.config[ROLE], program_hash(judge), engines.identities()]
    return " ".join(
        [experiment.name(ROLE), *(engines.label(role) for role in judge.roles), digest(decides, 16)]
    )


def _judgement(row: ScoredQuestion, verdict: Verdict | Exception | None, judge: str) -> Judgement:
    """Return the line of a question. `verdict`: None if the question failed."""
    judgement = verdict if isinstance(verdict, Verdict) else Verdict(None)
    fate: Fate = (
        "failed"
        if verdict is None
        else "judged"
        if judgement.votes or judgement.label is None
        else "exact"
    )
    return Judgement(
        question_id=row.id,
        verdict=judgement.label,
        fate=fate,
        answer=row.answer,
        votes=judgement.votes,
        error=describe_error(verdict) if isinstance(verdict, Exception) else None,
        judge=judge,
    )
