"""A page that has no room for the calls of all questions, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgqa.cli.main import main
from kgqa.report.writing import write_report
from tests.e2e.browser import CHROMIUM, Browser
from tests.e2e.conftest import QUICK

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")


def test_a_page_without_room_for_all_calls_says_whose_are_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run"
    assert main(["run", "method=trace", "limit=12", *QUICK, f"out={folder}"]) == 0
    small = write_report(folder, "html", tmp_path / "small.html", None, 0.12)
    with Browser(tmp_path / "profile") as browser:

        def shown() -> list[str]:
            ids: list[str] = browser.value("visible.map((place) => rows[place].id)")
            return ids

        def chosen(outcome: str) -> list[str]:
            box = "const box = byId('outcome')"
            browser.value(f"{{ {box}; box.value = '{outcome}'; box.dispatchEvent(new Event('input')) }}")
            return shown()

        browser.open(small, "#questions")
        assert len(shown()) == 12
        browser.wait("rows.every((row) => row.traced !== undefined)")
        here = chosen("traced")
        assert 0 < len(here) < 12
        assert f"Calls of {len(here)} questions are in this page" in browser.value("byId('selection').textContent")
        everything = chosen("")
        elsewhere = next(each for each in everything if each not in here)
        browser.open(small, f"#q={elsewhere}")
        browser.wait("(byId('question').textContent ?? '').includes('This page had no room')")
        assert f"kgqa show {folder} {elsewhere}" in browser.value("byId('question').textContent")
        assert "gold" in browser.value("byId('question').textContent")
        browser.open(small, f"#q={here[0]}")
        browser.wait("byId('question').textContent.includes('passages (')")
        assert not browser.complaints
