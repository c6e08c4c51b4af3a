"""A run's questions one by one, scored as `metrics.json` scores them all."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields

from kgqa.errors import DataError
from kgqa.report.content import FinishedRun
from kgqa.report.verdicts import Judgements
from kgqa.runtime.folder import read_trace
from kgqa.scoring.metrics import score
from kgqa.scoring.support import support
from kgqa.types import Json


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """One question: what was asked, what came, how good it is (shares in 0..1) and what it cost."""

    id: str
    question: str
    answer: str | None  # None: the question failed
    gold: tuple[str, ...]
    em: float | None  # None: the run answers nothing, it retrieves
    f1: float | None
    support_recall: float | None  # None: no gold passage is known
    hops: int | None
    type: str
    flags: Mapping[str, int]
    error: str | None
    context_tokens: int | None
    calls: int
    prompt_tokens: int  # as if nothing had been cached
    output_tokens: int
    verdict: str | None  # the judge's, or "unscored"; None: not judged, or another answer was


def scored_questions(run: FinishedRun) -> Iterator[tuple[QuestionRow, dict[str, Json]]]:
    """Each question's row and trace, in the order in which they ended; `judgement` in the trace is the judge's line."""
    judgements = Judgements(run.folder)
    profile, answers = run.metrics["profile"], run.metrics["scores"]["em"]["n"] > 0
    for traced in read_trace(run.folder):
        question, error = traced["question"], traced["error"]
        scores: Mapping[str, float | None] = {"em": None, "f1": None}
        if answers:
            scores = score(None if error else traced["answer"], question["answers"], profile)
        replies = [call["reply"] for call in traced["calls"]]
        traced["judgement"] = judged = judgements.of(traced)
        usages = [reply["usage"] for reply in replies if isinstance(reply, Mapping) and "usage" in reply]
        yield (
            QuestionRow(
                id=question["id"],
                question=question["text"],
                answer=None if error else traced["answer"],
                gold=tuple(question["answers"]),
                em=scores["em"],
                f1=scores["f1"],
                support_recall=support(() if error else traced["evidence"], question["support"], ()).recall,
                hops=question["hops"],
                type=question["type"],
                flags=traced.get("flags") or {},
                error=error,
                context_tokens=traced.get("context_tokens"),
                calls=len(traced["calls"]),
                prompt_tokens=sum(prompt for prompt, *_ in usages),
                output_tokens=sum(output for _, _, output, _ in usages),
                verdict=judged["verdict"] if judged else None,
            ),
            traced,
        )


def same_questions(run: FinishedRun, other: FinishedRun) -> dict[str, QuestionRow]:
    """The other run's questions by id, where both answered the same ones and are scored alike.

    Raises:
        DataError: they differ; the message says in what.
    """
    mine, theirs = run.metrics["profile"], other.metrics["profile"]
    if mine != theirs:
        raise DataError(f"{other.folder}: scored by {theirs}, {run.folder} by {mine}; run both with one profile=")
    rows = {row.id: row for row, _ in scored_questions(other)}
    asked = set(question_ids(run))
    if unlike := sorted(asked ^ rows.keys()):
        only = run.folder if unlike[0] in asked else other.folder
        raise DataError(
            f"{other.folder}: {len(unlike):,} questions are not in both it and {run.folder}, the first {unlike[0]}, "
            f"only in {only}; give two runs on the same questions"
        )
    return rows


def question_ids(run: FinishedRun) -> list[str]:
    """In the order of the data file.

    Raises:
        DataError: the run has not ended.
    """
    path = run.folder / "predictions.jsonl"
    try:
        return [json.loads(line)["question_id"] for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path}: not readable ({error!r}); run the same command again to rewrite it") from error


def questions_csv(run: FinishedRun) -> str:
    """One line a question, in the data file's order; golds and flags as JSON, nothing for what is not known."""
    rows = {row.id: row for row, _ in scored_questions(run)}
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, [field.name for field in fields(QuestionRow)], lineterminator="\n")
    writer.writeheader()
    for question_id in question_ids(run):
        cells = asdict(rows[question_id])
        writer.writerow(
            {k: json.dumps(v, ensure_ascii=False) if k in ("gold", "flags") else v for k, v in cells.items()}
        )
    return text.getvalue()
