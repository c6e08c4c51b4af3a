"""The readers on small files: what they make of odd records."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgqa.types import Hop, Passage
from tests.unit.question_files import array, hotpotqa, hotpotqa_record, lines, musique, musique_record, only, refusal

# MuSiQue


def test_aliases_follow_the_answer_once_each_and_blank_ones_are_dropped(tmp_path: Path) -> None:
    assert only(musique(lines(tmp_path, musique_record()))).answers == ("Ann", "Anne")


def test_two_paragraphs_with_one_title_stay_two_passages(tmp_path: Path) -> None:
    question = only(musique(lines(tmp_path, musique_record())))
    assert question.passages == (Passage.of("T", "One."), Passage.of("T", "Two."))
    assert question.support == {question.passages[1].id}


def test_a_step_of_the_decomposition_names_its_passage(tmp_path: Path) -> None:
    question = only(musique(lines(tmp_path, musique_record())))
    assert question.decomposition == (Hop("a >> b", "x", question.passages[1].id),)
    assert (question.hops, question.type) == (1, "2hop")


def test_a_step_without_a_paragraph_has_no_passage(tmp_path: Path) -> None:
    steps = [{"question": "a >> b", "answer": "x", "paragraph_support_idx": None}]
    question = only(musique(lines(tmp_path, musique_record(question_decomposition=steps))))
    assert question.decomposition == (Hop("a >> b", "x", ""),)


def test_a_record_may_name_its_type(tmp_path: Path) -> None:
    assert only(musique(lines(tmp_path, musique_record(type="comparison")))).type == "comparison"


def test_without_a_decomposition_the_hops_are_not_known(tmp_path: Path) -> None:
    question = only(musique(lines(tmp_path, musique_record(id="plain", question_decomposition=[]))))
    assert (question.hops, question.type) == (None, "")


def test_unanswerable_questions_are_left_out(tmp_path: Path) -> None:
    file = lines(tmp_path, musique_record(answerable=False), musique_record())
    assert [question.id for question in musique(file).questions()] == ["2hop__1_2"]


def test_a_file_of_unanswerable_questions_is_refused(tmp_path: Path) -> None:
    file = lines(tmp_path, musique_record(answerable=False))
    assert "no answerable questions" in refusal(musique(file))


# HotpotQA and 2Wiki


def test_sentences_are_joined_by_one_blank_and_kept_as_in_the_file(tmp_path: Path) -> None:
    passage = only(hotpotqa(array(tmp_path, hotpotqa_record()))).passages[0]
    assert passage.text == "One. Two."
    assert passage.sentences == ("One.", " Two. ", "")


def test_markup_entities_in_titles_are_resolved(tmp_path: Path) -> None:
    question = only(hotpotqa(array(tmp_path, hotpotqa_record())))
    assert question.passages[0].title == "A & B"
    assert question.support == {question.passages[0].id}


def test_an_ampersand_that_starts_no_entity_stays(tmp_path: Path) -> None:
    record = hotpotqa_record(context=[["R&copy", ["One."]]], supporting_facts=[["R&copy", 0]])
    assert only(hotpotqa(array(tmp_path, record))).passages[0].title == "R&copy"


def test_a_gold_title_without_a_passage_stays_in_the_support(tmp_path: Path) -> None:
    question = only(hotpotqa(array(tmp_path, hotpotqa_record(supporting_facts=[["C", 0], ["D &amp; E", 0]]))))
    assert question.support == {question.passages[1].id, "missing:D & E"}


def test_of_two_passages_with_a_gold_title_the_one_with_the_sentence_is_gold(tmp_path: Path) -> None:
    context = [["C", ["Short."]], ["C", ["One.", "Two."]], ["C", ["Other.", "Two."]]]
    question = only(hotpotqa(array(tmp_path, hotpotqa_record(context=context, supporting_facts=[["C", 1]]))))
    assert question.support == {question.passages[1].id}


def test_a_repeated_paragraph_is_kept_with_the_same_id(tmp_path: Path) -> None:
    context = [["C", ["One."]], ["C", ["One."]]]
    first, second = only(hotpotqa(array(tmp_path, hotpotqa_record(context=context)))).passages
    assert first == second


@pytest.mark.parametrize("paragraphs", [0, 2, 4, 6, 9, 10])
def test_any_number_of_paragraphs_is_taken(tmp_path: Path, paragraphs: int) -> None:
    context = [[str(n), ["One."]] for n in range(paragraphs)]
    assert len(only(hotpotqa(array(tmp_path, hotpotqa_record(context=context)))).passages) == paragraphs


def test_the_hops_follow_from_the_type(tmp_path: Path) -> None:
    records = [hotpotqa_record(), hotpotqa_record(_id="b", type="bridge_comparison"), hotpotqa_record(_id="c", type="")]
    assert [q.hops for q in hotpotqa(array(tmp_path, *records)).questions()] == [2, 4, None]


def test_an_unknown_type_is_refused(tmp_path: Path) -> None:
    file = array(tmp_path, hotpotqa_record(type="inference", evidences=[]))
    message = refusal(hotpotqa(file))
    assert message.startswith(f"{file}: record 1 (id 5a): type='inference'")
    assert "looks like 2wiki" in message


def test_evidences_become_hops(tmp_path: Path) -> None:
    record = hotpotqa_record(evidences=[[" C", "director", "Ann"], ["Ann", "born", "1900"]])
    question = only(hotpotqa(array(tmp_path, record)))
    assert question.decomposition == (Hop("C, director", "Ann", question.passages[1].id), Hop("Ann, born", "1900", ""))


def test_the_alias_file_adds_answers(tmp_path: Path) -> None:
    aliases = tmp_path / "id_aliases.json"
    aliases.write_text('{"Q_id": "Q1", "aliases": ["UK", "Britain"], "demonyms": ["British"]}\n')
    file = array(tmp_path, hotpotqa_record(answer="UK", answer_id="Q1"), hotpotqa_record(_id="b", answer_id=None))
    questions = list(hotpotqa(file, aliases).questions())
    assert [question.answers for question in questions] == [("UK", "Britain", "British"), ("yes",)]


def test_the_alias_file_is_looked_for_beside_the_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "id_aliases.json").write_text('{"Q_id": "Q1", "aliases": ["UK"], "demonyms": []}\n')
    file = array(tmp_path, hotpotqa_record(answer="Britain", answer_id="Q1"))
    assert only(hotpotqa(file, Path("id_aliases.json"))).answers == ("Britain", "UK")
    (tmp_path / "id_aliases.json").rename(tmp_path / "other.json")
    monkeypatch.setenv("KGQA_DATA", str(tmp_path / "data"))
    refused = refusal(hotpotqa(file, Path("id_aliases.json")))
    assert refused.startswith(f"dataset.aliases=id_aliases.json: no such file, nor in {tmp_path}, ")
    assert refused.endswith("by dataset.aliases=null, or run: kgqa data download dataset=hotpotqa")


def test_the_alias_file_changes_the_hash(tmp_path: Path) -> None:
    aliases = tmp_path / "id_aliases.json"
    aliases.write_text('{"Q_id": "Q1"}\n')
    file = array(tmp_path, hotpotqa_record())
    assert hotpotqa(file).sha256 != hotpotqa(file, aliases).sha256


def test_a_missing_alias_file_is_refused(tmp_path: Path) -> None:
    assert "dataset.aliases=" in refusal(hotpotqa(array(tmp_path, hotpotqa_record()), tmp_path / "none.json"))
