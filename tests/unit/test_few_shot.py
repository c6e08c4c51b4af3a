"""Few-shot prompts: what is shown, what is left out when it does not fit, and what is read from the replies."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.calls import CountTokens, Generate
from kgqa.errors import PromptTooLong
from kgqa.methods.steps.few_shot import FewShot, FewShotReply, Shot, extract_answer
from kgqa.testing import drive
from kgqa.types import Completion, Passage
from tests.thoughts_world import ALDER, BIRCH, FEW_SHOT, World, demonstration

CASE = Shot("When?", (ALDER, BIRCH), "cot")
MANY = replace(FEW_SHOT, labelled=tuple(demonstration(number) for number in range(9)))


def written(world: World, few_shot: FewShot = FEW_SHOT, case: Shot = CASE) -> FewShotReply:
    return drive(few_shot.generate(case, 40, "agent"), world)


def words(few_shot: FewShot, case: Shot = CASE) -> int:
    """Of the whole prompt."""
    world = World([""])
    written(world, few_shot, case)
    return len(world.prompts()[0].split())


def test_demonstrations_stand_before_the_question_each_with_its_distractors() -> None:
    world = World(["."])
    written(world)
    one, two, last = world.prompts()[0].split("\n\n\n")
    assert one.count("Wikipedia Title: ") == 2
    assert one.endswith("Q: Question 1?\nA: Thought 1. So the answer is: answer 1.")
    assert two.endswith("Q: Question 2?\nA: Thought 2. So the answer is: answer 2.")
    passages = "Wikipedia Title: Alder\nAlder wrote Birch.\n\nWikipedia Title: Birch\nBirch is a book of 1901."
    assert last == f"{passages}\n\nQ: When?\nA:"


def test_direct_demonstrations_hold_the_answer_alone() -> None:
    world = World(["."])
    written(world, case=replace(CASE, style="direct"))
    assert "Q: Question 1?\nA: answer 1\n" in world.prompts()[0]


def test_without_retrieval_demonstrations_show_no_passages() -> None:
    world = World(["."])
    written(world, replace(FEW_SHOT, distractors=None), replace(CASE, passages=()))
    assert "Wikipedia Title" not in world.prompts()[0]


def test_the_reply_ends_with_its_line() -> None:
    call = World([" text \nQ: next"])
    assert written(call).text == "text"
    [generate] = [each for each in call.calls if isinstance(each, Generate)]
    assert (generate.stop, generate.max_tokens, generate.prompt.form) == (("\n",), 40, "completion")


def test_a_prompt_that_fits_is_counted_once() -> None:
    world = World(["."])
    assert written(world, MANY).demonstrations == 9
    assert len([call for call in world.calls if isinstance(call, CountTokens)]) == 1


def test_passages_are_on_one_line() -> None:
    odd = Passage.of("Alder\n(poet)", "Alder  wrote\nBirch in 1901.")
    one, whole = FEW_SHOT.shorten([odd, ALDER])
    assert (one.title, one.text, one.id) == ("Alder (poet)", "Alder wrote Birch in 1901.", odd.id)
    assert whole == ALDER
    assert [passage.text for passage in replace(FEW_SHOT, passage_words=2).shorten([odd, ALDER])] == ["Alder wrote"] * 2


@pytest.mark.parametrize("shown", range(9))
def test_as_many_demonstrations_are_shown_as_fit_the_first_ones(shown: int) -> None:
    room = words(replace(MANY, labelled=MANY.labelled[:shown]))
    world = World(["."])
    reply = written(world, replace(MANY, context_limit=room + 40))
    assert reply.demonstrations == shown
    assert len(world.prompts()[0].split()) == room
    assert reply.flags == {}
    counted = [call for call in world.calls if isinstance(call, CountTokens)]
    assert len(counted) <= 5
    assert {call.role for call in counted} == {"agent"}


def test_passages_that_do_not_fit_are_left_out_from_the_end_and_counted() -> None:
    room = words(replace(FEW_SHOT, labelled=()), replace(CASE, passages=(ALDER,)))
    world = World(["."])
    reply = written(world, replace(FEW_SHOT, context_limit=room + 40))
    assert (reply.demonstrations, reply.flags) == (0, {"passages_dropped": 1})
    assert world.prompts() == [world.asked()[0]]
    assert "Alder" in world.prompts()[0]
    assert "Birch is" not in world.prompts()[0]


@pytest.mark.parametrize("shown", range(9))
def test_a_prompt_the_engine_refuses_is_made_smaller_and_flagged(shown: int) -> None:
    limit = words(replace(MANY, labelled=MANY.labelled[:shown]))
    world = World(["."], limit=limit)
    reply = written(world, MANY)
    assert (reply.demonstrations, reply.flags) == (shown, {"shortened_prompt": 1})
    assert len(world.prompts()) == 2


def test_an_engine_that_counts_more_than_it_told_is_asked_with_less_and_less() -> None:
    class Liar(World):
        def __call__(self, call: object) -> object:
            if isinstance(call, CountTokens):
                return 1
            return super().__call__(call)  # type: ignore[arg-type]

    world = Liar(["."], limit=words(replace(MANY, labelled=MANY.labelled[:2])))
    assert written(world, MANY).demonstrations <= 2


def test_a_question_that_does_not_fit_alone_is_an_error() -> None:
    world = World([], limit=2)
    with pytest.raises(PromptTooLong):
        written(world)
    assert len(world.prompts()) < 6


@pytest.mark.parametrize(
    ("reply", "style", "text", "flags"),
    [
        ("A is B. So the answer is: B.", "cot", "B", {}),
        ("The answer is not Elm. So the answer is: Birch.", "cot", "Birch", {}),
        ("A is B.", "cot", "A is B.", {"no_answer_marker": 1}),
        ("", "cot", "", {"no_answer_marker": 1, "empty_answer": 1}),
        ("So the answer is:", "cot", "", {"empty_answer": 1}),
        (" B \nQ: next", "direct", "B", {}),
        ("\n", "direct", "", {"empty_answer": 1}),
        (Completion("B and", "length"), "direct", "B and", {"truncated_answer": 1}),
    ],
)
def test_the_reader_takes_what_the_reply_states(
    reply: str | Completion, style: str, text: str, flags: dict[str, int]
) -> None:
    case = replace(CASE, style=style)  # type: ignore[arg-type]
    answer = drive(FEW_SHOT.answer(case, 40), World([reply]))
    assert (answer.text, answer.flags) == (text, flags)


@pytest.mark.parametrize(
    ("chain", "stated"),
    [
        ("So the answer is: 1901.", "1901"),
        ("So the answer is 1901", "1901"),
        ("THE ANSWER IS: No.", "No"),
        ("So the answer is: Birch.\n\nQ: Where?\nA: So the answer is: Elm.", "Birch"),
        ("Therefore the final answer is: St. Elm.", "St. Elm"),
        ("The answer isn't known.", None),
        ("Birch appeared in 1901.", None),
        ("", None),
    ],
)
def test_the_stated_answer(chain: str, stated: str | None) -> None:
    assert extract_answer(chain) == stated


@given(st.text() | st.lists(st.sampled_from(["So the answer is: ", "B", ". ", "\n", " Answer IS", "？"])).map("".join))
def test_a_stated_answer_is_never_made_up(chain: str) -> None:
    stated = extract_answer(chain)
    assert stated is None or stated in chain
    assert (stated is None) == ("answer is" not in chain.casefold()) or stated is None
