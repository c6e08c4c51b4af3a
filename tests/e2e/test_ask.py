"""`kgqa ask`: from a question and a folder to an answer with its sentences, without weights."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kgqa.artefacts.asked import Asked
from tests.e2e.conftest import QUICK, Kgqa, Ran
from tests.e2e.invented_island import BORN, RULES, write_island

pytest.importorskip("mammoth")


@pytest.fixture
def ask(kgqa: Kgqa, tmp_path: Path) -> Kgqa:
    """`kgqa ask` beside the island, with the rules; chains are the six triples that are best by their words."""
    write_island(tmp_path / "island")
    lines = [json.dumps({"match": match, "reply": reply}) for match, reply in RULES]
    (tmp_path / "rules.jsonl").write_text("\n".join(lines), encoding="utf-8")
    chains = ("method.units=triples", "method.top=6", "method.chains=1")

    def run(*arguments: str) -> Ran:
        return kgqa("ask", *arguments, *QUICK, "engine.rules=rules.jsonl", *chains)

    return run


def answers(ran: Ran) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.out.splitlines()]


def put(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_an_answer_comes_with_the_sentence_and_place_of_each_step(ask: Kgqa) -> None:
    ran = ask(BORN, "island")
    assert ran.code == 0, ran.err
    assert "documents: 5 files, 6 passages to search\npassages: 6 of 6\n" in ran.out
    assert "triples: 6 done" in ran.out
    assert "answer: Oustry  (" in ran.out
    assert "<Hesper Vall; born in; Oustry>\n     “She was born in Oustry in 1849 as a daughter" in ran.out
    assert "Jonas Vall.” island/vall.txt:1\n" in ran.out
    assert "check it" not in ran.out
    page = Path(ran.out.splitlines()[-1])
    assert page.name.startswith("where-was-the-builder-of-the-lighthouse-")
    text = page.read_text(encoding="utf-8")
    assert "<h3>Oustry</h3>" in text
    assert "island/survey.pdf, page 1" in text
    shown = text.partition('<main id="tables">')[2].partition("</main>")[0]
    assert not any(score in shown for score in ("gold", "EM", "F1"))


def test_every_form_of_file_is_quoted_with_its_place(ask: Kgqa) -> None:
    (told,) = answers(ask(BORN, "island", "--json"))
    assert (told["answer"], told["error"], told["said_by_a_sentence"]) == ("Oustry", None, True)
    places = {(step["title"], step["page"], step["line"]) for step in told["steps"]}
    assert places == {
        ("The lighthouse of Korrin Head", None, 3), ("vall", None, 1), ("Oustry", None, None),
        ("minutes", None, None),
        ("survey", "page 1", None), ("survey", "page 2", None),
    }  # fmt: skip
    (ferry,) = [step for step in told["steps"] if step["title"] == "minutes"]
    assert ferry["triple"] == ["Northern Star", "replaced", "Grey Heron"]
    assert ferry["sentence"] == "The ferry Grey Heron is replaced by the ferry Northern Star."
    assert ferry["file"] == "island/minutes.docx"
    assert told["method"] == "trace"
    assert Path(told["page"]).is_file()


def test_a_second_question_about_the_same_files_costs_no_extraction(ask: Kgqa) -> None:
    assert "triples: 6 done" in ask(BORN, "island").out
    again = ask("Which ferry sails now?", "island")
    assert "answer: Northern Star" in again.out
    assert "triples:" not in again.out


def test_of_many_passages_the_best_are_read_and_their_index_is_kept(ask: Kgqa) -> None:
    first = ask("Where does the Ambel rise?", "island", "--passages", "2")
    assert "indexing 6 passages\npassages: 2 of 6\n  island/survey.pdf, page 1" in first.out
    assert "triples: 2 done" in first.out
    second = ask("Who founded the Academy of Merrin?", "island", "--passages", "2")
    assert "indexing" not in second.out
    assert "answer: Orsola Finch" in second.out


def test_two_questions_of_a_chat_share_what_was_made(ask: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, f"{BORN}\n\n  Which ferry sails now?\n:quit\nWho founded it?\n")
    ran = ask("--chat", "island", "--json")
    assert [told["answer"] for told in answers(ran)] == ["Oustry", "Northern Star"]
    assert ran.err.count("documents: 5 files") == ran.err.count("triples: 6 done") == 1
    assert ran.code == 0


def test_a_question_that_fails_ends_no_chat(ask: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, f"Xyzzy plugh\n{BORN}\n")
    ran = ask("--chat", "island", "--json", "--passages", "2")
    assert [told["question"] for told in answers(ran)] == [BORN]
    assert "failed: 'Xyzzy plugh': not a word of it stands in these documents" in ran.err
    assert ran.code == 2


def test_what_cannot_be_read_is_said_and_said_again_at_the_end(ask: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "island" / "bad.txt").write_bytes(b"one\n\xff\xfe")
    (tmp_path / "island" / "broken.docx").write_bytes(b"PK")
    ran = ask(BORN, "island")
    assert ran.code == 0
    assert "left out: island/bad.txt:2: not UTF-8" in ran.out
    assert "left out: island/broken.docx: no DOCX that can be read" in ran.out
    assert ran.out.splitlines()[-1] == "left out: 2 of 7 files could not be read: bad.txt, broken.docx"
    (told,) = answers(ask(BORN, "island", "--json"))
    assert sorted(told["left_out"]) == ["island/bad.txt", "island/broken.docx"]


def test_a_method_that_searches_for_itself_and_one_that_walks_are_asked(ask: Kgqa, kgqa: Kgqa) -> None:
    scripted = (*QUICK, "engine.rules=rules.jsonl", "--json")
    (read,) = answers(kgqa("ask", BORN, "island", "method=retrieve_read", *scripted))
    assert read["steps"][0]["triple"] is None
    assert any("lighthouse" in step["sentence"] for step in read["steps"])
    (walked,) = answers(kgqa("ask", BORN, "island", "method=kgp", *scripted))
    assert walked["answer"] == "Oustry"
    assert len(walked["steps"]) == 5


@pytest.mark.parametrize("method", ["ircot", "react", "self_ask", "iter_retgen", "knowtrace", "all_documents"])
def test_every_method_that_asks_a_model_is_asked(ask: Kgqa, kgqa: Kgqa, method: str) -> None:
    (told,) = answers(kgqa("ask", BORN, "island", f"method={method}", *QUICK, "engine.rules=rules.jsonl", "--json"))
    assert (told["method"], told["error"]) == (method, None)


def test_the_walk_of_kgp_is_told_step_by_step_and_kept(ask: Kgqa, kgqa: Kgqa) -> None:
    ran = kgqa("ask", BORN, "island", "method=kgp", *QUICK, "engine.rules=rules.jsonl", "--events")
    events = answers(ran)
    names = [each["event"] for each in events]
    assert (names[0], names[1], names[-1]) == ("ready", "put", "answered")
    assert ran.err == ""
    (seeds,) = [each["passages"] for each in events if each["event"] == "searched"]
    walked = [each for each in events if each["event"] == "walked"]
    assert {each["start"]["id"] for each in walked} == {each["id"] for each in seeds}
    told = {(each["start"]["id"], passage["id"]) for each in walked for passage in each["chosen"]}
    steps = events[-1]["notes"]["traversal"]["steps"]
    assert {(step["path"][-1], chosen) for step in steps for chosen in step["chosen"]} == told
    asked = Asked.read(Path(events[-1]["page"]).with_suffix(".json"))
    assert asked.traced.question.text == BORN
    assert [step.where for step in asked.steps] == [step["where"] for step in events[-1]["steps"]]


def test_triples_and_choices_are_told_as_they_are_made(ask: Kgqa) -> None:
    events = answers(ask(BORN, "island", "--events"))
    first = next(place for place, each in enumerate(events) if each["event"] == "extracted")
    (found,) = [place for place, each in enumerate(events) if each["event"] == "found"]
    assert found < first < next(place for place, each in enumerate(events) if each.get("what") == "questions")
    passages = {passage["id"]: passage["title"] for passage in events[found]["passages"]}
    triples = {passages[each["passage"]]: each["triples"] for each in events if each["event"] == "extracted"}
    assert triples["vall"] == [["Hesper Vall", "born in", "Oustry"]]


def test_unless_told_otherwise_chains_are_of_sentences_and_nothing_is_extracted(ask: Kgqa, kgqa: Kgqa) -> None:
    ran = kgqa("ask", BORN, "island", *QUICK, "engine.rules=rules.jsonl", "--json")
    (told,) = answers(ran)
    assert told["answer"] == "Oustry"
    assert "triples" not in ran.err
    assert {step["triple"] for step in told["steps"]} == {None}
    texts = " ".join(passage["text"] for passage in told["passages"])
    assert all(" ".join(step["sentence"].split()) in " ".join(texts.split()) for step in told["steps"])


def test_hops_are_told_as_they_are_chosen(ask: Kgqa, kgqa: Kgqa) -> None:
    ran = kgqa("ask", BORN, "island", *QUICK, "engine.rules=rules.jsonl", "method.adaptive_termination=false")
    hops = [line for line in ran.out.splitlines() if line.startswith("hop ")]
    assert {line.partition(":")[0] for line in hops} == {"hop 1", "hop 2"}
    assert all(line.endswith(" %") for line in hops)


def test_out_names_the_page(ask: Kgqa) -> None:
    assert ask(BORN, "island", "out=pages/a.html").out.splitlines()[-1] == "pages/a.html"
    assert Path("pages/a.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "QUESTION is missing; e.g. kgqa ask"),
        ((BORN,), "FILE is missing; e.g. kgqa ask"),
        (("--chat",), "FILE is missing; e.g. kgqa ask"),
        (("island",), "island: is a file or folder; the question comes first"),
        ((BORN, "nowhere"), "nowhere: no such file or folder; name your documents"),
        ((BORN, "rules.jsonl"), "rules.jsonl: no reader for such files; name .txt,"),
        ((BORN, "island", "--passages", "0"), "--passages 0: must be at least 1"),
        ((BORN, "island", "limit=3"), "limit=3: is of runs over questions with known answers"),
        ((BORN, "island", "dataset=demo"), "dataset=demo: is of runs over questions"),
        ((BORN, "island", "method=retrieve_only"), "method=retrieve_only: answers nothing; choose another"),
        ((BORN, "island", "dataset.passage_size=0"), "dataset.passage_size=0"),
        ((BORN, "island", "dataset.kinds=[.odt]"), "dataset.kinds: .odt: no reader for such files"),
        (("--chat", "island", "out=a.html"), "out=: names one question's page; leave it out with --chat"),
    ],
)
def test_what_cannot_be_asked_is_one_line(ask: Kgqa, kgqa: Kgqa, arguments: tuple[str, ...], message: str) -> None:
    ran = kgqa("ask", *arguments, *(QUICK if "method=retrieve_only" not in arguments else ("engine=scripted",)))
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1
    assert ran.err.startswith(f"kgqa: {message}")


def test_a_question_may_say_that_something_equals_something(ask: Kgqa) -> None:
    (told,) = answers(ask("Where was the builder born if x=3?", "island", "--json"))
    assert told["question"] == "Where was the builder born if x=3?"
