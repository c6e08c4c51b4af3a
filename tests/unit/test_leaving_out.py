"""What tests/conftest.py adds to pytest: tests that passed in one environment are left out of another, by name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import os
import pytest

@pytest.mark.parametrize("word", ["one", "two words", "three\\nlines"])
def test_what_passes(word, tmp_path):
    os.chdir(tmp_path)

def test_what_fails():
    assert False

def test_what_is_skipped():
    pytest.skip("engine abacus needs beads")
"""


def ran(folder: Path, *options: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", "pytest.ini", *options, "test_these.py"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False).stdout


def test_tests_that_passed_are_named_and_left_out_the_next_time(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_these.py").write_text(TESTS)
    first = ran(tmp_path, "--passed-to=passed")
    assert "1 failed, 3 passed, 1 skipped" in first
    assert "    1  engine abacus needs beads" in first.splitlines()
    assert (tmp_path / "passed").read_text().count("\n") == 3
    assert "1 failed, 1 skipped, 3 deselected" in ran(tmp_path, "--but=passed")
