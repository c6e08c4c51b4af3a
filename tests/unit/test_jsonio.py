"""Hostile JSON is one error with its place, whichever file it stands in."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.artifacts.schema import read_json, read_lines
from kgqa.datasets.corpus import read as read_corpus
from kgqa.datasets.demonstrations import load_chains, load_documents, load_thoughts
from kgqa.datasets.predictions import read_predictions
from kgqa.errors import DataError
from kgqa.kg.store import read_extractions
from kgqa.util.jsonio import (
    MAX_DIGITS,
    JsonError,
    decode_json,
    decode_trace,
    encode_json,
    encode_request,
    parse_json,
    stream_members,
    stream_records,
)

HOSTILE = {
    "open brackets": "[" * 1000,
    "5,000 digits": '{"id": ' + "9" * 5_000 + "}",
    "10^400": '{"id": 1' + "0" * 400 + "}",
    "NaN": '{"id": NaN}',
    "Infinity": '{"id": -Infinity}',
    "a bare word": "nonsense",
    "nothing closed": '{"id": "x',
    "not UTF-8": '{"id": "\udcff"}',
}
READERS: dict[str, Callable[[Path], object]] = {
    "records": lambda file: list(stream_records(file)),
    "members": lambda file: list(stream_members(file)),
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
def test_hostile_json_names_the_file(reader: str, hostile: str, tmp_path: Path) -> None:
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
    for read in (stream_records, read_lines):
        with pytest.raises(DataError, match=r"given\.jsonl:2"):
            list(read(file))


@pytest.mark.parametrize("text", ["[" * 3000 + "]" * 3000, '{"a":' * 3000 + "1" + "}" * 3000])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(JsonError, match="nested too deeply"):
        decode_json(text)


def test_longest_integer() -> None:
    assert float(decode_json("9" * MAX_DIGITS)) > 1e299
    with pytest.raises(JsonError, match="301 digits"):
        decode_json("9" * (MAX_DIGITS + 1))


def test_a_trace_may_say_that_something_cannot_be() -> None:
    assert decode_trace('{"score": -Infinity}') == {"score": float("-inf")}


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(JSON_VALUES)
def test_json_is_read_as_python_reads_it(value: Any) -> None:
    text = json.dumps(value)
    assert decode_json(text) == json.loads(text)
    assert parse_json(text.encode(), "here") == json.loads(text)


@given(st.text() | st.binary())
def test_any_text_is_a_value_or_one_error(text: str | bytes) -> None:
    with suppress(JsonError):
        json.dumps(decode_json(text))


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


def test_a_request_has_no_blanks_between_its_parts() -> None:
    assert encode_request([{"a": [1, None, True], "b": 0.5}, "é"]) == '[{"a":[1,null,true],"b":0.5},"é"]'.encode()


@pytest.mark.parametrize("wrong", [{"prompt": HALF}, [{"text": HALF}], HALF])
def test_a_request_that_is_no_json_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="surrogates"):
        encode_request(wrong)


@pytest.mark.parametrize("text", ["", "plain", ALL, HALF, '"q" \\n'], ids=["empty", "plain", "all", "half", "signs"])
def test_any_value_is_read_as_it_was_written(text: str) -> None:
    value = {"a": text, "b": [1, float("-inf"), HALF, None, {text: text}]}
    for whole in (value, {"a": text, "b": 0.1}):
        assert json.loads(encode_json(whole)) == whole
        assert b"\n" not in encode_json(whole)
