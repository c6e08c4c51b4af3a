"""ERA-CoT as its paper has it: entities with types, so many implied relations a pair, each scored."""

from __future__ import annotations

from tests.unit.test_knowtrace_baselines import World


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
