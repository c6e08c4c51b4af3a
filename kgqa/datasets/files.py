"""Where a dataset's file lies, and the JSON records in it."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator
from importlib.resources import files as package_files
from pathlib import Path

from kgqa.errors import ConfigError, DataError
from kgqa.types import Json

PACKAGED = "pkg://"  # Hydra's notation for what ships in a package: pkg://kgqa.datasets/demo.jsonl


def find(dataset: str, path: str | None, names: tuple[str, ...]) -> Path:
    """The data file: at `path`, a file or a folder; else below `$KGQA_DATA`; else below `data/`.

    Below means: in `<dataset>/`, in `questions/` or in the folder itself. `names` are tried in order, each
    plain and with ".gz". An earlier name in a later folder wins over a later name in an earlier folder.

    Raises:
        DataError: naming everything that was looked for.
    """
    if path is not None and not (given := _given(path)).is_dir():
        if not given.exists():
            raise DataError(f"dataset.path={path}: no such file; name an existing file, or run: {_prepare(dataset)}")
        return given
    folders = _folders(dataset) if path is None else [_given(path)]
    for name in names:
        for folder in folders:
            for candidate in (folder / name, folder / f"{name}.gz"):
                if candidate.is_file():
                    return candidate
    places = ", ".join(map(str, folders))
    raise DataError(
        f"dataset={dataset}: no {' or '.join(names)} (plain or .gz) in {places}; "
        f"run: {_prepare(dataset)}, or give dataset.path=FILE, or point KGQA_DATA to the folder that has it"
    )


def preparation(dataset: str, path: str | None, names: tuple[str, ...], source: str) -> str:
    """Where the file was found, else what to fetch and where to put it; one line."""
    try:
        return f"found at {find(dataset, path, names)}"
    except DataError:
        return (
            f"get {' or '.join(names)} (plain or .gz) from {source} and put it into data/{dataset}/, "
            "or into a folder named by KGQA_DATA, or give dataset.path=FILE"
        )


def refuse_no_names(dataset: str, names: tuple[str, ...]) -> None:
    if not names:
        raise ConfigError(f"dataset.files=[]: name at least one file to look for as dataset={dataset}")


def records(file: Path) -> Iterator[tuple[str, Json]]:
    """Each record of a JSON array or JSONL file, with its place for messages: "FILE:LINE", or "FILE: record N (id X)".

    Whether the file is gzipped, and which of the two it is, is seen from its content. A byte order mark is skipped.

    Raises:
        DataError: unreadable, empty, cut short, not UTF-8 or not JSON.
    """
    text = _text(file)
    if not text.strip():
        raise DataError(f"{file}: the file is empty; fetch it again")
    if text.lstrip().startswith("["):
        for number, record in enumerate(_parsed(text, file, 1), start=1):
            yield f"{file}: record {number}{_id(record)}", record
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"{file}:{number}", _parsed(line, file, number)


def _given(path: str) -> Path:
    if not path.startswith(PACKAGED):
        return Path(path).expanduser()
    package, _, name = path.removeprefix(PACKAGED).partition("/")
    try:
        return Path(str(package_files(package))) / name
    except ModuleNotFoundError:
        raise DataError(f"dataset.path={path}: no package {package}; write {PACKAGED}PACKAGE/FILE") from None


def _folders(dataset: str) -> list[Path]:
    environment = os.environ.get("KGQA_DATA")
    roots = [Path(environment).expanduser()] if environment else []
    return [root / below for root in [*roots, Path("data")] for below in (dataset, "questions", "")]


def _prepare(dataset: str) -> str:
    return f"kgqa data prepare dataset={dataset}"


def _text(file: Path) -> str:
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}; give dataset.path=FILE") from None
    if raw.startswith(b"\x1f\x8b"):
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{file}: broken gzip file ({error}); fetch it again") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{file}:{line}: not UTF-8 (byte 0x{raw[error.start]:02x}); convert the file to UTF-8"
        ) from None


def _parsed(text: str, file: Path, line: int) -> Json:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        shown = text[max(error.pos - 20, 0) : error.pos + 20]
        raise DataError(
            f"{file}:{line + error.lineno - 1}: not JSON: {error.msg} at column {error.colno}, near {shown!r}; "
            "expected a JSON array or one object a line; if the file is cut short, fetch it again"
        ) from None


def _id(record: Json) -> str:
    found = record.get("_id", record.get("id")) if isinstance(record, dict) else None
    return f" (id {found})" if found is not None else ""
