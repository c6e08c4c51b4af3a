"""What KGP's agents and MDR learn from: the facts in the order a person would need them."""

from __future__ import annotations

import os

import pytest

from kgqa.errors import DataError
from kgqa.experiment.experiment import Experiment
from kgqa.training.collect.facts import ordered_facts
from kgqa.types import Hop, Passage, Question

FILM = Passage.of("Musa (film)", "Musa is a 2001 film directed by Kim Sung-su.")
ACTOR = Passage.of("Yu Rongguang", "Yu Rongguang is an actor, known for Musa.")


def question(*passages: Passage, answer: str = "Kim Sung-su", **fields: object) -> Question:
    facts = tuple((passage.id, passage.text) for passage in passages)
    kind = {"type": "bridge", **fields}
    return Question("q", "Who directed it?", (answer,), passages, facts=facts, **kind)  # type: ignore[arg-type]


@pytest.mark.parametrize("passages", [(FILM, ACTOR), (ACTOR, FILM)])
def test_the_fact_with_the_answer_comes_last_whatever_the_files_order(passages: tuple[Passage, ...]) -> None:
    assert ordered_facts(question(*passages)) == (ACTOR.text, FILM.text)


@pytest.mark.parametrize("passages", [(FILM, ACTOR), (ACTOR, FILM)])
def test_where_the_answer_decides_nothing_the_passage_that_the_other_names_comes_last(
    passages: tuple[Passage, ...],
) -> None:
    assert ordered_facts(question(*passages, answer="no one")) == (ACTOR.text, FILM.text)


def test_facts_to_compare_stand_in_the_files_order() -> None:
    assert ordered_facts(question(FILM, ACTOR, type="comparison")) == (FILM.text, ACTOR.text)


def test_a_decomposition_over_all_cited_passages_gives_their_order() -> None:
    hops = (Hop("Yu Rongguang, film", "Musa", ACTOR.id), Hop("Musa, director", "Kim Sung-su", FILM.id))
    assert ordered_facts(question(FILM, ACTOR, answer="actor", decomposition=hops)) == (ACTOR.text, FILM.text)
    assert ordered_facts(question(FILM, ACTOR, decomposition=hops[1:])) == (ACTOR.text, FILM.text)


def test_no_bridge_of_hotpotqa_leads_from_the_answer_away() -> None:
    """Of 155 bridge questions 35 stood reversed in the file, with the answer in the first passage alone."""
    if not os.environ.get("KGQA_DATA"):
        pytest.skip("KGQA_DATA names no folder")
    experiment = Experiment.of(["engine=scripted", "dataset=hotpotqa", "method=kgp"])
    try:
        bridges = [each for each in experiment.questions if each.type == "bridge" and len(ordered_facts(each)) == 2]
    except DataError as error:
        pytest.skip(str(error))
    for each in bridges:
        held = {" ".join(s for id_, s in each.facts if id_ == p.id): f"{p.title} {p.text}" for p in each.passages}
        first, second = (each.answers[0] in held[fact] for fact in ordered_facts(each))
        assert second or not first, each.text
    assert len(bridges) > 100
