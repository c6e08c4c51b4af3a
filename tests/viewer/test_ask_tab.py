"""The ask tab: questions to five files, with rules instead of a model."""

from __future__ import annotations

import time
from html import unescape
from pathlib import Path

import pytest

from tests.e2e.browser import Browser
from tests.e2e.invented_island import BORN
from tests.viewer.conftest import SCRIPT
from tests.viewer.viewing import Viewing

FORM = {"question": BORN, "documents": "island", "method": "trace"}


def finish(viewing: Viewing) -> str:
    """Wait until the question is answered, and return the page."""
    for _ in range(300):
        if "data-reload" in viewing.get("/ask/progress"):
            return viewing.get("/ask")
        time.sleep(0.1)
    raise AssertionError(viewing.get("/ask/progress"))


@pytest.mark.parametrize("method", ["trace", "kgp"])
def test_answer_is_shown_with_sentences_and_saved(asking: Viewing, place: Path, method: str) -> None:
    assert asking.post("/ask", **FORM | {"method": method}) == ""
    page = finish(asking)
    assert '<p class="answer">Oustry</p>' in page
    assert '<p class="hint">island/' in page
    name = page.partition('href="/asked/')[2].partition('"')[0]
    response, text = asking.ask(f"/asked/{name}", {"Cookie": asking.cookie})
    assert text == (place / f"outputs/asked/{name}.html").read_text(encoding="utf-8")
    assert (response.getheader("content-security-policy") or "").startswith("sandbox")


def test_hostile_texts_are_escaped(asking: Viewing) -> None:
    question = f"Who was hostile? {SCRIPT}"
    assert asking.post("/ask", **FORM | {"question": question}) == ""
    assert SCRIPT not in asking.get("/ask")
    page = finish(asking)
    assert SCRIPT not in page
    assert question in unescape(page)


def test_failed_question_shows_the_error(asking: Viewing) -> None:
    assert asking.post("/ask", **FORM | {"question": "--help? method.beam=x", "method": "retrieve_read"}) == ""
    assert "--help? method.beam=x" in finish(asking)


def test_one_question_at_a_time_and_cancel_ends_it(place: Path) -> None:
    slow = Viewing.start(place, "--documents", "island", "engine=scripted", "engine.delay=30", "method=retrieve_read")
    try:
        assert 'value="retrieve_read" title=' in slow.get("/ask")
        form = FORM | {"method": "retrieve_read"}
        assert slow.post("/ask", **form) == ""
        assert "cancel it" in slow.post("/ask", **form)
        assert slow.get("/").count("data-key") == 0
        for _ in range(100):
            if "passages to search" in slow.get("/ask/progress"):
                break
            time.sleep(0.1)
        assert slow.post("/ask/cancel") == ""
        assert '<p class="alarm">' in finish(slow)
        assert slow.post("/ask", **form) == ""
    finally:
        assert slow.interrupt()[0] == 0


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"documents": "elsewhere"}, "Start with kgqa view --documents FOLDER"),
        ({"documents": "island/.."}, "not one of the folders"),
        ({"documents": "/etc"}, "not one of the folders"),
        ({"method": "golden"}, "method 'golden': not one of the choices"),
        ({"method": "trace engine.url=x"}, "not one of the choices"),
        ({"question": " \n "}, "must have 1 to 2,000 characters"),
        ({"question": "x" * 2001}, "must have 1 to 2,000 characters"),
    ],
)
def test_other_values_are_rejected_in_one_line(asking: Viewing, wish: dict[str, str], message: str) -> None:
    error = asking.post("/ask", **FORM | wish)
    assert message in error
    assert "\n" not in error


def test_only_the_own_page_can_ask_and_cancel(asking: Viewing) -> None:
    mine = {"Cookie": asking.cookie}
    for path in ("/ask", "/ask/cancel"):
        for origin in ({}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
            assert asking.ask(path, mine | origin, "POST", "question=Who")[0].status == 403
        assert asking.ask(path, {"Origin": f"http://127.0.0.1:{asking.port}"}, "POST", "question=Who")[0].status == 403
    assert asking.ask("/ask/progress", {})[0].status == 403
    assert "no such answer" in asking.error("/asked/rules")
    for path in ("/asked/../../rules.jsonl", "/asked/..%2f..%2frules", "/asked/%2e%2e"):
        assert asking.ask(path, mine)[0].status in (400, 404)


def test_answer_appears_without_a_reload_in_a_browser(tab: Browser) -> None:
    tab.value(f"document.querySelector('[name=question]').value = {BORN!r}")
    tab.value("document.querySelector('[name=question]').form.requestSubmit()")
    tab.wait("document.querySelector('.answer')?.textContent === 'Oustry'")
