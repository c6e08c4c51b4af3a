"""SECURITY.md promises nothing without a test, and no test that is not there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = [line for line in (ROOT / "SECURITY.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")][1:]


def test_every_promise_names_tests_that_exist() -> None:
    assert len(ROWS) >= 8
    for row in ROWS:
        named = re.findall(r"`(tests/[^`]+\.py)`", row.split("|")[3])
        assert named, row
        assert [name for name in named if not (ROOT / name).is_file()] == []
