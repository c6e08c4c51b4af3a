"""What is written quickly has the bytes that `json` writes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kgqa.json_texts import LongTexts, compact, quoted, read_back

ALL = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x11000), 0x1F600, 0x10FFFF]))
HALF = "\ud800 half, \udfff"
TEXT = some.text(some.characters(exclude_categories=["Cs"]))
JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda parts: some.lists(parts) | some.dictionaries(TEXT, parts),
)


@pytest.mark.parametrize("text", ["", ALL, ALL[::-1], HALF, HALF + ALL], ids=["empty", "all", "back", "half", "both"])
def test_a_text_is_quoted_as_json_does_it(text: str) -> None:
    assert quoted(text) == json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")


@given(JSON)
def test_a_request_says_what_json_says(value: object) -> None:
    assert json.loads(compact(value)) == value
    assert b" " not in compact([{"a": [1, None, True], "b": 0.0}, "é"])


@pytest.mark.parametrize("wrong", [{"prompt": HALF}, [{"text": HALF}], HALF])
def test_a_request_that_is_no_json_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="surrogates"):
        compact(wrong)


@pytest.mark.parametrize("text", ["", "plain", ALL, HALF, '"quotes" and \\n'])
def test_long_texts_come_back_in_their_places(text: str) -> None:
    texts = LongTexts()
    value = {"a": texts.aside(text), "b": [1, texts.aside("two"), HALF, None, texts.aside(text)]}
    written = {"a": text, "b": [1, "two", HALF, None, text]}
    assert read_back(texts.line(value)) == written
    assert texts.line(value) == (json.dumps(written, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
