"""The viewer in a real browser."""

from __future__ import annotations

import json
import shutil
import socket
import time
from pathlib import Path
from urllib.parse import quote

from kgqa.artefacts.claim import Claim
from kgqa.runtime.at_work import keep_claim
from tests.e2e.browser import Browser
from tests.viewer.conftest import HOSTILE, SCRIPT
from tests.viewer.viewing import Viewing

ROWS = "[...document.querySelectorAll('#table tr[data-key]')].map((row) => row.dataset.key)"
FOCUSED = "document.activeElement.closest('tr')?.dataset.key ?? document.activeElement.id"


def go(browser: Browser, viewing: Viewing, rest: str) -> None:
    browser.visit(f"{viewing.base}{rest}")


def put(browser: Browser, what: str, value: str, event: str = "input") -> None:
    box = f"document.querySelector({json.dumps(what)})"
    browser.value(f"{box}.value = {json.dumps(value)}; {box}.dispatchEvent(new Event('{event}', {{ bubbles: true }}))")


def test_the_token_leaves_the_address_and_the_cookie_stays(browser: Browser, viewing: Viewing) -> None:
    assert browser.value("location.href") == viewing.base
    assert browser.value("document.cookie") == ""
    go(browser, viewing, "")
    assert len(browser.value(ROWS)) == 6


def test_the_table_filters_groups_sorts_and_shows_the_columns_that_are_chosen(
    browser: Browser, keys: dict[str, str]
) -> None:
    put(browser, "#filter", "dataset=musique EM>0")
    assert browser.value(ROWS) == [keys["no_context"]]
    put(browser, "#filter", "sweep=lengths method.max_answer_tokens<3")
    assert len(browser.value(ROWS)) == 2
    put(browser, "#filter", "")
    put(browser, "#group", "method", "change")
    heads = "[...document.querySelectorAll('tr.group')].map((row) => row.textContent)"
    assert browser.value(heads) == ["method: no_context · 4", "method: trace · 1", "method: none · 1"]
    put(browser, "#group", "", "change")
    browser.value("[...document.querySelectorAll('#table th button')].find((b) => b.textContent === 'EM').click()")
    assert browser.value(ROWS)[0] == keys["no_context"]
    assert browser.value("document.querySelector('#table th[aria-sort]').textContent") == "EM"
    column = "[...document.querySelectorAll('#columns label')].find((l) => l.textContent.trim() === 'method.beam')"
    browser.value(f"document.querySelector('#choose').open = true; {column}.querySelector('input').click()")
    head = "[...document.querySelectorAll('#table thead th')].map((head) => head.textContent)"
    assert "method.beam" in browser.value(head)
    browser.visit(browser.value("location.href"))
    assert "method.beam" in browser.value(head)  # remembered
    browser.value(f"document.querySelector('#choose').open = true; {column}.querySelector('input').click()")


def test_by_keys_alone_runs_are_chosen_tagged_and_compared(browser: Browser, viewing: Viewing) -> None:
    browser.press("/")
    browser.wait("document.activeElement.id === 'filter'")
    for letter in "dataset=musique":
        browser.press(letter)
    browser.value("document.activeElement.dispatchEvent(new Event('input'))")
    browser.press("Escape")
    first, second = browser.value(ROWS)
    browser.press("j")
    assert browser.value(FOCUSED) == first
    browser.press("x")
    browser.press("j")
    assert browser.value(FOCUSED) == second
    browser.press("x")
    assert browser.value("document.querySelector('#how-many').textContent") == "2 chosen"
    browser.press("t")
    assert browser.value(FOCUSED) == "tag"
    put(browser, "#tag", "kept")
    browser.value("document.querySelector('#chosen').requestSubmit()")
    browser.wait("document.querySelectorAll('#table td .mark').length === 2")
    assert viewing.get("/api/runs")["rows"][0]["tags"] in ([], ["kept"])
    browser.press("Escape")
    browser.press("c")
    browser.wait("location.hash.startsWith('#compare=') && document.querySelectorAll('.answers li').length === 12")
    browser.press("Escape")
    browser.wait("!document.querySelector('#runs').hidden")


def test_what_flipped_between_two_runs_is_a_filter_and_leads_to_the_question(
    browser: Browser, viewing: Viewing, keys: dict[str, str]
) -> None:
    both = "&".join(quote(keys[method], safe="") for method in ("trace", "no_context"))
    go(browser, viewing, f"#compare={both}")
    browser.wait("document.querySelectorAll('.answers li').length === 12")
    put(browser, ".answers-view select", "flipped")
    browser.wait("document.querySelectorAll('.answers li').length === 1")
    shown = browser.value("document.querySelector('.answers li').textContent")
    assert "Which bridge was opened first" in shown
    assert "the Candle Bridge" in shown
    browser.value("document.querySelector('#compare details').open = true")
    browser.wait("document.querySelector('#compare details').textContent.includes('EM')")
    put(browser, ".answers-view select", "only 0")
    assert browser.value("document.querySelectorAll('.answers li').length") == 0
    put(browser, ".answers-view select", "only 1")
    browser.value("document.querySelectorAll('.answers li a')[1].click()")
    browser.wait("(document.querySelector('#question h2')?.textContent ?? '').includes('Which bridge was opened')")
    assert browser.value("location.hash") == "#q=2hop__demo_02"


def test_a_link_opens_a_call_with_its_prompt_and_what_each_option_stands_for(
    browser: Browser, viewing: Viewing, keys: dict[str, str]
) -> None:
    go(browser, viewing, f"run/{keys['trace']}#q=2hop__demo_02")
    browser.wait("!!document.querySelector('#question h2')")
    assert " tokens · " in browser.value("document.querySelector('#question .facts').textContent")
    path = browser.value(
        "[...document.querySelectorAll('[data-call]')].find((d) => d.textContent.includes('choose')).dataset.call"
    )
    go(browser, viewing, f"run/{keys['trace']}#q=2hop__demo_02&call={path}")
    call = f"document.querySelector('[data-call=\"{path}\"]')"
    browser.wait(f"{call}?.open === true")
    assert browser.value(f"document.activeElement === {call}.firstChild")
    assert "no further triple is needed" in browser.value(f"{call}.querySelector('table').textContent")
    assert browser.value(f"{call}.querySelector('.take a').getAttribute('href')") == f"#q=2hop__demo_02&call={path}"
    wide = "Number(document.querySelector('.graph svg').getAttribute('width'))"
    before = browser.value(wide)
    browser.value("document.querySelectorAll('.pictured button')[1].click()")
    assert browser.value(wide) > before


def test_hostile_ids_titles_and_answers_stay_text(browser: Browser, viewing: Viewing, keys: dict[str, str]) -> None:
    both = "&".join(quote(keys[method], safe="") for method in ("no_context", "trace"))
    go(browser, viewing, f"#compare={both}")
    browser.wait("document.querySelectorAll('.answers li').length === 12")
    assert SCRIPT in browser.value("document.querySelector('.answers li').textContent")
    browser.value("document.querySelectorAll('.answers li a')[1].click()")
    browser.wait("(document.querySelector('#question h2')?.textContent ?? '').includes('In which town')")
    browser.value("{ for (const each of document.querySelectorAll('#question details')) each.open = true }")
    browser.wait("document.querySelectorAll('#question details pre').length > 10")
    text = browser.value("document.querySelector('#question').textContent")
    assert text.count(SCRIPT) > 10
    assert HOSTILE in text
    assert browser.value("document.querySelectorAll('main img, main script').length") == 0


def test_a_sweep_is_drawn_and_its_lines_lead_to_runs(browser: Browser, viewing: Viewing) -> None:
    go(browser, viewing, "#plots=sweeps%2Flengths")
    assert browser.value("document.querySelectorAll('.plot polyline').length") == 3
    assert browser.value("document.querySelectorAll('.plot circle').length") == 3
    put(browser, ".bar-of-tools label:last-of-type select", "F1", "change")
    whole = "({ y1, y2 }) => y1.baseVal.value <= 370 && y2.baseVal.value >= 20"
    assert browser.value(f"[...document.querySelectorAll('.plot .interval')].every({whole})")
    assert "method.max_answer_tokens" in browser.value("document.querySelector('.plot').textContent")
    link = browser.value("document.querySelector('.plot a').getAttribute('href')")
    assert browser.value(f"fetch({json.dumps(link)}).then((response) => response.status)") == 200


def test_who_is_at_work_shows_as_it_happens_and_what_ends_comes_into_the_table(
    browser: Browser, folder: Path, keys: dict[str, str]
) -> None:
    assert browser.value("document.querySelector('#work').hidden")
    before = folder / "outputs" / keys["trace"]
    fresh = before.with_name("fresh")
    claim = Claim(
        what="run", folder=str(fresh), command="kgqa run", host=socket.gethostname(), pid=1, started=time.time(),
        updated=time.time(), stage="questions", ended=3, count=12, per_minute=4.5, waits_for=f"a server {SCRIPT}",
    )  # fmt: skip
    file = folder / "outputs/.running/other-1-1.json"
    keep_claim(file, claim)
    browser.wait("document.querySelector('#work').textContent.includes('questions 3 of 12')")
    assert "4.5 a minute" in browser.value("document.querySelector('#work').textContent")
    shutil.copytree(before, fresh)
    browser.wait(f"{ROWS}.some((key) => key.endsWith('/fresh'))")
    file.unlink()
    browser.wait("document.querySelector('#work').hidden")
    shutil.rmtree(fresh)
    browser.wait(f"!{ROWS}.some((key) => key.endsWith('/fresh'))")


def test_no_width_scrolls_sideways_and_dark_is_dark(browser: Browser, viewing: Viewing, keys: dict[str, str]) -> None:
    both = "&".join(quote(key, safe="") for key in keys.values())
    colour = "getComputedStyle(document.body).backgroundColor"
    for rest in ("", f"#compare={both}", "#plots", f"run/{keys['trace']}#q=2hop__demo_02"):
        for width in (1400, 768, 390):
            browser.resize(width, 844)
            go(browser, viewing, rest)
            assert browser.value("document.documentElement.scrollWidth") <= width
        light = browser.value(colour)
        browser.prefer("dark")
        assert browser.value(colour) != light
        browser.prefer("light")
