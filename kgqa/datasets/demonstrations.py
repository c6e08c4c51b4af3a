"""Reads files of demonstrations; used as `_target_` in a config, so that methods receive parsed records."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from kgqa.datasets import ircot_prompts
from kgqa.datasets.pools import question_demonstration
from kgqa.datasets.schema import refuse_half_surrogates
from kgqa.errors import DataError
from kgqa.prompting.demonstrations import (
    ChainDemonstration,
    DocumentDemonstration,
    ThoughtDemonstration,
    parse_chain,
    parse_document,
    parse_released_chain,
)
from kgqa.types import Json
from kgqa.util.fs import package_folder
from kgqa.util.jsonio import parse_json

T = TypeVar("T")
DEMOS = package_folder() / "demos"
DOCUMENTS, CHAINS = "TRIPLE_EXAMPLARS_", "GENERATING_CHAIN_EXAMPLARS_"  # keys of the authors' file, spelt as there


def load_documents(path: str) -> tuple[DocumentDemonstration, ...]:
    """Return labelled documents: a family's name (hotpotqa, 2wiki, musique, iirc) for ours, a JSONL file, or a data
    set of
    the authors' file: `FILE#HOTPOTQA`.

    A bare name is looked up among the files shipped in `kgqa/demos` first. Files may be gzipped.

    Raises:
        DataError: the file is missing or broken, naming file:line.
    """
    if "#" in path:
        return _load(_load_released(path, DOCUMENTS), parse_document, path)
    return _load(_lines(_find(path, "trace_documents")), parse_document, path)


def load_chains(path: str) -> tuple[ChainDemonstration, ...]:
    """Return labelled chains; see `load_documents`."""
    if "#" in path:
        return _load(_load_released(path, CHAINS), parse_released_chain, path)
    return _load(_lines(_find(path, "trace_chains")), parse_chain, path)


def load_thoughts(path: str, needs: tuple[str, ...] = ()) -> tuple[ThoughtDemonstration, ...]:
    """Return a pool of questions: a family's name (hotpotqa, 2wiki, musique, iirc) for ours, or a JSONL file.

    `FILE#hotpotqa` takes them from the file of IRCoT's prompts, which names 2Wiki 2wikimultihopqa. `needs`: what each
    question must have, such as "steps".

    Raises:
        DataError: the file is missing or broken, naming file:line, or a question lacks what is needed.
    """
    pool = _pool(path)
    for demonstration in pool:
        for need in needs:
            if not getattr(demonstration, need):
                raise DataError(
                    f"{path}: the demonstration {demonstration.question!r:.60} has no {need!r}, which this method "
                    "shows; take hotpotqa, 2wiki, musique or iirc, or add them to the file"
                )
    return pool


def _pool(path: str) -> tuple[ThoughtDemonstration, ...]:
    if "#" in path:
        name, _, section = path.rpartition("#")
        file = _find(name)
        return ircot_prompts.demonstrations(_whole(parse_json(_read(file), str(file)), str(file)), section, str(file))
    return _load(_lines(_find(path, "pool")), question_demonstration, path)


def load_examples(path: str, keys: tuple[str, ...]) -> tuple[Mapping[str, Json], ...]:
    """Return records of a JSONL file as prompts show them; each must have exactly these keys.

    Raises:
        DataError: the file is missing or broken, or a record has other keys, naming file:line.
    """

    def parse(record: Json, where: str) -> Mapping[str, Json]:
        if not isinstance(record, dict) or set(record) != set(keys):
            given = ", ".join(record) if isinstance(record, dict) else repr(record)[:60]
            raise DataError(f"{where}: expected an object with the keys {', '.join(keys)}; found {given}")
        return record

    return _load(_lines(_find(path)), parse, path)


def _load(records: Iterator[tuple[str, Json]], parse: Callable[[Json, str], T], path: str) -> tuple[T, ...]:
    demonstrations = tuple(parse(_whole(record, where), where) for where, record in records)
    if not demonstrations:
        raise DataError(f"{path}: no demonstrations in this file")
    return demonstrations


def _whole(record: Json, where: str) -> Json:
    refuse_half_surrogates(record, where)
    return record


def _find(path: str, form: str = "") -> Path:
    """Return `form`: of ours by family, such as "pool"."""
    shipped = {file.name for file in DEMOS.glob("*.jsonl")}
    for name in (f"{form}_{path}.jsonl", path):
        if name in shipped:
            return DEMOS / name
    if (own := Path(path).expanduser()).is_file():
        return own
    raise DataError(f"{path}: no such file of demonstrations; shipped ones: {', '.join(sorted(shipped))}")


def _read(path: Path) -> str:
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 at byte {error.start}; convert the file to UTF-8") from None
    except (OSError, EOFError, zlib.error) as error:  # gzip reports broken files as these
        raise DataError(f"{path}: cannot be read: {error}; name another file") from None


def _lines(path: Path) -> Iterator[tuple[str, Json]]:
    if ".json" in path.suffixes:
        raise DataError(f"{path}: a released file holds several data sets; name one, e.g. {path}#HOTPOTQA")
    for number, line in enumerate(_read(path).split("\n"), start=1):
        if line.strip():
            yield f"{path}:{number}", parse_json(line, f"{path}:{number}")


def _load_released(path: str, prefix: str) -> Iterator[tuple[str, Json]]:
    name, _, section = path.rpartition("#")
    file = _find(name)
    sections = parse_json(_read(file), str(file))
    key = prefix + section.upper()
    if not isinstance(sections, dict) or not isinstance(sections.get(key), list):
        keys = sections if isinstance(sections, dict) else ()
        known = ", ".join(k.removeprefix(prefix) for k in keys if k.startswith(prefix)) or "none"
        raise DataError(f"{file}: no list {key!r}; data sets in this file: {known}")
    for number, record in enumerate(sections[key], start=1):
        yield f"{file}: {key}[{number - 1}]", record
