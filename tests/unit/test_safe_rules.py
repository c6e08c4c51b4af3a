"""SAFE's labelled steps by rules: ideal solutions of gold decompositions, and one error of each type in them."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from kgqa.artifacts.examples import Dropped, Example, Source
from kgqa.config import factories as parts
from kgqa.config.composing import compose
from kgqa.errors import DataError
from kgqa.experiment.session.experiment import Experiment
from kgqa.methods.safe import CITED, Safe, read_step
from kgqa.methods.steps.safe_plan import NoPlan, plan
from kgqa.methods.steps.safe_rules import Solution, correct_steps, corrupt_step, sample_late
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
SHOWN = BRIDGE.passages
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


def test_a_fact_is_found_in_the_gold_passage_that_says_it() -> None:
    facts = plan(BRIDGE, SHOWN, CHANCE).facts
    assert [(fact.passage, fact.needs) for fact in facts] == [(2, ()), (3, (0,))]
    assert [fact.claim for fact in facts] == [
        "the director of Petra is Jaime Rosales",
        "the date of birth of Jaime Rosales is 3 May 1970",
    ]


def test_the_ideal_steps_are_steps_of_safe() -> None:
    kinds = [read_step(text).kind for text in solution().steps]
    assert kinds == ["attribution", "attribution", "logical", "final answer"]
    assert read_step(solution().steps[-1]).answer == "3 May 1970"


def test_two_chains_are_taken_one_after_the_other() -> None:
    made = tuple(Passage.of(f"Film {n}", f"Film {n} was made by Maker {n}. Maker {n} died in 190{n}.") for n in (1, 2))
    hops = [Hop(f"Film {n}, director", f"Maker {n}", made[n - 1].id) for n in (1, 2)]
    hops += [Hop(f"Maker {n}, date of death", f"190{n}", made[n - 1].id) for n in (1, 2)]
    gold = frozenset(passage.id for passage in made)
    asked = Question("q", "?", ("Film 2",), made, gold, type="bridge_comparison", decomposition=tuple(hops))
    built = plan(asked, made, CHANCE)
    assert [fact.value for fact in built.facts] == ["Maker 1", "1901", "Maker 2", "1902"]
    assert built.wrong_answer == "Film 1"


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


def test_whether_two_are_the_same_is_concluded_and_turned_round() -> None:
    same = plan(comparing("yes"), comparing("yes").passages, CHANCE)
    assert (same.conclusion.endswith("are the same."), same.wrong_answer) == (True, "no")
    assert same.wrong_conclusion.endswith("are not the same.")


def test_right_steps_lead_on_to_the_next() -> None:
    steps = list(correct_steps(solution()))
    assert [step.verdict.error_type for step in steps] == [CORRECT] * 4
    assert "date of birth of Jaime Rosales from Passage 3" in steps[0].verdict.guidance
    assert steps[2].verdict.guidance == "Give the final answer as ####ANSWER: 3 May 1970 (Final Answer)"
    assert [len(step.accepted) for step in steps] == [0, 1, 2, 3]
    assert (steps[3].verdict.diagnosis, steps[3].verdict.guidance) == (
        "Step 3 leads to this answer.",
        "Nothing is left to do.",
    )


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


def test_without_a_bridge_no_attribution_is_premature() -> None:
    assert corrupt_step("Premature Attribution", solution(comparing("yes")), CHANCE) is None


def test_later_places_are_drawn_with_the_square_of_their_number() -> None:
    chance = random.Random(0)
    drawn = Counter(sample_late(range(1, 4), chance) for _ in range(7000))
    assert [round(drawn[place] / 500) for place in (1, 2, 3)] == [1, 4, 9]


@cache
def configured(**changes: object) -> tuple[JudgedSteps, Safe]:
    config = compose(["collect=safe"])
    recipe, method = parts.recipe(config["collect"]), parts.method(config["method"])
    assert isinstance(recipe, JudgedSteps)
    assert isinstance(method, Safe)
    return replace(recipe, **changes), method  # type: ignore[arg-type]


def made(*questions: Question, **changes: object) -> list[Example]:
    recipe, method = configured(**changes)
    collected = recipe.collect([Source("mine", questions, method)], lambda: None)
    return [example for example in collected if isinstance(example, Example)]


def test_of_each_error_there_are_as_many_as_of_the_rarest() -> None:
    questions = [BRIDGE, replace(BRIDGE, id="b2"), comparing("yes")]
    labels = Counter(example.label for example in made(*questions))
    assert {labels[error] for error in errors("paper")} == {2}
    assert labels[CORRECT] == 10  # 34 to 66
    assert set(Counter(e.label for e in made(*questions, labels="released"))) == {*errors("released"), CORRECT}


def test_200_questions_of_2wiki_give_every_label_often() -> None:
    if not os.environ.get("KGQA_DATA"):
        pytest.skip("KGQA_DATA names no folder")
    experiment = Experiment.of(["dataset=2wiki", "collect=safe", "limit=200"])
    try:
        questions = experiment.questions
    except DataError as error:
        pytest.skip(str(error))
    recipe, method = configured()
    collected = list(recipe.collect([Source("2wiki", questions, method)], lambda: None))
    labels = Counter(one.label for one in collected if isinstance(one, Example))
    assert labels.total() >= 1100
    assert len(labels) == 11
    assert min(labels.values()) >= 40
    whole = [one for one in collected if isinstance(one, Dropped) and one.what == "question"]
    assert len(whole) < 0.1 * len(questions)
