"""Answers in boxes."""

from __future__ import annotations

import pytest

from kgqa.methods.steps.boxed import read_boxed

BOXES = {
    "plain": (r"It is \boxed{Paris}.", "Paris"),
    "font": (r"\boxed{\text{Paris}}", "Paris"),
    "fonts": (r"\boxed{\text{\textbf{Paris}}}", "Paris"),
    "braces": (r"\boxed{a{b{X}}}", "a{b{X}}"),
    "last": (r"\boxed{Paris} or \boxed{Rome}", "Rome"),
    "empty-later": (r"\boxed{Paris}, in the form \boxed{}", "Paris"),
    "only-empty": (r"\boxed{ }", ""),
    "open": (r"\boxed{Paris", "Paris"),
    "open-braces": (r"\boxed{\text{Paris", r"\text{Paris"),
    "none": ("Paris", None),
}


@pytest.mark.parametrize(("text", "expected"), BOXES.values(), ids=BOXES)
def test_last_box_with_a_text_is_read(text: str, expected: str | None) -> None:
    assert read_boxed(text) == expected
