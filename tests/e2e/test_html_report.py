"""A run's HTML report in a real browser, from disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kgqa.cli.main import main
from tests.e2e.browser import CHROMIUM, LOADED, Browser
from tests.e2e.conftest import QUICK

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"
DEMO = Path(__file__).parents[2] / "kgqa/datasets/demo.jsonl"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of twelve questions answered by TRACE; the first one's question and passages hold a script."""
    base = tmp_path_factory.mktemp("html")
    first, *others = DEMO.read_text(encoding="utf-8").splitlines()[:12]
    hostile = json.loads(first)
    hostile["question"] += SCRIPT
    for paragraph in hostile["paragraphs"]:
        paragraph["paragraph_text"] += SCRIPT
    (base / "questions.jsonl").write_text("\n".join([json.dumps(hostile), *others]), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base)
        patch.delenv("KGQA_CACHE", raising=False)
        asked = ("method=trace", "dataset=musique", f"dataset.path={base / 'questions.jsonl'}")
        assert main(["run", *asked, *QUICK, f"out={base / 'run'}"]) == 0
    return base / "run/report.html"


@pytest.fixture(scope="module")
def walked(page: Path) -> Path:
    """The report of KGP on the same questions, with paths of three passages."""
    base = page.parents[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base)
        asked = ("method=kgp", "graph=none", "method.agent=random", "method.hops=3", "method.branching=1")
        few = ("dataset=musique", f"dataset.path={base / 'questions.jsonl'}", "limit=1", "engine=scripted")
        assert main(["run", *asked, *few, f"out={base / 'walk'}"]) == 0
    return base / "walk/report.html"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    chromium.complaints.clear()
    chromium.prefer("light")
    chromium.resize(1280, 900)
    yield chromium
    assert not chromium.complaints  # neither errors nor dialogues


def wait_for_question(browser: Browser, text: str) -> None:
    browser.wait(f"(document.querySelector('#question h2')?.textContent ?? '').includes({json.dumps(text)})")


def shown_ids(browser: Browser) -> list[str]:
    ids: list[str] = browser.value("visible.map((place) => rows[place].id)")
    return ids


def test_the_tables_show_first_and_sort(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.value("getComputedStyle(byId('tables')).display") != "none"
    assert browser.value("byId('explorer').hidden")
    column = "[...[...document.querySelectorAll('section')].find((s) => s.textContent.includes('By hops')).querySelectorAll('tbody th')].map((c) => c.textContent)"  # noqa: E501
    assert browser.value(column) == ["2", "3", "4"]
    click = "[...document.querySelectorAll('th button')].find((b) => b.textContent === 'hops').click()"
    browser.value(click)
    browser.value(click)
    assert browser.value(column) == ["4", "3", "2"]


def test_filters_and_search_leave_the_questions_that_match(browser: Browser, page: Path) -> None:
    browser.open(page, "#questions")
    assert len(shown_ids(browser)) == 12
    choose = "const box = byId('{}'); box.value = '{}'; box.dispatchEvent(new Event('input'))"
    browser.value("{" + choose.format("hops", "3") + "}")
    three = shown_ids(browser)
    assert three
    assert all(each.startswith("3hop") for each in three)
    browser.value("{" + choose.format("hops", "") + "}")
    browser.value("{" + choose.format("outcome", "failed") + "}")
    assert shown_ids(browser) == []
    browser.value("{" + choose.format("outcome", "wrong") + "}")
    browser.value("{" + choose.format("search", "ferry sella") + "}")
    assert shown_ids(browser) == ["2hop__demo_09"]
    assert browser.value("byId('shown').textContent") == "1 of 12 questions"


def test_a_wrong_question_opens_by_keys_with_all_that_led_to_it(browser: Browser, page: Path) -> None:
    browser.open(page, "#questions")
    wait_for_question(browser, "In which town was the architect")  # the first wrong one
    browser.press("j")
    wait_for_question(browser, "Which bridge was opened first")
    assert browser.value("location.hash") == "#q=2hop__demo_02"
    assert browser.value("document.querySelectorAll('#rows [aria-current]').length") == 1
    text = browser.value("byId('question').textContent")
    for part in ("gold", "Candle Bridge", "chains", "log-probability", "passages (8)", "reader/answer", "used 1"):
        assert part in text
    assert browser.value("document.querySelectorAll('#question svg rect').length") > 1
    assert not browser.value("[...document.querySelectorAll('#question pre')].length")  # prompts are folded
    browser.value(
        "{ [...document.querySelectorAll('details')].find((d) => d.textContent.includes('reader/answer')).open = true }"
    )
    browser.wait("document.querySelectorAll('#question pre').length >= 3")
    parts = browser.value("[...document.querySelectorAll('.prompt summary')].map((s) => s.textContent.split(' ')[0])")
    assert parts == ["instruction", "context", "question", "the"]
    opened = browser.value("[...document.querySelectorAll('.prompt pre')].map((each) => each.textContent).join('')")
    assert "Use the context" not in opened
    assert "Question: Which bridge was opened first" in opened
    browser.press("k")
    wait_for_question(browser, "In which town was the architect")
    browser.press("Escape")
    browser.wait("location.hash === '#questions'")


def test_slash_takes_to_the_search_and_escape_out_of_it(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.press("/")
    browser.wait("document.activeElement === byId('search')")
    browser.press("j")
    assert browser.value("byId('search').value") == "j"
    browser.press("Escape")
    assert browser.value("document.activeElement === document.body")
    browser.press("f")
    browser.wait("document.activeElement === byId('outcome')")


def test_a_link_opens_its_question(browser: Browser, page: Path) -> None:
    browser.open(page, "#q=2hop__demo_09")
    wait_for_question(browser, "ferry Sella Maid")
    browser.open(page, "#q=no%20such")
    browser.wait("byId('question').textContent.includes('No question no such in this run')")


def test_a_script_in_a_passage_stays_text(browser: Browser, page: Path) -> None:
    browser.open(page, "#q=2hop__demo_01")
    wait_for_question(browser, SCRIPT)
    browser.value("{ for (const each of document.querySelectorAll('#question details')) each.open = true }")
    browser.wait("document.querySelectorAll('#question details pre').length > 10")
    assert browser.value("byId('question').textContent").count(SCRIPT) > 10
    assert browser.value("document.querySelectorAll('#explorer script, #explorer img').length") == 0


def test_a_walk_through_a_passage_graph_is_a_list_whose_scripts_stay_text(browser: Browser, walked: Path) -> None:
    browser.open(walked, "#q=2hop__demo_01")
    wait_for_question(browser, SCRIPT)
    text = browser.value("document.querySelector('.traversal').textContent")
    assert "agent random · 8 seeds" in text
    assert "chooses among" in text
    assert browser.value("document.querySelectorAll('.traversal > ol > li').length") == 16  # 8 seeds, 2 steps each
    hostile = "[...document.querySelectorAll('.traversal [title]')].filter((each) => each.title.includes('<script>'))"
    assert browser.value(f"{hostile}.length") > 0
    assert browser.value("document.querySelectorAll('.traversal .gold').length") > 0
    assert browser.value("document.querySelectorAll('#question .graph').length") == 1  # the walk
    assert browser.value("document.querySelectorAll('#explorer script, #explorer img').length") == 0


def test_dark_follows_the_system_and_the_button_turns_it_round(browser: Browser, page: Path) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    browser.open(page)
    light = browser.value(colour)
    browser.prefer("dark")
    dark = browser.value(colour)
    assert light != dark
    browser.value("byId('theme').click()")
    assert browser.value(colour) == light


def test_a_narrow_window_shows_list_or_question_and_never_scrolls_sideways(browser: Browser, page: Path) -> None:
    browser.resize(390, 844)
    sideways = "document.documentElement.scrollWidth > 390"
    browser.open(page)
    assert not browser.value(sideways)
    browser.open(page, "#questions")
    assert browser.value("byId('question').offsetHeight") == 0
    browser.press("j")
    wait_for_question(browser, "In which town")
    assert browser.value("byId('browse').offsetHeight") == 0
    assert not browser.value(sideways)


@pytest.fixture(scope="module")
def judged(page: Path) -> Path:
    """The same run with verdicts: the first against EM, the second of an answer that changed, the third unscored."""
    copied = page.parent.with_name("judged")
    shutil.copytree(page.parent, copied)
    lines = []
    for place, prediction in enumerate(map(json.loads, (copied / "predictions.jsonl").read_text("utf-8").splitlines())):
        verdict = None if place == 2 else "correct" if place == 0 else "incorrect"
        answer = "another" if place == 1 else prediction["answer"]
        vote = {"verdict": verdict, "replies": [f'{{"verdict": "{verdict}"}} {SCRIPT}'], "error": None}
        line = {"question_id": prediction["question_id"], "verdict": verdict, "fate": "judged", "answer": answer}
        lines.append(json.dumps({**line, "votes": [vote], "error": None, "judge": "three_way small@scripted 12ab"}))
    (copied / "verdicts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert main(["report", str(copied)]) == 0
    return copied / "report.html"


def chosen(browser: Browser, outcome: str) -> list[str]:
    browser.value(f"{{ const box = byId('outcome'); box.value = '{outcome}'; box.dispatchEvent(new Event('input')) }}")
    return shown_ids(browser)


def test_a_judge_against_exact_match_is_a_filter(browser: Browser, judged: Path) -> None:
    browser.open(judged, "#questions")
    assert chosen(browser, "disputed") == ["2hop__demo_01"]
    assert "judge: correct" in browser.value("byId('rows').textContent")
    assert len(chosen(browser, "unscored")) == 1
    assert "judge: unscored" in browser.value("byId('rows').textContent")


def test_a_question_shows_its_verdict_and_what_the_judge_wrote(browser: Browser, judged: Path) -> None:
    browser.open(judged, "#q=2hop__demo_01")
    wait_for_question(browser, "In which town was the architect")
    shown = browser.value("document.querySelector('#question .facts').textContent")
    assert "judgecorrect three_way small@scripted 12ab" in shown
    assert f'{{"verdict": "correct"}} {SCRIPT}' in shown
    browser.open(judged, "#q=2hop__demo_02")
    wait_for_question(browser, "Which bridge was opened first")
    assert "judge" not in browser.value("document.querySelector('#question .facts').textContent")


def test_without_verdicts_nothing_offers_them(browser: Browser, page: Path) -> None:
    browser.open(page, "#questions")
    assert browser.value("[...byId('outcome').options].filter((o) => !o.hidden).map((o) => o.value)") == [
        "", "wrong", "right", "failed", "empty", "flagged",
    ]  # fmt: skip


def test_names_in_texts_are_set_as_code(browser: Browser, page: Path) -> None:
    browser.open(page)
    texts = browser.value("[...document.querySelectorAll('section > p')].map((p) => p.textContent).join('\\n')")
    assert "`" not in texts
    assert "**" not in texts


@pytest.fixture(scope="module")
def against(page: Path) -> Path:
    """The same questions answered without passages, the second one right, in the report of TRACE's run."""
    base = page.parents[1]
    rule = {"match": "Which bridge was opened first", "reply": "the Candle Bridge"}
    (base / "rules.jsonl").write_text(json.dumps(rule), encoding="utf-8")
    asked = ("method=no_context", "dataset=musique", f"dataset.path={base / 'questions.jsonl'}", "engine=scripted")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base)
        assert main(["run", *asked, f"engine.rules={base / 'rules.jsonl'}", f"out={base / 'other'}"]) == 0
    assert main(["report", str(base / "run"), "--against", str(base / "other")]) == 0
    return base / "run/against-other.html"


def test_questions_that_flipped_against_another_run_are_a_filter(browser: Browser, against: Path) -> None:
    browser.open(against, "#questions")
    assert chosen(browser, "won") == []
    assert chosen(browser, "lost") == ["2hop__demo_02"]
    browser.press("j")
    wait_for_question(browser, "Which bridge was opened first")
    assert "the Candle Bridge (EM 100.0 % · F1 100.0 %)" in browser.value("byId('question').textContent")


def test_without_another_run_nothing_flipped(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.value("['won', 'lost'].every((id) => document.querySelector(`#outcome [value=${id}]`).hidden)")


def test_the_table_of_a_sweep_sorts(browser: Browser, page: Path) -> None:
    base = page.parents[1]
    swept = ("method=no_context", "method.max_answer_tokens=3,1,2", "dataset=demo", "limit=1", "engine=scripted")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base)
        assert main(["run", "-m", *swept, "sweep.name=sorting"]) == 0
    browser.open(base / "outputs/sweeps/sorting/report.html", ready=LOADED)
    column = "[...document.querySelectorAll('.figures tbody tr')].map((row) => row.cells[1].textContent)"
    assert browser.value(column) == ["3", "1", "2"]
    head = "document.querySelector('.figures th:nth-child(2) button')"
    browser.value(f"{head}.click()")
    assert browser.value(column) == ["1", "2", "3"]
    browser.value(f"{head}.click()")
    assert browser.value(column) == ["3", "2", "1"]
