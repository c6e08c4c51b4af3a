"""`kgqa ask`: from a question and a folder to an answer with its sentences, without weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kgqa.extras.documents.ask import ask_documents
from kgqa.runtime.display import QUIET
from tests.e2e.conftest import QUICK, Kgqa, Ran, refused, write_rules
from tests.e2e.invented_island import BORN, RULES, write_island

pytest.importorskip("mammoth")
RULED = (*QUICK, "engine.rules=rules.jsonl")
CHAINS = ("method.units=triples", "method.top=6", "method.chains=1")


@pytest.fixture
def ask(kgqa: Kgqa, tmp_path: Path) -> Kgqa:
    """`kgqa ask` beside the island, with the rules; chains are the six triples that are best by their words."""
    write_island(tmp_path / "island")
    write_rules(RULES)
    (tmp_path / "ferry.odt").write_bytes(b"PK\x03\x04\xff")

    def run(*arguments: str) -> Ran:
        chains = CHAINS if not any("method=" in each for each in arguments) else ()
        return kgqa("ask", *RULED, *chains, *arguments)

    return run


def answer(ran: Ran) -> dict[str, Any]:
    saved: dict[str, Any] = json.loads(ran.out)
    return saved


def test_passages_are_cut_between_words(ask: Kgqa) -> None:
    lines = ask(BORN, "island").out.splitlines()
    (vall,) = [line for line in lines if line.startswith("  island/vall.txt:1")]
    assert vall.endswith(" …")
    text = " ".join(Path("island/vall.txt").read_text(encoding="utf-8").split())
    assert f"{vall.removesuffix('…').split(maxsplit=1)[1]}" in f"{text} "


def test_answer_cites_sentence_and_place_of_each_step(ask: Kgqa) -> None:
    ran = ask(BORN, "island")
    assert ran.code == 0, ran.err
    assert "documents: 5 files, 6 passages to search\npassages: 6 of 6\n" in ran.out
    assert "answer: Oustry  (" in ran.out
    assert (
        "<Hesper Vall; born in; Oustry>\n     “She was born in Oustry in 1849 as a daughter"
        in ran.out
    )
    assert "Jonas Vall.” island/vall.txt:1\n" in ran.out
    assert "not found" not in ran.out
    assert '<p class="answer">Oustry</p>' in Path(ran.out.splitlines()[-1]).read_text(
        encoding="utf-8"
    )
    reply = answer(ask(BORN, "island", "--json"))
    assert (reply["answer"], reply["error"], reply["supported"], reply["method"]) == (
        "Oustry",
        None,
        True,
        "trace",
    )
    places = {(step["title"], step["page"], step["line"]) for step in reply["steps"]}
    assert places == {
        ("The lighthouse of Korrin Head", None, 3), ("vall", None, 1), ("Oustry", None, None),
        ("minutes", None, None), ("survey", "page 1", None), ("survey", "page 2", None),
    }  # fmt: skip
    (ferry,) = [step for step in reply["steps"] if step["title"] == "minutes"]
    assert ferry["triple"] == ["Northern Star", "replaced", "Grey Heron"]
    assert ferry["sentence"] == "The ferry Grey Heron is replaced by the ferry Northern Star."
    assert ferry["file"] == "island/minutes.docx"
    assert ask_documents(BORN, [Path("island")], [*RULED, *CHAINS], QUIET).json() | {
        "seconds": 0
    } == reply | {"seconds": 0}
    Path("island/bad.txt").write_bytes(b"one\n\xff\xfe")
    assert "skipped: island/bad.txt:2: not UTF-8" in ask(BORN, "island").out
    assert list(answer(ask(BORN, "island", "--json"))["left_out"]) == ["island/bad.txt"]


def test_answer_without_a_quotation_is_marked_first(ask: Kgqa) -> None:
    printed = ask("Who was the mayor of Halverby?", "island").out
    assert (
        "not found in these documents: no quoted sentence contains this answer. Check it.\nanswer: "
        in printed
    )


@pytest.mark.parametrize("count", [1, 40], ids=["room-for-all", "more-than-room"])
def test_all_passages_are_read_where_they_fit(kgqa: Kgqa, count: int) -> None:
    Path("notes").mkdir()
    for number in range(count):
        Path(f"notes/{number}").write_text(
            f"Bell {number} rings. " + "It hangs in the tower. " * 35, encoding="utf-8"
        )
    ran = kgqa("ask", "Which bell rings?", "notes", "method=all_documents", "engine=scripted")
    (line,) = [line for line in ran.out.splitlines() if line.startswith("passages: ")]
    read, _, total = line.removeprefix("passages: ").partition(" of ")
    assert (read == total) == (count == 1)


def test_named_file_of_any_kind_is_text(kgqa: Kgqa) -> None:
    Path("notes.rst").write_text(
        "The mill\n========\n\nAnn Reed built the mill.\n", encoding="utf-8"
    )
    Path("log.data").write_text("Ann Reed was born in Vennhaven.\n", encoding="utf-8")
    ran = kgqa(
        "ask",
        "Who built the mill?",
        "notes.rst",
        "log.data",
        "method=all_documents",
        "engine=scripted",
    )
    assert "documents: 2 files, 2 passages" in ran.out


@pytest.mark.parametrize("method", ["retrieve_read", "kgp", "react"])
def test_every_method_with_a_model_answers(ask: Kgqa, kgqa: Kgqa, method: str) -> None:
    reply = answer(kgqa("ask", BORN, "island", f"method={method}", *RULED, "--json"))
    assert (reply["method"], reply["error"]) == (method, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "QUESTION is missing. Example: kgqa ask"),
        ((BORN,), "FILE is missing. Example: kgqa ask"),
        (("island",), "island: is a file or folder. Put the question before your documents"),
        ((BORN, "nowhere"), "nowhere: no such file or folder. Name your documents"),
        ((BORN, "ferry.odt"), "ferry.odt: file type not supported. Name .txt,"),
        ((BORN, "island", "--passages", "0"), "--passages 0: must be at least 1"),
        (
            ("Xyzzy plugh", "island", "--passages", "2"),
            "'Xyzzy plugh': none of its words occurs in the documents",
        ),
        (
            (BORN, "island", "limit=3"),
            "limit=3: limit is for runs over questions with gold answers",
        ),
        (
            (BORN, "island", "method=retrieve_only"),
            "method=retrieve_only does not answer questions. Use another one",
        ),
        ((BORN, "island", "dataset.kinds=[.odt]"), "dataset.kinds: .odt: file type not supported"),
    ],
)
def test_usage_error_is_one_line(
    ask: Kgqa, kgqa: Kgqa, arguments: tuple[str, ...], message: str
) -> None:
    ran = kgqa(
        "ask",
        *arguments,
        *(QUICK if "method=retrieve_only" not in arguments else ("engine=scripted",)),
    )
    refused(ran, f"kgqa: {message}")
