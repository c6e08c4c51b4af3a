"""A run's HTML report in a real browser, from disk."""

from __future__ import annotations

import csv
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from kgqa.cli.main import main
from kgqa.util.text import score_text
from tests.e2e.browser import Browser
from tests.viewer.conftest import HOSTILE, SCRIPT

SECOND = "2hop__demo_02"


@pytest.fixture
def page(folder: Path, keys: dict[str, str]) -> Path:
    """The report of twelve questions answered by TRACE. The first one's question and passages contain a script."""
    return folder / "outputs" / keys["trace"] / "report.html"


MARKS = "document.querySelector('#question .marks')"
LABEL = "[...document.querySelectorAll('#question dt')].find((each) => each.textContent === '{}')"


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    chromium.complaints.clear()
    chromium.prefer("light")
    chromium.resize(1280, 900)
    yield chromium
    assert not chromium.complaints  # neither errors nor dialogues


def wait_for_question(browser: Browser, text: str) -> None:
    browser.wait(
        f"(document.querySelector('#question h2')?.textContent ?? '').includes({json.dumps(text)})"
    )


def list_ids(browser: Browser) -> list[str]:
    ids: list[str] = browser.value("visible.map((place) => rows[place].question_id)")
    return ids


def test_filters_have_only_outcomes_of_the_run(browser: Browser, page: Path) -> None:
    browser.open(page, "#questions")
    options = "[...byId('outcome').options].slice(1)"
    hidden = browser.value(f"{options}.map((each) => each.hidden)")
    counts = browser.value(f"{options}.map((each) => rows.filter(OUTCOMES[each.value]).length)")
    assert hidden == [count == 0 for count in counts]
    assert len(set(hidden)) == 2


def test_scores_are_rounded_as_in_tables(browser: Browser, page: Path) -> None:
    browser.open(page, "#questions")
    scores = [*(eighth / 8 for eighth in range(-20, 801)), 12.749999999999998, 16.15, -0.04]
    shown = browser.value(f"{json.dumps(scores)}.map(scoreText)")
    assert shown == list(map(score_text, scores))


def test_orders_that_change_nothing_are_hidden(browser: Browser, page: Path) -> None:
    browser.open(page, "#questions")
    browser.value("rows.forEach((row) => (row.context_tokens = 7))")
    browser.value("hideUnused()")
    options = "[...byId('order').options].filter((each) => each.hidden)"
    assert "context" in browser.value(f"{options}.map((each) => each.value)")
    assert "id" not in browser.value(f"{options}.map((each) => each.value)")


def test_tables_sort_and_filters_select_questions(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.value("getComputedStyle(byId('tables')).display") != "none"
    assert browser.value("byId('explorer').hidden")
    column = "[...[...document.querySelectorAll('section')].find((s) => s.textContent.includes('By hops')).querySelectorAll('tbody th')].map((c) => c.textContent)"  # noqa: E501
    assert browser.value(column) == ["2", "3", "4"]
    click = (
        "[...document.querySelectorAll('th button')].find((b) => b.textContent === 'hops').click()"
    )
    browser.value(click)
    browser.value(click)
    assert browser.value(column) == ["4", "3", "2"]
    browser.open(page, "#questions")
    assert len(list_ids(browser)) == 12
    three = chosen(browser, "3", "hops")
    assert three
    assert all(each.startswith("3hop") for each in three)
    chosen(browser, "", "hops")
    assert chosen(browser, "failed") == []
    chosen(browser, "wrong")
    assert chosen(browser, "ferry sella", "search") == ["2hop__demo_09"]
    assert browser.value("byId('shown').textContent") == "1 of 12 questions"


def test_wrong_question_opens_with_its_complete_trace(browser: Browser, page: Path) -> None:
    browser.open(page, "#questions")
    wait_for_question(browser, "In which town was the architect")  # the first wrong one
    browser.press("j")
    wait_for_question(browser, "Which bridge was opened first")
    assert browser.value("location.hash") == "#q=2hop__demo_02"
    text = browser.value("byId('question').textContent")
    for part in (
        "gold",
        "Candle Bridge",
        "chains",
        "log-probability",
        "passages (8)",
        "reader/answer",
        "used 1",
    ):
        assert part in text
    browser.open(page, f"#q={SECOND}&call=2.0.1")
    browser.wait("document.querySelectorAll('[data-call][open]').length === 1")
    assert browser.value("document.querySelector('[data-call][open]').dataset.call") == "2.0.1"
    assert "#q=2hop__demo_02&call=2.0.1" in browser.value(
        "document.querySelector('[open] .take a').href"
    )
    browser.press("k")
    wait_for_question(browser, "In which town was the architect")
    browser.press("Escape")
    browser.wait("location.hash === '#questions'")
    browser.open(page, "#q=%E0%A4%A")
    browser.wait("byId('question').textContent.includes('No question')")


def test_pictures_of_walks_and_chains(browser: Browser, page: Path) -> None:
    """A walk has only the ways to gold passages; the chain with the answer opens as one line."""
    browser.open(page)
    steps = [{"path": ["b"], "chosen": ["d", "x"]}, {"path": ["b", "d"], "chosen": ["gold"]}]
    seeds, walked = browser.value(
        f"walksTo(new Set(['gold', 'a']), ['a', 'b', 'e'], {json.dumps(steps)})"
    )
    assert seeds == ["a", "b"]
    assert [(step["start"], step["chosen"]) for step in walked] == [("b", ["d"]), ("d", ["gold"])]
    other = [["Candle Bridge", "opened in", "1889", "p"]]
    chains = [{"score": -1.0, "ended": True, "triples": each} for each in ([], other, PELLERY)]
    browser.value(
        f"{{ byId('question').replaceChildren(noteView({json.dumps(chains)}, new Map(), 'pellery')) }}"
    )
    opened = browser.value(
        "[...document.querySelectorAll('#question details')].map((each) => each.open)"
    )
    assert opened == [False, False, True]
    boxes = browser.value(
        "[...document.querySelectorAll('#question .box')].map((each) => each.querySelector('text').textContent)"
    )
    assert sorted(boxes) == ["Candle Bridge", "Pellery", "the architect Ilse Ravenholt"]
    assert (
        browser.value("document.querySelector('#question .box.answer text').textContent")
        == "Pellery"
    )
    for longer, shorter, same in [
        ("the architect Ilse Ravenholt", "Ilse Ravenholt", True), ("candle bridge", "Candle Bridge", True),
        ("New York", "York", False), ("the university of Paris", "Paris", False), ("Paris Hilton", "Paris", False),
    ]:  # fmt: skip
        assert (
            browser.value(f"isDescriptionOf({json.dumps(longer)}, {json.dumps(shorter)})") == same
        )


def test_a_script_in_a_passage_stays_text(browser: Browser, page: Path) -> None:
    browser.open(page, f"#q={quote(HOSTILE, safe='')}")
    wait_for_question(browser, SCRIPT)
    browser.value(
        "{ for (const each of document.querySelectorAll('#question details')) each.open = true }"
    )
    browser.wait("document.querySelectorAll('#question details pre').length > 10")
    assert browser.value("byId('question').textContent").count(SCRIPT) > 10
    assert browser.value("document.querySelectorAll('#explorer script, #explorer img').length") == 0


def test_cost_of_a_question_has_the_extraction_apart(browser: Browser, page: Path) -> None:
    browser.open(page, f"#q={SECOND}")
    browser.wait(f"{MARKS}?.textContent.includes('{SECOND}')")
    row = browser.value(f"rows.find((row) => row.question_id === '{SECOND}')")
    cost, extraction = (
        browser.value(f"{LABEL.format(name)}.nextSibling.textContent")
        for name in ("cost", "extraction")
    )
    assert re.match(rf"{row['model_calls']} model calls \(\d+ selector, 1 reader\) · ", cost)
    assert f" · {row['prompt_tokens']:,} prompt and {row['output_tokens']:,} generated" in cost
    assert re.match(
        r"(\d+) model calls \(\1 extractor\) · [1-9][\d,]+ prompt and [1-9]", extraction
    )


def test_failed_call_is_shown_as_failed(browser: Browser, page: Path) -> None:
    browser.open(page, "#questions")
    calls = """[{
        call: 'generate', role: 'reader', path: [1],
        reply: { error: 'Refused', message: 'no', usage: null },
    }]"""
    assert browser.value(f"countCalls({calls})") == "1 model call (1 reader), 1 failed"
    browser.value(f"rows.find((row) => row.question_id === '{SECOND}').error = 'Refused: no'")
    browser.value(f"location.hash = '#q={SECOND}'")
    browser.wait(f"{MARKS}?.textContent.includes('{SECOND}')")
    assert browser.value(f"{MARKS}.textContent").startswith(f"failed{SECOND}")


def chosen(browser: Browser, value: str, control: str = "outcome") -> list[str]:
    browser.value(
        f"{{ const box = byId('{control}'); box.value = '{value}'; box.dispatchEvent(new Event('input')) }}"
    )
    return list_ids(browser)


PELLERY = [
    ["the architect Ilse Ravenholt", "born in", "Pellery", "p"],
    ["Candle Bridge", "designed by", "Ilse Ravenholt", "q"],
]


def test_questions_are_sorted_and_downloaded(browser: Browser, page: Path, tmp_path: Path) -> None:
    browser.ask("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.open(page, "#questions")
    ids = chosen(browser, "calls", "order")
    calls = browser.value("visible.map((place) => rows[place].model_calls)")
    assert calls == sorted(calls, reverse=True)
    assert len(set(calls)) > 1
    browser.value("byId('csv').click()")
    deadline = time.monotonic() + 30
    while not (tmp_path / "questions.csv").is_file() and time.monotonic() < deadline:
        time.sleep(0.05)
    with (tmp_path / "questions.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["question_id"] for line in lines] == ids
    assert [int(line["model_calls"]) for line in lines] == calls
    assert (
        browser.value("csvCell('=1+1') + csvCell('-1.5') + csvCell('a,\"b\"')")
        == '\'=1+1-1.5"a,""b"""'
    )


@pytest.mark.parametrize(
    ("votes", "shown"),
    [
        ([("correct", ["right"])], "correct by strict (tiny@vllm)reply: right"),
        ([("incorrect", [])], "correct by strict (tiny@vllm)"),
        (
            [("correct", ["right"]), ("incorrect", ["no"])],
            "correct by strict (tiny@vllm)correct reply: rightincorrect reply: no",
        ),
    ],
    ids=["one", "without a reply", "several"],
)
def test_judge_and_verdict_are_named_once(
    browser: Browser, page: Path, votes: list[tuple[str, list[str]]], shown: str
) -> None:
    browser.open(page)
    judgement = {
        "verdict": "correct",
        "fate": "judged",
        "judge": "strict tiny@vllm 1e4e777fed4cffe2",
        "votes": [{"verdict": label, "replies": each, "error": None} for label, each in votes],
    }
    text = f"element('p', null, judgementView({json.dumps(judgement)})).textContent"
    assert browser.value(text) == shown


@pytest.mark.parametrize(("width", "metric"), [(1400, "terseness"), (390, "conciseness")])
def test_groups_with_an_own_metric_and_a_judge_fit(
    browser: Browser, own_folder: Path, width: int, metric: str
) -> None:
    assert main(["new", "metric", metric]) == 0
    asked = ("method=golden", "dataset=demo", "engine=scripted", "limit=6", "judge=em")
    assert main(["run", *asked]) == 0
    [report] = own_folder.glob("outputs/demo/golden/*/*/report.html")
    browser.resize(width, 900)
    browser.open(report)
    groups = "[...document.querySelectorAll('section')].filter((each) => /^By /.test(each.textContent.trim()))"
    tables = f"{groups}.map((each) => each.querySelector('.wide'))"
    assert browser.value(f"{tables}.length") == 2
    assert browser.value(f"{tables}.every((each) => each.scrollWidth <= each.clientWidth)")


def test_own_metric_is_next_to_the_answer(browser: Browser, own_folder: Path) -> None:
    assert main(["new", "metric", "shortness"]) == 0
    assert main(["run", "method=golden", "dataset=demo", "engine=scripted", "limit=1"]) == 0
    [report] = own_folder.glob("outputs/demo/golden/*/*/report.html")
    browser.open(report, "#q=2hop__demo_01")
    wait_for_question(browser, "In which town was the architect")
    assert "· Shortness " in browser.value("byId('question').textContent")
