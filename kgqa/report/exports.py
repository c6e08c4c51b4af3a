"""Write the report of a finished run as a file, or the run for other programs into a folder."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from kgqa.artifacts.run import FinishedRun
from kgqa.errors import ConfigError
from kgqa.report.explorer import run_page
from kgqa.report.questions import RunQuestions, call_rows, prediction_rows, write_jsonl
from kgqa.report.run_report import (
    notices,
    scores_with_intervals,
    sections,
    title_with_settings,
)
from kgqa.report.section import FILES, csv_text, latex, markdown
from kgqa.scoring.questions import ScoredQuestion
from kgqa.util.fs import OUT_ELSEWHERE, ensure_dir, explain_storage_errors, replace_file
from kgqa.util.registry import list_exports, load_function

# in TREC's files, in which spaces separate columns
_UNFIT = re.compile(r"[\s%]")


def write_report(
    run: FinishedRun, form: str, out: Path | None = None, scored: Iterable[ScoredQuestion] = ()
) -> Path:
    """Write a run's report in one of `FILES`, by default into its folder, and return the file.

    scored: the questions whose scores are known. The others are scored here.
    """
    out = out or run.folder / FILES[form]
    match form:
        case "csv":
            return replace_file(out, _csv(run))
        case "latex":
            tables = [
                scores_with_intervals(run),
                *(each for each in sections(run) if each.title != "Settings"),
            ]
            return replace_file(out, latex(run.title, tables, notices(run)))
        case "md":
            return replace_file(
                out, markdown(title_with_settings(run), sections(run), notices(run))
            )
    return replace_file(out, run_page(run, sections(run), notices(run), scored))


def _csv(run: FinishedRun) -> str:
    """Return a line per question in the data file's order. Lists are JSON."""
    rows = list(prediction_rows(run))
    lines = (
        [
            json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
            for value in row.values()
        ]
        for row in rows
    )
    return csv_text([list(rows[0]), *lines])


def write_export(run: Path, out: Path, form: str = "jsonl") -> list[Path]:
    """Write a run in one of the forms into `out`, completely or not at all, and return the files sorted by name.

    form: jsonl (rows), trec, or a format of an extra.

    Raises ConfigError: the folder is not empty or has no name, or the form does not fit the run. DataError: not the
    folder of a finished run. StorageError: the disk is full or not writable.
    """
    own = {"jsonl": _write_rows, "trec": _write_trec}
    write = own[form] if form in own else load_function(list_exports()[form].function)
    finished = FinishedRun.read(run)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out {out}: this folder is not empty. Name another one.")
    if out.name in ("", ".."):
        raise ConfigError(f"--out {out}: name a folder")
    part = out.with_name(f"{out.name}.part")
    with explain_storage_errors(part, OUT_ELSEWHERE):
        # of an export that was killed
        shutil.rmtree(part, ignore_errors=True)
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
    ranked, gold, tag = list[str](), list[str](), trec_column(run.choices["method"])
    for reported in RunQuestions(run):
        id_, prediction = trec_column(reported.traced.question.id), reported.traced.prediction
        used = list(dict.fromkeys(prediction.evidence or ())) if prediction.error is None else []
        for rank, passage in enumerate(used, start=1):
            ranked.append(f"{id_} Q0 {trec_column(passage)} {rank} {len(used) - rank + 1} {tag}\n")
        gold += [
            f"{id_} 0 {trec_column(passage)} 1\n"
            for passage in sorted(reported.traced.question.support)
        ]
    for name, lines in (("run.trec", ranked), ("qrels.trec", gold)):
        replace_file(folder / name, lines)


def trec_column(text: str) -> str:
    """Return the text with spaces and percent signs escaped, such as %20."""
    return _UNFIT.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), text)
