"""Workers of a real local Ray build what one process builds, even if one of them is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.e2e.conftest import QUICK, Kgqa
from tests.e2e.processes import started, wait_for_replies
from tests.e2e.test_corpus_build import PASSAGES, artefact, built

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="needs kgqa[ray], 70 MB to download")

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


@pytest.mark.skipif(find_spec("httpx2") is None, reason="needs kgqa[openai]")
def test_an_engine_that_is_gone_ends_the_build(tmp_path: Path) -> None:
    nobody = ("engine=openai", "engine.base_url=http://127.0.0.1:9/v1", "engine.server_timeout=0.1", *QUICK[1:])
    code, _, err = finished(started(("kg", "build", "--ray", "limit=16", *nobody), tmp_path))
    assert code == 3
    assert "127.0.0.1:9" in err


def test_more_gpus_than_there_are_is_one_line(tmp_path: Path) -> None:
    code, _, err = finished(started((*BUILD, "--gpus", "99"), tmp_path))
    assert code == 2
    assert "--gpus: 198 GPUs are needed, and Ray has" in err.splitlines()[-1]
