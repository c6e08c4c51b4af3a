"""`kgqa export`: a finished run's predictions and traces for other programs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from kgqa.errors import ConfigError
from kgqa.report.arrow import write_dataset, write_parquet
from kgqa.report.content import FinishedRun
from kgqa.report.tables import PREDICTIONS, TRACES, Kind, Row, Tables
from kgqa.storage import OUT_ELSEWHERE, storing

Writer = Callable[[Iterable[Row], Mapping[str, Kind], Path], None]


def write_jsonl(rows: Iterable[Row], columns: Mapping[str, Kind], file: Path) -> None:
    """A row a line, keys in the order of `columns`."""
    # a lone surrogate becomes JSON's own escape
    with storing(file, OUT_ELSEWHERE), file.open("w", encoding="utf-8", errors="backslashreplace") as out:
        for row in rows:
            out.write(json.dumps({name: row[name] for name in columns}, ensure_ascii=False) + "\n")


FORMATS: Mapping[str, tuple[str, Writer]] = {
    "jsonl": (".jsonl", write_jsonl),
    "parquet": (".parquet", write_parquet),
    "datasets": ("", write_dataset),
}


def write_export(run: Path, form: str, out: Path) -> list[Path]:
    """Files or folders `predictions` and `traces` in `out`, which appears whole or not at all; see `export`."""
    suffix, write = FORMATS[form]
    tables = Tables(FinishedRun.read(run))
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out {out}: is there already and not an empty folder; give another one")
    if out.name in ("", ".."):
        raise ConfigError(f"--out {out}: name a folder, for it is written beside that name first")
    part = out.with_name(f"{out.name}.part")
    with storing(part, OUT_ELSEWHERE):
        shutil.rmtree(part, ignore_errors=True)  # of an export that was killed
        part.mkdir(parents=True)
        try:
            write(tables.predictions(), PREDICTIONS, part / f"predictions{suffix}")
            write(tables.traces(), TRACES, part / f"traces{suffix}")
            part.replace(out)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return [out / f"{name}{suffix}" for name in ("predictions", "traces")]
