"""What a verification starts from: the answers that paths are looked for to, and lists of flagged questions."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgqa.errors import ConfigError, DataError
from kgqa.experiment.verify.flagged import by_list, matched_lines, read_list
from kgqa.experiment.verify.given_answers import given_answers
from kgqa.types import Question


def _question(number: int, *answers: str, gold: bool = True) -> Question:
    return Question(f"q{number}", f"What is  {number}?", answers, support=frozenset({"p"} if gold else ()))


def test_the_gold_answer_is_the_first() -> None:
    assert given_answers([_question(1, "yes", "Yes!")], swapped=False) == {"q1": "yes"}


def test_a_swapped_answer_is_the_next_one_that_is_none_of_ones_own() -> None:
    questions = [_question(1, "Ann", "Anne"), _question(2, "anne"), _question(3, " ANN "), _question(4, "Bob")]
    assert given_answers(questions, swapped=True) == {"q1": "Bob", "q2": " ANN ", "q3": "Bob", "q4": "Ann"}


def test_where_all_answers_are_one_there_is_none_to_swap() -> None:
    with pytest.raises(ConfigError, match="no question has another answer than question q1; ask more"):
        given_answers([_question(1, "yes"), _question(2, "Yes")], swapped=True)


def test_questions_without_answers_or_gold_passages_cannot_be_verified() -> None:
    with pytest.raises(DataError, match="question q1: it has no gold answer"):
        given_answers([_question(1)], swapped=False)
    with pytest.raises(DataError, match="no question says which of its passages are gold"):
        given_answers([_question(1, "yes", gold=False)], swapped=False)


def _written(folder: Path, content: bytes) -> Path:
    file = folder / "wrong.txt"
    file.write_bytes(content)
    return file


def test_a_list_has_a_question_a_line(tmp_path: Path) -> None:
    file = _written(tmp_path, "\ufeffWhat is 1?\r\n\r\n What  is 7? \nWhat is 1?\n".encode())
    lines = read_list(file)
    assert lines == ["What is 1?", "What is 7?", "What is 1?"]
    questions = [_question(1, "a"), _question(2, "b")]
    matched = matched_lines(file, lines, questions)
    assert (matched.lines, matched.distinct, matched.matched, matched.unmatched) == (3, 2, 1, 1)
    assert matched.examples == ("What is 7?",)
    assert [line.verdict for line in by_list(lines, questions)] == ["noise", "valid"]


def test_a_list_of_nothing_or_of_another_data_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"wrong\.txt: no line says anything"):
        read_list(_written(tmp_path, b"\n \n"))
    with pytest.raises(DataError, match=r"wrong\.txt: .*utf-8.*; give a file of questions"):
        read_list(_written(tmp_path, b"\xff\xfe"))
    with pytest.raises(DataError, match="Is a directory; give a file"):
        read_list(tmp_path)
    file = _written(tmp_path, b"Why?\n")
    with pytest.raises(DataError, match="none of its 1 questions is in the data set, the first is 'Why\\?'"):
        matched_lines(file, read_list(file), [_question(1, "a")])
