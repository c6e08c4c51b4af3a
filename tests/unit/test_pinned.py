"""A question's pinned passages, IIRC's main one: shown by every method that retrieves, never its evidence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Call, CountTokens, Generate, Neighbours, Rank, Search
from kgqa.prompting import render_dry_run_reply
from kgqa.testing import drive
from kgqa.types import Answer, Completion, Passage, Question
from kgqa.util.plugins import conf_folders
from tests.composed import built_method

MAIN = Passage.of("Elm", "Elm read a book by Alder, and said so in public.")
ALDER = Passage.of("Alder", "Alder wrote Birch.")
BIRCH = Passage.of("Birch", "Birch is a book of 1901.")
QUESTION = Question(
    "q", "When did the book appear?", ("1901",), (ALDER, BIRCH), frozenset({BIRCH.id}), pinned=(MAIN,)
)  # fmt: skip
OTHERS: Mapping[str, str] = {
    "neighbourhood": "asks no model",
    "no_context": "shows the question alone",
    "retrieve_only": "asks no model",
    "safe": "reads passages of the question's own",
    "trace": "reads passages of the question's own",
}
NAMES = sorted({file.stem for folder in conf_folders() for file in Path(folder, "method").glob("*.yaml")})


def asked(name: str, question: Question, *found: Passage) -> tuple[Answer, list[str]]:
    """The answer, and every prompt in which the question stands."""
    prompts: list[str] = []

    def reply(call: Call[Any]) -> Any:
        match call:
            case Search():
                return (found if call.pool is None else call.pool)[: call.k]
            case Neighbours():
                return (BIRCH,)
            case Rank():
                return tuple(1.0 for _ in call.texts)
            case CountTokens():
                return len(call.text.split())
            case Generate():
                prompts.append("\n".join(message.content for message in call.prompt.messages))
                return Completion(render_dry_run_reply(call.prompt, len(prompts)))
        raise AssertionError(call)

    answer: Answer = drive(built_method(name).answer(question), reply)
    return answer, [prompt for prompt in prompts if question.text in prompt]


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(OTHERS)))
@pytest.mark.parametrize("found", [(ALDER,), (ALDER, MAIN)], ids=["other", "found too"])
def test_the_last_prompt_shows_a_pinned_passage_once(name: str, found: tuple[Passage, ...]) -> None:
    answer, prompts = asked(name, QUESTION, *found)
    before, _, _ = prompts[-1].rpartition(QUESTION.text)
    assert before.count(MAIN.text) == 1
    assert MAIN in found or MAIN.id not in answer.evidence


@pytest.mark.parametrize("name", ["search_o1", "simple_deep_searcher"])
def test_the_call_that_reads_passages_for_an_agent_shows_the_pinned_one(name: str) -> None:
    _, prompts = asked(name, QUESTION, ALDER)
    reading = [prompt.partition(QUESTION.text)[0] for prompt in prompts if "Pages found:" in prompt]
    assert reading
    assert all(before.count(MAIN.text) == 1 for before in reading)
