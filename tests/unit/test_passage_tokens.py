"""#Tok of KnowTrace's Table 2: the tokens of passages that a model processed, in all calls that show them."""

from __future__ import annotations

from kgqa.experiment.reproduce.reading import load_table
from kgqa.experiment.run.answering import without_tokens
from kgqa.types import Answer
from tests.thoughts_world import ALDER, BIRCH, CEDAR, CONCLUDED, IRCOT, WROTE, World


def words(*passages: object) -> int:
    return sum(len(f"Title: {p.title} {p.text}".split()) for p in passages)  # type: ignore[attr-defined]


def test_ircot_counts_the_passages_of_each_thought_and_of_the_reader() -> None:
    answer = World([WROTE, CONCLUDED, "1901"], {"wrote": (BIRCH,), "": (ALDER, CEDAR)}).answer(IRCOT)
    assert answer.figures == {"passage_tokens": words(ALDER, CEDAR) + 2 * words(ALDER, CEDAR, BIRCH)}
    assert answer.context_tokens == words(ALDER, CEDAR, BIRCH)


def test_the_table_compares_this_figure() -> None:
    table = load_table("knowtrace/table2")
    assert {metric.name: metric.path for metric in table.metrics}["Tok"] == "figures.passage_tokens"


def test_estimated_tokens_are_not_reported() -> None:
    answer = Answer("Gorm", context_tokens=5, figures={"passage_tokens": 5, "pairs": 2})
    assert without_tokens(answer) == Answer("Gorm", figures={"pairs": 2})
