"""The triples of a whole corpus: the same bytes in whatever order, however often interrupted, also by Ray."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

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


NEEDS_RAY = pytest.mark.skipif(find_spec("ray") is None, reason="needs kgqa[ray], 70 MB to download")

BUILD = ("kg", "build", "--ray", "--workers", "2", *QUICK)
SLOW = ("engine.delay=2", "engine.batch_size=8")  # seconds for a batch; not part of the artifact's address


def workers(folder: Path) -> list[int]:
    """Return the process ids of Ray's workers that work in this folder."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if works_in(folder, Path(f"/proc/{pid}"))]


def works_in(folder: Path, process: Path) -> bool:
    try:
        return b"Extractor" in (process / "cmdline").read_bytes() and (process / "cwd").resolve() == folder.resolve()
    except OSError:  # it has ended
        return False


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.2)
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


@NEEDS_RAY
def test_workers_build_what_one_process_builds_though_one_is_killed(kgqa: Kgqa, tmp_path: Path) -> None:
    reference = built(kgqa, "--corpus")
    process = started((*BUILD, *SLOW), tmp_path)
    wait_for_replies(tmp_path, PASSAGES)
    pids = workers(tmp_path)
    assert len(pids) == 2
    os.kill(pids[0], signal.SIGKILL)
    code, out, err = finished(process)
    assert code == 0, err
    assert f"triples: {PASSAGES} done" in out
    assert artefact(tmp_path / out.strip().splitlines()[-1]) == reference
    assert gone(pids)


@NEEDS_RAY
@pytest.mark.skipif(find_spec("httpx2") is None, reason="needs kgqa[openai]")
def test_an_engine_that_is_gone_and_missing_gpus_end_the_build(tmp_path: Path) -> None:
    nobody = ("engine=openai", "engine.base_url=http://127.0.0.1:9/v1", "engine.server_timeout=0.1", *QUICK[1:])
    code, _, err = finished(started(("kg", "build", "--ray", "limit=16", *nobody), tmp_path))
    assert code == 3
    assert "127.0.0.1:9" in err
    code, _, err = finished(started((*BUILD, "--gpus", "99"), tmp_path))
    assert code == 2
    assert "--gpus: 198 GPUs are needed, and Ray has" in err.splitlines()[-1]
