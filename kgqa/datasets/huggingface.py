"""Data sets in Hugging Face's form, turned into files as their authors publish them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from kgqa.datasets.files import TO_ELSEWHERE
from kgqa.datasets.sources import Hub
from kgqa.errors import ConfigError, DataError
from kgqa.types import Json
from kgqa.util.fs import replace_atomically

SAVED = ("dataset_dict.json", "state.json")  # what `save_to_disk` leaves in its folder


def rows(place: Path | None, hub: Hub) -> Iterator[Json]:
    """Yield the rows of a data set: of a folder that `save_to_disk` wrote, of .parquet files as the hub has them, or
    of the
    hub itself (None). Nothing is copied into Hugging Face's cache.

    Raises:
        ConfigError: the package `datasets` is not installed.
        DataError: there is no such data set, split or file, or it cannot be read.
    """
    try:
        import datasets
    except ImportError as error:
        raise ConfigError(
            f"Hugging Face's files need the package datasets ({error}); pip install 'kgqa[datasets]'"
        ) from error
    try:
        yield from _load(datasets, place, hub)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise DataError(f"{place or hub.id}: {error}; expected split {hub.split} of {hub.id}, {hub.config}") from None


def write(rows: Iterable[Json], target: Path, advance: Callable[[int], None]) -> int:
    """Return rows as records in the authors' form, a JSON array or, for a .jsonl target, a record in each line; their
    number.

    The file appears whole or not at all. `advance(n)` comes after n more records.

    Raises:
        DataError: a row is of no known data set, or there are none.
        StorageError: the disk is full or not writable.
    """
    before, between, after = ("", "\n", "\n") if target.suffix == ".jsonl" else ("[\n", ",\n", "\n]\n")
    count = 0
    with replace_atomically(target, TO_ELSEWHERE) as part, part.open("w", encoding="utf-8") as out:
        for row in rows:
            out.write((between if count else before) + json.dumps(original(row), ensure_ascii=False))
            count += 1
            advance(1)
        if not count:
            raise DataError(f"{target.name}: no rows to write")
        out.write(after)
    return count


def original(row: Mapping[str, Json]) -> Json:
    """Return a row as its authors' file has it. The hub keeps lists of records as records of lists, and `_id` as
    `id`.
    """
    try:
        if "paragraphs" in row:
            tables = ("paragraphs", "question_decomposition")
            return {key: _records(value) if key in tables else value for key, value in row.items()}
        kept = {key: value for key, value in row.items() if key not in ("id", "_id")}
        columns = {
            "supporting_facts": ("title", "sent_id"),
            "context": ("title", "sentences"),
            "evidences": ("fact", "relation", "entity"),
        }
        lists = {key: _lists(row[key], names) for key, names in columns.items() if row.get(key) is not None}
        return {"_id": row["_id"] if "_id" in row else row["id"], **kept, **lists}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(f"a row with {', '.join(row)} is of no known data set ({error!r})") from None


def _records(table: Json) -> list[Mapping[str, Json]]:
    if isinstance(table, list):
        return table
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]


def _lists(table: Json, columns: tuple[str, ...]) -> list[Json]:
    if isinstance(table, list) and not (table and isinstance(table[0], dict)):
        return table
    return [[record[column] for column in columns] for record in _records(table)]


def _load(datasets: Json, place: Path | None, hub: Hub) -> Iterator[Json]:
    if place is None:
        return iter(datasets.load_dataset(hub.id, hub.config, split=hub.split, streaming=True))
    if any((place / name).is_file() for name in SAVED):
        saved = datasets.load_from_disk(str(place))
        if isinstance(saved, datasets.DatasetDict):
            if hub.split not in saved:
                raise ValueError(f"no split {hub.split}, only {', '.join(saved)}")
            saved = saved[hub.split]
        return iter(saved)
    files = [place] if place.is_file() else sorted(place.rglob(f"{hub.split}*.parquet"))
    of_config = [file for file in files if hub.config in file.relative_to(place).parts]
    if not files:
        raise ValueError(f"neither written by save_to_disk nor a folder with {hub.split}*.parquet")
    chosen = [str(file) for file in of_config or files]
    return iter(datasets.load_dataset("parquet", data_files=chosen, split="train", streaming=True))
