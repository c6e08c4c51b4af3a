"""Answers as models write them: one table of forms for every method."""

from __future__ import annotations

from typing import Any

import pytest

from kgqa.methods.safe import read_answer
from kgqa.methods.steps.knowtrace_replies import read_exploration
from kgqa.methods.steps.reader import read
from kgqa.methods.steps.replies import read_conclusion
from kgqa.testing import drive
from kgqa.types import Completion
from tests.baselines_world import QUESTION, World

LABELLED = [
    "Answer: Gorm", "answer: Gorm", "**Answer:** Gorm", "**Answer**: Gorm", "**Answer: Gorm**", "Final answer: Gorm",
    "**Final Answer:** Gorm", "The final answer is: Gorm", "The answer is Gorm", "So the answer is: Gorm",
    "So, the answer is **Gorm**", "### Answer: Gorm", "- Answer: Gorm", "Answer:\nGorm",
]  # fmt: skip
INLINE = ["She was born there, so the answer is: Gorm.", "Thus, the answer is Gorm."]


@pytest.mark.parametrize("form", LABELLED + INLINE)
def test_chains_of_thought_state_an_answer_in_any_of_these_forms(form: str) -> None:
    answer, is_marked = read_conclusion(f"Ada Holm wrote it.\n{form}\n")
    assert (answer.strip("*"), is_marked) == ("Gorm", True)


@pytest.mark.parametrize("form", LABELLED + INLINE)
@pytest.mark.parametrize("start", [" Yes\nThought: Holm wrote it.\n", " Yes. Holm wrote it.\n", "Holm wrote it.\n"])
def test_an_exploration_concludes_in_any_of_these_forms(start: str, form: str) -> None:
    exploration = read_exploration(start + form)
    assert exploration.sufficient
    assert exploration.answer.strip("*") == "Gorm"
    assert exploration.thought.startswith("Holm wrote it.")


@pytest.mark.parametrize("form", ["Gorm", *(form for form in LABELLED if "\n" not in form)])
def test_zero_shot_readers_and_safe_drop_the_label(form: str) -> None:
    def reply(call: Any) -> Any:
        return Completion(form)

    assert drive(read(QUESTION, "", (), 25), reply).text.strip("*") == "Gorm"
    assert read_answer(Completion(form))[0].strip("*") == "Gorm"


@pytest.mark.parametrize("form", [form for form in LABELLED if "\n" not in form])
def test_self_ask_concludes_in_any_of_these_forms(form: str) -> None:
    answer = World(" Who wrote it?\n", f" Ada Holm\n{form}").answer("self_ask")
    assert (answer.text.strip("*"), answer.flags) == ("Gorm", {})


@pytest.mark.parametrize("text", ["", "Gorm", "The answer to all questions", "He answered: yes", "Answerable: no"])
def test_the_last_line_is_the_answer_if_none_is_marked(text: str) -> None:
    assert read_conclusion(text) == (text, False)
