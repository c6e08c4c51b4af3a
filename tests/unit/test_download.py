"""Downloads from a real server, archives as the authors publish them, and Hugging Face's format."""

from __future__ import annotations

import bz2
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kgqa.datasets import corpus, download
from kgqa.datasets.download import Download, Hub, convert, original, unpack, unpack_abstracts
from kgqa.errors import DataError
from kgqa.runtime.display import QUIET
from kgqa.system.downloads import fetch_dataset
from kgqa.types import Passage
from tests.file_server import Behaviour, serving
from tests.unit.files import jsonl, refusal
from tests.unit.question_files import MUSIQUE, hotpotqa, hotpotqa_record, musique

CONTENT = bytes(range(256)) * 2048  # 512 KiB
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Behaviour]:
    monkeypatch.setattr("pooch.core.time.sleep", lambda _: None)
    with serving(Behaviour(CONTENT)) as behaviour:
        yield behaviour


def source(*urls: str, sha256: str | None = SHA256) -> Download:
    return Download(
        content="bytes",
        license="none",
        page="kgqa",
        folder=".",
        urls=urls,
        file="file.bin",
        bytes=None,
        sha256=sha256,
    )


def test_source_without_address_is_not_part_of_kgqa(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KGQA_DATA", str(tmp_path))
    monkeypatch.setattr(
        "kgqa.system.downloads.list_sources", lambda: {"musique": source(), "demo": source()}
    )
    with pytest.raises(
        DataError, match=r"kgqa knows no address .* Get file\.bin from kgqa, put it at .*file\.bin"
    ):
        fetch_dataset("musique", QUIET)
    fetch_dataset("demo", QUIET)
    (tmp_path / "file.bin").write_bytes(CONTENT)
    fetch_dataset("musique", QUIET)


def fetch(item: Download, target: Path) -> list[tuple[str, int, int | None]]:
    progress: list[tuple[str, int, int | None]] = []
    download.download(item, target, lambda *step: progress.append(step))
    return progress


@pytest.mark.parametrize("sha256", [SHA256, None], ids=["digest", "no digest"])
def test_download_is_complete_with_progress(
    sha256: str | None, server: Behaviour, tmp_path: Path
) -> None:
    progress = fetch(source(server.url, sha256=sha256), tmp_path / "file.bin")
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [CONTENT]
    assert {(file, total) for file, _, total in progress} == {("file.bin", len(CONTENT))}
    assert sum(more for _, more, _ in progress) == len(CONTENT)


def test_broken_download_is_repeated(server: Behaviour, tmp_path: Path) -> None:
    server.cut_after, server.statuses = [300_000], [503]
    fetch(source(server.url), tmp_path / "file.bin")
    assert ((tmp_path / "file.bin").read_bytes(), server.requests) == (CONTENT, 3)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        pytest.param("cut_after", [1000] * 9, "1000 bytes read", id="truncated"),
        pytest.param("statuses", [503] * 3, "503", id="server error"),
        pytest.param("content", b"another file", f"expected {SHA256} but got", id="another file"),
    ],
)
def test_file_that_does_not_arrive_leaves_nothing(
    server: Behaviour, tmp_path: Path, name: str, value: Any, error: str
) -> None:
    server.cut_after, server.statuses = [], []
    setattr(server, name, value)
    message = refusal(
        fetch, source(server.url, f"{server.url}s"), tmp_path / "file.bin", error=DataError
    )
    assert error in message
    assert f"404 Client Error: Not Found for url: {server.url}s" in message
    assert not list(tmp_path.iterdir())


# Archives

FILES = {
    "data_ids/dev.json": b"[1]",
    "data_ids/train.json": b"[2]" * 100_000,
    "__MACOSX/data_ids/dev.json": b"mac",
}


def zipped(file: Path, files: Mapping[str, bytes] = FILES) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file


def tarred(file: Path, files: Mapping[str, bytes] = FILES, mode: str = "gz") -> Path:
    with tarfile.open(file, f"w:{mode}") as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_archive_members_stay_in_the_target_folder(
    tmp_path: Path, pack: Callable[..., Path]
) -> None:
    unpack(pack(tmp_path / "archive"), ["dev.json"], tmp_path / "out")
    assert [(file.name, file.read_bytes()) for file in (tmp_path / "out").iterdir()] == [
        ("dev.json", b"[1]")
    ]
    for name in ("../../dev.json", "a/../../../dev.json"):
        with pytest.raises(DataError):
            unpack(
                pack(tmp_path / "archive", {name: b"[1]"}), ["dev.json"], tmp_path / "deep" / "new"
            )
    assert len(list(tmp_path.rglob("dev.json"))) == 1


def overwritten(content: bytes) -> bytes:
    return content[:45] + b"\xff" * 15 + content[60:]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(
            lambda file: zipped(file).read_bytes(),
            "no other.json in this archive",
            id="missing member",
        ),
        pytest.param(
            lambda file: tarred(file).read_bytes()[:200], "broken archive", id="truncated"
        ),
        pytest.param(
            lambda file: overwritten(zipped(file).read_bytes()), "broken archive", id="damaged"
        ),
        pytest.param(lambda _: b"<html>no archive</html>", "broken archive", id="web page"),
    ],
)
def test_wrong_or_broken_archive_leaves_no_files(
    content: Callable[[Path], bytes], message: str, tmp_path: Path
) -> None:
    file, out = tmp_path / "archive", tmp_path / "out"
    file.write_bytes(content(file))
    with pytest.raises(DataError, match=message):
        unpack(file, ["dev.json", "other.json"], out)
    assert not list(out.iterdir())


def shard(*records: object) -> bytes:
    return bz2.compress(jsonl(*records).encode())


def test_abstracts_become_the_same_corpus_each_time(tmp_path: Path) -> None:
    pages = {
        "enwiki/AA/wiki_00.bz2": shard(
            {"title": "Ann", "text": ["Ann is ", " a painter."]},
            {"title": "Bob &amp; Co.", "text": ["A shop."]},
        ),
        "enwiki/AB/wiki_00.bz2": shard({"title": "Empty", "text": []}),
    }
    archive = tarred(tmp_path / "abstracts.tar.bz2", pages, "bz2")
    counts: list[int] = []
    for name in ("one.jsonl.gz", "two.jsonl.gz"):
        unpack_abstracts(archive, tmp_path / name, counts.append)
    assert counts == [2, 1, 2, 1]
    expected = [
        Passage.of("Ann", "Ann is a painter."),
        Passage.of("Bob & Co.", "A shop."),
        Passage.of("Empty", ""),
    ]
    assert list(corpus.read(tmp_path / "one.jsonl.gz")) == expected
    assert (tmp_path / "one.jsonl.gz").read_bytes() == (tmp_path / "two.jsonl.gz").read_bytes()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        pytest.param({"enwiki/readme.txt": b"text"}, "It is not HotpotQA's", id="other files"),
        pytest.param({"AA/wiki_00.bz2": b"no bz2"}, "broken archive", id="no bz2"),
        pytest.param(
            {"AA/wiki_00.bz2": shard({"title": "Ann"})}, "broken archive .'text'", id="no text"
        ),
    ],
)
def test_invalid_archive_of_abstracts_is_rejected(
    tmp_path: Path, files: dict[str, bytes], message: str
) -> None:
    archive = tarred(tmp_path / "other.tar.bz2", files, "bz2")
    with pytest.raises(DataError, match=message):
        unpack_abstracts(archive, tmp_path / "out" / "corpus.jsonl.gz", lambda _: None)
    assert not list((tmp_path / "out").iterdir())


# Hugging Face's format, written with the library itself in the hub's own schema

HUB = Hub(id="hotpotqa/hotpot_qa", config="distractor", split="validation")
AUTHORS = hotpotqa_record()
ROW = {
    **{key: value for key, value in AUTHORS.items() if key != "_id"},
    "id": "5a",
    "supporting_facts": {"title": ["A &amp; B", "A &amp; B"], "sent_id": [0, 7]},
    "context": {"title": ["A &amp; B", "C"], "sentences": [["One.", " Two. ", ""], ["Three."]]},
}


def table(*ids: str) -> Any:
    datasets: Any = pytest.importorskip("datasets", reason="needs the extra datasets")
    datasets.disable_progress_bars()
    return datasets.Dataset.from_list([{**ROW, "id": id_} for id_ in ids])


def saved_splits(folder: Path) -> None:
    import datasets

    datasets.DatasetDict({"validation": table("5a"), "train": table("t")}).save_to_disk(folder)


def saved_split(folder: Path) -> None:
    table("5a").save_to_disk(folder)


def repository(folder: Path) -> None:
    for name, id_ in {
        "distractor/validation": "5a",
        "fullwiki/validation": "f",
        "distractor/train": "t",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        table(id_).to_parquet(folder / f"{name}-00000-of-00001.parquet")


@pytest.mark.parametrize("write", [saved_splits, saved_split, repository])
def test_each_form_on_disk_is_read_as_the_authors_file(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    table("5a")
    write(tmp_path / "hub")
    convert(HUB, tmp_path / "hub", tmp_path / "dev.json", lambda _: None)
    assert json.loads((tmp_path / "dev.json").read_text()) == [AUTHORS]
    assert [question.id for question in hotpotqa(tmp_path / "dev.json").questions()] == ["5a"]


@pytest.mark.parametrize("nested", [True, False], ids=["records of lists", "lists of records"])
def test_musique_is_converted_to_lines(tmp_path: Path, nested: bool) -> None:
    datasets: Any = pytest.importorskip("datasets", reason="needs the extra datasets")
    row = dict(MUSIQUE)
    if nested:
        for key in ("paragraphs", "question_decomposition"):
            row[key] = {name: [record[name] for record in row[key]] for name in row[key][0]}
    datasets.Dataset.from_list([row]).save_to_disk(tmp_path / "hub")
    convert(HUB, tmp_path / "hub", tmp_path / "dev.jsonl", lambda _: None)
    assert [json.loads(line) for line in (tmp_path / "dev.jsonl").read_text().splitlines()] == [
        MUSIQUE
    ]
    assert [question.answers for question in musique(tmp_path / "dev.jsonl").questions()] == [
        ("Ann", "Anne")
    ]


@pytest.mark.parametrize(
    ("write", "split", "message"),
    [(saved_splits, "test", "'test'"), (Path.mkdir, "validation", "")],
)
def test_missing_split_is_reported(tmp_path: Path, write: Any, split: str, message: str) -> None:
    table("5a")
    write(tmp_path / "hub")
    with pytest.raises(DataError, match=f"{message}.*hotpotqa/hotpot_qa, distractor"):
        convert(
            HUB.model_copy(update={"split": split}),
            tmp_path / "hub",
            tmp_path / "dev.json",
            lambda _: None,
        )
    assert not (tmp_path / "dev.json").exists()


def test_another_dataset_is_rejected() -> None:
    with pytest.raises(DataError, match="a row with text, label does not match any known dataset"):
        original({"text": "x", "label": 1})


def test_lost_connection_is_described_in_a_few_words(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^127\.0\.0\.1:9: no connection \(Connection refused\)$"):
        fetch(source("http://127.0.0.1:9/file.bin"), tmp_path / "file.bin")
