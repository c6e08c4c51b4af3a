"""Workers of a real local Ray build the bytes that one process builds, whoever is killed on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.e2e.conftest import QUICK, Kgqa
from tests.e2e.processes import started
from tests.e2e.test_corpus_build import PASSAGES, artefact, built

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="needs kgqa[ray], 150 MB to download")

BUILD = ("kg", "build", "--ray", "--workers", "2", *QUICK)
SLOW = "engine.delay=2"  # seconds for the 16 passages of a shard; not part of the artefact's address


def workers(folder: Path) -> list[int]:
    """Process ids of Ray's workers that work in this folder."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if works_in(folder, Path(f"/proc/{pid}"))]


def works_in(folder: Path, process: Path) -> bool:
    try:
        return b"Extractor" in (process / "cmdline").read_bytes() and (process / "cwd").resolve() == folder.resolve()
    except OSError:  # it has ended
        return False


def shards(folder: Path) -> list[Path]:
    return list(folder.glob("outputs/kg/demo/*/build-*/shards/*.jsonl"))


def wait_for_shards(folder: Path, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 240
    while len(shards(folder)) < count and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(shards(folder)) >= count


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.2)
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_shards_merge_to_the_bytes_of_one_process_though_a_worker_is_killed(kgqa: Kgqa, tmp_path: Path) -> None:
    reference = built(kgqa, "--corpus")
    process = started((*BUILD, SLOW), tmp_path)
    wait_for_shards(tmp_path, 1, process)
    at_work = workers(tmp_path)
    assert len(at_work) == 2
    os.kill(at_work[0], signal.SIGKILL)
    code, out, err = finished(process)
    assert code == 0, err
    assert f"triples: {PASSAGES} done" in out
    assert artefact(tmp_path / out.strip().splitlines()[-1]) == reference
    assert gone(at_work)
    assert not shards(tmp_path)


def test_a_killed_build_ends_its_workers_and_goes_on_from_its_shards(kgqa: Kgqa, tmp_path: Path) -> None:
    reference = built(kgqa, "--corpus")
    process = started((*BUILD, SLOW), tmp_path)
    wait_for_shards(tmp_path, 2, process)
    at_work = workers(tmp_path)
    process.kill()
    process.communicate()
    assert gone(at_work)
    left = PASSAGES - sum(len(shard.read_text().splitlines()) for shard in shards(tmp_path))
    assert 0 < left < PASSAGES
    code, out, err = finished(started(BUILD, tmp_path))
    assert code == 0, err
    assert f"triples: {left} done" in out
    assert artefact(tmp_path / out.strip().splitlines()[-1]) == reference


@pytest.mark.skipif(find_spec("httpx2") is None, reason="needs kgqa[openai]")
def test_an_engine_that_is_gone_ends_the_build_after_three_attempts(tmp_path: Path) -> None:
    nobody = ("engine=openai", "engine.base_url=http://127.0.0.1:9/v1", "engine.patience=0.1", *QUICK[1:])
    code, _, err = finished(started(("kg", "build", "--ray", "limit=16", *nobody), tmp_path))
    assert code == 3
    assert "127.0.0.1:9" in err.splitlines()[-2]
    [attempts] = tmp_path.glob("outputs/kg/demo/*/build-*/shards/*.attempts")
    assert len(attempts.read_bytes()) == 3


def test_more_gpus_than_there_are_is_one_line(tmp_path: Path) -> None:
    code, _, err = finished(started((*BUILD, "--gpus", "99"), tmp_path))
    assert code == 2
    assert "--gpus: 198 GPUs are needed, and Ray has" in err.splitlines()[-1]
