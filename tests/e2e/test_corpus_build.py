"""The triples of a whole corpus: the same bytes in whatever order, however often interrupted."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

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
    assert written == {*files, "log.jsonl"}  # nothing else
    shutil.rmtree("outputs")  # with the call cache: the next build is on its own
    return files


def test_a_corpus_is_built_to_the_bytes_of_a_build_for_its_questions(kgqa: Kgqa) -> None:
    reference = built(kgqa)
    assert len(reference["extractions.sqlite"]) == PASSAGES
    assert built(kgqa, "max_parallel_questions=1") == reference
    assert built(kgqa, "--corpus", "max_parallel_questions=3") == reference


def test_a_killed_build_goes_on_and_asks_nothing_again(kgqa: Kgqa, tmp_path: Path) -> None:
    counted = "kg.max_prompt_tokens=1000"  # every prompt has more bytes, so that its tokens are counted
    reference = built(kgqa, "--corpus", counted)
    command = ("kg", "build", "--corpus", "engine.delay=0.2", counted, *QUICK)
    process = started(command, tmp_path)
    wait_for_replies(tmp_path, 200)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    paid = replies_kept(tmp_path)
    ran = kgqa(*command)
    assert replies_kept(tmp_path) == CALLS * PASSAGES > paid
    assert artefact(ran.folder) == reference


def test_passages_beside_the_questions_are_extracted(kgqa: Kgqa, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"title": f"T{n}", "text": f"Text number {n}."}) + "\n" for n in range(40)))
    ran = kgqa("kg", "build", "--corpus", f"dataset.corpus={corpus}", *QUICK)
    assert len(stored(ran.folder / "extractions.sqlite")) == 40
    titles = {json.loads(line)["title"] for line in stored(ran.folder / "extractions.sqlite")}
    assert titles == {f"T{n}" for n in range(40)}


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
