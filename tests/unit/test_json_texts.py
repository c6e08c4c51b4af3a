"""What is written quickly says what `json` would write; texts of keys have the same bytes."""

from __future__ import annotations

import json

import pytest

from kgqa.json_texts import compact, json_bytes, quoted

ALL = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x11000), 0x1F600, 0x10FFFF]))
HALF = "\ud800 half, \udfff"
NUMBERS = [0, -1, 2**80, 0.0, -0.0, 0.7, 1e-7, 5e-324, 1e300, 1 / 3]


@pytest.mark.parametrize("text", ["", ALL, ALL[::-1], HALF, HALF + ALL], ids=["empty", "all", "back", "half", "both"])
def test_a_text_is_quoted_as_json_does_it(text: str) -> None:
    assert quoted(text) == json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")


@pytest.mark.parametrize(
    "value",
    [ALL, {ALL: [ALL, {"role": "user", "content": '"\\\n'}]}, NUMBERS, [None, True, {}, [], ""]],
    ids=["text", "parts", "numbers", "others"],
)
def test_a_request_says_what_json_says(value: object) -> None:
    assert json.loads(compact(value)) == value


def test_a_request_has_no_blanks_between_its_parts() -> None:
    assert compact([{"a": [1, None, True], "b": 0.5}, "é"]) == '[{"a":[1,null,true],"b":0.5},"é"]'.encode()


@pytest.mark.parametrize("wrong", [{"prompt": HALF}, [{"text": HALF}], HALF])
def test_a_request_that_is_no_json_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="surrogates"):
        compact(wrong)


@pytest.mark.parametrize("text", ["", "plain", ALL, HALF, '"q" \\n'], ids=["empty", "plain", "all", "half", "signs"])
def test_any_value_is_read_as_it_was_written(text: str) -> None:
    value = {"a": text, "b": [1, float("-inf"), HALF, None, {text: text}]}
    for whole in (value, {"a": text, "b": 0.1}):
        assert json.loads(json_bytes(whole)) == whole
        assert b"\n" not in json_bytes(whole)
