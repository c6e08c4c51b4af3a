"""What every method's prompts show: pinned passages once, of those found the best that fit, the same examples."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Generate, Rank, Search
from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.datasets.demonstrations import load_thoughts
from kgqa.errors import DataError, PromptTooLong
from kgqa.methods.steps.examples import Example
from kgqa.methods.steps.reader import ReadingLog, passages_text
from kgqa.testing import drive
from kgqa.types import Answer, Message, Passage, Prompt, Question
from kgqa.util.places import conf_folders
from tests import method_world
from tests.composed import built_method
from tests.unit.files import write

FIFTY = tuple(Passage.of(f"Passage {rank}", "word " * 100) for rank in range(50))
QUESTION = Question("q", "Where was the author of Reed Lake born?", ("Gorm",))
# words: the examples and about ten passages
ROOM = 1_800
RETRIEVING = (
    "knowtrace",
    "era_cot",
    "ge_reasoning",
    "sg_prompt",
    "react",
    "self_ask",
    "iter_retgen",
)


class World(method_world.DryWorld):
    """A model that refuses prompts of more than `limit` words; each search finds the same fifty passages."""

    def __init__(self, limit: int = ROOM) -> None:
        super().__init__(passages=FIFTY)
        self.limit = limit
        # ranks, by accepted prompt that shows some
        self.shown: list[list[int]] = []

    def write(self, call: Generate) -> method_world.Reply:
        text = call.prompt.messages[0].content + call.prompt.prefill
        words = len(text.split())
        if words > self.limit:
            return PromptTooLong(words, self.limit)
        self.shown += (
            [ranks]
            if (ranks := [int(rank) for rank in re.findall(r"Title: Passage (\d+)", text)])
            else []
        )
        return super().write(call)


@pytest.mark.parametrize("name", RETRIEVING)
def test_every_method_shows_the_best_passages_that_fit(name: str) -> None:
    world = World()
    method: Any = built_method(name, "passages=50")
    answer: Answer = drive(method.answer(QUESTION), world)
    assert answer.flags["passages_dropped"] >= 40
    assert len(answer.evidence) == 50
    assert world.shown
    assert [sorted(set(ranks)) for ranks in world.shown] == [
        [*range(max(ranks) + 1)] for ranks in world.shown
    ]
    assert max(len(ranks) for ranks in world.shown) >= 5
    assert answer.figures["passage_tokens"] >= 102 * max(len(ranks) for ranks in world.shown)


def prompt(passages: tuple[Passage, ...]) -> Generate:
    return Generate(Prompt("reader/answer", (Message("user", passages_text(passages)),)), 10)


@pytest.mark.parametrize("count", [50, 49, 13, 1, 0])
def test_passages_fill_the_prompt(count: int) -> None:
    world, reading = World(limit=103 * count), ReadingLog(Question("q", "Who?", ()))
    drive(reading.send(prompt, FIFTY), world)
    assert [ranks[-1] + 1 for ranks in world.shown] == ([count] if count else [])
    assert reading.flags["passages_dropped"] == 50 - count
    assert reading.tokens == reading.last == 103 * count


def test_prompt_too_long_without_passages_is_an_error() -> None:
    with pytest.raises(PromptTooLong):
        drive(ReadingLog(Question("q", "Who?", ())).send(prompt, FIFTY), World(limit=-1))


MAIN = Passage.of("Elm", "Elm read a book by Alder, and said so in public.")
ALDER = Passage.of("Alder", "Alder wrote Birch.")
BIRCH = Passage.of("Birch", "Birch is a book of 1901.")
PINNED = Question(
    "q", "When did the book appear?", ("1901",), (ALDER, BIRCH), frozenset({BIRCH.id}), pinned=(MAIN,)
)  # fmt: skip
# call no model, show no found passage, or are programs of users
OTHERS = {
    "command",
    "cot",
    "function",
    "neighbourhood",
    "no_context",
    "retrieve_only",
    "safe",
    "safe_teacher",
    "trace",
    "verify",
}
NAMES = sorted(
    {file.stem for folder in conf_folders() for file in Path(folder, "method").glob("*.yaml")}
)


class PinnedWorld(method_world.DryWorld):
    def search(self, call: Search) -> tuple[Passage, ...]:
        return (self.passages if call.pool is None else call.pool)[: call.k]

    def rank(self, call: Rank) -> tuple[float, ...]:
        return (1.0,) * len(call.texts)

    def other(self, call: Any) -> tuple[Passage, ...]:
        return (BIRCH,)  # a neighbour


@pytest.mark.parametrize("name", sorted(set(NAMES) - OTHERS))
@pytest.mark.parametrize(
    "passages",
    [
        pytest.param((ALDER,), id="not retrieved"),
        pytest.param((ALDER, MAIN), id="retrieved"),
    ],
)
def test_prompts_show_a_pinned_passage_once(name: str, passages: tuple[Passage, ...]) -> None:
    world = PinnedWorld(passages=passages)
    answer = drive(built_method(name).answer(PINNED), world)
    messages = [
        "\n".join(message.content for message in call.prompt.messages) for call in world.generations
    ]
    prompts = [prompt for prompt in messages if PINNED.text in prompt]
    parts = [prompts[-1].rpartition(PINNED.text)[0]]
    # the call that reads passages for an agent
    if name in ("search_o1", "simple_deep_searcher"):
        parts += [
            prompt.partition(PINNED.text)[0] for prompt in prompts if "Pages found:" in prompt
        ]
        assert len(parts) > 1
    assert [before.count(MAIN.text) for before in parts] == [1] * len(parts)
    assert MAIN in passages or MAIN.id not in answer.evidence


SAME = ("retrieve_read", "ircot", *RETRIEVING[1:])


@cache
def composed(method: str) -> str:
    """Return its node with POOL for the name of the pool, which stands in several places."""
    return json.dumps(
        compose([f"method={method}", "method.few_shot_path=POOL", "method.demonstration_count=4"])[
            "method"
        ]
    )


def built(method: str, pool: str) -> Any:
    return build(json.loads(composed(method).replace("POOL", pool)), "method")


def prompts(method: Any) -> list[str]:
    """All that a method asks for one question."""
    world = method_world.DryWorld(passages=(BIRCH,))
    drive(method.answer(PINNED), world)
    return world.prompts()


@pytest.mark.slow
@pytest.mark.parametrize("family", ["2wiki", "iirc"])
def test_every_method_shows_the_same_questions(family: str) -> None:
    examples = {}
    for name in SAME:
        asked = "\n".join(prompts(built(name, family)))
        examples[name] = {each.question for each in load_thoughts(family) if each.question in asked}
    assert len(examples["react"]) == 4
    assert all(questions == examples["react"] for questions in examples.values())


@pytest.mark.parametrize(
    "method",
    [
        "self_ask",
        "react",
        "sg_prompt",
        "ge_reasoning",
        "era_cot",
    ],
)
def test_questions_without_needed_fields_are_rejected(tmp_path: Path, method: str) -> None:
    passages = [{"title": "T", "text": "A."}]
    record = {
        "question": "Who?",
        "answer": "A",
        "thoughts": ["So the answer is: A."],
        "passages": passages,
    }
    file = write(tmp_path / "own.jsonl", record)
    with pytest.raises(
        DataError, match=r"own.jsonl: the demonstration 'Who\?' has no '(steps|triples)'"
    ):
        built(method, str(file))


def test_examples_have_a_graph_and_a_transcript() -> None:
    film = Example(
        next(each for each in load_thoughts("2wiki") if "The Painted Tollgate" in each.question)
    )
    assert list(map(str, film.masked)) == [
        "<The Painted Tollgate; director; ?1>", "<?1; date of birth; ?2>", "<Midnight at Orbury; director; ?3>",
        "<?3; date of birth; ?4>",
    ]  # fmt: skip
    assert str(film.shown.steps[3].triple) == "<Patrice Vaucelin; date of birth; 21 July 1926>"
    assert [len(film.actions(place)) for place in range(4)] == [5, 6, 2, 6]
    # each thought starts with what the step before has found
    thoughts = [action.thought.partition(" Now I need")[0] for action in film.actions(0)[1:4]]
    answers = [step.answer for step in film.shown.steps[:3]]
    assert [answer in thought for answer, thought in zip(answers, thoughts, strict=True)] == [
        True
    ] * 3
    # a search that finds all passages is the only one
    first, last = film.actions(2)
    assert all(passage.text in first.observation for passage in film.shown.context(0))
    assert last.action == f"Finish[{film.shown.answer}]"
