"""Hostile JSON is one error with its place, whichever file it stands in."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.artifacts.schema import read_json, read_lines
from kgqa.datasets.corpus import read as read_corpus
from kgqa.datasets.demonstrations import load_documents, load_thoughts
from kgqa.datasets.records import _read
from kgqa.errors import DataError
from kgqa.experiment.prediction_files import read_predictions
from kgqa.kg.exchange import _tsv_records
from kgqa.util.jsonio import (
    JsonError,
    decode_json,
    decode_stored,
    encode_json,
    encode_request,
    stream_records,
)

HOSTILE = (
    "[" * 1000,
    '{"id": ' + "9" * 5_000 + "}",
    '{"id": NaN}',
    '{"id": -Infinity}',
    "nonsense",
    '{"id": "x',
    '{"id": "\udcff"}',  # not UTF-8
)
READERS: dict[str, Callable[[Path], object]] = {
    "records": lambda file: list(stream_records(file)), "an artefact": lambda file: read_json(file),
    "an artefact's lines": lambda file: list(read_lines(file)), "a corpus": lambda file: list(read_corpus(file)),
    "predictions": lambda file: read_predictions(file),
    "released documents": lambda file: load_documents(f"{file}#HOTPOTQA"),
    "thoughts": lambda file: load_thoughts(str(file)),
    "prompts of IRCoT": lambda file: load_thoughts(f"{file}#hotpotqa"),
}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda text: repr(text[:20]))
def test_hostile_json_names_the_file(reader: str, hostile: str, tmp_path: Path) -> None:
    file = tmp_path / "given"
    file.write_bytes(hostile.encode("utf-8", "surrogateescape") + b"\n")
    with pytest.raises(DataError) as error:
        READERS[reader](file)
    assert str(file) in str(error.value)
    assert len(str(error.value)) < 500


def test_error_has_line_number(tmp_path: Path) -> None:
    for hostile in HOSTILE:
        file = tmp_path / "given.jsonl"
        file.write_bytes(b'{"id": 1}\n' + hostile.encode("utf-8", "surrogateescape") + b"\n")
        for read in (stream_records, read_lines):
            with pytest.raises(DataError, match=r"given\.jsonl:2"):
                list(read(file))
    for text in ("[" * 3000 + "]" * 3000, '{"a":' * 3000 + "1" + "}" * 3000):
        with pytest.raises(JsonError, match="nested too deeply"):
            decode_json(text)


ALL = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x11000), 0x1F600, 0x10FFFF]))
HALF = "\ud800 half, \udfff"


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(ALL, id="all characters"),
        pytest.param({ALL: [ALL, {"role": "user", "content": '"\\\n'}]}, id="nested"),
        pytest.param([0, -1, 2**80, 0.0, -0.0, 0.7, 1e-7, 5e-324, 1e300, 1 / 3], id="numbers"),
        pytest.param([None, True, {}, [], ""], id="constants"),
    ],
)
def test_value_of_a_request_survives_a_round_trip(value: Any) -> None:
    assert json.loads(encode_request(value)) == value


@pytest.mark.parametrize(
    "text", ["", "plain", ALL, HALF, '"q" \\n'], ids=["empty", "plain", "all", "half", "quotes"]
)
@pytest.mark.parametrize(
    "others", [[1, float("-inf"), HALF, None, {HALF: ALL}], 0.1], ids=["list", "number"]
)
def test_value_survives_a_round_trip(text: str, others: Any) -> None:
    value = {"a": text, "b": others, text: text}
    assert json.loads(encode_json(value)) == value
    assert b"\n" not in encode_json(value)


@pytest.mark.parametrize(
    "text",
    ["[" * 250 + "]" * 250, '["\\ud800", ' + "[" * 250 + "]" * 251],
    ids=["plain", "half pair"],
)
@pytest.mark.parametrize("decode", [decode_json, decode_stored])
def test_deep_nesting_is_rejected(decode: Callable[[str], object], text: str) -> None:
    with pytest.raises(JsonError, match="nested too deeply"):
        decode(text)


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(), st.lists
    )
)
def test_stored_value_is_read_as_pythons_json_reads_it(value: Any) -> None:
    text = json.dumps(value)
    assert repr(decode_stored(text)) == repr(json.loads(text))


@pytest.mark.parametrize(
    "start", ["[" * 200_000, '[{"a": "\\\\", "b": [' + '{"c":' * 200_000], ids=["lists", "objects"]
)
def test_deep_array_is_one_line(start: str, tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text(start)
    with pytest.raises(DataError, match="nested too deeply"):
        list(stream_records(tmp_path / "deep.json"))


def test_brackets_in_texts_are_no_lists(tmp_path: Path) -> None:
    texts = ["[" * 100_000, "\\" * 99_999 + '"' + "{" * 70_000, '\\"' + "[" * 70_000]
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    assert [record for _, record in stream_records(tmp_path / "texts.json")] == texts


def test_file_that_is_a_pipe_is_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(DataError, match="cannot be read"):
        list(stream_records(tmp_path / "pipe.json"))


TOO_LONG: dict[str, tuple[bytes, Callable[[Path], object]]] = {
    "predictions": (b'{"answer": {"q1": "', read_predictions),
    "triples": (b"head\trelation\ttail\ttext\na\t", lambda file: list(_tsv_records(file))),
    "table": (b"id\tquestion\n1\t", lambda file: list(_read(file))),
}


@pytest.mark.slow
@pytest.mark.parametrize(("start", "read"), TOO_LONG.values(), ids=TOO_LONG)
def test_line_without_end_is_one_error(
    start: bytes, read: Callable[[Path], object], tmp_path: Path
) -> None:
    file = tmp_path / "long.tsv"
    with file.open("wb") as opened:
        opened.write(start)
        opened.truncate(1 << 40)
    with pytest.raises(DataError, match=r"long\.tsv: it is longer than 128 MiB"):
        read(file)
