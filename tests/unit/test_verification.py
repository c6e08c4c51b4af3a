"""SAFE's verification by hand: which calls it makes, how it reads odd replies, and the evidence of each verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Generate
from kgqa.datasets.verified import load_flagged
from kgqa.errors import DataError
from kgqa.methods.verify import (
    GROUPS_SCHEMA,
    TRIPLES_SCHEMA,
    Verify,
    path_schema,
    read_lists,
    read_path,
)
from kgqa.testing import drive
from kgqa.types import Answer, Passage, Question
from tests.composed import built_method
from tests.method_world import World

FILM = Passage.of("Parasite", "Parasite is a film by Bong. He was born in Daegu.")
TOWN = Passage.of("Bong", "Bong Joon-ho is a director.")
OTHER = Passage.of("Cake", "A cake.")
QUESTION = Question(
    "q", "Where was its maker born?", ("Daegu",), (FILM, OTHER, TOWN), frozenset({FILM.id, TOWN.id})
)
MADE, BORN = ["Parasite", "directed_by", "Bong"], ["Bong Joon-ho", "born_in", "Daegu"]
LONG = ["Bong", "said", "x" * 101]
VALID = {"is_valid": True, "reasoning_path": [MADE], "explanation": "By its director."}
UNREADABLE = ["Well, yes.", '{"is_valid": "perhaps"}']
NO_TRIPLES: dict[str, list[object]] = {"triples": []}


class Verifier(World):
    """Replies by template, in turn; the last one again and again."""

    def __init__(self, **replies: Sequence[object]) -> None:
        super().__init__()
        defaults: dict[str, Sequence[object]] = {
            "triples": [{"triples": [MADE]}], "glean": [NO_TRIPLES], "resolve": [{"groups": []}], "path": [VALID]
        }  # fmt: skip
        self.waiting = {
            f"verify/{name}": list(listed) for name, listed in {**defaults, **replies}.items()
        }

    def write(self, call: Generate) -> str:
        waiting = self.waiting[call.prompt.name]
        reply = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        return reply if isinstance(reply, str) else json.dumps(reply)


def _verify(verifier: Verifier, question: Question = QUESTION, *overrides: str) -> Answer:
    answer: Answer = drive(built_method("verify", *overrides).answer(question), verifier)
    assert answer.text == ""
    return answer


def _verdict(answer: Answer) -> str:
    (verdict,) = answer.flags.keys() & {"valid", "noise", "unverified"}
    return verdict


def test_literals_are_not_merged_as_names() -> None:
    verifier = Verifier(
        triples=[{"triples": [MADE, LONG]}], resolve=[{"groups": [["Bong", "x" * 101]]}]
    )
    assert _verify(verifier).notes["groups"] == ()
    names = verifier.prompts("verify/resolve")[0].partition("Triples:")[0]
    assert ('"Bong"' in names, "x" * 101 in names) == (True, False)
    assert json.dumps(LONG) in verifier.prompts("verify/path")[0]


def test_name_of_100_characters_is_an_entity() -> None:
    verifier = Verifier(triples=[{"triples": [["Bong", "said", "x" * 100]]}])
    assert _verify(verifier).figures["entities"] == 2


def test_names_of_one_entity_are_merged_in_the_graph() -> None:
    verifier = Verifier(
        triples=[{"triples": [MADE]}, {"triples": [BORN, ["Bong", "born_in", "Daegu"]]}],
        resolve=[{"groups": [["Nobody", "Bong Joon-ho", "Bong"], ["Daegu", "Bong"], ["Parasite"]]}],
    )
    answer = _verify(verifier)
    # unknown names are dropped, each name is in one group, and one name is no group
    assert answer.notes["groups"] == (("Bong Joon-ho", "Bong"),)
    prompt = verifier.prompts("verify/path")[0]
    assert '["Parasite", "directed_by", "Bong Joon-ho"]' in prompt
    assert (
        prompt.count('["Bong Joon-ho", "born_in", "Daegu"]'),
        answer.figures["names_merged"],
    ) == (1, 1)


def test_gleaning_stops_without_new_triples() -> None:
    again = ["PARASITE", "Directed_By", "bong"]
    verifier = Verifier(glean=[{"triples": [BORN]}, {"triples": [again]}, NO_TRIPLES])
    answer = _verify(verifier, replace(QUESTION, support=frozenset({FILM.id})))
    assert len(verifier.prompts("verify/glean")) == 2
    assert json.dumps(BORN) in verifier.prompts("verify/glean")[1]
    figures = ("triples_extracted", "triples_gleaned_1", "triples_gleaned_2")
    assert [answer.figures[name] for name in figures] == [1, 1, 0]


def test_valid_question_has_a_path_and_no_graph() -> None:
    answer = _verify(Verifier())
    notes = {
        "verdict": "valid",
        "groups": (),
        "path": (tuple(MADE),),
        "explanation": "By its director.",
    }
    assert (_verdict(answer), answer.notes, answer.figures["triples_in_path"]) == (
        "valid",
        notes,
        1,
    )


def test_noise_shows_the_graph_without_a_path() -> None:
    answer = _verify(Verifier(path=[{**VALID, "is_valid": False}]))
    assert (_verdict(answer), answer.notes["graph"]) == ("noise", (tuple(MADE),))


def test_two_unreadable_paths_decide_nothing() -> None:
    answer = _verify(Verifier(path=UNREADABLE))
    assert (_verdict(answer), answer.flags["unparsable_path"]) == ("unverified", 2)
    assert "path" not in answer.notes


def test_unreadable_paths_can_count_as_noise() -> None:
    assert _verdict(_verify(Verifier(path=UNREADABLE), QUESTION, "unparsable=noise")) == "noise"


def test_question_without_gold_passage_makes_no_calls() -> None:
    verifier = Verifier()
    answer = _verify(
        verifier, replace(QUESTION, support=frozenset({"elsewhere"})), "unparsable=noise"
    )
    assert verifier.calls == []
    assert answer.flags == {"unverified": 1, "no_gold_passage": 1, "missing_passage": 1}


@pytest.mark.parametrize(
    ("reply", "overrides", "verdict"),
    [
        pytest.param(NO_TRIPLES, (), "noise", id="no fact"),
        pytest.param("There are none.", (), "unverified", id="unreadable"),
        pytest.param(
            "There are none.", ("unparsable=noise",), "noise", id="unreadable counts as noise"
        ),
    ],
)
def test_empty_graph_needs_no_path(reply: object, overrides: tuple[str, ...], verdict: str) -> None:
    verifier = Verifier(triples=[reply], glean=[reply])
    assert _verdict(_verify(verifier, QUESTION, *overrides)) == verdict
    assert verifier.prompts("verify/path") == []


def _question(number: int, *answers: str, gold: bool = True) -> Question:
    return Question(
        f"q{number}", f"What is  {number}?", answers, support=frozenset({"p"} if gold else ())
    )


def _by_list(*texts: str) -> Verify:
    method: Verify = built_method("verify")
    return replace(method, list="wrong.txt", flagged=frozenset(texts))


def test_list_of_flagged_questions_needs_no_model(tmp_path: Path) -> None:
    file = tmp_path / "wrong.txt"
    file.write_text("\ufeffWhat is 1?\r\n\r\n What  is 7? \nWhat is 1?\n", encoding="utf-8")
    assert load_flagged(str(file)) == frozenset({"What is 1?", "What is 7?"})
    method, questions = _by_list("What is 1?", "What is 7?"), [_question(1, "a"), _question(2, "b")]
    answers = [drive(method.answer(question), World()) for question in questions]
    assert (method.uses, [_verdict(answer) for answer in answers]) == (
        frozenset(),
        ["noise", "valid"],
    )
    assert [*method.check(questions)] == [
        "wrong.txt: 1 of 2 lines match no question: What is 7?, …"
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"\n \n", "the file is empty", id="empty"),
        pytest.param(b"\xff\xfe", ".*utf-8.*Name a UTF-8 file with one", id="binary"),
    ],
)
def test_list_that_cannot_be_read_is_rejected(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "wrong.txt"
    file.write_bytes(content)
    with pytest.raises(DataError, match=rf"wrong\.txt: {message}"):
        load_flagged(str(file))


def test_folder_is_no_list(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"not a regular file\. Name a UTF-8 file with one question per line"
    ):
        load_flagged(str(tmp_path))


@pytest.mark.parametrize(
    ("method", "question", "message"),
    [
        pytest.param(
            _by_list("Why?"),
            _question(1, "a"),
            "none of its 1 questions is in the dataset",
            id="list",
        ),
        pytest.param(
            built_method("verify"),
            _question(1),
            "question q1: it has no gold answer",
            id="no answer",
        ),
        pytest.param(
            built_method("verify"),
            _question(1, "yes", gold=False),
            "no question names its gold passages",
            id="no gold",
        ),
    ],
)
def test_dataset_that_cannot_be_verified_is_rejected(
    method: Any, question: Question, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        list(method.check([question]))


read_triples = partial(read_lists, length=3)
A, B = ("Ann", "born_in", "Elm"), ("Elm", "in", "Ash")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        pytest.param(
            '{"triples": [["Ann", "born_in", "Elm"], ["Elm", "in", "Ash"]]}',
            ((A, B), 0, True),
            id="object",
        ),
        pytest.param(
            'Here [1]:\n```json\n[\n  ["Ann", "born_in", "Elm"],\n  ["Elm",  "in", " Ash "]\n]\n```',
            ((A, B), 0, True),
            id="code block",
        ),
        # cut
        pytest.param(
            '{"triples": [["Ann", "born_in", "Elm"], ["Elm", "in", "As',
            ((A,), 0, False),
            id="truncated",
        ),
        # cut
        pytest.param(
            '[["Ann", "born_in", "Elm"], ["Ann", "born_in"], ["", "b", "c"], ["a", "b", null], 7, {}]',
            ((A,), 5, True),
            id="invalid members",
        ),
        pytest.param(
            '[["Ann", "age", 71], ["Ann", "height", 1.7]]',
            ((("Ann", "age", "71"), ("Ann", "height", "1.7")), 0, True),
            id="numbers",
        ),
    ],
)
def test_triples_are_read_in_usual_forms(reply: str, expected: object) -> None:
    assert read_triples(reply) == expected


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param("", id="empty"),
        pytest.param("none", id="none"),
        pytest.param("[1, 2]", id="numbers"),
        pytest.param("null", id="null"),
        pytest.param("[" * 3, id="open brackets"),
    ],
)
def test_reply_without_triples_has_none(reply: str) -> None:
    read = read_triples(reply)
    assert read is None or (read.members, read.whole) == ((), False)


def test_groups_and_paths_are_read() -> None:
    groups = read_lists('{"groups": [["USA", "U.S.", "United States"], ["a", "b"], []]}')
    assert groups == ((("USA", "U.S.", "United States"), ("a", "b")), 1, True)
    reply = '"reasoning_path": [["Ann", "born_in", "Elm"], "Elm"], "explanation": " by\\nbirth "'
    reply = f'So: {{"is_valid": "True", {reply}}}.'
    assert (read_path(reply), read_path('{"is_valid": false}')) == (
        (True, (A,), "by birth", 1),
        (False, (), "", 0),
    )


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(TRIPLES_SCHEMA, id="triples"),
        pytest.param(GROUPS_SCHEMA, id="groups"),
        pytest.param(path_schema(400), id="path"),
    ],
)
def test_schema_requires_all_properties(schema: str) -> None:
    form = json.loads(schema)
    assert (form["type"], form["additionalProperties"]) == ("object", False)
    assert form["required"] == list(form["properties"])


@pytest.mark.parametrize(
    "unreadable",
    [
        pytest.param("", id="empty"),
        pytest.param("{}", id="empty object"),
        pytest.param("[]", id="list"),
        pytest.param('{"is_valid": 1}', id="number"),
        pytest.param('{"is_valid": tr', id="truncated"),
        pytest.param('{"is_valid": null}', id="null"),
        pytest.param("{" * 99_999, id="open braces"),
    ],
)
def test_path_without_verdict_is_unreadable(unreadable: str) -> None:
    assert read_path(unreadable) is None
