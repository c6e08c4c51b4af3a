"""Answers are found in the forms that current models write."""

from __future__ import annotations

import pytest

from kgqa.methods.steps.knowtrace_graph import Pair, read_exploration
from kgqa.methods.steps.replies import find_answer, read_conclusion, read_first_answer
from kgqa.scoring.normalization import normalize
from kgqa.types import Completion

FORMS = [
    "Oslo",
    "Oslo.",
    "**Oslo**",
    '"Oslo"',
    "`Oslo`",
    "Oslo</s>",
    "Oslo<|im_end|>",
    "Answer: Oslo",
    "Answer: Oslo<|eot_id|>",
    "Answer:\nOslo",
    "**Answer:** Oslo",
    "**Answer**: Oslo",
    "Answer: **Oslo**",
    "Answer: The answer is Oslo",
    "Answer: The final answer is Oslo.",
    "Final answer: Oslo",
    "**Final Answer:** Oslo",
    "### Final Answer\nOslo",
    "The answer is Oslo.",
    "The answer is: Oslo",
    "The final answer is Oslo.",
    "So the answer is: Oslo.",
    "So the answer is **Oslo**.",
    r"\boxed{Oslo}",
    r"$\boxed{Oslo}$",
    r"The final answer is $\boxed{Oslo}$",
    r"The final answer is: $\boxed{\text{Oslo}}$.",
    r"Answer: \boxed{\text{\textbf{Oslo}}}",
    "<answer>Oslo</answer>",
    "<answer> Oslo </answer>",
    r"<answer>\boxed{Oslo}</answer>",
    '{"answer": "Oslo"}',
    '{"reasoning": "It is the capital.", "answer": "Oslo"}',
    '```json\n{"answer": "Oslo"}\n```',
    '{\n  "final_answer": "Oslo"\n}',
]
AFTER_REASONING = [
    "Answer: Let me think.\nFinal answer: Oslo",
    "Let me think. The capital is meant.\n\n<answer>Oslo</answer>",
    "Let me think. The capital is meant.\n\n\\boxed{Oslo}",
    "The capital is meant.\n\n**Final Answer**\n\\[\\boxed{Oslo}\\]",
]


def texts(reply: str) -> dict[str, str]:
    """Return the answer of a reader without reasoning, and that of a method with reasoning."""
    return {
        "reader": read_first_answer(Completion(reply))[0],
        "conclusion": read_conclusion(reply)[0],
    }


@pytest.mark.parametrize("reply", [*FORMS, *AFTER_REASONING])
def test_usual_forms_are_read(reply: str) -> None:
    assert {name: normalize(text) for name, text in texts(reply).items()} == {
        "reader": "oslo",
        "conclusion": "oslo",
    }


@pytest.mark.parametrize(
    "reply",
    [
        "Thought: It is the capital.\nAnswer: Oslo",
        "It is the capital. Answer: Oslo",
        "Based on the passages, the answer is Oslo.",
        "Answer: Bergen is not meant.\nThe final answer is Oslo.\nFinal answer: Oslo",
    ],
)
def test_conclusions_are_read_after_reasoning(reply: str) -> None:
    assert normalize(read_conclusion(reply)[0]) == "oslo"


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("Oslo\n\nQuestion: Who wrote it?\nAnswer: Ada Holm", "Oslo"),
        ("Answer: {curly} Sue", "{curly} Sue"),
        ("The Answer Man", "The Answer Man"),
        ('{"title": "Oslo"}', '{"title": "Oslo"}'),
        ("Final Answer", "Final Answer"),
        ("", ""),
    ],
)
def test_other_texts_stay_as_they_are(reply: str, answer: str) -> None:
    assert read_first_answer(Completion(reply)) == (answer, False)


def test_answer_within_a_line_excludes_titles() -> None:
    assert find_answer("It lies in Norway. Answer: Oslo") == "Oslo"
    assert find_answer("The film Question and Answer: A Life is Norwegian") == ""


def test_exploration_on_one_line_has_its_answer() -> None:
    exploration = read_exploration(" Yes. Thought: Gorm lives in Norway. Answer: Oslo")
    assert (exploration.sufficient, exploration.thought, exploration.answer) == (
        True,
        "Gorm lives in Norway.",
        "Oslo",
    )


@pytest.mark.parametrize(
    "line",
    [
        "- Gorm, mother",
        "- Gorm - mother",
        "- Gorm → mother",
        "- (Gorm, mother)",
        "1. Gorm -> mother",
    ],
)
def test_listed_pairs_need_no_semicolon(line: str) -> None:
    assert read_exploration(f" No\nExplore:\n{line}").pairs == (Pair("Gorm", "mother"),)


def test_commas_of_names_do_not_separate() -> None:
    assert read_exploration(" No\nExplore:\n- Paris, Texas; population").pairs == (
        Pair("Paris, Texas", "population"),
    )
    assert read_exploration(" No\nExplore:\n- Paris, Texas, population").malformed == 1
