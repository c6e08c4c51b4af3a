"""The page of a question that was put to documents, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgqa.cli.main import main
from tests.e2e.browser import CHROMIUM, Browser
from tests.e2e.conftest import QUICK

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
SCRIPT = "<script>alert('read')</script>"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KGQA_CACHE", raising=False)
    Path("vall.txt").write_text(f"Hesper Vall was born in Oustry. {SCRIPT}", encoding="utf-8")
    question = f"Where was Hesper Vall born? {SCRIPT}"
    assert main(["ask", question, "vall.txt", *QUICK, "method.adaptive_termination=false", "output_dir=page.html"]) == 0
    return Path("page.html")


def test_answer_and_quotation_come_first_and_what_led_there_is_one_press_away(page: Path, tmp_path: Path) -> None:
    with Browser(tmp_path / "profile") as browser:
        browser.open(page)
        shown = browser.value("document.getElementById('tables').innerText")
        assert "Hesper Vall was born in Oustry." in shown
        assert "vall.txt:1" in shown
        browser.value("document.getElementById('to-questions').click()")
        browser.wait("(document.querySelector('#question h2')?.textContent ?? '').startsWith('Where was Hesper')")
        led = browser.value("document.getElementById('question').innerText")
        assert "chains" in led
        assert "passages (1)" in led
        assert "calls (" in led
        assert not any(score in led for score in ("gold", "EM ", "F1"))
        browser.resize(390, 800)
        assert browser.value("document.documentElement.scrollWidth") <= 390
        browser.screenshot(tmp_path / "page.png")
        assert not browser.complaints  # neither errors nor dialogues: texts stay texts
