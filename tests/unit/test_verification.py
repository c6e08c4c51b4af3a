"""SAFE's verification by hand: what is asked, what becomes of odd replies, and what each verdict rests on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kgqa.artifacts.verdicts import VerifiedQuestion
from kgqa.calls import Generate
from kgqa.config.building import build
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.experiment import Experiment
from kgqa.kg.verification import GROUPS_SCHEMA, TRIPLES_SCHEMA, Verification, path_schema, read_lists, read_path
from kgqa.report.training import Published, verification_sections
from kgqa.testing import drive
from kgqa.training.verify import choose_answers, find_unmatched, read_list, summarize, verify_by_list
from kgqa.types import Passage, Question
from tests.composed import composed_node
from tests.method_world import World

FILM = Passage.of("Parasite", "Parasite is a film by Bong. He was born in Daegu.")
TOWN = Passage.of("Bong", "Bong Joon-ho is a director.")
OTHER = Passage.of("Cake", "A cake.")
QUESTION = Question("q", "Where was its maker born?", ("Daegu",), (FILM, OTHER, TOWN), frozenset({FILM.id, TOWN.id}))
MADE, BORN = ["Parasite", "directed_by", "Bong"], ["Bong Joon-ho", "born_in", "Daegu"]
LONG = ["Bong", "said", "x" * 101]
VALID = {"is_valid": True, "reasoning_path": [MADE], "explanation": "By its director."}


class Verifier(World):
    """Replies by template, in turn; the last one again and again."""

    def __init__(self, **replies: Sequence[object]) -> None:
        super().__init__()
        defaults: dict[str, Sequence[object]] = {
            "triples": [{"triples": [MADE]}], "glean": [{"triples": []}], "resolve": [{"groups": []}], "path": [VALID]
        }  # fmt: skip
        self.waiting = {f"verify/{name}": list(listed) for name, listed in {**defaults, **replies}.items()}

    def write(self, call: Generate) -> str:
        assert call.role == "verifier"
        waiting = self.waiting[call.prompt.name]
        reply = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        return reply if isinstance(reply, str) else json.dumps(reply)


def _verified(verifier: Verifier, question: Question = QUESTION, **changed: object) -> VerifiedQuestion:
    safe: Verification = build({**composed_node("verify", "safe"), **changed}, "verify")
    return drive(safe.verify(question, question.answers[0]), verifier)


def test_names_are_merged_and_triples_gleaned() -> None:
    verifier = Verifier(triples=[{"triples": [MADE, LONG]}], resolve=[{"groups": [["Bong", "x" * 101]]}])
    assert _verified(verifier).groups == ()
    names = verifier.prompts("verify/resolve")[0].partition("Triples:")[0]
    assert ('"Bong"' in names, "x" * 101 in names) == (True, False)
    assert json.dumps(LONG) in verifier.prompts("verify/path")[0]
    exactly = Verifier(triples=[{"triples": [["Bong", "said", "x" * 100]]}])
    assert _verified(exactly).figures["entities"] == 2
    verifier = Verifier(
        triples=[{"triples": [MADE]}, {"triples": [BORN, ["Bong", "born_in", "Daegu"]]}],
        resolve=[{"groups": [["Nobody", "Bong Joon-ho", "Bong"], ["Daegu", "Bong"], ["Parasite"]]}],
    )
    line = _verified(verifier)
    assert line.groups == (("Bong Joon-ho", "Bong"),)  # of the names given; each in one group; one name is none
    shown = verifier.prompts("verify/path")[0]
    assert '["Parasite", "directed_by", "Bong Joon-ho"]' in shown
    assert (shown.count('["Bong Joon-ho", "born_in", "Daegu"]'), line.figures["names merged"]) == (1, 1)
    again = ["PARASITE", "Directed_By", "bong"]
    verifier = Verifier(glean=[{"triples": [BORN]}, {"triples": [again]}, {"triples": []}])
    line = _verified(verifier, replace(QUESTION, support=frozenset({FILM.id})))
    assert len(verifier.prompts("verify/glean")) == 2  # the second brought what was there, in other letters
    assert json.dumps(BORN) in verifier.prompts("verify/glean")[1]
    figures = ("triples extracted", "triples gleaned in round 1", "triples gleaned in round 2")
    assert [line.figures[name] for name in figures] == [1, 1, 0]


def test_a_verdict_is_valid_noise_or_unverified() -> None:
    line = _verified(Verifier())
    assert (line.verdict, line.path, line.explanation, line.graph) == ("valid", (tuple(MADE),), "By its director.", ())
    noise = _verified(Verifier(path=[{**VALID, "is_valid": False}]))
    assert (noise.verdict, noise.graph) == ("noise", (tuple(MADE),))
    replies = ["Well, yes.", '{"is_valid": "perhaps"}']
    line = _verified(Verifier(path=replies))
    assert (line.verdict, line.flags["unparsable_path"], line.path) == ("unverified", 2, ())
    assert _verified(Verifier(path=replies), unparsable="noise").verdict == "noise"
    verifier = Verifier()
    line = _verified(verifier, replace(QUESTION, support=frozenset({"elsewhere"})), unparsable="noise")
    assert (line.verdict, verifier.calls) == ("unverified", [])
    assert line.flags == {"no_gold_passage": 1, "missing_passage": 1}
    nothing: tuple[object, ...] = ({"triples": []}, "There are none.")
    read, unread = (Verifier(triples=[reply], glean=[reply]) for reply in nothing)
    assert (_verified(read).verdict, _verified(unread).verdict) == ("noise", "unverified")
    assert _verified(unread, unparsable="noise").verdict == "noise"
    assert not read.prompts("verify/path") + unread.prompts("verify/path")


def _question(number: int, *answers: str, gold: bool = True) -> Question:
    return Question(f"q{number}", f"What is  {number}?", answers, support=frozenset({"p"} if gold else ()))


def test_answers_are_swapped_and_lists_of_flagged_questions_read(tmp_path: Path) -> None:
    file = tmp_path / "wrong.txt"
    file.write_text("\ufeffWhat is 1?\r\n\r\n What  is 7? \nWhat is 1?\n", encoding="utf-8")
    lines = read_list(file)
    assert lines == ["What is 1?", "What is 7?"]
    questions = [_question(1, "a"), _question(2, "b")]
    assert find_unmatched(file, lines, questions) == ["What is 7?"]
    assert [line.verdict for line in verify_by_list(lines, questions)] == ["noise", "valid"]
    for content, said in ((b"\n \n", "the file is empty"), (b"\xff\xfe", ".*utf-8.*Name a UTF-8 file with one")):
        file.write_bytes(content)
        with pytest.raises(DataError, match=rf"wrong\.txt: {said}"):
            read_list(file)
    with pytest.raises(DataError, match=r"Is a directory\. Name a UTF-8 file with one question per line"):
        read_list(tmp_path)
    with pytest.raises(DataError, match="none of its 1 questions is in the dataset, the first is 'Why\\?'"):
        find_unmatched(file, ["Why?"], [_question(1, "a")])
    named = [_question(1, "Ann", "Anne"), _question(2, "anne"), _question(3, " ANN "), _question(4, "Bob")]
    assert choose_answers(named, swapped=True) == {"q1": "Bob", "q2": " ANN ", "q3": "Bob", "q4": "Ann"}
    with pytest.raises(ConfigError, match=r"no question has another answer than q1\. Use more"):
        choose_answers([_question(1, "yes"), _question(2, "Yes")], swapped=True)
    with pytest.raises(DataError, match="question q1: it has no gold answer"):
        choose_answers([_question(1)], swapped=False)
    with pytest.raises(DataError, match="no question names its gold passages"):
        choose_answers([_question(1, "yes", gold=False)], swapped=False)


def test_totals_of_a_verification() -> None:
    experiment = Experiment.of(["verify=safe", "dataset=demo"])
    verdicts = [
        VerifiedQuestion(id="a", question="a", verdict="valid", figures={"triples": 4, "triples in the path": 2}),
        VerifiedQuestion(id="b", question="b", verdict="noise", figures={"triples": 2}, flags={"unparsable": 2}),
        VerifiedQuestion(
            id="c", question="c", verdict="noise", figures={"triples": 1, "gleaned": 3}, flags={"unparsable": 1}
        ),
        VerifiedQuestion(id="d", question="d", verdict="unverified", error="timeout"),
    ]
    outcome = summarize(experiment, verdicts, by="model")
    counts = (outcome.questions, outcome.valid, outcome.noise, outcome.unverified, outcome.failed)
    assert (counts, outcome.noise_percent.mean) == ((4, 1, 2, 1, 1), 50)
    assert outcome.figures == {"triples": 2.3333, "triples in the path": 2, "gleaned": 1}
    assert outcome.flags == {"unparsable": 3}
    table, graphs, flags = verification_sections(outcome, {}, Published(100, 7, 7.0))
    ours, published = table.rows
    assert (ours[:5], ours[5][:8]) == (("model", "4", "2", "1", "1"), "50.00 % ")
    assert published == ("SAFE, Table 2", "100", "7", "–", "–", "7.00 %")
    assert (graphs.rows[0], flags.rows) == (("triples", "2.33"), [("unparsable", "3")])


read_triples = partial(read_lists, length=3)
A, B = ("Ann", "born_in", "Elm"), ("Elm", "in", "Ash")


def test_replies_are_read_as_models_write_them() -> None:
    for reply, expected in [
        ('{"triples": [["Ann", "born_in", "Elm"], ["Elm", "in", "Ash"]]}', ((A, B), 0, True)),
        ('Here [1]:\n```json\n[\n  ["Ann", "born_in", "Elm"],\n  ["Elm",  "in", " Ash "]\n]\n```', ((A, B), 0, True)),
        ('{"triples": [["Ann", "born_in", "Elm"], ["Elm", "in", "As', ((A,), 0, False)),  # cut
        ('[["Ann", "born_in", "Elm"], ["Ann", "born_in"], ["", "b", "c"], ["a", "b", null], 7, {}]', ((A,), 5, True)),
        ('[["Ann", "age", 71], ["Ann", "height", 1.7]]', ((("Ann", "age", "71"), ("Ann", "height", "1.7")), 0, True)),
    ]:
        assert read_triples(reply) == expected
    for reply in ("", "none", "[1, 2]", "null", "[" * 3):
        read = read_triples(reply)
        assert read is None or (read.members, read.whole) == ((), False)
    groups = read_lists('{"groups": [["USA", "U.S.", "United States"], ["a", "b"], []]}')
    assert groups == ((("USA", "U.S.", "United States"), ("a", "b")), 1, True)
    reply = '"reasoning_path": [["Ann", "born_in", "Elm"], "Elm"], "explanation": " by\\nbirth "'
    reply = f'So: {{"is_valid": "True", {reply}}}.'
    assert (read_path(reply), read_path('{"is_valid": false}')) == ((True, (A,), "by birth", 1), (False, (), "", 0))
    for unreadable in ("", "{}", "[]", '{"is_valid": 1}', '{"is_valid": tr', '{"is_valid": null}', "{" * 99_999):
        assert read_path(unreadable) is None
    for schema in (TRIPLES_SCHEMA, GROUPS_SCHEMA, path_schema(400)):
        form = json.loads(schema)
        assert (form["type"], form["additionalProperties"]) == ("object", False)
        assert form["required"] == list(form["properties"])
