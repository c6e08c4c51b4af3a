"""One pool a data set: every method shows the same questions, each in its own form."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Call, CountTokens, Generate, Search
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.datasets.demonstrations import load_thoughts
from kgqa.errors import DataError
from kgqa.methods.steps.examples import Example
from kgqa.prompting import render_dry_run_reply
from kgqa.testing import drive
from kgqa.types import Completion, Passage, Question

METHODS = (
    "retrieve_read", "ircot", "self_ask", "react", "iter_retgen", "sg_prompt", "ge_reasoning", "era_cot",
)  # fmt: skip
BIRCH = Passage.of("Birch", "Birch is a book of 1901 by Alder.")
QUESTION = Question("q", "When did Birch appear?", ("1901",), (BIRCH,), pinned=(Passage.of("Elm", "Elm read Birch."),))


@cache
def composed(method: str) -> str:
    """Return its node with POOL for the name of the pool, which stands in several places."""
    return json.dumps(
        compose([f"method={method}", "method.few_shot_path=POOL", "method.demonstration_count=4"])["method"]
    )


def built(method: str, pool: str) -> Any:
    return build(json.loads(composed(method).replace("POOL", pool)), "method")


def prompts(method: Any) -> list[str]:
    """All that a method asks for one question."""
    asked: list[str] = []

    def reply(call: Call[Any]) -> Any:
        if isinstance(call, Search):
            return (BIRCH,)
        if isinstance(call, CountTokens):
            return len(call.text.split())
        assert isinstance(call, Generate)
        asked.append(call.prompt.messages[0].content)
        return Completion(render_dry_run_reply(call.prompt, len(asked)))

    drive(method.answer(QUESTION), reply)
    return asked


@pytest.mark.parametrize("family", ["2wiki", "iirc"])
def test_every_method_shows_the_same_questions(family: str) -> None:
    shown = {}
    for name in METHODS:
        asked = "\n".join(prompts(built(name, family)))
        shown[name] = {each.question for each in load_thoughts(family) if each.question in asked}
    assert len(shown["react"]) == 4
    assert all(questions == shown["react"] for questions in shown.values())


def test_questions_without_what_a_method_shows_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    passages = [{"title": "T", "text": "A."}]
    record = {"question": "Who?", "answer": "A", "thoughts": ["So the answer is: A."], "passages": passages}
    file.write_text(json.dumps(record), encoding="utf-8")
    for method in ("self_ask", "react", "sg_prompt", "ge_reasoning", "era_cot"):
        with pytest.raises(DataError, match=r"own.jsonl: the demonstration 'Who\?' has no '(steps|triples)'"):
            built(method, str(file))


def test_an_example_has_a_graph_that_names_nothing_to_be_found_and_a_transcript() -> None:
    film = Example(next(each for each in load_thoughts("2wiki") if "The Painted Tollgate" in each.question))
    assert list(map(str, film.masked)) == [
        "<The Painted Tollgate; director; ?1>", "<?1; date of birth; ?2>", "<Midnight at Orbury; director; ?3>",
        "<?3; date of birth; ?4>",
    ]  # fmt: skip
    assert str(film.shown.steps[3].triple) == "<Patrice Vaucelin; date of birth; 21 July 1926>"
    assert [len(film.actions(place)) for place in range(4)] == [5, 6, 2, 6]
    first, last = film.actions(2)  # a search that finds all passages is the only one
    assert all(passage.text in first.observation for passage in film.shown.context(0))
    assert last.action == f"Finish[{film.shown.answer}]"
