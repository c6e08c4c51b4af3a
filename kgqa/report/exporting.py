"""`kgqa report`: a finished run for other programs, in a folder that appears whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from kgqa.artifacts.run import FinishedRun
from kgqa.errors import ConfigError
from kgqa.report.exports.dataset_card import write_card
from kgqa.report.exports.every_eval_ever import write_every_eval_ever
from kgqa.report.exports.otlp import write_otlp
from kgqa.report.exports.rows import write_rows
from kgqa.report.exports.trec import write_trec
from kgqa.util.fs import OUT_ELSEWHERE, ensure_dir, explain_storage_errors

Write = Callable[[FinishedRun, Path], None]
FORMATS: Mapping[str, Write] = {  # as in kgqa/cli/export.py
    "jsonl": write_rows,
    "eee": write_every_eval_ever,
    "otlp": write_otlp,
    "trec": write_trec,
    "card": write_card,
}


def write_export(run: Path, out: Path, form: str = "jsonl") -> list[Path]:
    """Return the run in one of `FORMATS`, in `out`; gives the files, in the order of their names.

    Raises:
        ConfigError: the folder is not empty, or has no name of its own; or the form does not fit the run.
        DataError: not the folder of a run that ended.
        StorageError: the disk is full or refuses.
    """
    finished = FinishedRun.read(run)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out {out}: is there already and not an empty folder; give another one")
    if out.name in ("", ".."):
        raise ConfigError(f"--out {out}: name a folder, for it is written beside that name first")
    part = out.with_name(f"{out.name}.part")
    with explain_storage_errors(part, OUT_ELSEWHERE):
        shutil.rmtree(part, ignore_errors=True)  # of an export that was killed
        ensure_dir(part)
        try:
            FORMATS[form](finished, part)
            part.replace(out)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return sorted(file for file in out.rglob("*") if file.is_file())
