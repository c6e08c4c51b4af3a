"""`kgqa data list | prepare | check` from the command line; downloads come from a server on this machine."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kgqa.config.files import groups
from kgqa.datasets.download import Source
from kgqa.experiment import data
from tests.e2e.conftest import QUICK, Kgqa
from tests.file_server import Behaviour, serving

MUSIQUE = {
    "id": "2hop__1_2",
    "question": "Who painted the bridge?",
    "answer": "Ann",
    "answer_aliases": ["Anne"],
    "paragraphs": [
        {"idx": 0, "title": "Ann", "paragraph_text": "Ann painted the bridge.", "is_supporting": True},
        {"idx": 1, "title": "Bob", "paragraph_text": "", "is_supporting": False},
        {"idx": 2, "title": "Bob", "paragraph_text": "A shop.", "is_supporting": False},
    ],
}
LINE = json.dumps(MUSIQUE) + "\n"

Offer = Callable[..., Behaviour]


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Offer]:
    """Let an entry of conf/downloads.yaml point to a server here: `offer("musique", content, members=[…])`."""
    monkeypatch.delenv("KGQA_DATA", raising=False)
    monkeypatch.setattr("pooch.core.time.sleep", lambda _: None)
    known = data.sources()
    with serving(Behaviour()) as server:

        def offered(name: str, content: bytes, **changes: Any) -> Behaviour:
            server.content = content
            here = {"urls": [server.url], "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            known[name] = Source.model_validate({**known[name].model_dump(), **here, **changes})
            monkeypatch.setattr(data, "sources", lambda: known)
            return server

        yield offered


def zipped(**files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"data/{name.replace('__', '.')}", content)
    return buffer.getvalue()


def figures(out: str) -> dict[str, int]:
    """What `data check` counted, by what it counted."""
    rows = [line.strip().partition("  ") for line in out.splitlines() if line.startswith("  ")]
    return {what: int(count.replace(",", "")) for count, _, what in rows}


def test_every_dataset_has_a_source() -> None:
    given = {"folder", "kgp", "flashrag"}  # a user's own files, and what no program can fetch
    known = data.sources()
    assert set(groups()["dataset"]) - given <= set(known)
    assert {source.corpus for source in known.values()} - {None} <= known.keys()


# prepare


def test_download_fetches_unpacks_and_makes_a_runnable_dataset(
    kgqa: Kgqa, offer: Offer, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer("musique", zipped(musique_ans_v1__0_dev__jsonl=LINE, readme="x"), members=["musique_ans_v1.0_dev.jsonl"])
    ran = kgqa("data", "download", "dataset=musique")
    assert (ran.code, ran.err) == (0, "")
    assert "licence CC BY 4.0" in ran.out
    assert hashlib.sha256(LINE.encode()).hexdigest() in ran.out
    assert os.listdir("data/musique") == ["musique_ans_v1.0_dev.jsonl"]  # the archive is gone
    assert "data/musique/musique_ans" in "".join(kgqa("data", "list").out.split()).replace("│", "")
    assert kgqa("run", "dataset=musique", "method=no_context", *QUICK).code == 0
    monkeypatch.setenv("KGQA_DATA", "collection")
    assert kgqa("data", "download", "dataset=musique").code == 0
    assert os.listdir("collection/musique") == ["musique_ans_v1.0_dev.jsonl"]


def test_download_fetches_the_corpus_too(kgqa: Kgqa, offer: Offer) -> None:
    record = [
        {"query": "Who?", "answer": "Ann", "question_type": "inference_query", "title": "Ann", "body": "Painter."}
    ]
    for name in ("multihop_rag", "multihop_rag_corpus"):
        offer(name, json.dumps(record).encode())
    ran = kgqa("data", "download", "dataset=multihop_rag")
    assert (ran.code, ran.err) == (0, "")
    assert sorted(os.listdir("data/multihop_rag")) == ["MultiHopRAG.json", "corpus.json"]
    assert figures(kgqa("data", "check", "dataset=multihop_rag").out)["questions"] == 1


def test_download_offline_says_what_to_fetch_and_where_to_put_it(kgqa: Kgqa, offer: Offer) -> None:
    offer("iirc", b"", urls=["http://nowhere.invalid/iirc_train_dev.tgz"])
    ran = kgqa("data", "download", "dataset=iirc")
    assert ran.code == 2
    assert "Get iirc_train_dev.tgz from https://allenai.org/data/iirc" in ran.err
    assert "put it at data/iirc/iirc_train_dev.tgz and run the same command again" in ran.err
    assert "from=hub" not in ran.err
    assert ran.err.count("\n") == 1
    offer("musique", b"", urls=["http://nowhere.invalid/musique_v1.0.zip"])
    assert "Or add from=hub." in kgqa("data", "download", "dataset=musique").err


def test_archive_that_a_user_put_there_is_checked_and_stays(kgqa: Kgqa, offer: Offer) -> None:
    content = zipped(dev__json="[]", train__json="[]", test__json="[]", id_aliases__json="")
    server = offer("2wiki", content)
    archive = Path("data/2wiki/data_ids_april7.zip")
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"another one")
    ran = kgqa("data", "download", "dataset=2wiki")
    assert ran.code == 2
    assert "Delete the file and run the same command again" in ran.err
    assert archive.read_bytes() == b"another one"
    archive.write_bytes(content)
    assert kgqa("data", "download", "dataset=2wiki").code == 0
    assert server.requests == 0
    assert archive.is_file()
    assert Path("data/2wiki/id_aliases.json").is_file()


def test_download_writes_where_it_is_told_to(kgqa: Kgqa, offer: Offer, monkeypatch: pytest.MonkeyPatch) -> None:
    offer("hotpotqa", b"[]")
    assert kgqa("data", "download", "dataset=hotpotqa", "to=elsewhere").code == 0
    assert os.listdir("elsewhere") == ["hotpot_dev_distractor_v1.json"]
    monkeypatch.setenv("KGQA_DATA", "collection")
    assert kgqa("data", "download", "dataset=hotpotqa").code == 0
    assert os.listdir("collection/hotpotqa") == ["hotpot_dev_distractor_v1.json"]


def test_download_converts_a_data_set_in_hugging_faces_form(kgqa: Kgqa, offer: Offer, tmp_path: Path) -> None:
    datasets: Any = pytest.importorskip("datasets", reason="needs the extra datasets")
    datasets.disable_progress_bars()
    offer("musique", b"")
    datasets.DatasetDict({"validation": datasets.Dataset.from_list([MUSIQUE])}).save_to_disk(tmp_path / "hub")
    ran = kgqa("data", "download", "dataset=musique", f"from={tmp_path / 'hub'}")
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(Path("data/musique/musique_ans_v1.0_dev.jsonl").read_text()) == MUSIQUE
    assert figures(kgqa("data", "check", "dataset=musique").out)["questions"] == 1


# check


def test_check_counts_what_is_odd(kgqa: Kgqa) -> None:
    lonely = {"id": "b", "question": "?", "answer": "x", "supporting_titles": ["Carl"]}
    blind = {"id": "c", "question": "?", "answer": "x"}
    full = {**MUSIQUE, "id": "d", "answerable": False}
    Path("q.jsonl").write_text(LINE + "".join(json.dumps(record) + "\n" for record in (lonely, blind, full)))
    found = figures(kgqa("data", "check", "dataset=musique", "dataset.path=q.jsonl").out)
    expected = {
        "questions": 3,
        "gold answers, aliases included": 4,
        "questions with aliases": 1,
        "passages given": 3,
        "gold passages": 2,
        "gold passages among those given": 1,
        "skipped: no answer": 1,
        "questions without passages": 2,
        "questions without gold passages": 1,
        "passages given without text": 1,
        "passages in the corpus": 6,
        "of them distinct": 3,
        "repeated passages (stored once)": 3,
        "passages without text": 1,
        "gold titles of the questions": 2,
        "of these titles in the corpus": 1,
    }
    assert {name: found.get(name) for name in expected} == expected


def test_check_of_questions_without_passages_asks_for_a_corpus(kgqa: Kgqa) -> None:
    Path("q.jsonl").write_text(json.dumps({"id": "b", "question": "?", "answer": "x", "supporting_titles": ["Ann "]}))
    ran = kgqa("data", "check", "dataset=musique", "dataset.path=q.jsonl")
    assert ran.code == 0
    assert "dataset.corpus=FILE" in ran.out
    Path("c.jsonl").write_text('{"title": "ann", "text": "Ann."}\n')
    ran = kgqa("data", "check", "dataset=musique", "dataset.path=q.jsonl", "dataset.corpus=c.jsonl")
    assert figures(ran.out)["of these titles in the corpus"] == 1
