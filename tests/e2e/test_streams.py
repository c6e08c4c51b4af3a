"""Where output goes nowhere: a full disk is told, a reader that is gone or was never there stops no work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import QUICK

FULL = "kgqa: standard output: No space left on device. Free disk space or redirect it"
SWEEP = ("run", "-m", "method=golden,all_documents", "limit=1", *QUICK, "sweep.name=s")


def ended(words: tuple[str, ...], redirected: str, folder: Path, **more: str) -> tuple[int, list[str]]:
    """Exit code and lines on stderr of a command in a shell."""
    command = f'{sys.executable} -m kgqa "$@" {redirected}; exit ${{PIPESTATUS[0]}}'
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **more}
    shell = subprocess.run(
        ["bash", "-c", command, "bash", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    return shell.returncode, shell.stderr.splitlines()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_full_disk_behind_the_output_is_one_line(tmp_path: Path) -> None:
    for words, unbuffered in ((("--help",), ""), (("data", "list"), "1")):
        code, (line,) = ended(words, "> /dev/full", tmp_path, PYTHONUNBUFFERED=unbuffered)
        assert (code, line.startswith(FULL)) == (2, True)
    assert ended(("show", "nothing"), "> /dev/full 2> /dev/full", tmp_path) == (2, [])


@pytest.mark.parametrize("redirected", ["| true", ">&- 2>&-"])
def test_a_sweep_that_nobody_watches_is_done_all_the_same(redirected: str, tmp_path: Path) -> None:
    """A closed stream's number goes to no file, into which others would print."""
    assert ended(SWEEP, redirected, tmp_path) == (0, [])
    assert len(list(tmp_path.glob("outputs/demo/*/*/*/report.html"))) == 2
    assert (tmp_path / "outputs/sweeps/s/report.html").is_file()
