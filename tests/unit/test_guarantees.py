"""Each promise names a test: of a file, or of one function in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
PAGES = ("docs/GUARANTEES.md", "SECURITY.md")
TESTS = sorted(
    {match for page in PAGES for match in NAMED.findall((ROOT / page).read_text("utf-8"))}
)


@pytest.mark.parametrize(
    ("file", "function"), TESTS, ids=["::".join(filter(None, each)) for each in TESTS]
)
def test_named_test_exists(file: str, function: str) -> None:
    text = (ROOT / file).read_text("utf-8")
    assert f"def {function}" in text


@pytest.mark.parametrize("page", PAGES)
def test_every_promise_names_a_test(page: str) -> None:
    table = (ROOT / page).read_text("utf-8").rpartition("| Promise | Test |\n|---|---|\n")[2]
    rows = table.partition("\n\n")[0].splitlines()
    assert rows
    assert [row for row in rows if not NAMED.search(row)] == []
