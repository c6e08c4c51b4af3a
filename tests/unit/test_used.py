"""What benchmarks read of a process: its own peak, not that of who started it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts.used import used


def test_a_small_process_of_a_large_one_is_small(tmp_path: Path) -> None:
    large = bytearray(200 * 2**20)
    taken = used([sys.executable, "-c", "import time; time.sleep(0.2)"], tmp_path)
    assert len(large) / 2**20 > taken.mebibytes > 2
    assert taken.cpu > 0
    assert taken.seconds >= 0.2


def test_one_that_fails_says_so(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"(?s)what is wrong\n.*ended with 3"):
        used([sys.executable, "-c", "import sys; print('what is wrong', file=sys.stderr); sys.exit(3)"], tmp_path)
