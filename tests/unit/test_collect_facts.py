"""What KGP's agents and MDR learn from: the facts in the order a person would need them."""

from __future__ import annotations

import pytest

from kgqa.training.collect.facts import ordered_facts
from kgqa.types import Hop, Passage, Question

FILM = Passage.of("Musa (film)", "Musa is a 2001 film directed by Kim Sung-su.")
ACTOR = Passage.of("Yu Rongguang", "Yu Rongguang is an actor, known for Musa.")


def question(*passages: Passage, answer: str = "Kim Sung-su", **fields: object) -> Question:
    facts = tuple((passage.id, passage.text) for passage in passages)
    kind = {"type": "bridge", **fields}
    return Question("q", "Who directed it?", (answer,), passages, facts=facts, **kind)  # type: ignore[arg-type]


@pytest.mark.parametrize("passages", [(FILM, ACTOR), (ACTOR, FILM)])
def test_the_fact_with_the_answer_comes_last_and_else_the_passage_that_the_other_names(
    passages: tuple[Passage, ...],
) -> None:
    assert ordered_facts(question(*passages)) == (ACTOR.text, FILM.text)
    assert ordered_facts(question(*passages, answer="no one")) == (ACTOR.text, FILM.text)


def test_a_decomposition_over_all_cited_passages_gives_their_order_and_a_comparison_the_files() -> None:
    hops = (Hop("Yu Rongguang, film", "Musa", ACTOR.id), Hop("Musa, director", "Kim Sung-su", FILM.id))
    assert ordered_facts(question(FILM, ACTOR, answer="actor", decomposition=hops)) == (ACTOR.text, FILM.text)
    assert ordered_facts(question(FILM, ACTOR, decomposition=hops[1:])) == (ACTOR.text, FILM.text)
    assert ordered_facts(question(FILM, ACTOR, type="comparison")) == (FILM.text, ACTOR.text)
