"""A world of four linked passages, and an agent whose evidence a test decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kgqa.calls import Call, CountTokens, Generate, Neighbours, Rank, Search
from kgqa.errors import PromptTooLong
from kgqa.testing import drive
from kgqa.types import Answer, Completion, Passage, Question
from tests.composed import built_method

OPERA = Passage.of("The Herring Queen", "The Herring Queen is an opera by Asbjarne Lyngholt.")
COMPOSER = Passage.of("Asbjarne Lyngholt", "Asbjarne Lyngholt was born in Fauskenes.")
TOWN = Passage.of("Fauskenes", "Fauskenes is a town on the Tveit fjord.")
FJORD = Passage.of("Tveit", "The Tveit is a fjord of 20 kilometres.")
POOL = (OPERA, COMPOSER, TOWN, FJORD)
EDGES = {OPERA.id: (COMPOSER, FJORD), COMPOSER.id: (OPERA, TOWN), TOWN.id: (COMPOSER, FJORD), FJORD.id: (OPERA, TOWN)}
QUESTION = Question("q", "In which town was the composer of The Herring Queen born?", ("Fauskenes",), POOL)
Writes = Callable[[Generate], Completion]


class World:
    """Answers a program: two seeds, the edges above, and a ranker that likes what stands first in the alphabet."""

    def __init__(self, write: Writes | None = None, edges: Mapping[str, tuple[Passage, ...]] | None = None) -> None:
        self.write = write or (lambda call: Completion(" Asbjarne Lyngholt was born in Oslo."))
        self.edges = EDGES if edges is None else edges
        self.calls: list[Call[Any]] = []

    def __call__(self, call: Call[Any]) -> Any:
        self.calls.append(call)
        match call:
            case Generate():
                try:
                    return self.write(call) if call.prompt.name != "kgp/answer" else self.read(call)
                except PromptTooLong as error:
                    return error
            case Search():
                return (call.pool or POOL)[: min(call.k, 2)]
            case Neighbours():
                assert call.pool == tuple(p for p in QUESTION.passages if not p.place) or call.pool is None
                return self.edges.get(call.passage.id, ())
            case Rank():
                return tuple(-float(sorted(call.texts).index(text)) for text in call.texts)
            case CountTokens():
                return len(call.text.split())
        raise AssertionError(call)

    def read(self, call: Generate) -> Completion:
        return Completion(" Fauskenes")

    def made(self, kind: type) -> list[Any]:
        return [call for call in self.calls if isinstance(call, kind)]

    def asked(self, template: str) -> list[str]:
        return [call.prompt.messages[0].content for call in self.made(Generate) if call.prompt.name == template]


def walk(world: World, *overrides: str, question: Question = QUESTION) -> Answer:
    answer: Answer = drive(built_method("kgp", *overrides).answer(question), world)
    return answer
