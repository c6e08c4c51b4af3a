"""TREC's two files: what was retrieved, in its order, and what should have been."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from kgqa.artifacts.run import FinishedRun
from kgqa.report.questions import ReportedQuestion, load_reported_questions, order_ids
from kgqa.util.fs import OUT_ELSEWHERE, replace_file_parts

_UNFIT = re.compile(r"[\s%]")  # in a column: columns are told apart by blanks


def write_trec(run: FinishedRun, folder: Path) -> None:
    """`run.trec` and `qrels.trec`: passages by their ids, questions in the data file's order.

    A question that failed or used no passage has no line in `run.trec`; one without known gold passages none in
    `qrels.trec`. Scores only say the order: the number of passages, downwards.
    """
    ranked, gold = dict[str, str](), dict[str, str]()
    for reported in load_reported_questions(run):
        ranked[reported.row.id] = "".join(_ranking(reported, run.choices["method"]))
        gold[reported.row.id] = "".join(_judgements(reported))
    for name, lines in (("run.trec", ranked), ("qrels.trec", gold)):
        replace_file_parts(folder / name, (lines[id_] for id_ in order_ids(run, lines)), OUT_ELSEWHERE)


def _ranking(reported: ReportedQuestion, tag: str) -> Iterable[str]:
    prediction = reported.traced.prediction
    used = tuple(dict.fromkeys(prediction.evidence or ())) if prediction.error is None else ()
    for rank, passage_id in enumerate(used, start=1):
        score = len(used) - rank + 1
        yield f"{column(reported.row.id)} Q0 {column(passage_id)} {rank} {score} {column(tag)}\n"


def _judgements(reported: ReportedQuestion) -> Iterable[str]:
    return (f"{column(reported.row.id)} 0 {column(id_)} 1\n" for id_ in sorted(reported.traced.question.support))


def column(text: str) -> str:
    """Return the text without blanks, which are written as in an address: %20; so is the percent sign."""
    return _UNFIT.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), text)
