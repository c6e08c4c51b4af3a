"""The hand-made demo questions keep the promises that runs without a network rely on."""

import importlib.resources
import json
from typing import TypedDict, cast


class Paragraph(TypedDict):
    idx: int
    title: str
    paragraph_text: str
    is_supporting: bool


class Step(TypedDict):
    id: int
    answer: str
    paragraph_support_idx: int


class Question(TypedDict):
    id: str
    answer: str
    paragraphs: list[Paragraph]
    question_decomposition: list[Step]
    type: str


DEMO = importlib.resources.files("kgqa") / "datasets" / "demo.jsonl"
LINES = DEMO.read_text(encoding="utf-8").splitlines()
QUESTIONS = [cast(Question, json.loads(line)) for line in LINES]


def test_the_demo_has_at_least_thirty_questions_with_unique_ids() -> None:
    steps = [step["id"] for question in QUESTIONS for step in question["question_decomposition"]]
    assert len(QUESTIONS) >= 30
    assert len({question["id"] for question in QUESTIONS}) == len(QUESTIONS)
    assert len(set(steps)) == len(steps)


def test_every_demo_question_has_eight_to_ten_paragraphs_numbered_by_position() -> None:
    for question in QUESTIONS:
        numbers = [paragraph["idx"] for paragraph in question["paragraphs"]]
        assert 8 <= len(numbers) <= 10, question["id"]
        assert numbers == list(range(len(numbers))), question["id"]


def test_exactly_the_paragraphs_of_the_decomposition_are_supporting() -> None:
    for question in QUESTIONS:
        flagged = [paragraph["idx"] for paragraph in question["paragraphs"] if paragraph["is_supporting"]]
        steps = question["question_decomposition"]
        assert flagged == sorted(step["paragraph_support_idx"] for step in steps), question["id"]


def test_answers_stand_word_for_word_in_supporting_paragraphs_unless_yes_or_no() -> None:
    for question in QUESTIONS:
        supports: list[str] = []
        for step in question["question_decomposition"]:
            supports.append(question["paragraphs"][step["paragraph_support_idx"]]["paragraph_text"])
            assert step["answer"] in supports[-1], question["id"]
        if question["answer"] not in {"yes", "no"}:
            assert any(question["answer"] in text for text in supports), question["id"]


def test_demo_questions_take_the_two_to_four_hops_that_their_ids_say() -> None:
    hops = {question["id"]: len(question["question_decomposition"]) for question in QUESTIONS}
    assert set(hops.values()) == {2, 3, 4}
    assert all(name.startswith(f"{count}hop") for name, count in hops.items())


def test_the_demo_holds_bridge_and_comparison_questions() -> None:
    assert {question["type"] for question in QUESTIONS} == {"bridge", "comparison"}


def test_the_first_three_questions_share_at_most_twelve_paragraphs() -> None:
    titles = {paragraph["title"] for question in QUESTIONS[:3] for paragraph in question["paragraphs"]}
    assert len(titles) <= 12


def test_a_title_always_comes_with_the_same_text() -> None:
    paragraphs = [paragraph for question in QUESTIONS for paragraph in question["paragraphs"]]
    texts = {(paragraph["title"], paragraph["paragraph_text"]) for paragraph in paragraphs}
    assert len(texts) == len({paragraph["title"] for paragraph in paragraphs})
