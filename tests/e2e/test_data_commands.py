"""`kgqa data` and `kgqa cache` from the command line; downloads come from a server on this machine."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import sqlite3
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import zstandard

from kgqa.cache.store import CallCache, checksum
from kgqa.datasets.download import Download
from kgqa.system import downloads as data
from tests.e2e.conftest import QUICK, Kgqa, refused, write_lines
from tests.file_server import Behaviour, serving

MUSIQUE = {
    "id": "2hop__1_2",
    "question": "Who painted the bridge?",
    "answer": "Ann",
    "answer_aliases": ["Anne"],
    "paragraphs": [
        {
            "idx": 0,
            "title": "Ann",
            "paragraph_text": "Ann painted the bridge.",
            "is_supporting": True,
        },
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
    sources = data.list_sources()
    with serving(Behaviour()) as server:

        def offered(name: str, content: bytes, **changes: Any) -> Behaviour:
            server.content = content
            here = {
                "urls": [server.url],
                "bytes": len(content),
                "sha256": hashlib.sha256(content).hexdigest(),
            }
            sources[name] = Download.model_validate(
                {**sources[name].model_dump(), **here, **changes}
            )
            monkeypatch.setattr(data, "list_sources", lambda: sources)
            return server

        yield offered


def zipped(**files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"data/{name.replace('__', '.')}", content)
    return buffer.getvalue()


def figures(out: str) -> dict[str, int]:
    rows = [line.strip().partition("  ") for line in out.splitlines() if line.startswith("  ")]
    return {what: int(count.replace(",", "")) for count, _, what in rows}


def test_download_gives_a_runnable_dataset(
    kgqa: Kgqa, offer: Offer, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(
        "musique",
        zipped(musique_ans_v1__0_dev__jsonl=LINE, readme="x"),
        members=["musique_ans_v1.0_dev.jsonl"],
    )
    ran = kgqa("data", "download", "dataset=musique")
    assert (ran.code, ran.err) == (0, "")
    assert "license CC BY 4.0" in ran.out
    assert hashlib.sha256(LINE.encode()).hexdigest() in ran.out
    assert os.listdir("data/musique") == ["musique_ans_v1.0_dev.jsonl"]  # the archive is gone
    assert "data/musique/musique_ans" in "".join(kgqa("data", "list").out.split()).replace("│", "")
    assert kgqa("run", "dataset=musique", "method=no_context", *QUICK).code == 0
    monkeypatch.setenv("KGQA_DATA", "collection")
    assert kgqa("data", "download", "dataset=musique").code == 0
    assert os.listdir("collection/musique") == ["musique_ans_v1.0_dev.jsonl"]
    assert kgqa("data", "download", "dataset=musique", "to=elsewhere").code == 0
    assert os.listdir("elsewhere") == ["musique_ans_v1.0_dev.jsonl"]


def test_download_writes_the_templates_of_the_authors(kgqa: Kgqa, offer: Offer) -> None:
    program = 'prompt = """Answer. Question: {question}\n"""\n'
    template = {"user": [1], "values": {"question": "{{ question }}"}}
    offer("search_r1", program.encode(), also=None, templates={"search_r1/prompt": template})
    ran = kgqa("data", "download", "search_r1")
    assert (ran.code, ran.err) == (0, "")
    assert "prompts/search_r1/prompt.j2" in ran.out
    run = ("run", "dataset=demo", "method=search_agent", "method.prompt=search_r1/prompt", *QUICK)
    assert kgqa(*run).code == 0


def test_download_fetches_the_corpus_too(kgqa: Kgqa, offer: Offer) -> None:
    record = {
        "query": "Who?",
        "answer": "Ann",
        "question_type": "inference_query",
        "title": "Ann",
        "body": "Painter.",
    }
    for name in ("multihop_rag", "multihop_rag_corpus"):
        offer(name, json.dumps([record]).encode())
    ran = kgqa("data", "download", "dataset=multihop_rag")
    assert (ran.code, ran.err) == (0, "")
    assert sorted(os.listdir("data/multihop_rag")) == ["MultiHopRAG.json", "corpus.json"]
    assert figures(kgqa("data", "check", "dataset=multihop_rag").out)["questions"] == 1


def test_download_offline_names_file_and_folder(kgqa: Kgqa, offer: Offer) -> None:
    offer("iirc", b"", urls=["http://nowhere.invalid/iirc_train_dev.tgz"])
    ran = kgqa("data", "download", "dataset=iirc")
    refused(ran, "Get iirc_train_dev.tgz from https://allenai.org/data/iirc")
    assert "put it at data/iirc/iirc_train_dev.tgz and run the same command again" in ran.err
    assert "from=hub" not in ran.err
    offer("musique", b"", urls=["http://nowhere.invalid/musique_v1.0.zip"])
    assert "Or add from=hub." in kgqa("data", "download", "dataset=musique").err


def test_archive_of_a_user_is_checked_and_stays(kgqa: Kgqa, offer: Offer) -> None:
    content = zipped(dev__json="[]", train__json="[]", test__json="[]", id_aliases__json="")
    server = offer("2wiki", content)
    archive = Path("data/2wiki/data_ids_april7.zip")
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"another one")
    refused(
        kgqa("data", "download", "dataset=2wiki"), "Delete the file and run the same command again"
    )
    assert archive.read_bytes() == b"another one"
    archive.write_bytes(content)
    assert kgqa("data", "download", "dataset=2wiki").code == 0
    assert server.requests == 0
    assert archive.is_file()
    assert Path("data/2wiki/id_aliases.json").is_file()


def test_download_converts_hugging_face_datasets(kgqa: Kgqa, offer: Offer, tmp_path: Path) -> None:
    datasets: Any = pytest.importorskip("datasets", reason="needs the extra datasets")
    datasets.disable_progress_bars()
    offer("musique", b"")
    datasets.DatasetDict({"validation": datasets.Dataset.from_list([MUSIQUE])}).save_to_disk(
        tmp_path / "hub"
    )
    ran = kgqa("data", "download", "dataset=musique", f"from={tmp_path / 'hub'}")
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(Path("data/musique/musique_ans_v1.0_dev.jsonl").read_text()) == MUSIQUE
    assert figures(kgqa("data", "check", "dataset=musique").out)["questions"] == 1


def test_check_counts_what_is_odd(kgqa: Kgqa) -> None:
    lonely = {"id": "b", "question": "?", "answer": "x", "supporting_titles": ["Carl"]}
    blind = {"id": "c", "question": "?", "answer": "x"}
    full = {**MUSIQUE, "id": "d", "answerable": False}
    write_lines(Path("q.jsonl"), (MUSIQUE, lonely, blind, full))
    counts = figures(kgqa("data", "check", "dataset=musique", "dataset.path=q.jsonl").out)
    expected = {
        "questions": 3, "gold answers, aliases included": 4, "questions with aliases": 1, "passages given": 3,
        "gold passages": 2, "gold passages among those given": 1, "skipped: no answer": 1,
        "questions without passages": 2, "questions without gold passages": 1, "passages given without text": 1,
        "passages in the corpus": 6, "of them distinct": 3, "repeated passages (stored once)": 3,
        "passages without text": 1, "gold titles of the questions": 2, "of these titles in the corpus": 1,
    }  # fmt: skip
    assert {name: counts.get(name) for name in expected} == expected


def test_check_names_the_missing_corpus(kgqa: Kgqa) -> None:
    Path("q.jsonl").write_text(
        json.dumps({"id": "b", "question": "?", "answer": "x", "supporting_titles": ["Ann "]})
    )
    ran = kgqa("data", "check", "dataset=musique", "dataset.path=q.jsonl")
    assert ran.code == 0
    assert "dataset.corpus=FILE" in ran.out
    Path("c.jsonl").write_text('{"title": "ann", "text": "Ann."}\n')
    ran = kgqa("data", "check", "dataset=musique", "dataset.path=q.jsonl", "dataset.corpus=c.jsonl")
    assert figures(ran.out)["of these titles in the corpus"] == 1


TRACE = ("run", "method=trace", "limit=3", *QUICK)
CACHE = Path("outputs/.cache/calls.sqlite")


def changed(statement: str, file: Path = CACHE) -> None:
    with closing(sqlite3.connect(file)) as cache, cache:
        cache.execute(statement)


def unpacked(file: str) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader(Path(file).read_bytes()).read()


def packed(text: str) -> bytes:
    return zstandard.ZstdCompressor().compress(text.encode())


def test_repair_deletes_damaged_rows(kgqa: Kgqa) -> None:
    first = kgqa(*TRACE)
    before = (first.folder / "predictions.jsonl").read_bytes()
    changed("UPDATE calls SET value = '{}' WHERE value LIKE '{%'")
    assert kgqa("cache", "check").code == 1
    assert kgqa("cache", "check", "--repair").code == 0
    assert kgqa("cache", "check").out.endswith("0 damaged: whole\n")
    again = kgqa(*TRACE)
    assert (again.folder / "predictions.jsonl").read_bytes() == before


@pytest.mark.slow
def test_export_replays_elsewhere(
    kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = kgqa(*TRACE, "judge=three_way")
    kgqa("run", "method=no_context", "limit=7", *QUICK)
    ran = kgqa("cache", "export", "calls.jsonl.zst", "--run", str(first.folder))
    assert ran.code == 0
    assert "calls that reproduce its predictions" in ran.out
    refused(
        kgqa("cache", "export", "none.jsonl.zst", "--engine", "script"), "Did you mean scripted?"
    )
    with monkeypatch.context() as patch:
        patch.setenv("KGQA_CACHE", str(tmp_path / "elsewhere"))
        # where there are no triples yet
        patch.chdir(tmp_path / "outputs")
        merged = kgqa("cache", "import", str(tmp_path / "calls.jsonl.zst"))
        assert merged.code == 0
        assert "0 equal, 0 different" in merged.out
        again = kgqa(*TRACE, "judge=three_way")
        before, after = (tmp_path / first.folder), again.folder
        assert (after / "predictions.jsonl").read_bytes() == (
            before / "predictions.jsonl"
        ).read_bytes()
        metrics = again.json("metrics.json")
        assert metrics["cost"]["paid"]["calls"] == metrics["judge"]["cost"]["paid"]["calls"] == 0
        assert metrics["cost"]["extraction_paid"]["calls"] == 0
        assert " 0 new" in f" {kgqa('cache', 'import', str(tmp_path / 'calls.jsonl.zst')).out}"
    changed("DELETE FROM calls WHERE value LIKE '{\"logprobs\"%'")
    refused(
        kgqa("cache", "export", "none.jsonl.zst", "--run", str(first.folder)),
        "calls are not in this call cache",
    )
    assert not Path("none.jsonl.zst").exists()


@pytest.fixture
def export(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Export the calls of a run to calls.jsonl.zst, return its content, and use an empty cache from then on."""
    kgqa("run", "method=no_context", "limit=3", *QUICK)
    kgqa("cache", "export", "calls.jsonl.zst")
    monkeypatch.setenv("KGQA_CACHE", "other")
    return unpacked("calls.jsonl.zst")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda text: Path("calls.jsonl.zst").read_bytes()[:-200],
            "truncated after|not what kgqa cache export writes",
        ),
        (lambda text: b"no zstd", "bad.jsonl.zst:1: not what kgqa cache export writes"),
        (lambda text: packed(text.rpartition('{"calls"')[0]), "truncated after line 4"),
        (
            lambda text: packed(text.replace("kgqa calls 1", "kgqa calls 9")),
            "expected the format 'kgqa calls 1'",
        ),
        (lambda text: packed(text.replace("stop", "step", 1)), "bad.jsonl.zst:2: damaged"),
        (lambda text: packed(text.replace('"value"', '"words"', 1)), "bad.jsonl.zst:2"),
        (
            lambda text: packed(text.replace('"engine": "scripted"', '"engine": "\\ud800"', 1)),
            "bad.jsonl.zst:3",
        ),
        (lambda text: b"", "truncated after line 0"),
    ],
    ids=["cut", "no zstd", "no last line", "format", "checksum", "no value", "surrogate", "empty"],
)
def test_damaged_export_is_rejected_as_a_whole(
    kgqa: Kgqa, export: bytes, damage: Callable[[str], bytes], message: str
) -> None:
    Path("bad.jsonl.zst").write_bytes(damage(export.decode()))
    ran = kgqa("cache", "import", "bad.jsonl.zst")
    refused(ran, "bad.jsonl.zst")
    assert re.search(message, ran.err)
    assert "0 calls, 0 damaged: whole" in kgqa("cache", "check").out


def test_import_adds_new_replies_and_replaces_none(kgqa: Kgqa, export: bytes) -> None:
    assert kgqa("cache", "import", "calls.jsonl.zst").out == "3 new, 0 equal, 0 different\n"
    lines = [json.loads(line) for line in export.splitlines()]
    assert lines[0] == {"format": "kgqa calls 1"}
    assert lines[-1] == {"calls": 3}
    other = '{"text": "another", "finish": "stop", "usage": [1, 0, 1, 0.0], "flags": []}'
    lines[1] |= {"value": other, "checksum": checksum(lines[1]["key"].encode(), other.encode())}
    Path("other.jsonl.zst").write_bytes(packed("".join(json.dumps(line) + "\n" for line in lines)))
    ran = kgqa("cache", "import", "other.jsonl.zst")
    assert ran.out == "0 new, 2 equal, 1 different (existing calls are not replaced)\n"
    kgqa("cache", "export", "again.jsonl.zst")
    assert unpacked("again.jsonl.zst") == export


def test_export_omits_secrets(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    kgqa("run", "method=no_context", "limit=3", *QUICK)
    cache = CallCache(CACHE.parent)
    reply = {
        "text": 'your key is sk-Tr0ub4dor/"x',
        "finish": "stop",
        "usage": [1, 0, 1, 0.0],
        "flags": [],
    }
    cache.put([("secretive", reply)])
    cache.close()
    monkeypatch.setenv("OPENAI_API_KEY", 'sk-Tr0ub4dor/"x')
    ran = kgqa("cache", "export", "calls.jsonl.zst")
    assert "skipped: 1 calls (their replies contain a key from your environment)" in ran.out
    assert b"Tr0ub4dor" not in unpacked("calls.jsonl.zst")


def test_prune(kgqa: Kgqa) -> None:
    kgqa(*TRACE)
    before = json.loads(kgqa("cache", "stats", "--json").out)
    assert {share["engine"] for share in before} == {"scripted", "lexical"}
    ranked = sum(share["calls"] for share in before if share["engine"] == "lexical")
    assert kgqa("cache", "prune").code == 2
    assert f"{ranked:,} calls of " in kgqa("cache", "prune", "--engine", "lexical").out
    assert json.loads(kgqa("cache", "stats", "--json").out) == before
    assert (
        kgqa("cache", "prune", "--engine", "lexical", "--yes").out == f"{ranked:,} calls deleted\n"
    )
    assert json.loads(kgqa("cache", "stats", "--json").out) == [
        s for s in before if s["engine"] != "lexical"
    ]


@pytest.mark.parametrize(("days", "is_older"), [("190", True), ("210", False), ("9" * 30, False)])
def test_prune_counts_calls_older_than_n_days(kgqa: Kgqa, days: str, is_older: bool) -> None:
    kgqa(*TRACE)
    changed("UPDATE calls SET made = made - 86400 * 200 WHERE value LIKE '{\"text\"%'")
    assert kgqa("cache", "prune", "--older-than", days).out.startswith("0 calls") != is_older


@pytest.mark.parametrize("words", ["check", "stats", "export x.zst", "prune --older-than 1"])
def test_without_a_cache(kgqa: Kgqa, words: str) -> None:
    refused(kgqa("cache", *words.split()), "no such call cache")
    assert not Path("outputs").exists()


def test_own_questions_run_by_the_name_of_their_file(kgqa: Kgqa) -> None:
    write_lines(Path("own.jsonl"), [{"question": "Who wrote Birch?", "answer": "Alder"}])
    ran = kgqa("run", "method=no_context", "dataset=own.jsonl", *QUICK)
    assert ran.folder.parent == Path("outputs/own/no_context/scripted")


BARE = {"question": "Who wrote Birch?", "answer": "Alder"}


@pytest.mark.parametrize(
    "method",
    ["all_documents", "golden", "mdr", "safe", "trace", "kgp", "retrieve_read method.scope=own"],
)
def test_method_that_reads_passages_needs_some(kgqa: Kgqa, method: str) -> None:
    write_lines(Path("own.jsonl"), [BARE])
    words = ("dataset=own.jsonl", "reranker=null", *QUICK)
    message = "the questions of dataset=own came without passages"
    refused(kgqa("run", *f"method={method}".split(), *words), message)


def test_questions_without_passages_are_counted(kgqa: Kgqa) -> None:
    passages = {"passages": ["Alder wrote Birch."]}
    write_lines(Path("own.jsonl"), [BARE, {**BARE, **passages}, BARE])
    ran = kgqa("run", "method=all_documents", "dataset=own.jsonl", *QUICK)
    warning = (
        "warning: 2 questions of 3 came without passages. method=all_documents answers without"
    )
    assert warning in " ".join(ran.out.split())
