"""A run's HTML report in a real browser, from disk."""

from __future__ import annotations

import csv
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kgqa.artifacts.run import FinishedRun
from kgqa.cli.main import main
from kgqa.report.explorer import run_page
from kgqa.report.run_report import sections
from tests.e2e.browser import CHROMIUM, Browser
from tests.e2e.conftest import QUICK

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"
DEMO = Path(__file__).parents[2] / "kgqa/datasets/demo.jsonl"
SECOND = "2hop__demo_02"


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
        assert main(["run", *asked, *QUICK, f"output_dir={base / 'run'}"]) == 0
    return base / "run/report.html"


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
    ids: list[str] = browser.value("visible.map((place) => rows[place].question_id)")
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


def test_the_picture_of_a_walk_has_only_the_ways_to_gold_passages(browser: Browser, page: Path) -> None:
    browser.open(page)
    steps = [{"path": ["b"], "chosen": ["d", "x"]}, {"path": ["b", "d"], "chosen": ["gold"]}]
    seeds, walked = browser.value(f"walksTo(new Set(['gold', 'a']), ['a', 'b', 'e'], {json.dumps(steps)})")
    assert seeds == ["a", "b"]
    assert [(step["start"], step["chosen"]) for step in walked] == [("b", ["d"]), ("d", ["gold"])]


def test_a_script_in_a_passage_stays_text(browser: Browser, page: Path) -> None:
    browser.open(page, "#q=2hop__demo_01")
    wait_for_question(browser, SCRIPT)
    browser.value("{ for (const each of document.querySelectorAll('#question details')) each.open = true }")
    browser.wait("document.querySelectorAll('#question details pre').length > 10")
    assert browser.value("byId('question').textContent").count(SCRIPT) > 10
    assert browser.value("document.querySelectorAll('#explorer script, #explorer img').length") == 0


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


PELLERY = [
    ["the architect Ilse Ravenholt", "born in", "Pellery", "p"],
    ["Candle Bridge", "designed by", "Ilse Ravenholt", "q"],
]


def test_the_chain_with_the_answer_opens_as_one_line(browser: Browser, page: Path) -> None:
    browser.open(page)
    other = [["Candle Bridge", "opened in", "1889", "p"]]
    chains = [{"score": -1.0, "ended": True, "triples": each} for each in ([], other, PELLERY)]
    browser.value(f"{{ byId('question').replaceChildren(noteView({json.dumps(chains)}, new Map(), 'pellery')) }}")
    opened = browser.value("[...document.querySelectorAll('#question details')].map((each) => each.open)")
    assert opened == [False, False, True]
    boxes = browser.value(
        "[...document.querySelectorAll('#question .box')].map((each) => each.querySelector('text').textContent)"
    )
    assert sorted(boxes) == ["Candle Bridge", "Pellery", "the architect Ilse Ravenholt"]
    assert browser.value("document.querySelector('#question .box.answer text').textContent") == "Pellery"


@pytest.mark.parametrize(
    ("longer", "shorter", "same"),
    [
        ("the architect Ilse Ravenholt", "Ilse Ravenholt", True), ("candle bridge", "Candle Bridge", True),
        ("New York", "York", False), ("the university of Paris", "Paris", False), ("Paris Hilton", "Paris", False),
    ],
)  # fmt: skip
def test_only_a_description_is_the_same_entity(
    browser: Browser, page: Path, longer: str, shorter: str, same: bool
) -> None:
    browser.open(page)
    assert browser.value(f"isDescriptionOf({json.dumps(longer)}, {json.dumps(shorter)})") == same


def text_of(browser: Browser, selector: str) -> str:
    found: str = browser.value(f"document.querySelector({json.dumps(selector)}).textContent")
    return found


def test_a_link_to_a_call_opens_it_and_one_to_none_opens_the_question(browser: Browser, page: Path) -> None:
    browser.open(page, f"#q={SECOND}&call=2.0.1")
    browser.wait("document.querySelectorAll('[data-call][open]').length === 1")
    assert browser.value("document.querySelector('[data-call][open]').dataset.call") == "2.0.1"
    browser.wait("document.querySelector('[data-call][open]').getBoundingClientRect().top < 500")
    assert "#q=2hop__demo_02&call=2.0.1" in browser.value("document.querySelector('[open] .take a').href")
    browser.open(page, f"#q={SECOND}&call=99")
    browser.wait("document.querySelectorAll('[data-call]').length > 0")
    assert browser.value("document.querySelectorAll('[data-call][open]').length") == 0
    browser.open(page, "#q=%E0%A4%A")
    browser.wait("byId('question').textContent.includes('No question')")


def test_questions_are_sorted_and_taken_along_as_files(browser: Browser, page: Path, tmp_path: Path) -> None:
    browser.ask("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.open(page, "#questions")
    browser.value("{ const box = byId('order'); box.value = 'calls'; box.dispatchEvent(new Event('input')) }")
    calls = browser.value("visible.map((place) => rows[place].model_calls)")
    assert calls == sorted(calls, reverse=True)
    assert len(set(calls)) > 1
    ids = browser.value("visible.map((place) => rows[place].question_id)")
    for form in ("csv", "jsonl"):
        browser.value(f"byId('{form}').click()")
        deadline = time.monotonic() + 30
        while not (tmp_path / f"questions.{form}").is_file() and time.monotonic() < deadline:
            time.sleep(0.05)
    with (tmp_path / "questions.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["question_id"] for line in lines] == ids
    assert [int(line["model_calls"]) for line in lines] == calls
    written = [json.loads(line) for line in (tmp_path / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["question_id"] for line in written] == ids
    assert json.loads(lines[0]["gold"]) == written[0]["gold"]
    assert browser.value("csvCell('=1+1') + csvCell('-1.5') + csvCell('a,\"b\"')") == '\'=1+1-1.5"a,""b"""'


def test_a_page_without_room_for_all_calls_says_how_to_see_the_others(
    browser: Browser, page: Path, tmp_path: Path
) -> None:
    run = FinishedRun.read(page.parent)
    small = tmp_path / "small.html"
    small.write_text("".join(run_page(run, sections(run), [], 120_000)), encoding="utf-8")
    browser.open(small, "#questions")
    browser.wait("rows.length === 12 && rows.every((row) => row.traced !== undefined)")
    here = browser.value("rows.filter((row) => row.traced).map((row) => row.question_id)")
    assert 0 < len(here) < 12
    assert f"Calls of {len(here)} of 12 questions are in this page" in text_of(browser, "#selection")
    elsewhere = browser.value("rows.find((row) => !row.traced).question_id")
    browser.open(small, f"#q={elsewhere}")
    browser.wait("(byId('question').textContent ?? '').includes('This page had no room')")
    assert f"kgqa show {run.folder} {elsewhere}" in text_of(browser, "#question")
    browser.open(small, f"#q={here[0]}")
    browser.wait("byId('question').textContent.includes('passages (')")
