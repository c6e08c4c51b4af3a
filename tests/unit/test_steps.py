"""What `kgqa ask` quotes: the chain it shows, the sentence of each step, and whether a sentence says the answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.predictions import Prediction
from kgqa.artifacts.trace import Notes, TracedQuestion
from kgqa.errors import DataError
from kgqa.extras.documents.documents import KINDS, Documents
from kgqa.extras.documents.quotations import MAX_PASSAGES, best_sentence, is_quoted, quote_steps
from kgqa.types import Passage, Question

TOWNS = "# Towns\n\nOustry is a town. It lies on the Ambel, a river.\n\nSandrow has a bridge."


@pytest.fixture
def documents(tmp_path: Path) -> Documents:
    (tmp_path / "towns.md").write_text(TOWNS, encoding="utf-8")
    (tmp_path / "vall.txt").write_text(
        "Hesper Vall was born in Oustry.\nShe built a bridge.", encoding="utf-8"
    )
    return Documents((tmp_path,), KINDS, 500)


def traced(
    documents: Documents, answer: str, *chains: list[list[str]], evidence: tuple[str, ...] = ()
) -> TracedQuestion:
    question = Question("asked", "Which river?", (), documents.collection)
    notes: dict[str, Any] = {
        "chains": [{"score": -1.0, "ended": True, "triples": chain} for chain in chains]
    }
    return TracedQuestion(question, Prediction("asked", answer, evidence=evidence, notes=notes), ())


def test_likeliest_chain_with_the_answer_is_quoted(documents: Documents) -> None:
    towns, vall = documents.collection
    chain = [
        ["Hesper Vall", "born in", "Oustry", vall.id],
        ["Oustry", "lies on", "the Ambel", towns.id],
    ]
    first, second = quote_steps(traced(documents, "Ambel", chain), documents)
    assert (first.triple, first.sentence) == (
        ("Hesper Vall", "born in", "Oustry"),
        "Hesper Vall was born in Oustry.",
    )
    assert (first.line, second.line) == (1, 3)
    assert (second.sentence, second.where) == ("It lies on the Ambel, a river.", f"{second.file}:3")
    assert Path(second.file or "").name == "towns.md"
    steps = quote_steps(
        traced(documents, "Oustry", [["Hesper Vall", "born in", "Oustry", vall.id]]), documents
    )
    assert all(
        is_quoted(answer, steps) for answer in ("Oustry", "oustry.", "in Oustry", "yes", "No.")
    )
    assert not any(is_quoted(answer, steps) for answer in ("Oust", "", "Oustry in born"))
    without = [["Hesper Vall", "built", "a bridge", vall.id]]
    within = [["Hesper Vall", "born in", "Oustry", vall.id]]
    assert quote_steps(traced(documents, "oustry.", [], without, within), documents)[
        0
    ].triple == tuple(within[0][:3])
    assert quote_steps(traced(documents, "Ambe", [], without, within), documents)[
        0
    ].triple == tuple(without[0][:3])


def test_sentence_with_the_answer_is_the_last_step(
    documents: Documents,
) -> None:
    towns, vall = documents.collection
    chain = [["Hesper Vall", "built", "a bridge", vall.id]]
    read = quote_steps(
        traced(documents, "the Ambel", chain, evidence=(vall.id, towns.id)), documents
    )
    assert [step.sentence for step in read] == [
        "She built a bridge.",
        "It lies on the Ambel, a river.",
    ]
    assert (read[1].triple, read[1].line) == (None, 3)
    likest = quote_steps(
        traced(documents, "Oustry", chain, evidence=(towns.id, vall.id)), documents
    )
    assert [step.sentence for step in likest][1:] == ["Oustry is a town."]  # the first of equals
    without = [
        ("the Ambel", (vall.id,)),
        ("Merrin", (vall.id, towns.id)),
        ("a bridge", (towns.id,)),
    ]
    steps = [
        quote_steps(traced(documents, answer, chain, evidence=ids), documents)
        for answer, ids in without
    ]
    assert [len(each) for each in steps] == [1, 1, 1]


def test_sentence_chains_and_plain_evidence_are_quoted(documents: Documents) -> None:
    towns, vall = documents.collection
    (sentence,) = quote_steps(
        traced(documents, "x", [["Sandrow has a bridge.", towns.id]]), documents
    )
    assert (sentence.triple, sentence.sentence) == (None, "Sandrow has a bridge.")
    read = quote_steps(
        traced(documents, "river", evidence=(towns.id, vall.id, "elsewhere")), documents
    )
    assert [step.sentence for step in read] == [
        "It lies on the Ambel, a river.",
        "Hesper Vall was born in Oustry.",
    ]
    many = tuple([towns.id] * (MAX_PASSAGES + 1))
    assert len(quote_steps(traced(documents, "river", evidence=many), documents)) == MAX_PASSAGES


def test_quote_is_a_row_or_the_first_sentence() -> None:
    table = Passage.of(
        "t", "Table 1\n| Year | Flow |\n| 1900 | 3 |\n| 2000 | 8 |", place="table 1 page 2"
    )
    assert best_sentence(table, {"2000": 1}) == "| 2000 | 8 |"
    assert best_sentence(Passage.of("t", "One. Two."), {}) == "One."
    assert best_sentence(Passage.of("t", ""), {"one": 1}) == ""
    text = "The lighthouse of Korrin Head was built in 1884. Its lamp was made by the Brandel glassworks in Oustry."
    passage = Passage.of("a", text)
    triple = [
        "The lighthouse of Korrin Head",
        "lamp manufacturer",
        "Brandel glassworks in Oustry",
        passage.id,
    ]
    question = Question("asked", "Who?", (), (passage,))
    notes = {"chains": [{"triples": [triple]}]}
    none = Documents((Path(__file__).parents[1] / "e2e",), (".none",), 500)
    vars(none).update(collection=(), files={})
    (step,) = quote_steps(TracedQuestion(question, Prediction("asked", "x", notes=notes), ()), none)
    assert step.sentence == "Its lamp was made by the Brandel glassworks in Oustry."
    assert (step.file, step.where) == (None, "a")


def test_quotation_has_no_heading_of_markdown() -> None:
    passage = Passage.of("notes", "# Karl Dittmar\nKarl Dittmar was born in Gera. He painted.")
    assert best_sentence(passage, {"karl": 1, "gera": 1}) == "Karl Dittmar was born in Gera."


WHO = Question("q1", "Who?", ("Ann",), ())


def test_a_note_of_another_shape_is_one_line() -> None:
    listed: list[tuple[dict[str, Any], str]] = [
        ({"chains": 3}, "question q1: its notes: chains=3 is not a valid list"),
        ({"chains": ["x"]}, "chains.0='x'"),
        ({"chains": [{"score": 1, "ended": True, "triples": [[]]}]}, "chains.0.triples.0=[]"),
        ({"thoughts": [1]}, "thoughts.0=1 is not a valid string"),
    ]
    for notes, message in listed:
        with pytest.raises(DataError, match=re.escape(message)):
            Notes.of(TracedQuestion(WHO, Prediction("q1", "Ann", None, (), notes=notes), ()))
    # notes that are not shown may be anything
    chain = {"score": float("-inf"), "ended": False, "triples": [["a", "b", "c", "p1"]]}
    walk = TracedQuestion(
        WHO, Prediction("q1", "Ann", None, (), notes={"chains": [chain], "else": object()}), ()
    )
    assert Notes.of(walk).chains[0].triples == (("a", "b", "c", "p1"),)
