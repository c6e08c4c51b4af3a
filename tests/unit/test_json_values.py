"""Hostile JSON is one error with its place, whichever file it stands in."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa import records
from kgqa.artefacts.form import read_json, read_lines
from kgqa.datasets.corpus import read as read_corpus
from kgqa.datasets.demonstrations import load_chains, load_documents, load_thoughts
from kgqa.datasets.predictions import read_predictions
from kgqa.errors import DataError
from kgqa.json_values import DIGITS, NotJson, decoded, decoded_trace, read_value
from kgqa.kg.store import read_extractions

DEEP = 3_000
HOSTILE = {
    "lists in lists": "[" * DEEP + "]" * DEEP,
    "objects in objects": '{"a":' * DEEP + "1" + "}" * DEEP,
    "open brackets": "[" * 100_000,
    "5,000 digits": '{"id": ' + "9" * 5_000 + "}",
    "10^400": '{"id": 1' + "0" * 400 + "}",
    "NaN": '{"id": NaN}',
    "Infinity": '{"id": -Infinity}',
    "a bare word": "nonsense",
    "nothing closed": '{"id": "x',
    "not UTF-8": '{"id": "\udcff"}',
}
READERS: dict[str, Callable[[Path], object]] = {
    "records": lambda file: list(records.records(file)),
    "members": lambda file: list(records.members(file)),
    "an artefact": lambda file: read_json(file),
    "an artefact's lines": lambda file: list(read_lines(file)),
    "a corpus": lambda file: list(read_corpus(file)),
    "predictions": lambda file: read_predictions(file),
    "chains": lambda file: load_chains(str(file)),
    "labelled documents": lambda file: load_documents(str(file)),
    "released documents": lambda file: load_documents(f"{file}#HOTPOTQA"),
    "thoughts": lambda file: load_thoughts(str(file)),
    "prompts of IRCoT": lambda file: load_thoughts(f"{file}#hotpotqa"),
    "extractions": lambda file: list(read_extractions(file)),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_json_is_one_line_that_names_the_file(reader: str, hostile: str, tmp_path: Path) -> None:
    file = tmp_path / "given"
    file.write_bytes(HOSTILE[hostile].encode("utf-8", "surrogateescape") + b"\n")
    with pytest.raises(DataError) as refused:
        READERS[reader](file)
    assert str(file) in str(refused.value)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_second_line_is_named_by_its_number(hostile: str, tmp_path: Path) -> None:
    file = tmp_path / "given.jsonl"
    file.write_bytes(b'{"id": 1}\n' + HOSTILE[hostile].encode("utf-8", "surrogateescape") + b"\n")
    for read in (records.records, read_lines):
        with pytest.raises(DataError, match=r"given\.jsonl:2"):
            list(read(file))


def test_a_record_of_a_long_array_is_refused_where_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "given.json"
    file.write_text('[\n{"id": 1},\n{"id": ' + "7" * (DIGITS + 1) + "}\n]")
    with pytest.raises(DataError, match=r"given\.json:3: .*301 digits"):
        list(records.records(file))


def test_the_longest_number_that_is_read_is_a_float_too() -> None:
    assert float(decoded("9" * DIGITS)) > 1e299
    with pytest.raises(NotJson, match="301 digits"):
        decoded("9" * (DIGITS + 1))


def test_a_trace_may_say_that_something_cannot_be() -> None:
    assert decoded_trace('{"score": -Infinity}') == {"score": float("-inf")}


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(JSON_VALUES)
def test_json_is_read_as_python_reads_it(value: Any) -> None:
    text = json.dumps(value)
    assert decoded(text) == json.loads(text)
    assert read_value(text.encode(), "here") == json.loads(text)


@given(st.text() | st.binary())
def test_any_text_is_a_value_or_one_error(text: str | bytes) -> None:
    with suppress(NotJson):
        json.dumps(decoded(text))


def test_a_line_without_end_is_not_kept_in_memory_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "LONGEST", 1000)
    monkeypatch.setattr(records, "CHUNK", 100)
    for name, begin in (("lines", b'{"id": 1}\n{"a": "'), ("array", b'[{"id": 1},\n{"a": "')):
        (tmp_path / name).write_bytes(begin + b"x" * 5000)
        with pytest.raises(DataError, match=f"{name}:2: a record of more than 1,000 characters"):
            list(records.records(tmp_path / name))


# what decodes what it wrote itself, or a string alone
OWN = {
    "kgqa/json_values.py",
    "kgqa/json_texts.py",
    "kgqa/engines/openai/endpoint.py",
}


def test_json_is_decoded_in_one_place() -> None:
    """What stands elsewhere reads back what it wrote, or knows what else can be wrong."""
    assert {
        file for file, argument in _loads() if argument not in ("json.dumps", "match.group", "zlib.decompress")
    } <= OWN | {
        "kgqa/methods/steps/page_titles.py",
        "kgqa/engines/grammar.py",
        "kgqa/engines/openai/requests.py",
    }


def _loads() -> Iterator[tuple[str, str]]:
    """Files with `json.loads(…)`, and which call made its argument."""
    for file in Path("kgqa").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("json.loads", "json.load"):
                first = node.args[0]
                yield file.as_posix(), ast.unparse(first.func) if isinstance(first, ast.Call) else ""
