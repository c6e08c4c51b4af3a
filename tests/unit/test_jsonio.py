"""Hostile JSON is one error with its place, whichever file it stands in."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kgqa.artifacts.schema import read_json, read_lines
from kgqa.datasets.corpus import read as read_corpus
from kgqa.datasets.demonstrations import load_documents, load_thoughts
from kgqa.datasets.predictions import read_predictions
from kgqa.errors import DataError
from kgqa.util.jsonio import (
    JsonError,
    decode_json,
    encode_json,
    encode_request,
    stream_records,
)

HOSTILE = {
    "open brackets": "[" * 1000,
    "5,000 digits": '{"id": ' + "9" * 5_000 + "}",
    "NaN": '{"id": NaN}',
    "Infinity": '{"id": -Infinity}',
    "a bare word": "nonsense",
    "nothing closed": '{"id": "x',
    "not UTF-8": '{"id": "\udcff"}',
}
READERS: dict[str, Callable[[Path], object]] = {
    "records": lambda file: list(stream_records(file)),
    "an artefact": lambda file: read_json(file),
    "an artefact's lines": lambda file: list(read_lines(file)),
    "a corpus": lambda file: list(read_corpus(file)),
    "predictions": lambda file: read_predictions(file),
    "released documents": lambda file: load_documents(f"{file}#HOTPOTQA"),
    "thoughts": lambda file: load_thoughts(str(file)),
    "prompts of IRCoT": lambda file: load_thoughts(f"{file}#hotpotqa"),
}


@pytest.mark.parametrize("reader", READERS)
def test_hostile_json_names_the_file(reader: str, tmp_path: Path) -> None:
    for hostile in HOSTILE:
        file = tmp_path / "given"
        file.write_bytes(HOSTILE[hostile].encode("utf-8", "surrogateescape") + b"\n")
        with pytest.raises(DataError) as refused:
            READERS[reader](file)
        assert str(file) in str(refused.value)
        assert len(str(refused.value)) < 500


def test_a_second_line_is_named_by_its_number(tmp_path: Path) -> None:
    for hostile in HOSTILE:
        file = tmp_path / "given.jsonl"
        file.write_bytes(b'{"id": 1}\n' + HOSTILE[hostile].encode("utf-8", "surrogateescape") + b"\n")
        for read in (stream_records, read_lines):
            with pytest.raises(DataError, match=r"given\.jsonl:2"):
                list(read(file))


@pytest.mark.parametrize("text", ["[" * 3000 + "]" * 3000, '{"a":' * 3000 + "1" + "}" * 3000])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(JsonError, match="nested too deeply"):
        decode_json(text)


ALL = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x11000), 0x1F600, 0x10FFFF]))
HALF = "\ud800 half, \udfff"
NUMBERS = [0, -1, 2**80, 0.0, -0.0, 0.7, 1e-7, 5e-324, 1e300, 1 / 3]


@pytest.mark.parametrize(
    "value",
    [ALL, {ALL: [ALL, {"role": "user", "content": '"\\\n'}]}, NUMBERS, [None, True, {}, [], ""]],
    ids=["text", "parts", "numbers", "others"],
)
def test_a_request_says_what_json_says(value: object) -> None:
    assert json.loads(encode_request(value)) == value


@pytest.mark.parametrize("text", ["", "plain", ALL, HALF, '"q" \\n'], ids=["empty", "plain", "all", "half", "signs"])
def test_any_value_is_read_as_it_was_written(text: str) -> None:
    value = {"a": text, "b": [1, float("-inf"), HALF, None, {text: text}]}
    for whole in (value, {"a": text, "b": 0.1}):
        assert json.loads(encode_json(whole)) == whole
        assert b"\n" not in encode_json(whole)
