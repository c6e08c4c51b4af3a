"""How far prompts begin alike."""

from __future__ import annotations

import pytest

from scripts.shared_prompts import BLOCK, shares


def test_what_begins_alike_is_counted_in_whole_blocks_and_lines_that_come_again_beside_it() -> None:
    shared, line = "a" * BLOCK + "b" * BLOCK, "c" * (BLOCK - 1)
    first = f"{shared}{'d' * BLOCK}\n{line}\n"
    second = f"{shared}{'e' * BLOCK}\n{line}\n"
    count, alike, later = shares([first, second])
    assert count == 2
    whole = len(first) + len(second)
    assert alike == pytest.approx(100 * 2 * BLOCK / whole)
    assert later == pytest.approx(100 * (len(line) + 1 + 1) / whole)


def test_a_beginning_is_found_in_any_earlier_prompt_and_not_from_the_middle_on() -> None:
    one, other = "x" * 2 * BLOCK, "y" * BLOCK + "x" * BLOCK
    _, alike, _ = shares([one, other, one])
    assert alike == pytest.approx(100 * len(one) / (2 * len(one) + len(other)))
