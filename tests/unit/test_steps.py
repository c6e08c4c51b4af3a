"""What `kgqa ask` quotes: the chain it shows, the sentence of each step, and whether a sentence says the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.predictions import Prediction
from kgqa.artifacts.trace import TracedQuestion
from kgqa.datasets.documents import KINDS, Documents
from kgqa.report.steps import MAX_PASSAGES, best_sentence, is_quoted, quote_steps
from kgqa.types import Passage, Question

TOWNS = "# Towns\n\nOustry is a town. It lies on the Ambel, a river.\n\nSandrow has a bridge."


@pytest.fixture
def documents(tmp_path: Path) -> Documents:
    (tmp_path / "towns.md").write_text(TOWNS, encoding="utf-8")
    (tmp_path / "vall.txt").write_text("Hesper Vall was born in Oustry.\nShe built a bridge.", encoding="utf-8")
    return Documents((tmp_path,), KINDS, 500)


def traced(
    documents: Documents, answer: str, *chains: list[list[str]], evidence: tuple[str, ...] = ()
) -> TracedQuestion:
    question = Question("asked", "Which river?", (), documents.collection)
    notes: dict[str, Any] = {"chains": [{"score": -1.0, "ended": True, "triples": chain} for chain in chains]}
    return TracedQuestion(question, Prediction("asked", answer, evidence=evidence, notes=notes), ())


def test_each_triple_of_the_chain_has_its_sentence_and_line(documents: Documents) -> None:
    towns, vall = documents.collection
    chain = [["Hesper Vall", "born in", "Oustry", vall.id], ["Oustry", "lies on", "the Ambel", towns.id]]
    first, second = quote_steps(traced(documents, "Ambel", chain), documents)
    assert (first.triple, first.sentence) == (("Hesper Vall", "born in", "Oustry"), "Hesper Vall was born in Oustry.")
    assert (first.line, second.line) == (1, 3)
    assert second.sentence == "It lies on the Ambel, a river."
    assert second.where == f"{second.file}:3"
    assert Path(second.file or "").name == "towns.md"


def test_of_several_chains_the_likeliest_that_holds_the_answer_is_told(documents: Documents) -> None:
    towns, vall = documents.collection
    without = [["Hesper Vall", "built", "a bridge", vall.id]]
    within = [["Hesper Vall", "born in", "Oustry", vall.id]]
    assert quote_steps(traced(documents, "oustry.", [], without, within), documents)[0].triple == tuple(within[0][:3])
    assert quote_steps(traced(documents, "Ambe", [], without, within), documents)[0].triple == tuple(without[0][:3])
    assert towns.id != vall.id


def test_where_no_link_says_the_answer_a_sentence_of_the_evidence_that_does_is_the_last_step(
    documents: Documents,
) -> None:
    towns, vall = documents.collection
    chain = [["Hesper Vall", "built", "a bridge", vall.id]]
    read = quote_steps(traced(documents, "the Ambel", chain, evidence=(vall.id, towns.id)), documents)
    assert [step.sentence for step in read] == ["She built a bridge.", "It lies on the Ambel, a river."]
    assert (read[1].triple, read[1].line) == (None, 3)
    likest = quote_steps(traced(documents, "Oustry", chain, evidence=(towns.id, vall.id)), documents)
    assert [step.sentence for step in likest][1:] == ["Oustry is a town."]  # the first of equals
    for answer, evidence in (("the Ambel", (vall.id,)), ("Merrin", (vall.id, towns.id)), ("a bridge", (towns.id,))):
        assert len(quote_steps(traced(documents, answer, chain, evidence=evidence), documents)) == 1


def test_a_chain_of_sentences_and_evidence_without_chains_are_quoted(documents: Documents) -> None:
    towns, vall = documents.collection
    (sentence,) = quote_steps(traced(documents, "x", [["Sandrow has a bridge.", towns.id]]), documents)
    assert (sentence.triple, sentence.sentence) == (None, "Sandrow has a bridge.")
    read = quote_steps(traced(documents, "river", evidence=(towns.id, vall.id, "elsewhere")), documents)
    assert [step.sentence for step in read] == ["It lies on the Ambel, a river.", "Hesper Vall was born in Oustry."]
    many = tuple([towns.id] * (MAX_PASSAGES + 1))
    assert len(quote_steps(traced(documents, "river", evidence=many), documents)) == MAX_PASSAGES


def test_of_a_table_a_row_is_quoted_and_of_equal_sentences_the_first() -> None:
    table = Passage.of("t", "Table 1\n| Year | Flow |\n| 1900 | 3 |\n| 2000 | 8 |", place="table 1 page 2")
    assert best_sentence(table, {"2000": 1}) == "| 2000 | 8 |"
    assert best_sentence(Passage.of("t", "One. Two."), {}) == "One."
    assert best_sentence(Passage.of("t", ""), {"one": 1}) == ""


def test_an_answer_stands_in_a_sentence_word_for_word(documents: Documents) -> None:
    _, vall = documents.collection
    steps = quote_steps(traced(documents, "Oustry", [["Hesper Vall", "born in", "Oustry", vall.id]]), documents)
    assert all(is_quoted(answer, steps) for answer in ("Oustry", "oustry.", "in Oustry", "yes", "No."))
    assert not any(is_quoted(answer, steps) for answer in ("Oust", "", "Oustry in born"))


def test_the_sentence_of_the_tail_is_quoted_where_another_has_the_head() -> None:
    text = "The lighthouse of Korrin Head was built in 1884. Its lamp was made by the Brandel glassworks in Oustry."
    passage = Passage.of("a", text)
    triple = ["The lighthouse of Korrin Head", "lamp manufacturer", "Brandel glassworks in Oustry", passage.id]
    question = Question("asked", "Who?", (), (passage,))
    notes = {"chains": [{"triples": [triple]}]}
    none = Documents((Path(__file__).parents[1] / "e2e",), (".none",), 500)
    vars(none).update(collection=(), files={})
    (step,) = quote_steps(TracedQuestion(question, Prediction("asked", "x", notes=notes), ()), none)
    assert step.sentence == "Its lamp was made by the Brandel glassworks in Oustry."
    assert (step.file, step.where) == (None, "a")
