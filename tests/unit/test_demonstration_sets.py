"""Which questions of a pool are shown: random samples of ours, the authors' three sets of theirs; and who says it."""

from __future__ import annotations

import json
import os
from importlib.resources import files
from itertools import combinations
from pathlib import Path

import pytest

from kgqa.config.building import build
from kgqa.config.composing import compose
from kgqa.datasets.demonstrations import load_thoughts
from kgqa.prompting.demonstrations import demonstration_set, describe_set

RELEASED = Path(os.environ.get("KGQA_DATA", "data")) / "demonstrations" / "ircot_prompts.json.gz"
SETS = json.loads((files("kgqa") / "demos" / "ircot_sets.json").read_text("utf-8"))
released = pytest.mark.skipif(not RELEASED.is_file(), reason="IRCoT's prompts are not in KGQA_DATA")


def test_three_sets_of_fifteen_differ_and_keep_the_files_order() -> None:
    labelled = load_thoughts("musique")
    sets = [demonstration_set(labelled, number, 15) for number in (1, 2, 3)]
    for one in sets:
        assert len(one) == 15
        assert list(one) == [each for each in labelled if each in one]
    assert all(set(one) != set(other) for one, other in combinations([{d.question for d in s} for s in sets], 2))
    assert demonstration_set(labelled, 1, 15) == sets[0]
    assert demonstration_set(labelled, 1, 99) == labelled
    assert demonstration_set(labelled, 1, 0) == ()
    assert describe_set(labelled, 2, 15) == "15 of 20 questions, random sample 2"


# the first and the last question of each set of run.py, and how many of its fifteen the released prompts have
EXPECTED = [
    ("hotpotqa", 1, "5abb14bd5542992ccd8e7f07", "5a790e7855429970f5fffe3d", 15),
    ("hotpotqa", 3, "5a89d58755429946c8d6e9d9", "5adfad0c554299603e41835a", 15),
    ("2wikimultihopqa", 2, "c6805b2908a911ebbd80ac1f6bf848b6", "c6f63bfb089e11ebbd78ac1f6bf848b6", 15),
    ("musique", 1, "2hop__804754_52230", "4hop3__463724_100414_35260_54090", 15),
    ("iirc", 1, "q_9591", "q_389", 9),
    ("iirc", 2, "q_2466", "q_389", 7),
]


@released
@pytest.mark.parametrize(("name", "number", "first", "last", "count"), EXPECTED)
def test_the_authors_set_is_shown_in_its_order(name: str, number: int, first: str, last: str, count: int) -> None:
    labelled = load_thoughts(f"{RELEASED}#{name}")
    shown = demonstration_set(labelled, number, 15)
    by_place = {each.places[number]: each for each in labelled if number in each.places}
    ids = SETS[name][number - 1]
    assert len(shown) == count
    assert (shown[0], shown[-1]) == (by_place[ids.index(first)], by_place[ids.index(last)])
    assert demonstration_set(labelled, number, 4) == shown[:4]


@released
@pytest.mark.parametrize(
    ("name", "count", "said"),
    [
        ("hotpotqa", 15, "15 of the 15 questions of the authors' set 1"),
        ("hotpotqa", 4, "4 of the 15 questions of the authors' set 1"),
        ("iirc", 15, "9 of the 15 questions of the authors' set 1, 9 of which the file has"),
    ],
)
def test_a_method_says_which_questions_it_shows(name: str, count: int, said: str) -> None:
    where = f"{RELEASED}#{name}"
    changes = [f'method.few_shot_path="{where}"', f"method.demonstration_count={count}"]
    for method in ("ircot", "retrieve_read", "iter_retgen"):
        built = build(compose([f"method={method}", *changes])["method"], "method")
        assert built.shows == f"{where}: {said}"
