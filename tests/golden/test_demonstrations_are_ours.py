"""No question, passage or name of the evaluation files is in a demonstration that we ship."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

DATA = Path(os.environ.get("KGQA_DATA", "data")) / "questions"
EVALUATED = sorted(DATA.glob("*_dev.json*"))
# words in a row: as Brown et al. (2020, appendix C); 2Wiki asks in the same ten about anything
SHARED = 13


def parts(value: Any) -> Iterator[Any]:
    """Yield a record and everything in it, wherever it stands."""
    yield value
    if isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from parts(part)


def texts(record: Any) -> list[str]:
    return [part for part in parts(record) if isinstance(part, str)]


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def runs(text: str, length: int) -> set[tuple[str, ...]]:
    tokens = words(text)
    return {tuple(tokens[place : place + length]) for place in range(len(tokens) - length + 1)}


def records(file: Path) -> Iterator[Any]:
    raw = file.read_bytes()
    text = (gzip.decompress(raw) if file.suffix == ".gz" else raw).decode()
    if ".jsonl" in file.suffixes:
        yield from (json.loads(line) for line in text.splitlines())
    else:
        yield from json.loads(text)


def demonstrated() -> list[Any]:
    shipped = (file for file in (files("kgqa") / "demos").iterdir() if file.name.endswith(".jsonl"))
    return [json.loads(line) for file in shipped for line in file.read_text("utf-8").splitlines()]


@pytest.mark.skipif(not EVALUATED, reason="no questions in KGQA_DATA")
def test_demonstrations_are_not_in_evaluation_files() -> None:
    ours = {
        run for record in demonstrated() for text in texts(record) for run in runs(text, SHARED)
    }
    # of labelled documents and of a pool's passages
    titles = [
        part["title"]
        for part in parts(demonstrated())
        if isinstance(part, dict) and "title" in part
    ]
    names = {title for title in (tuple(words(title)) for title in titles) if len(title) > 1}
    assert len(ours) > 6_000
    assert len(names) > 200
    lengths = range(2, max(map(len, names)) + 1)
    shared_texts, shared_names = [], []
    for record in (record for file in EVALUATED for record in records(file)):
        shared_texts += [text for text in texts(record) if runs(text, SHARED) & ours]
        question = record.get("question") or record["question_text"]
        if {run for length in lengths for run in runs(question, length)} & names:
            shared_names.append(question)
    assert shared_texts == []
    assert shared_names == []
