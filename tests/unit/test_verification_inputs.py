"""What a verification starts from: the answers that paths are looked for to, and lists of flagged questions."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgqa.artifacts.verdicts import VerifiedQuestion
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.experiment import Experiment
from kgqa.report.training import Published, verification_sections
from kgqa.training.verify import choose_answers, match_lines, read_list, summarize, verify_by_list
from kgqa.types import Question


def _question(number: int, *answers: str, gold: bool = True) -> Question:
    return Question(f"q{number}", f"What is  {number}?", answers, support=frozenset({"p"} if gold else ()))


def test_swapped_answer_is_next_different_one() -> None:
    questions = [_question(1, "Ann", "Anne"), _question(2, "anne"), _question(3, " ANN "), _question(4, "Bob")]
    assert choose_answers(questions, swapped=True) == {"q1": "Bob", "q2": " ANN ", "q3": "Bob", "q4": "Ann"}


def test_equal_answers_cannot_be_swapped() -> None:
    with pytest.raises(ConfigError, match=r"no question has another answer than q1\. Use more"):
        choose_answers([_question(1, "yes"), _question(2, "Yes")], swapped=True)


def test_questions_without_answer_or_gold_are_refused() -> None:
    with pytest.raises(DataError, match="question q1: it has no gold answer"):
        choose_answers([_question(1)], swapped=False)
    with pytest.raises(DataError, match="no question names its gold passages"):
        choose_answers([_question(1, "yes", gold=False)], swapped=False)


def write_list(folder: Path, content: bytes) -> Path:
    file = folder / "wrong.txt"
    file.write_bytes(content)
    return file


def test_list_has_a_question_per_line(tmp_path: Path) -> None:
    file = write_list(tmp_path, "\ufeffWhat is 1?\r\n\r\n What  is 7? \nWhat is 1?\n".encode())
    lines = read_list(file)
    assert lines == ["What is 1?", "What is 7?", "What is 1?"]
    questions = [_question(1, "a"), _question(2, "b")]
    matched = match_lines(file, lines, questions)
    assert (matched.lines, matched.distinct, matched.matched, matched.unmatched) == (3, 2, 1, 1)
    assert matched.examples == ("What is 7?",)
    assert [line.verdict for line in verify_by_list(lines, questions)] == ["noise", "valid"]


def test_empty_or_foreign_list_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"wrong\.txt: the file is empty"):
        read_list(write_list(tmp_path, b"\n \n"))
    with pytest.raises(DataError, match=r"wrong\.txt: .*utf-8.*. Name a UTF-8 file with one question per line"):
        read_list(write_list(tmp_path, b"\xff\xfe"))
    with pytest.raises(DataError, match=r"Is a directory\. Name a UTF-8 file with one question per line"):
        read_list(tmp_path)
    file = write_list(tmp_path, b"Why?\n")
    with pytest.raises(DataError, match="none of its 1 questions is in the dataset, the first is 'Why\\?'"):
        match_lines(file, read_list(file), [_question(1, "a")])


def test_totals_of_a_verification() -> None:
    experiment = Experiment.of(["verify=safe", "dataset=demo"])
    verdicts = [
        VerifiedQuestion(id="a", question="a", verdict="valid", figures={"triples": 4, "triples in the path": 2}),
        VerifiedQuestion(id="b", question="b", verdict="noise", figures={"triples": 2}, flags={"unparsable": 2}),
        VerifiedQuestion(
            id="c", question="c", verdict="noise", figures={"triples": 1, "gleaned": 3}, flags={"unparsable": 1}
        ),
        VerifiedQuestion(id="d", question="d", verdict="unverified", error="timeout"),
    ]
    outcome = summarize(experiment, verdicts, by="model")
    counts = (outcome.questions, outcome.valid, outcome.noise, outcome.unverified, outcome.failed)
    assert counts == (4, 1, 2, 1, 1)
    assert outcome.noise_percent.mean == 50
    assert outcome.figures == {"triples": 2.3333, "triples in the path": 2, "gleaned": 1}
    assert outcome.flags == {"unparsable": 3}
    table, graphs, flags = verification_sections(outcome, {}, Published(100, 7, 7.0))
    ours, published = table.rows
    assert ours[:5] == ("model", "4", "2", "1", "1")
    assert ours[5].startswith("50.00 % [")
    assert published == ("SAFE, Table 2", "100", "7", "–", "–", "7.00 %")
    assert table.header == ("", "Total", "Noise", "Valid", "Unverified", "Ratio")
    assert any("1 question among them failed" in line for line in table.text)
    assert graphs.rows[0] == ("triples", "2.33")
    assert flags.rows == [("unparsable", "3")]
