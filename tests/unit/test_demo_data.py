"""The hand-made demo questions keep the promises that runs without a network rely on."""

import importlib.resources
import json

DEMO = importlib.resources.files("kgqa") / "datasets" / "demo.jsonl"
QUESTIONS = [json.loads(line) for line in DEMO.read_text(encoding="utf-8").splitlines()]


def test_the_demo_as_a_whole() -> None:
    steps = [step["id"] for question in QUESTIONS for step in question["question_decomposition"]]
    assert len(QUESTIONS) == len({question["id"] for question in QUESTIONS}) >= 30
    assert len(set(steps)) == len(steps)
    assert {len(question["question_decomposition"]) for question in QUESTIONS} == {2, 3, 4}
    assert {question["type"] for question in QUESTIONS} == {"bridge", "comparison"}
    assert len({paragraph["title"] for question in QUESTIONS[:3] for paragraph in question["paragraphs"]}) <= 12
    texts = {(each["title"], each["paragraph_text"]) for question in QUESTIONS for each in question["paragraphs"]}
    assert len(texts) == len({title for title, _ in texts})


def test_a_question_of_the_demo() -> None:
    for question in QUESTIONS:
        paragraphs, steps = question["paragraphs"], question["question_decomposition"]
        assert 8 <= len(paragraphs) <= 10
        assert [paragraph["idx"] for paragraph in paragraphs] == list(range(len(paragraphs)))
        supporting = [paragraph["idx"] for paragraph in paragraphs if paragraph["is_supporting"]]
        assert supporting == sorted(step["paragraph_support_idx"] for step in steps)
        texts = [paragraphs[step["paragraph_support_idx"]]["paragraph_text"] for step in steps]
        assert all(step["answer"] in text for step, text in zip(steps, texts, strict=True))
        assert question["answer"] in {"yes", "no"} or any(question["answer"] in text for text in texts)
        assert question["id"].startswith(f"{len(steps)}hop")
