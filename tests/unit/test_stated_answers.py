"""Answers of the data sets that hold what ends a sentence elsewhere: a chain of thought states them whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kgqa.methods.steps.few_shot import extract_answer
from kgqa.types import Completion
from tests.thoughts_world import ALDER, IRCOT, WROTE, World

# gold answers of HotpotQA, 2Wiki, MuSiQue and IIRC: of questions, of hops, and aliases
REAL = [
    '"Archibald, certainly not!"',
    "$1.18 trillion",
    "10,310,371 (2016 est.)",
    "207.77 million people",
    "3 A.M.",
    "3 a.m.",
    "48.8 percent",
    "5.1",
    "6.21 e6hL",
    "6.8 inches",
    "69.7 million litres",
    "A Nightmare On Elm Street 4: The Dream Master",
    "A. Jagannathan",
    "A. P. J. Abdul Kalam",
    "A.P.J. Abdul Kalam",
    "ADM Michael S. Rogers",
    "B. Reeves Eason",
    "Carlos F. Borcosque",
    "Confederate Gen. John Bell Hood",
    "Dec. 10, 1817",
    "Edward F. Cline",
    "Fred M. Wilcox",
    "Ft. Worth",
    "G. Stanley Hall",
    "Glenn L. Martin Company",
    "Godspeed You! Black Emperor",
    "Grete L. Bibring",
    "Hank Williams, Jr.",
    "Harvest: 3,000 Years",
    "Hurricane No. 1",
    "J. R. R. Tolkien",
    "James K. Polk",
    "John R. Gunn",
    "L.A. Zombie",
    "Louis J. Gasnier",
    "M. G. Ramachandran",
    "M. Night Shyamalan",
    "Mr. Lawrence",
    "No. 5",
    "Oriole Records.",
    "Philip K. Dick",
    "Sooraj R. Barjatya",
    "The Operation M.D.",
    "Theodor W. Adorno",
    "U.S",
    "U.S.",
    "W. S. Van Dyke",
    "Walt Disney Pictures.",
    "Waylon J. Smithers Jr.",
    "What Ever Happened to Baby Jane?",
    'under "North Africa."',
]
FORMS = ["So the answer is: {}.", "Thus, the answer is {}.", "He met Dr. Fir in 1.5 hours. So the answer is: {}."]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("answer", REAL)
def test_a_real_answer_is_stated_whole(answer: str, form: str) -> None:
    assert extract_answer(form.format(answer)) == answer


@pytest.mark.parametrize("answer", REAL)
def test_a_thought_states_a_real_answer_whole(answer: str) -> None:
    world = World([WROTE, f"So the answer is: {answer}."], {"": (ALDER,)})
    stated = world.answer(replace(IRCOT, reader="none"))
    assert (stated.text, stated.flags) == (answer, {})


def test_a_thought_cut_within_its_answer_is_flagged() -> None:
    world = World([Completion("So the answer is: J. R. R. Tol", "length")], {"": (ALDER,)})
    assert world.answer(replace(IRCOT, reader="none")).flags == {"truncated_thought": 1}
