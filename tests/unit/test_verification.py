"""SAFE's verification by hand: what is asked, what becomes of odd replies, and what each verdict rests on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from kgqa.artifacts.verdicts import VerifiedQuestion
from kgqa.calls import Call, Generate
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.kg.verification import Verification
from kgqa.testing import drive
from kgqa.types import Completion, Passage, Question

FILM = Passage.of("Parasite", "Parasite is a film by Bong. He was born in Daegu.")
TOWN = Passage.of("Bong", "Bong Joon-ho is a director.")
OTHER = Passage.of("Cake", "A cake.")
QUESTION = Question("q", "Where was its maker born?", ("Daegu",), (FILM, OTHER, TOWN), frozenset({FILM.id, TOWN.id}))
MADE, BORN, LONG = (
    ["Parasite", "directed_by", "Bong"],
    ["Bong Joon-ho", "born_in", "Daegu"],
    ["Bong", "said", "x" * 101],
)
VALID = {"is_valid": True, "reasoning_path": [MADE], "explanation": "By its director."}


def _safe(**changed: object) -> Verification:
    built: Verification = build(compose(["verify=safe"])["verify"], "verify")
    return replace(built, **changed)  # type: ignore[arg-type]


class Verifier:
    """Replies by template, in turn; the last one again and again."""

    def __init__(self, **replies: Sequence[object]) -> None:
        defaults: dict[str, Sequence[object]] = {
            "triples": [{"triples": [MADE]}], "glean": [{"triples": []}], "resolve": [{"groups": []}], "path": [VALID]
        }  # fmt: skip
        self._replies = {name: list(listed) for name, listed in {**defaults, **replies}.items()}
        self.asked: list[Generate] = []

    def __call__(self, call: Call[object]) -> Completion:
        assert isinstance(call, Generate)
        assert call.role == "verifier"
        self.asked.append(call)
        waiting = self._replies[call.prompt.name.removeprefix("verify/")]
        reply = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        return Completion(reply if isinstance(reply, str) else json.dumps(reply))

    def prompts(self, name: str) -> list[str]:
        return [call.prompt.messages[0].content for call in self.asked if call.prompt.name == f"verify/{name}"]


def _verified(verifier: Verifier, question: Question = QUESTION, **changed: object) -> VerifiedQuestion:
    return drive(_safe(**changed).verify(question, question.answers[0]), verifier)


def test_gleaning_is_given_what_there_is_and_stops_when_a_round_adds_nothing() -> None:
    verifier = Verifier(
        glean=[{"triples": [BORN]}, {"triples": [["PARASITE", "Directed_By", "bong"]]}, {"triples": []}]
    )
    line = _verified(verifier, replace(QUESTION, support=frozenset({FILM.id})))
    assert len(verifier.prompts("glean")) == 2  # the second brought what was there, in other letters
    assert json.dumps(BORN) in verifier.prompts("glean")[1]
    assert line.figures["triples extracted"] == 1
    assert (line.figures["triples gleaned in round 1"], line.figures["triples gleaned in round 2"]) == (1, 0)


def test_long_texts_are_no_entities_and_stay_in_the_graph() -> None:
    verifier = Verifier(triples=[{"triples": [MADE, LONG]}], resolve=[{"groups": [["Bong", "x" * 101]]}])
    line = _verified(verifier)
    names = verifier.prompts("resolve")[0].partition("Triples:")[0]
    assert '"Bong"' in names
    assert "x" * 101 not in names
    assert line.groups == ()
    assert json.dumps(LONG) in verifier.prompts("path")[0]
    exactly = Verifier(triples=[{"triples": [["Bong", "said", "x" * 100]]}])
    assert _verified(exactly).figures["entities"] == 2


def test_the_first_name_of_a_group_stands_for_the_others() -> None:
    verifier = Verifier(
        triples=[{"triples": [MADE]}, {"triples": [BORN, ["Bong", "born_in", "Daegu"]]}],
        resolve=[{"groups": [["Nobody", "Bong Joon-ho", "Bong"], ["Daegu", "Bong"], ["Parasite"]]}],
    )
    line = _verified(verifier)
    assert line.groups == (("Bong Joon-ho", "Bong"),)  # of the names given; each in one group; one name is none
    shown = verifier.prompts("path")[0]
    assert '["Parasite", "directed_by", "Bong Joon-ho"]' in shown
    assert shown.count('["Bong Joon-ho", "born_in", "Daegu"]') == 1
    assert line.figures["names merged"] == 1


def test_a_path_is_valid_or_noise_as_the_verifier_says() -> None:
    line = _verified(Verifier())
    assert (line.verdict, line.path, line.explanation, line.graph) == ("valid", (tuple(MADE),), "By its director.", ())
    noise = _verified(Verifier(path=[{**VALID, "is_valid": False}]))
    assert (noise.verdict, noise.graph) == ("noise", (tuple(MADE),))


def test_a_path_that_cannot_be_read_twice_is_unverified_or_noise_as_in_the_released_code() -> None:
    replies = ["Well, yes.", '{"is_valid": "perhaps"}']
    line = _verified(Verifier(path=replies))
    assert (line.verdict, line.flags["unparsable_path"], line.path) == ("unverified", 2, ())
    assert _verified(Verifier(path=replies), unparsable="noise").verdict == "noise"


def test_a_graph_without_triples_is_noise_only_if_its_replies_could_be_read() -> None:
    none: Callable[[object], Verifier] = lambda reply: Verifier(triples=[reply], glean=[reply])  # noqa: E731
    read, unread = none({"triples": []}), none("There are none.")
    assert _verified(read).verdict == "noise"
    assert _verified(unread).verdict == "unverified"
    assert _verified(none("There are none."), unparsable="noise").verdict == "noise"
    assert not [call for call in (*read.asked, *unread.asked) if call.prompt.name == "verify/path"]


def test_without_gold_passages_nothing_is_asked_and_nothing_decided() -> None:
    verifier = Verifier()
    line = _verified(verifier, replace(QUESTION, support=frozenset({"elsewhere"})), unparsable="noise")
    assert (line.verdict, verifier.asked) == ("unverified", [])
    assert line.flags == {"no_gold_passage": 1, "missing_passage": 1}
