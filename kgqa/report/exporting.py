"""`kgqa export`: a finished run's predictions and calls for other programs, a row a line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

from kgqa.artefacts.run import FinishedRun
from kgqa.errors import ConfigError
from kgqa.report.tables import Row, call_rows, prediction_rows
from kgqa.storage import OUT_ELSEWHERE, begun, made, storing


def write_jsonl(rows: Iterable[Row], file: Path) -> None:
    # a lone surrogate becomes JSON's own escape
    with storing(file, OUT_ELSEWHERE), begun(file).open("w", encoding="utf-8", errors="backslashreplace") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


def write_export(run: Path, out: Path) -> list[Path]:
    """`predictions.jsonl` and `traces.jsonl` in `out`, which appears whole or not at all.

    Raises:
        ConfigError: the folder is not empty, or has no name of its own.
        DataError: not the folder of a run that ended.
        StorageError: the disk is full or refuses.
    """
    finished = FinishedRun.read(run)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out {out}: is there already and not an empty folder; give another one")
    if out.name in ("", ".."):
        raise ConfigError(f"--out {out}: name a folder, for it is written beside that name first")
    part = out.with_name(f"{out.name}.part")
    written = {"predictions.jsonl": prediction_rows(finished), "traces.jsonl": call_rows(finished)}
    with storing(part, OUT_ELSEWHERE):
        shutil.rmtree(part, ignore_errors=True)  # of an export that was killed
        made(part)
        try:
            for name, rows in written.items():
                write_jsonl(rows, part / name)
            part.replace(out)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return [out / name for name in written]
