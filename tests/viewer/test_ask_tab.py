"""The ask tab in a real browser: questions to five files, with rules in place of a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kgqa.viewer.choices import Choices
from tests.e2e.browser import Browser
from tests.e2e.conftest import QUICK
from tests.e2e.invented_island import BORN
from tests.viewer.asking import ENDED, ask
from tests.viewer.conftest import SCRIPT
from tests.viewer.viewing import Viewing

STATE = "document.querySelector('.state').textContent"
LOG = "document.querySelector('.log').textContent"


def test_triples_and_chain_are_drawn_and_the_answer_has_sentence_and_place(
    tab_of_triples: Browser, place: Path
) -> None:
    tab = tab_of_triples
    ask(tab, BORN, "trace")
    tab.wait(ENDED)
    assert tab.value(STATE).startswith("answered after")
    assert tab.value("document.querySelector('.said').textContent") == "Oustry"
    first = "document.querySelector('.steps li')"
    assert tab.value(f"{first}.querySelector('blockquote').textContent").endswith(".")
    assert tab.value(f"{first}.querySelector('.hint').textContent").startswith("island/")
    assert tab.value("document.querySelectorAll('.drawn path.lit, .drawn path.quoted').length") >= 2
    for told in ("passages found", "1 triple of island/vall.txt:1", "hop 1"):
        assert told in tab.value(LOG)
    link = tab.value("document.querySelector('.answer .take a').getAttribute('href')")
    assert (place / "outputs" / f"{link[1:]}.html").is_file()
    tab.visit(tab.value(f"new URL({json.dumps(link)}, location).href"))
    assert tab.value("document.querySelector('#tables h3').textContent") == "Oustry"
    tab.value("document.querySelector('#to-questions').click()")
    tab.wait("document.querySelectorAll('#question [data-call]').length > 5")


def test_unless_told_otherwise_chains_are_of_sentences(tab: Browser) -> None:
    ask(tab, BORN, "trace")
    tab.wait(ENDED)
    assert tab.value("document.querySelector('.said').textContent") == "Oustry"
    assert "hop 1" in tab.value(LOG)
    assert "triple" not in tab.value(LOG)
    assert tab.value("document.querySelectorAll('.steps blockquote').length") > 0


def test_the_walk_of_kgp_grows_while_it_is_walked(tab: Browser) -> None:
    """What the picture holds is looked at each time it changes: seeds alone come before what they lead to."""
    tab.value(
        "globalThis.seen = [];"
        "new MutationObserver(() => seen.push(document.querySelectorAll('.drawn .walked').length)).observe("
        "document.querySelector('#telling'), {childList: true, subtree: true})"
    )
    ask(tab, "Which ferry sails now?", "kgp")
    tab.wait(ENDED)
    seen = tab.value("seen")
    grown = list(dict.fromkeys(seen))
    assert grown[0] == 0
    assert len(grown) >= 3  # nothing, the first step's, the second's
    assert tab.value("document.querySelectorAll('.drawn .box.seed').length") == 2
    assert tab.value("document.querySelectorAll('.drawn .box.visited').length") > 0
    quoted = tab.value("document.querySelectorAll('.steps > li').length")
    assert tab.value("document.querySelectorAll('.drawn .box.quoted').length") == quoted > 0
    assert tab.value("document.querySelector('.said').textContent") == "Northern Star"
    tab.visit(tab.value("`${document.querySelector('.answer .take a').href}#q=asked`"))
    tab.wait("document.querySelectorAll('.traversal .graph .box.visited').length > 0")  # in the question's page, too


def test_hostile_documents_and_questions_stay_text(tab: Browser) -> None:
    question = f"Who was hostile? {SCRIPT}"
    ask(tab, question, "trace")
    tab.wait(ENDED)
    tab.value("{ for (const each of document.querySelectorAll('.log details')) each.open = true }")
    tab.wait("document.querySelector('.log').textContent.includes('was hostile <script>')")
    assert tab.value("document.querySelectorAll('main img, main script').length") == 0
    tab.visit(tab.value("document.querySelector('.answer .take a').href"))
    assert tab.value("document.querySelector('h1').textContent") == question
    assert tab.value("document.querySelectorAll('main img, main script:not([src])').length") == 0


def test_what_was_asked_is_there_after_a_reload_and_listed(tab: Browser, asking: Viewing) -> None:
    ask(tab, "Who founded the Academy?", "trace")
    tab.wait(ENDED)
    shown = tab.value("document.querySelector('.told').textContent")
    tab.visit(f"{asking.base}#ask")
    tab.wait(f"document.querySelector('.told')?.textContent === {json.dumps(shown)}")
    first = "document.querySelector('#earlier-questions li')"
    tab.wait(f"{first}?.textContent.includes('Orsola Finch')")
    assert tab.value(f"fetch({first}.querySelector('a').href).then((response) => response.status)") == 200


def test_one_question_at_a_time_and_cancel_ends_it(place: Path, chromium: Browser) -> None:
    slow = Viewing.start(place, "--documents", "island", "engine=scripted", "engine.delay=30", "method=retrieve_read")
    try:
        chromium.resize(1400, 900)
        chromium.visit(f"{slow.address}#ask")
        chromium.wait("document.querySelectorAll('#ask-method option').length > 5")
        assert chromium.value("document.querySelector('#ask-method').value") == "retrieve_read"
        ask(chromium, "Which ferry sails now?", "retrieve_read")
        chromium.wait(f"{LOG}.includes('search')")
        wish = {"question": "And now?", "documents": "island", "method": "trace"}
        assert "wait for its answer, or cancel it" in slow.post("/api/ask", wish)["error"]
        assert slow.get("/api/runs")["count"] == 0  # others are answered meanwhile
        chromium.value("document.querySelector('#ask-cancel').focus()")
        chromium.press("Enter")
        chromium.wait(ENDED)
        assert chromium.value(STATE).startswith("stopped; ")
        assert chromium.value("document.activeElement.id") == "ask-question"
        ask(chromium, "Who founded the Academy of Merrin?", "retrieve_read")
        chromium.wait(f"{LOG}.includes('search')")  # by the same process, which is ready at once
    finally:
        assert slow.interrupt()[0] == 0


def test_no_width_scrolls_sideways(tab: Browser) -> None:
    ask(tab, BORN, "kgp")
    tab.wait(ENDED)
    for width in (1400, 768, 390):
        tab.resize(width, 844)
        assert tab.value("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"documents": "elsewhere"}, "no such folder of documents; give it: kgqa view --documents FOLDER"),
        ({"documents": "island/.."}, "no such folder of documents"),
        ({"documents": "/etc"}, "no such folder of documents"),
        ({"method": "golden"}, "method 'golden': not one that can be chosen here"),
        ({"method": "trace engine.url=x"}, "not one that can be chosen here"),
        ({"model": "x model.path=y"}, "not one that can be chosen here"),
        ({"question": " \n "}, "a question has 1 to 2,000 characters"),
        ({"question": "x" * 2001}, "a question has 1 to 2,000 characters"),
        ({"question": ":quit"}, "a question has 1 to 2,000 characters"),
        ({"question": 3}, "question: question"),
    ],
)
def test_what_is_no_choice_is_refused_in_one_line(asking: Viewing, wish: dict[str, object], message: str) -> None:
    right = {"question": "Who?", "documents": "island", "method": "trace", "model": ""}
    said = asking.post("/api/ask", right | wish)["error"]
    assert message in said
    assert "\n" not in said


def test_only_the_page_itself_asks_and_cancels(asking: Viewing) -> None:
    mine = {"Cookie": asking.cookie}
    body = json.dumps({"question": "Who?", "documents": "island", "method": "trace"})
    for path in ("/api/ask", "/api/ask/cancel"):
        for origin in ({}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
            assert asking.ask(path, mine | origin, "POST", body)[0].status == 403
        assert asking.ask(path, {"Origin": f"http://127.0.0.1:{asking.port}"}, "POST", body)[0].status == 403
    assert asking.ask("/api/ask/events", {})[0].status == 403
    assert "no question that is kept" in asking.get("/asked/rules")["error"]
    for path in ("/asked/../../rules.jsonl", "/asked/..%2f..%2frules", "/asked/%2e%2e"):
        assert asking.ask(path, mine)[0].status in (400, 404)


def test_an_error_is_one_clear_line(place: Path, chromium: Browser) -> None:
    wrong = Viewing.start(place, "--documents", "island", *QUICK, "method.nonsense=3")
    try:
        chromium.visit(f"{wrong.address}#ask")
        chromium.wait("document.querySelectorAll('#ask-method option').length > 5")
        ask(chromium, "Who?", "trace")
        chromium.wait(ENDED)
        assert chromium.value(STATE).startswith("failed: method.nonsense")
    finally:
        assert wrong.interrupt()[0] == 0


def test_without_documents_the_tab_says_how_to_give_some(viewing: Viewing, browser: Browser) -> None:
    browser.visit(f"{viewing.base}#ask")
    browser.wait("!document.querySelector('#no-documents').hidden")
    assert browser.value("document.querySelector('#put').hidden")


def test_folders_below_the_one_that_is_shown_are_offered_and_links_out_of_it_are_not(tmp_path: Path) -> None:
    for name in ("outputs/notes", "outputs/asked", "outputs/.hidden", "elsewhere", "outputs/empty"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / ("a.md" if name != "outputs/empty" else "a.png")).write_text("text", encoding="utf-8")
    (tmp_path / "outputs/link").symlink_to(tmp_path / "elsewhere")
    choices = Choices(tmp_path / "outputs", (tmp_path / "elsewhere",), ())
    assert list(choices.folders().values()) == [tmp_path / "elsewhere", tmp_path / "outputs/notes"]


def test_a_folder_that_is_none_is_refused_at_the_start(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from kgqa.cli import main

    assert main(["view", str(place), "--no-browser", "--documents", str(place / "nowhere")]) == 2
    assert "nowhere: no such folder; name one with documents" in capfd.readouterr().err
