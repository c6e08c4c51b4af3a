"""Few-shot prompts: what is shown, what is left out when it does not fit, and what is read from the replies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kgqa.calls import CountTokens
from kgqa.errors import PromptTooLong
from kgqa.methods.steps.few_shot import FewShot, FewShotReply, Shot
from kgqa.methods.steps.replies import extract_answer
from kgqa.testing import drive
from kgqa.types import Completion
from kgqa.util.sentences import sentences
from tests.thoughts_world import ALDER, BIRCH, FEW_SHOT, World, demonstration

CASE = Shot("When?", (ALDER, BIRCH), "cot")
MANY = replace(FEW_SHOT, labelled=tuple(demonstration(number) for number in range(9)))


def written(world: World, few_shot: FewShot = FEW_SHOT, case: Shot = CASE) -> FewShotReply:
    return drive(few_shot.generate(case, 40, "agent"), world)


def words(few_shot: FewShot, case: Shot = CASE) -> int:
    world = World([""])
    written(world, few_shot, case)
    return len(world.prompts()[0].split())


@pytest.mark.parametrize("count", range(9))
def test_demonstrations_come_before_passages_to_fit(count: int) -> None:
    room = words(replace(MANY, labelled=MANY.labelled[:count]))
    world = World(["."])
    reply = written(world, replace(MANY, context_limit=room + 40))
    assert (reply.demonstrations, reply.flags, len(world.prompts()[0].split())) == (count, {}, room)
    counted = [call for call in world.calls if isinstance(call, CountTokens)]
    assert len(counted) <= 5
    assert {call.role for call in counted} == {"agent"}


def test_passage_stays_without_demonstrations() -> None:
    room = words(replace(FEW_SHOT, labelled=()), replace(CASE, passages=(ALDER,)))
    world = World(["."])
    reply = written(world, replace(FEW_SHOT, context_limit=room + 40))
    assert (reply.demonstrations, reply.flags, world.prompts()) == (
        0,
        {"passages_dropped": 1},
        [world.asked()[0]],
    )
    assert "Alder" in world.prompts()[0]
    assert "Birch is" not in world.prompts()[0]


def test_released_code_drops_last_examples_first() -> None:
    own = words(replace(FEW_SHOT, labelled=()))
    example = words(replace(FEW_SHOT, labelled=(demonstration(1),))) - own
    assert own < example
    released = replace(MANY, drop="released", context_limit=4 * example + 40)
    world = World(["."])
    # and room for a question as long as an example
    assert written(world, released).demonstrations == 3
    assert "Question 0?" in world.prompts()[0]
    longer = replace(CASE, question="word " * (example - own + 5))
    world = World(["."])
    assert written(world, released, longer).demonstrations == 2
    assert "Question 0?" not in world.prompts()[0]
    assert "Question 2?" in world.prompts()[0]


@pytest.mark.parametrize("count", [0, 1, 8])
def test_rejected_prompt_is_shortened_and_flagged(count: int) -> None:
    world = World(["."], limit=words(replace(MANY, labelled=MANY.labelled[:count])))
    reply = written(world, MANY)
    assert (reply.demonstrations, reply.flags, len(world.prompts())) == (
        count,
        {"shortened_prompt": 1},
        2,
    )


def test_prompt_that_never_fits_is_an_error() -> None:
    world = World([], limit=2)
    with pytest.raises(PromptTooLong):
        written(world)
    assert len(world.prompts()) < 6


@pytest.mark.parametrize(
    ("reply", "style", "text", "flags"),
    [
        pytest.param(
            "The answer is not Elm. So the answer is: Birch.",
            "cot",
            "Birch",
            {},
            id="after the marker",
        ),
        pytest.param("A is B.", "cot", "A is B.", {"no_answer_marker": 1}, id="no marker"),
        pytest.param("", "cot", "", {"no_answer_marker": 1, "empty_answer": 1}, id="empty"),
        pytest.param(
            "So the answer is:", "cot", "", {"empty_answer": 1}, id="empty after the marker"
        ),
        pytest.param(" B \nQ: next", "direct", "B", {}, id="direct"),
        pytest.param("\n", "direct", "", {"empty_answer": 1}, id="empty direct"),
        pytest.param(
            Completion("B and", "length"),
            "direct",
            "B and",
            {"truncated_answer": 1},
            id="truncated",
        ),
    ],
)
def test_the_reader_takes_what_the_reply_states(
    reply: str | Completion, style: Any, text: str, flags: dict[str, int]
) -> None:
    answer = drive(FEW_SHOT.answer(replace(CASE, style=style), 40), World([reply]))
    assert (answer.text, answer.flags) == (text, flags)


@pytest.mark.parametrize(
    "form",
    [
        "So the answer is: {}.",
        "Thus, the answer is {}.",
        "Dr. Fir, 1.5 hours. So the answer is: {}.",
    ],
    ids=["so", "thus", "after other sentences"],
)
def test_real_gold_answers_are_extracted(form: str) -> None:
    # gold answers of HotpotQA, 2Wiki, MuSiQue and IIRC
    real = [
        '"Archibald, certainly not!"', "$1.18 trillion", "10,310,371 (2016 est.)", "3 a.m.", "A.P.J. Abdul Kalam",
        "Confederate Gen. John Bell Hood", "Dec. 10, 1817", "Godspeed You! Black Emperor", "Hank Williams, Jr.",
        "No. 5", "U.S", "U.S.", "What Ever Happened to Baby Jane?", 'under "North Africa."',
    ]  # fmt: skip
    assert [extract_answer(form.format(answer)) for answer in real] == real


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "Alder wrote Birch. Birch is old.",
            ["Alder wrote Birch.", "Birch is old."],
            id="Alder wrote Birch. Birch is old.",
        ),
        pytest.param(
            "He met Dr. Fir in St. Alder.",
            ["He met Dr. Fir in St. Alder."],
            id="He met Dr. Fir in St. Alder.",
        ),
        pytest.param(
            "So the answer is: no. The film is old.",
            ["So the answer is: no.", "The film is old."],
            id="So the answer is no. The film is old.",
        ),
        pytest.param(
            "He moved to Ft. Worth. She died on Dec. 10, 1817.",
            ["He moved to Ft. Worth.", "She died on Dec. 10, 1817."],
            id="He moved to Ft. Worth. She died on Dec. 10,",
        ),
        pytest.param(
            "It is 6 ft. The other is not.",
            ["It is 6 ft.", "The other is not."],
            id="It is 6 ft. The other is not.",
        ),
        pytest.param(
            "He joined the U.S. Army.", ["He joined the U.S. Army."], id="He joined the U.S. Army."
        ),
        pytest.param(
            "It cost 15.4 million. Thus, 1864 - 1811 = 53.",
            ["It cost 15.4 million.", "Thus, 1864 - 1811 = 53."],
            id="It cost 15.4 million. Thus, 1864 - 1811 = 53.",
        ),
        pytest.param(
            'She said "Go." Then she left.',
            ['She said "Go."', "Then she left."],
            id="She said Go. Then she left.",
        ),
        pytest.param(
            "Is it? It is! Well… Yes",
            ["Is it?", "It is!", "Well…", "Yes"],
            id="Is it It is Well Yes",
        ),
        pytest.param("他是谁？他是王。好", ["他是谁？", "他是王。", "好"], id="他是谁他是王好"),
        pytest.param("no stop at all", ["no stop at all"], id="no stop at all"),
        pytest.param("", [], id=""),
    ],
)
def test_a_text_is_split_where_its_sentences_end(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected
