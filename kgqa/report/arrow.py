"""Tables as Parquet files and as data sets of Hugging Face's library, both through Arrow, a batch of rows at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from kgqa.errors import ConfigError
from kgqa.report.tables import Kind, Row
from kgqa.storage import OUT_ELSEWHERE, storing
from kgqa.types import Json

BATCH = 500  # rows in memory: a call's prompt can have 100 kB


def write_parquet(rows: Iterable[Row], columns: Mapping[str, Kind], file: Path) -> None:
    """
    Raises:
        ConfigError: the package `pyarrow` is not installed.
        StorageError: the disk is full or refuses.
    """
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError(f"Parquet needs the package pyarrow ({error}); pip install 'kgqa[parquet]'") from error
    schema = _schema(columns)
    with storing(file, OUT_ELSEWHERE), pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in _batches(rows, schema):
            writer.write_batch(batch)


def write_dataset(rows: Iterable[Row], columns: Mapping[str, Kind], folder: Path) -> None:
    """What `datasets.load_from_disk` opens.

    Raises:
        ConfigError: the package `datasets` is not installed.
        StorageError: the disk is full or refuses.
    """
    try:
        import datasets
        import pyarrow
    except ImportError as error:
        raise ConfigError(f"a data set needs the package datasets ({error}); pip install 'kgqa[datasets]'") from error
    schema, stream = _schema(columns), folder.with_name(f"{folder.name}.arrow")
    with storing(folder, OUT_ELSEWHERE):
        with pyarrow.OSFile(str(stream), "wb") as sink, pyarrow.ipc.new_stream(sink, schema) as writer:
            for batch in _batches(rows, schema):
                writer.write_batch(batch)
        shown = datasets.are_progress_bars_disabled()
        datasets.disable_progress_bars()
        try:
            datasets.Dataset.from_file(str(stream)).save_to_disk(str(folder))  # mapped, not read
        finally:
            if not shown:
                datasets.enable_progress_bars()
        stream.unlink()


def _schema(columns: Mapping[str, Kind]) -> Any:
    import pyarrow

    types = {
        "text": pyarrow.string(),
        "texts": pyarrow.list_(pyarrow.string()),
        "whole": pyarrow.int64(),
        "real": pyarrow.float64(),
        "truth": pyarrow.bool_(),
    }
    return pyarrow.schema([(name, types[kind]) for name, kind in columns.items()])


def _batches(rows: Iterable[Row], schema: Any) -> Iterator[Any]:
    import pyarrow

    remaining = iter(rows)
    while some := list(islice(remaining, BATCH)):
        yield pyarrow.RecordBatch.from_pylist([_writable(row) for row in some], schema=schema)


def _writable(row: Row) -> dict[str, Json]:
    """Arrow takes no half characters; they become escapes as in the other files."""
    return {name: _text(value) if isinstance(value, str) else value for name, value in row.items()}


def _text(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode("utf-8")
