"""ERA-CoT as its paper has it: entities with types, so many implied relations a pair, each scored."""

from __future__ import annotations

import pytest

from kgqa.methods.steps.replies import read_score
from tests.baselines_world import QUESTION, REED, World


def test_entities_are_asked_for_with_their_types_and_shown_with_them() -> None:
    world = World("Reed Lake (work)\n- Ada Holm (person)", "Reed Lake; by; Ada Holm>", "none", "\nAnswer: Gorm")
    answer = world.answer("era_cot", entity_types=("person", "work"))
    assert "with its type in parentheses: person, work." in world.prompts[0].prompt.messages[0].content
    assert answer.notes["entities"] == ["Reed Lake (work)", "Ada Holm (person)"]
    for call in world.prompts[1:]:
        assert "Entities: Reed Lake (work), Ada Holm (person)" in call.prompt.messages[0].content


def test_each_pair_of_entities_has_a_number_of_implied_relations_and_all_pairs_together_any() -> None:
    between = "\n".join(f"<A; relation {number}; B>\n<b; relation {number}; a>" for number in range(3))
    others = "\n".join(f"<entity {number}; relation; C>" for number in range(30))
    world = World("A (person)", "", f"{between}\n{others}", *["9"] * 32, "\nAnswer: Gorm")
    answer = world.answer("era_cot", relations_per_pair=2)
    assert "at most 2 for each pair" in world.prompts[2].prompt.messages[0].content
    assert [relation for relation, _ in answer.notes["implicit"]][:3] == [
        "<A; relation 0; B>",
        "<b; relation 0; a>",
        "<entity 0; relation; C>",
    ]
    assert answer.figures["implicit"] == 32
    assert answer.flags == {"too_many_relations": 4}


def test_era_cot_goes_through_its_five_stages() -> None:
    world = World(
        " Reed Lake\n- Ada Holm\n- Gorm",  # the prompt ends with the first mark, here
        "Reed Lake; by; Ada Holm>\n<Gorm; twinned with; Reed>",  # and here
        "<Reed Lake's author; born in; Gorm>\n<Gorm; capital of; Reed>\n<Reed Lake; by; Ada Holm>",
        " 8",
        " 2",
        " It follows.\nAnswer: Gorm",
    )
    answer = world.answer("era_cot")
    assert world.calls == [f"search {QUESTION.text}", "entities", "explicit", "implicit", "score", "score", "answer"]
    final = world.prompts[-1].prompt.messages[0].content
    assert "<Reed Lake's author; born in; Gorm>" in final
    assert "capital of" not in final  # scored below the threshold
    once = len(f"Title: {REED.title} {REED.text}".split())
    assert answer.figures == {"entities": 3, "explicit": 2, "implicit": 1, "passage_tokens": 6 * once}
    assert answer.context_tokens == once
    assert answer.text == "Gorm"


def test_era_cot_drops_a_relation_whose_score_cannot_be_read() -> None:
    world = World("- A", "", "<A; r; B>", " very", "\nAnswer: Gorm")
    answer = world.answer("era_cot")
    assert answer.figures["implicit"] == 0
    assert answer.flags == {"unreadable_score": 1}


@pytest.mark.parametrize(
    ("text", "score"),
    [(" 10", 10), ("8.", 8), ("10.", 10), ("7/10", 7), ("**9**", 9), ("Score: 6", 6), ("8.5", 8.5), ("9.0", 9)],
)
def test_a_score_is_read_as_models_write_it(text: str, score: float) -> None:
    assert read_score(text) == score


@pytest.mark.parametrize("text", ["100", "10.5", "-1", "11/10", "x", "", "The relation is 8"])
def test_what_is_no_number_from_0_to_10_is_no_score(text: str) -> None:
    assert read_score(text) is None
