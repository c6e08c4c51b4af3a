"""The verifier's replies as models write them: fenced, bare, cut, with numbers."""

from __future__ import annotations

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kgqa.kg.verification import GROUPS_SCHEMA, TRIPLES_SCHEMA, path_schema, read_lists, read_path

read_triples = partial(read_lists, length=3)
A, B = ("Ann", "born_in", "Elm"), ("Elm", "in", "Ash")


@pytest.mark.parametrize(
    "reply",
    [
        '{"triples": [["Ann", "born_in", "Elm"], ["Elm", "in", "Ash"]]}',
        '[["Ann", "born_in", "Elm"], ["Elm", "in", "Ash"]]',
        'Here they are [1]:\n```json\n[\n  ["Ann", "born_in", "Elm"],\n  ["Elm",  "in", " Ash "]\n]\n```',
    ],
)
def test_a_list_is_found_whatever_stands_around_it(reply: str) -> None:
    assert read_triples(reply) == ((A, B), 0, True)


def test_of_a_list_that_is_cut_the_members_before_count() -> None:
    read = read_triples('{"triples": [["Ann", "born_in", "Elm"], ["Elm", "in", "As')
    assert read == ((A,), 0, False)


def test_members_that_are_no_triples_are_counted() -> None:
    read = read_triples('[["Ann", "born_in", "Elm"], ["Ann", "born_in"], ["", "b", "c"], ["a", "b", null], 7, {}]')
    assert read == ((A,), 5, True)


def test_numbers_are_texts() -> None:
    read = read_triples('[["Ann", "age", 71], ["Ann", "height", 1.7]]')
    assert read is not None
    assert read.members == (("Ann", "age", "71"), ("Ann", "height", "1.7"))


@pytest.mark.parametrize("reply", ["", "none", "[1, 2]", "null", "[" * 3])
def test_without_a_list_of_lists_there_is_nothing(reply: str) -> None:
    read = read_triples(reply)
    assert read is None or (read.members, read.whole) == ((), False)


def test_groups_have_any_number_of_names() -> None:
    read = read_lists('{"groups": [["USA", "U.S.", "United States"], ["a", "b"], []]}')
    assert read == ((("USA", "U.S.", "United States"), ("a", "b")), 1, True)


def test_a_path_says_at_least_whether_it_is_valid() -> None:
    reply = (
        'So: {"is_valid": "True", "reasoning_path": [["Ann", "born_in", "Elm"], "Elm"], "explanation": " by\\nbirth "}.'
    )
    assert read_path(reply) == (True, (A,), "by birth", 1)
    assert read_path('{"is_valid": false}') == (False, (), "", 0)
    for unreadable in ("", "{}", "[]", '{"is_valid": 1}', '{"is_valid": tr', '{"is_valid": null}', "{" * 99_999):
        assert read_path(unreadable) is None


@given(some.text(alphabet='[]{}",: atrue1\\n', max_size=60))
def test_any_text_is_accepted(text: str) -> None:
    read_triples(text)
    read_lists(text)
    read_path(text)


def test_the_forms_are_closed_objects() -> None:
    for schema in (TRIPLES_SCHEMA, GROUPS_SCHEMA, path_schema(400)):
        form = json.loads(schema)
        assert form["type"] == "object"
        assert form["additionalProperties"] is False
        assert form["required"] == list(form["properties"])
