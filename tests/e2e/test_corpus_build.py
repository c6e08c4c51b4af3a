"""The triples of a whole corpus: the same bytes in whatever order, however often interrupted."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kgqa.experiment.prepare.corpus import build_corpus, extract_here
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.session import Session
from kgqa.runtime.display import QUIET
from tests.e2e.conftest import QUICK, Kgqa
from tests.e2e.processes import replies_kept, started, wait_for_replies

PASSAGES = 137  # of the demo's 36 questions
CALLS = 2  # for each: to rank the examples, to write triples; tokens are counted without one


def stored(file: Path) -> list[bytes]:
    with closing(sqlite3.connect(file)) as connection:
        return [line for (line,) in connection.execute("SELECT line FROM extractions ORDER BY passage_id")]


def artefact(folder: Path) -> dict[str, object]:
    """Return the rows of a store and its settings: no path, no time, no order of arrival."""
    return {
        "extractions.sqlite": stored(folder / "extractions.sqlite"),
        "manifest.json": (folder / "manifest.json").read_bytes(),
    }


def built(kgqa: Kgqa, *arguments: str) -> dict[str, Any]:
    ran = kgqa("kg", "build", *arguments, *QUICK)
    assert ran.code == 0, ran.err
    files = artefact(ran.folder)
    written = {file.name for file in ran.folder.iterdir()}
    assert written == {*files, "statistics.json", "log.jsonl"}  # nothing else
    shutil.rmtree("outputs")  # with the call cache: the next build is on its own
    return files


def test_a_corpus_is_built_to_the_bytes_of_a_build_for_its_questions(kgqa: Kgqa) -> None:
    reference = built(kgqa)
    assert len(reference["extractions.sqlite"]) == PASSAGES
    assert built(kgqa, "max_parallel_questions=1") == reference
    assert built(kgqa, "--corpus", "max_parallel_questions=3") == reference


def test_what_was_extracted_before_changes_no_byte(kgqa: Kgqa) -> None:
    reference = built(kgqa, "--corpus")
    assert kgqa("kg", "build", "ids=[3hop1__demo_03]", *QUICK).code == 0
    assert kgqa("run", "method=trace", "limit=9", *QUICK).code == 0
    assert built(kgqa, "--corpus") == reference


def test_a_killed_build_goes_on_and_asks_nothing_again(kgqa: Kgqa, tmp_path: Path) -> None:
    counted = "kg.max_prompt_tokens=1000"  # every prompt has more bytes, so that its tokens are counted
    reference = built(kgqa, "--corpus", counted)
    command = ("kg", "build", "--corpus", "engine.delay=0.2", counted, *QUICK)
    process = started(command, tmp_path)
    wait_for_replies(tmp_path, 150)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    paid = replies_kept(tmp_path)
    [shards] = tmp_path.glob("outputs/kg/demo/*/build-*/shards")
    finished = list(shards.glob("*.jsonl"))
    assert finished
    ran = kgqa(*command)
    assert f"triples: {PASSAGES - 16 * len(finished)} done" in ran.out
    assert replies_kept(tmp_path) == CALLS * PASSAGES > paid
    assert artefact(ran.folder) == reference


def test_a_build_killed_while_merging_keeps_each_passage_once(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = built(kgqa, "--corpus")

    def killed(path: object, *, ignore_errors: bool = False) -> None:
        if not ignore_errors:  # the one that removes what was merged
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("kgqa.experiment.prepare.corpus.shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt), Session(Experiment.of(QUICK)) as session:
            build_corpus(session, extract_here, QUIET)
    assert built(kgqa, "--corpus") == reference


def test_a_finished_build_does_nothing(kgqa: Kgqa) -> None:
    first = kgqa("kg", "build", "--corpus", *QUICK)
    second = kgqa("kg", "build", "--corpus", *QUICK)
    assert second.folder == first.folder
    assert "triples: " not in second.out
    assert not list(second.folder.glob("build-*"))


def test_a_limit_counts_passages_and_can_be_raised(kgqa: Kgqa) -> None:
    ran = kgqa("kg", "build", "--corpus", "limit=20", *QUICK)
    assert ran.json("statistics.json")["passages"] == 20
    assert "triples: 117 done" in kgqa("kg", "build", "--corpus", *QUICK).out


def test_passages_beside_the_questions_are_extracted(kgqa: Kgqa, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"title": f"T{n}", "text": f"Text number {n}."}) + "\n" for n in range(40)))
    ran = kgqa("kg", "build", "--corpus", f"dataset.corpus={corpus}", *QUICK)
    assert ran.json("statistics.json")["passages"] == 40
    titles = {json.loads(line)["title"] for line in stored(ran.folder / "extractions.sqlite")}
    assert titles == {f"T{n}" for n in range(40)}


def test_a_run_finds_the_triples_of_a_corpus_build(kgqa: Kgqa) -> None:
    assert kgqa("kg", "build", "--corpus", *QUICK).code == 0
    assert kgqa("run", "method=trace", "limit=2", "kg.require_existing=true", *QUICK).code == 0


def test_more_than_five_percent_failed_stops_and_keeps_the_others(kgqa: Kgqa) -> None:
    short = "kg.max_prompt_tokens=66"  # words: those of the instruction and a title of two
    refused = kgqa("kg", "build", "--corpus", short, *QUICK)
    assert refused.code == 3
    assert "of 137 passages, first " in refused.err
    assert "it extracts only the failed passages" in refused.err
    [file] = Path("outputs").glob("kg/demo/*/extractions.sqlite")
    kept = len(stored(file))
    assert 0 < kept < 131
    assert f"of {PASSAGES - kept} passages" in kgqa("kg", "build", "--corpus", short, *QUICK).err


def test_only_one_process_builds_a_corpus(kgqa: Kgqa, tmp_path: Path) -> None:
    process = started(("kg", "build", "--corpus", "engine.delay=1", *QUICK), tmp_path)
    wait_for_replies(tmp_path, 1)
    refused = kgqa("kg", "build", "--corpus", "engine.delay=1", *QUICK)
    process.kill()
    process.communicate()
    assert refused.code == 2
    assert "another kgqa process is building this corpus" in refused.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--corpus", "ids=[2hop__demo_01]"), "limit=N takes N passages"),
        (("--workers", "2"), "--workers=2: only with --ray"),
        (("--ray", "--workers", "0"), "--workers=0: must be at least 1"),
        (("--ray", "--gpus", "-1"), "--gpus=-1: must be at least 0"),
        (("--ray", "--workers", "many"), "invalid int value: 'many'"),
        (("--corpse",), "--corpse"),
        (("--corpus", "limit=0"), "limit=0: must be at least 1"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, tuple) else "",
)
def test_a_wrong_command_is_one_line(kgqa: Kgqa, arguments: tuple[str, ...], said: str) -> None:
    refused = kgqa("kg", "build", *arguments, *QUICK)
    assert refused.code == 2
    assert said in refused.err
    assert len(refused.err.strip().splitlines()) == 1
