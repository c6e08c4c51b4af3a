"""What a selector tells of its options beside its habit for letters."""

from __future__ import annotations

import pytest

from scripts.selector_reading import RANKED, READ, TOLD, ahead, reading


def test_a_habit_for_letters_tells_nothing_once_it_is_taken_off() -> None:
    habit = (0.6, 0.3, 0.1)
    first, last = (True, False, False), (False, False, True)
    read = reading({name: list(zip(gold, habit, strict=True)) for name, gold in (("a", first), ("b", last))})
    assert read["a"] == pytest.approx({RANKED: 1.0, TOLD: 1.0, READ: 0.5})
    assert read["b"] == pytest.approx({RANKED: 0.0, TOLD: 0.0, READ: 0.5})


def test_what_comes_from_the_texts_is_left() -> None:
    read = reading({"a": [(False, 0.6), (True, 0.4)], "b": [(True, 0.8), (False, 0.2)]})
    assert [read[name][READ] for name in "ab"] == [1.0, 1.0]
    assert read["a"][TOLD] == 0.0  # the first letter's habit hides it


def test_choices_of_one_kind_tell_nothing_and_lengths_may_differ() -> None:
    read = reading({"a": [(True, 0.9), (True, 0.1)], "b": [(True, 0.5), (False, 0.3), (False, 0.2)]})
    assert list(read) == ["b"]


def test_ties_count_half() -> None:
    assert ahead([True, False, False], [1.0, 1.0, 0.0]) == 0.75
