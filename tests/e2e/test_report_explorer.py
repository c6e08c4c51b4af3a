"""What a person wants of a run's page: the question, its options, its cost, the other run, and to take things along."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kgqa.cli.main import main
from kgqa.engines.scripted import Scripted
from kgqa.errors import EngineError
from tests.e2e.browser import CHROMIUM, LOADED, Browser
from tests.e2e.conftest import QUICK

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")

SECOND = "2hop__demo_02"
ASKED = "Which bridge was opened first, the Lantern Bridge or the Candle Bridge?"
DRAWN = f"{LOADED} && document.querySelectorAll('.matrix td a').length > 0"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """TRACE has the first question right; of a run without passages, every call but the last was refused."""
    folder = tmp_path_factory.mktemp("explorer")
    rules = [{"match": "Use the context[^§]*architect of the Candle Bridge", "reply": "Pellery"}]
    (folder / "rules.jsonl").write_text("\n".join(map(json.dumps, rules)), encoding="utf-8")
    answer = Scripted.answer

    def refusing(self: Scripted, calls: Any) -> Any:
        return [EngineError("no reply <b>") for _ in calls[:-1]] + list(answer(self, calls[-1:]))

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("KGQA_CACHE", raising=False)
        asked = ("method=trace", "limit=5", f"engine.rules={folder / 'rules.jsonl'}", *QUICK)
        assert main(["run", *asked, "out=run"]) == 0
        assert main(["run", "method=all_documents", "limit=5", *QUICK, "out=other"]) == 0
        assert main(["report", "run", "--against", "other"]) == 0
        swept = ("method=all_documents,golden", "method.max_answer_tokens=3,4", "limit=5", *QUICK)
        assert main(["run", "-m", *swept, "sweep.name=swept"]) == 0
        patch.setattr(Scripted, "answer", refusing)
        assert main(["run", "method=no_context", "limit=5", *QUICK, "out=failed"]) == 2
        yield folder


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile"), 1400) as started:
        yield started


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    chromium.complaints.clear()
    chromium.resize(1400, 900)
    yield chromium
    assert not chromium.complaints  # neither errors nor dialogues


def text_of(browser: Browser, selector: str) -> str:
    found: str = browser.value(f"document.querySelector({json.dumps(selector)}).textContent")
    return found


def texts_of(browser: Browser, selector: str) -> list[str]:
    found: list[str] = browser.value(
        f"[...document.querySelectorAll({json.dumps(selector)})].map((each) => each.textContent)"
    )
    return found


def test_the_first_wrong_question_is_open_and_none_where_only_the_list_has_room(browser: Browser, base: Path) -> None:
    browser.open(base / "run/report.html", "#questions")
    browser.wait("document.querySelector('#question h2') !== null")
    assert browser.value("rows[0].em") == 1  # the first one is right
    assert text_of(browser, "#question h2") == ASKED
    browser.resize(390, 844)
    browser.open(base / "run/report.html", "#questions")
    assert browser.value("byId('list').offsetHeight") > 100
    assert browser.value("byId('question').offsetHeight") == 0


def test_a_choice_shows_its_question_and_each_options_triple_beside_its_probability(
    browser: Browser, base: Path
) -> None:
    browser.open(base / "run/report.html", f"#q={SECOND}&call=2.0.1")
    browser.wait("document.querySelector('[data-call][open] table') !== null")
    parts = texts_of(browser, "[open] .prompt summary")
    assert [part.partition(" ")[0] for part in parts] == [
        "instruction", "demonstrations", "question", "options", "after",
    ]  # fmt: skip
    shown = texts_of(browser, "[open] .prompt pre")  # of the parts that are open
    assert shown[0].startswith(f"Question: {ASKED}\nChain so far: empty")
    assert not any("Complete chain" in each or "Pick the option" in each for each in shown)
    rows = browser.value(
        "[...document.querySelectorAll('[open] tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))"
    )
    assert len(rows) > 2
    stop = next(row for row in rows if row[0] == "A")
    assert stop[1] == "no further triple is needed"
    assert all(row[1].startswith("<") and row[1].endswith(">") for row in rows if row is not stop)
    shares = [float(row[3].removesuffix(" %")) for row in rows]
    assert shares == sorted(shares, reverse=True)
    assert abs(sum(shares) - 100) < 0.5
    best = f"{rows[0][0]}. {rows[0][1]}"
    assert best in text_of(browser, "[data-call][open] summary .reply")
    whole = browser.value("document.querySelectorAll('[open] .prompt details').forEach((each) => each.open = true)")
    assert whole is None
    browser.wait("document.querySelectorAll('[open] .prompt pre').length === 5")
    assert "Complete chain: <" in "".join(texts_of(browser, "[open] .prompt pre"))  # nothing is left out


def test_a_link_to_a_call_opens_it_and_one_to_none_opens_the_question(browser: Browser, base: Path) -> None:
    browser.open(base / "run/report.html", f"#q={SECOND}&call=2.0.1")
    browser.wait("document.querySelectorAll('[data-call][open]').length === 1")
    assert browser.value("document.querySelector('[data-call][open]').dataset.call") == "2.0.1"
    browser.wait("document.querySelector('[data-call][open]').getBoundingClientRect().top < 500")
    assert "#q=2hop__demo_02&call=2.0.1" in browser.value("document.querySelector('[open] .take a').href")
    browser.open(base / "run/report.html", f"#q={SECOND}&call=99")
    browser.wait("document.querySelectorAll('[data-call]').length > 0")
    assert browser.value("document.querySelectorAll('[data-call][open]').length") == 0
    browser.open(base / "run/report.html", "#q=%E0%A4%A")
    browser.wait("byId('question').textContent.includes('No question')")


def test_a_questions_calls_are_counted_as_the_run_counts_them(browser: Browser, base: Path) -> None:
    metrics = json.loads((base / "run/metrics.json").read_text())
    browser.open(base / "run/report.html", f"#q={SECOND}")
    browser.wait("document.querySelector('#question .facts') !== null")
    assert browser.value("rows.reduce((sum, row) => sum + row.model_calls, 0)") == metrics["cost"]["method"]["calls"]
    calls = browser.value("rows.find((row) => row.id === '2hop__demo_02').model_calls")
    facts = text_of(browser, "#question .facts")
    assert f"cost{calls} model calls ({calls - 1} selector, 1 reader)" in facts
    assert "8 triples (extracted once for all questions)" in facts


def test_a_page_says_first_that_no_model_was_asked_and_what_failed(browser: Browser, base: Path) -> None:
    browser.open(base / "run/report.html")
    assert texts_of(browser, "#notices p") == [
        "Scripted replies: no model was asked. The figures show that the program works, and nothing else."
    ]
    browser.open(base / "failed/report.html")
    _, failed = texts_of(browser, "#notices p")
    assert "4 of 5 questions failed and count as wrong, more than max_failure_rate=0.05 allows" in failed
    assert "Why: 4 × EngineError: no reply <b>" in failed
    assert browser.value("document.querySelectorAll('#notices b').length") == 0
    assert "> **4 of 5 questions failed**" in (base / "failed/report.md").read_text()


def test_two_runs_stand_side_by_side(browser: Browser, base: Path) -> None:
    browser.open(base / "run/against-other.html", f"#q={SECOND}")
    browser.wait("document.querySelectorAll('.side').length === 2")
    mine, theirs = texts_of(browser, ".side")
    assert "this run" in mine
    assert "chains" in mine
    assert "all_documents on demo" in theirs
    assert "1 model calls" in theirs
    assert "evidence (8)" in theirs
    assert "Candle Bridgegold" in theirs
    lefts = "[...document.querySelectorAll('.side')].map((each) => each.getBoundingClientRect().left)"
    left, right = browser.value(lefts)
    assert left < right
    browser.resize(390, 844)
    assert len(set(browser.value(lefts))) == 1
    assert (
        browser.value(
            "Math.max(...[...document.querySelectorAll('.side')].map((e) => e.getBoundingClientRect().right))"
        )
        < 390
    )


def test_a_sweep_shows_which_cell_has_which_question_right_and_leads_there(browser: Browser, base: Path) -> None:
    report = base / "outputs/sweeps/swept/report.html"
    browser.open(report, ready=DRAWN)
    assert len(texts_of(browser, ".matrix tbody tr")) == 5
    assert texts_of(browser, ".matrix tbody tr:nth-child(2) td") == ["✗"] * 4
    links = browser.value("[...document.querySelectorAll('.matrix tbody tr:nth-child(2) a')].map((each) => each.href)")
    assert all(link.endswith(f"/report.html#q={SECOND}") for link in links)
    browser.value("{ globalThis.box = document.querySelector('.matrix select'); box.value = 'cells differ' }")
    browser.value("box.dispatchEvent(new Event('input'))")
    assert texts_of(browser, ".matrix tbody tr") == []
    labels = texts_of(browser, "svg.plot text")
    assert any("golden max_answer_tokens=3" in label for label in labels)  # no bare numbers
    browser.open(Path(links[0].removeprefix("file://").partition("#")[0]), f"#q={SECOND}")
    browser.wait("document.querySelector('#question h2') !== null")


def test_settings_paste_back_and_have_room_on_a_telephone(browser: Browser, base: Path) -> None:
    browser.ask("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    browser.open(base / "run/report.html")
    cells = "[r.cells[0].textContent, r.cells[1].firstChild.textContent]"
    values = dict(browser.value(f"[...document.querySelectorAll('.settings tbody tr')].map((r) => {cells})"))
    assert values["method.top"] == "null"
    assert values["method.ranker"] == "true"
    assert values["dataset.files.dev"] == "[demo.jsonl]"
    assert "None" not in values.values()
    browser.value("document.querySelector('[title=\"copy method.top=null\"]').click()")
    browser.wait("document.querySelector('[title=\"copy method.top=null\"]').textContent === 'copied'")
    assert browser.value("navigator.clipboard.readText()") == "method.top=null"
    browser.resize(390, 844)
    widths = browser.value(
        "[...document.querySelectorAll('.settings td')].map((each) => each.getBoundingClientRect().width)"
    )
    assert min(widths) > 250
    assert not browser.value("document.documentElement.scrollWidth > 390")


def test_questions_are_sorted_and_taken_along_as_files(browser: Browser, base: Path, tmp_path: Path) -> None:
    browser.ask("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.open(base / "run/report.html", "#questions")
    browser.value("{ const box = byId('order'); box.value = 'calls'; box.dispatchEvent(new Event('input')) }")
    calls = browser.value("visible.map((place) => rows[place].model_calls)")
    assert calls == sorted(calls, reverse=True)
    assert len(set(calls)) > 1
    ids = browser.value("visible.map((place) => rows[place].id)")
    for form in ("csv", "jsonl"):
        browser.value(f"byId('{form}').click()")
        deadline = time.monotonic() + 30
        while not (tmp_path / f"questions.{form}").is_file() and time.monotonic() < deadline:
            time.sleep(0.05)
    with (tmp_path / "questions.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["id"] for line in lines] == ids
    assert [int(line["model_calls"]) for line in lines] == calls
    written = [json.loads(line) for line in (tmp_path / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["id"] for line in written] == ids
    assert json.loads(lines[0]["gold"]) == written[0]["gold"]
    assert browser.value("csvCell('=1+1') + csvCell('-1.5') + csvCell('a,\"b\"')") == '\'=1+1-1.5"a,""b"""'


def test_a_prompt_whose_passages_have_no_label_folds_its_examples_apart(browser: Browser, base: Path) -> None:
    assert main(["run", "method=safe", "limit=1", *QUICK, f"out={base / 'safe'}"]) == 0
    browser.open(base / "safe/report.html", "#questions")
    browser.wait("document.querySelectorAll('[data-call]').length > 0")
    browser.value("document.querySelectorAll('[data-call]').forEach((call) => call.open = true)")
    browser.wait("document.querySelectorAll('.prompt').length > 2")
    judged = "[...document.querySelectorAll('[data-call]')].find((call) => call.textContent.includes('safe/judge'))"
    parts = browser.value(f"[...{judged}.querySelectorAll('.prompt summary')].map((each) => each.textContent)")
    assert [part.split()[0] for part in parts] == ["instruction", "demonstrations", "context", "question", "the"]
