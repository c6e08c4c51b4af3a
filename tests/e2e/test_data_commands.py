"""`kgqa data list | prepare | check` from the command line; downloads come from a server on this machine."""

from __future__ import annotations

import bz2
import hashlib
import io
import json
import os
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kgqa.config.files import groups
from kgqa.datasets import fetching
from kgqa.datasets.sources import Source
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
    monkeypatch.setattr(fetching, "PAUSE", 0.001)
    known = data.sources()
    with serving(Behaviour()) as server:

        def offered(name: str, content: bytes, **changes: Any) -> Behaviour:
            server.content = content
            here = {"urls": [server.url], "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            changed = Source.model_validate({**known[name].model_dump(), **here, **changes})
            monkeypatch.setattr(data, "sources", lambda: {**known, name: changed})
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


# list


def test_every_dataset_has_a_source() -> None:
    given = {"folder", "kgp"}  # a person's own, and what its authors keep where no program can fetch it
    assert set(groups()["dataset"]) - given <= set(data.sources())


def test_checksums_and_addresses_are_well_formed() -> None:
    for source in data.sources().values():
        assert source.sha256 is None or (len(source.sha256) == 64 and int(source.sha256, 16))
        assert all(url.startswith(("http://", "https://")) for url in source.urls)
        assert source.urls or source.page == "kgqa itself"
        assert source.licence


def test_list_shows_what_is_known_and_what_is_here(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KGQA_DATA", raising=False)
    Path("data/musique").mkdir(parents=True)
    Path("data/musique/musique_ans_v1.0_dev.jsonl").write_text(LINE)
    ran = kgqa("data", "list")
    assert ran.code == 0
    shown = "".join(ran.out.split()).replace("│", "")
    for name, source in data.sources().items():
        assert name in shown
        assert source.sha256 is None or source.sha256[:20] in shown
    assert "data/musique/musique_ans" in shown
    assert "checksumnotknown" in shown  # of the demo, which is not fetched


# prepare


def test_prepare_fetches_unpacks_and_makes_a_runnable_dataset(kgqa: Kgqa, offer: Offer) -> None:
    offer("musique", zipped(musique_ans_v1__0_dev__jsonl=LINE, readme="x"), members=["musique_ans_v1.0_dev.jsonl"])
    ran = kgqa("data", "download", "dataset=musique")
    assert (ran.code, ran.err) == (0, "")
    assert "licence CC BY 4.0" in ran.out
    assert hashlib.sha256(LINE.encode()).hexdigest() in ran.out
    assert os.listdir("data/musique") == ["musique_ans_v1.0_dev.jsonl"]  # the archive is gone
    assert kgqa("run", "dataset=musique", "method=no_context", *QUICK).code == 0


def test_prepare_does_nothing_where_all_is_there(kgqa: Kgqa, offer: Offer) -> None:
    server = offer("hotpotqa", b"[]")
    Path("data/hotpotqa").mkdir(parents=True)
    Path("data/hotpotqa/hotpot_dev_distractor_v1.json").write_text("mine")
    assert kgqa("data", "download", "hotpotqa").code == 0
    assert server.asked == []


def test_prepare_goes_on_where_it_was_cut(kgqa: Kgqa, offer: Offer) -> None:
    server = offer("hotpotqa", b"[" + b" " * 100_000 + b"]")
    server.cut_after = [40_000, *[0] * fetching.ATTEMPTS]
    ran = kgqa("data", "download", "dataset=hotpotqa")
    assert ran.code == 2
    assert "run the same command again" in ran.err
    assert ran.err.count("\n") == 1
    server.asked.clear()
    assert kgqa("data", "download", "dataset=hotpotqa").code == 0
    assert server.asked == [40_000]
    assert Path("data/hotpotqa/hotpot_dev_distractor_v1.json").stat().st_size == 100_002


def test_prepare_refuses_a_file_with_another_checksum(kgqa: Kgqa, offer: Offer) -> None:
    offer("hotpotqa", b"[]", sha256="0" * 64)
    ran = kgqa("data", "download", "dataset=hotpotqa")
    assert ran.code == 2
    assert f"sha256 is {hashlib.sha256(b'[]').hexdigest()} of 2 bytes, expected sha256 {'0' * 64}" in ran.err
    assert ran.err.count("\n") == 1
    assert os.listdir("data/hotpotqa") == []


def test_prepare_offline_says_what_to_fetch_and_where_to_put_it(kgqa: Kgqa, offer: Offer) -> None:
    offer("iirc", b"", urls=["http://nowhere.invalid/iirc_train_dev.tgz"])
    ran = kgqa("data", "download", "dataset=iirc")
    assert ran.code == 2
    assert "get iirc_train_dev.tgz from https://allenai.org/data/iirc" in ran.err
    assert "put it at data/iirc/iirc_train_dev.tgz and run the same command again" in ran.err
    assert ran.err.count("\n") == 1


def test_prepare_takes_an_archive_that_was_put_there_by_hand(kgqa: Kgqa, offer: Offer) -> None:
    content = zipped(dev__json="[]", train__json="[]", test__json="[]", id_aliases__json="")
    server = offer("2wiki", content)
    Path("data/2wiki").mkdir(parents=True)
    Path("data/2wiki/data_ids_april7.zip").write_bytes(content)
    assert kgqa("data", "download", "dataset=2wiki").code == 0
    assert server.asked == []
    assert Path("data/2wiki/data_ids_april7.zip").is_file()  # not ours to remove
    assert Path("data/2wiki/id_aliases.json").is_file()


def test_prepare_refuses_an_archive_by_hand_that_is_another(kgqa: Kgqa, offer: Offer) -> None:
    offer("2wiki", b"the official one")
    Path("data/2wiki").mkdir(parents=True)
    Path("data/2wiki/data_ids_april7.zip").write_bytes(b"another one")
    ran = kgqa("data", "download", "dataset=2wiki")
    assert ran.code == 2
    assert "delete the file and run the same command again" in ran.err
    assert Path("data/2wiki/data_ids_april7.zip").read_bytes() == b"another one"


def test_prepare_turns_the_archive_of_abstracts_into_a_corpus(kgqa: Kgqa, offer: Offer) -> None:
    page = json.dumps({"title": "Ann", "text": ["Ann painted ", " the bridge."]}).encode() + b"\n"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:bz2") as archive:
        member = tarfile.TarInfo("enwiki/AA/wiki_00.bz2")
        member.size = len(bz2.compress(page))
        archive.addfile(member, io.BytesIO(bz2.compress(page)))
    offer("hotpotqa_corpus", buffer.getvalue())
    assert kgqa("data", "download", "dataset=hotpotqa_corpus").code == 0
    assert os.listdir("data/hotpotqa") == ["hotpotqa_abstracts.jsonl.gz"]
    Path("questions.jsonl").write_text(LINE)
    corpus = "dataset.corpus=hotpotqa/hotpotqa_abstracts.jsonl.gz"
    ran = kgqa("data", "check", "dataset=musique", "dataset.path=questions.jsonl", corpus)
    assert figures(ran.out)["of them in the corpus"] == 1  # the abstract is the questions' own passage


def test_prepare_writes_where_it_is_told_to(kgqa: Kgqa, offer: Offer, monkeypatch: pytest.MonkeyPatch) -> None:
    offer("hotpotqa", b"[]")
    assert kgqa("data", "download", "dataset=hotpotqa", "to=elsewhere").code == 0
    assert os.listdir("elsewhere") == ["hotpot_dev_distractor_v1.json"]
    monkeypatch.setenv("KGQA_DATA", "collection")
    assert kgqa("data", "download", "dataset=hotpotqa").code == 0
    assert os.listdir("collection/hotpotqa") == ["hotpot_dev_distractor_v1.json"]


def test_prepare_converts_a_data_set_in_hugging_faces_form(kgqa: Kgqa, offer: Offer, tmp_path: Path) -> None:
    datasets: Any = pytest.importorskip("datasets", reason="needs the extra datasets")
    datasets.disable_progress_bars()
    offer("musique", b"")
    datasets.DatasetDict({"validation": datasets.Dataset.from_list([MUSIQUE])}).save_to_disk(tmp_path / "hub")
    ran = kgqa("data", "download", "dataset=musique", f"from={tmp_path / 'hub'}")
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(Path("data/musique/musique_ans_v1.0_dev.jsonl").read_text()) == MUSIQUE
    assert figures(kgqa("data", "check", "dataset=musique").out)["questions"] == 1


def test_without_the_package_datasets_its_command_is_named(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    ran = kgqa("data", "download", "dataset=musique", "from=hub")
    assert ran.code == 2
    assert "pip install 'kgqa[datasets]'" in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("to=elsewhere",), "dataset= is missing; e.g. kgqa data download dataset=musique"),
        (("dataset=musiqe",), "did you mean musique?"),
        (("dataset=musique", "form=hub"), "did you mean from?"),
        (("dataset=musique", "to="), "expected a value"),
        (("dataset=musique", "from=nowhere"), "from=nowhere: no such file or folder"),
        (("dataset=iirc", "from=hub"), "not on Hugging Face's hub"),
    ],
)
def test_a_wrong_setting_of_prepare_is_one_line(kgqa: Kgqa, arguments: tuple[str, ...], said: str) -> None:
    ran = kgqa("data", "download", *arguments)
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert not Path("data").exists()


def test_the_demo_has_nothing_to_fetch(kgqa: Kgqa) -> None:
    ran = kgqa("data", "download", "dataset=demo")
    assert ran.code == 0
    assert "it ships with kgqa" in ran.out


# check


def test_check_counts_the_demo(kgqa: Kgqa) -> None:
    found = figures(kgqa("data", "check", "dataset=demo").out)
    assert found["questions"] == 36
    assert found["of them distinct"] == 137
    assert found["gold passages of the questions"] == found["of them in the corpus"] == 69
    assert found["questions of 2 hops"] + found["questions of 3 hops"] + found["questions of 4 hops"] == 36


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
        "left out, having no answer": 1,
        "questions without passages": 2,
        "questions without gold passages": 1,
        "further passages of a title given to a question": 1,
        "passages given without text": 1,
        "passages in the corpus": 6,
        "of them distinct": 3,
        "repeated passages, kept once": 3,
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


def test_check_of_a_broken_file_is_one_line_with_its_place(kgqa: Kgqa) -> None:
    Path("q.jsonl").write_text(LINE + LINE[:40])
    ran = kgqa("data", "check", "dataset=musique", "dataset.path=q.jsonl")
    assert ran.code == 2
    assert "q.jsonl:2: not JSON" in ran.err
    assert ran.err.count("\n") == 1
