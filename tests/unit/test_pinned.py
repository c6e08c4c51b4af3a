"""A question's pinned passages, IIRC's main one: shown by every method that retrieves, never its evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Call, CountTokens, Generate, Neighbours, Rank, Search
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.methods.steps.reader import add_pinned
from kgqa.prompting import render_dry_run_reply
from kgqa.testing import drive
from kgqa.types import Answer, Completion, Passage, Question
from kgqa.util.plugins import conf_folders

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


@cache
def configured(name: str) -> Any:
    return build(compose([f"method={name}"])["method"], "method")


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
                return Completion(render_dry_run_reply(call.prompt.name, len(prompts)))
        raise AssertionError(call)

    answer: Answer = drive(configured(name).answer(question), reply)
    return answer, [prompt for prompt in prompts if question.text in prompt]


def test_the_methods_that_need_not_show_pinned_passages_are_named() -> None:
    searching = {name for name in NAMES if {"search", "pool"} & configured(name).uses}
    assert set(OTHERS) <= set(NAMES)
    assert not {"safe", "trace", "no_context"} & searching


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(OTHERS)))
@pytest.mark.parametrize("found", [(ALDER,), (ALDER, MAIN)], ids=["other", "found too"])
def test_the_last_prompt_shows_a_pinned_passage_once(name: str, found: tuple[Passage, ...]) -> None:
    answer, prompts = asked(name, QUESTION, *found)
    before, _, _ = prompts[-1].rpartition(QUESTION.text)
    assert before.count(MAIN.text) == 1
    assert MAIN in found or MAIN.id not in answer.evidence


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(OTHERS)))
def test_without_one_nothing_is_shown_in_its_place(name: str) -> None:
    _, prompts = asked(name, replace(QUESTION, pinned=()), ALDER)
    assert "Passages:\n\n" not in prompts[-1]


@pytest.mark.parametrize("name", ["knowtrace", "ge_reasoning"])
def test_methods_that_read_for_a_pair_or_a_triple_read_the_pinned_passage_first(name: str) -> None:
    contents: list[str] = []

    def reply(call: Call[Any]) -> Any:
        if isinstance(call, Search):
            return (ALDER,)
        if isinstance(call, CountTokens):
            return len(call.text.split())
        assert isinstance(call, Generate)
        if call.prompt.name in ("knowtrace/complete", "ge_reasoning/fill"):
            contents.append(call.prompt.messages[0].content)
        return Completion(render_dry_run_reply(call.prompt.name, 1))

    drive(configured(name).answer(QUESTION), reply)
    assert contents
    for content in contents:
        assert f"Title: Elm\n{MAIN.text}\n\nTitle: Alder\n{ALDER.text}" in content


def test_a_pinned_passage_that_is_found_too_is_shown_once() -> None:
    assert add_pinned(QUESTION, (ALDER, MAIN)) == (MAIN, ALDER)
