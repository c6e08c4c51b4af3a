"""Write a finished run for other programs into a folder, completely or not at all."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from kgqa.artifacts.run import FinishedRun
from kgqa.errors import ConfigError
from kgqa.report.every_eval_ever import write_every_eval_ever
from kgqa.report.otlp import write_otlp
from kgqa.report.questions import call_rows, load_reported_questions, order_ids, prediction_rows, write_jsonl
from kgqa.util.fs import OUT_ELSEWHERE, ensure_dir, explain_storage_errors, replace_file_parts

_UNFIT = re.compile(r"[\s%]")  # in TREC's files, in which spaces separate columns


def write_export(run: Path, out: Path, form: str = "jsonl") -> list[Path]:
    """Write a run in one of the forms into `out`, and return the files sorted by name.

    form: jsonl (rows), trec, eee (Every Eval Ever) or otlp (OpenTelemetry).

    Raises ConfigError: the folder is not empty or has no name, or the form does not fit the run. DataError: not the
    folder of a finished run. StorageError: the disk is full or not writable.
    """
    write = {"jsonl": _write_rows, "trec": _write_trec, "eee": write_every_eval_ever, "otlp": write_otlp}[form]
    finished = FinishedRun.read(run)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out {out}: this folder is not empty. Name another one.")
    if out.name in ("", ".."):
        raise ConfigError(f"--out {out}: name a folder")
    part = out.with_name(f"{out.name}.part")
    with explain_storage_errors(part, OUT_ELSEWHERE):
        shutil.rmtree(part, ignore_errors=True)  # of an export that was killed
        ensure_dir(part)
        try:
            write(finished, part)
            part.replace(out)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return sorted(file for file in out.rglob("*") if file.is_file())


def _write_rows(run: FinishedRun, folder: Path) -> None:
    write_jsonl(prediction_rows(run), folder / "predictions.jsonl")
    write_jsonl(call_rows(run), folder / "traces.jsonl")


def _write_trec(run: FinishedRun, folder: Path) -> None:
    """Write run.trec and qrels.trec: ids of passages, with scores that only give the order.

    A question that failed or used no passage has no line in run.trec, one without known gold passages none in
    qrels.trec.
    """
    ranked, gold = dict[str, str](), dict[str, str]()
    tag = trec_column(run.choices["method"])
    for reported in load_reported_questions(run):
        id_, prediction = trec_column(reported.row.question_id), reported.traced.prediction
        used = list(dict.fromkeys(prediction.evidence or ())) if prediction.error is None else []
        ranked[reported.row.question_id] = "".join(
            f"{id_} Q0 {trec_column(passage)} {rank} {len(used) - rank + 1} {tag}\n"
            for rank, passage in enumerate(used, start=1)
        )
        support = sorted(reported.traced.question.support)
        gold[reported.row.question_id] = "".join(f"{id_} 0 {trec_column(passage)} 1\n" for passage in support)
    for name, lines in (("run.trec", ranked), ("qrels.trec", gold)):
        replace_file_parts(folder / name, (lines[id_] for id_ in order_ids(run, lines)), OUT_ELSEWHERE)


def trec_column(text: str) -> str:
    """Return the text with spaces and percent signs escaped, such as %20."""
    return _UNFIT.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), text)
