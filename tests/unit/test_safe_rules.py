"""SAFE's labelled steps by rules: ideal solutions of gold decompositions, and one error of each type in them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from kgqa.artifacts.examples import Example, Recipe, Source
from kgqa.config import building as parts
from kgqa.config.composing import compose
from kgqa.methods.safe import CITED, Safe
from kgqa.methods.steps.safe_plan import NoPlan, plan
from kgqa.methods.steps.safe_rules import Solution, corrupt_step, sample_late
from kgqa.methods.steps.safe_verdict import CORRECT, errors
from kgqa.training.collect.safe import JudgedSteps
from kgqa.types import Hop, Passage, Question

PETRA = Passage.of("Petra (film)", "Petra is a film by Jaime Rosales. It was shown in Cannes in spring.")
ROSALES = Passage.of(
    "Jaime Rosales (director)", "Jaime Rosales was born on 3 May 1970 in Barcelona. He likes chess a lot."
)
ASIDE = Passage.of("Reed Lake", "Reed Lake is a novel of many pages. It was written by Ada Holm.")
BRIDGE = Question(
    "b",
    "When was the director of Petra born?",
    ("3 May 1970",),
    (ASIDE, PETRA, ROSALES),
    frozenset({PETRA.id, ROSALES.id}),
    type="compositional",
    decomposition=(Hop("Petra, director", "Jaime Rosales"), Hop("Jaime Rosales, date of birth", "3 May 1970")),
)
CHANCE = random.Random(0)


def solution(question: Question = BRIDGE) -> Solution:
    made = plan(question, question.passages, random.Random(0))
    return Solution.of(made, question.passages, question.support, {}, random.Random(0))


def comparing(answer: str, other: str = "Norway") -> Question:
    """Where two museums are."""
    first, second = Passage.of("Ada", "Ada is in Norway, too."), Passage.of("Gorm", f"Gorm is in {other} as it seems.")
    hops = (Hop("Ada, country", "Norway", first.id), Hop("Gorm, country", other, second.id))
    gold = frozenset({first.id, second.id})
    return Question("c", "?", (answer,), (ASIDE, first, second), gold, type="comparison", decomposition=hops)


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (replace(BRIDGE, decomposition=()), "no decomposition"),
        (replace(BRIDGE, answers=("Barcelona",)), "the last fact is not the answer"),
        (replace(BRIDGE, support=frozenset({PETRA.id})), "no gold passage has the answer"),
        (comparing("no"), "does not follow"),
        (comparing("yes", "Sweden"), "does not follow"),
        (comparing("Reed Lake"), "none of what is compared"),
    ],
)
def test_what_the_passages_do_not_bear_out_has_no_plan(question: Question, why: str) -> None:
    with pytest.raises(NoPlan, match=why):
        plan(question, question.passages, CHANCE)


@pytest.mark.parametrize("error", errors("released"))
@pytest.mark.parametrize("seed", range(5))
def test_an_error_stands_behind_right_steps_and_the_guidance_leads_back(error: str, seed: int) -> None:
    made = solution()
    step = corrupt_step(error, made, random.Random(seed))
    assert step is not None
    assert step.verdict.error_type == error
    assert step.accepted == made.steps[: step.number - 1]
    assert step.text != made.steps[step.number - 1]
    assert step.verdict.guidance == made.instruction(step.number)


@pytest.mark.parametrize("seed", range(5))
def test_errors_are_what_their_names_say(seed: int) -> None:
    made = solution()

    def text(error: str) -> str:
        step = corrupt_step(error, made, random.Random(seed))
        assert step
        return step.text

    assert CITED.findall(text("Off-topic")) == CITED.findall(text("Unsupported")) == ["1"]
    assert CITED.findall(text("Overthinking"))[0] in "23"
    year = text("Contradictory")
    assert "Passage" in year
    assert not any(fact.claim in year for fact in made.plan.facts)
    assert made.plan.facts[0].claim in text("Redundancy")
    assert made.plan.facts[1].claim in text("Premature Attribution")


def test_later_places_are_drawn_with_the_square_of_their_number() -> None:
    chance = random.Random(0)
    drawn = Counter(sample_late(range(1, 4), chance) for _ in range(7000))
    assert [round(drawn[place] / 500) for place in (1, 2, 3)] == [1, 4, 9]


@cache
def configured(**changes: object) -> tuple[JudgedSteps, Safe]:
    config = compose(["collect=safe"])
    recipe, method = parts.build_part(config["collect"], "collect", Recipe), parts.method(config["method"])
    assert isinstance(recipe, JudgedSteps)
    assert isinstance(method, Safe)
    return replace(recipe, **changes), method  # type: ignore[arg-type]


def made(*questions: Question, **changes: object) -> list[Example]:
    recipe, method = configured(**changes)
    collected = recipe.collect([Source("mine", questions, method)])
    return [example for example in collected if isinstance(example, Example)]


def test_of_each_error_there_are_as_many_as_of_the_rarest() -> None:
    questions = [BRIDGE, replace(BRIDGE, id="b2"), comparing("yes")]
    labels = Counter(example.label for example in made(*questions))
    assert {labels[error] for error in errors("paper")} == {2}
    assert labels[CORRECT] == 10  # 34 to 66
    assert set(Counter(e.label for e in made(*questions, labels="released"))) == {*errors("released"), CORRECT}
