"""Ten thousand questions and a thousand runs: only what is in sight is in the page, and nobody waits for all of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from scripts.bench_viewer import write_large
from tests.e2e.browser import Browser
from tests.viewer.viewing import Viewing

QUESTIONS, RUNS = 10_000, 1_000
LISTED = "document.querySelectorAll('#rows li').length"


@pytest.fixture(scope="module")
def many(folder: Path, keys: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewing]:
    """The run without context, its twelve questions again and again under other ids, and many small runs beside it."""
    base = tmp_path_factory.mktemp("many")
    source, large = folder / "outputs" / keys["no_context"], base / "outputs/large/no_context/scripted/large"
    write_large(source, large, QUESTIONS)
    for number in range(RUNS):
        copied = base / f"outputs/small/no_context/scripted/{number:04}"
        copied.mkdir(parents=True)
        for name in ("identity.json", "metrics.json", "settings.json"):
            (copied / name).write_bytes((source / name).read_bytes())
    viewing = Viewing.start(base)
    yield viewing
    assert viewing.interrupt()[0] == 0


def test_the_first_rows_do_not_wait_for_the_last(many: Viewing) -> None:
    many.get("/api/runs?count=1")  # what is imported with the first rows is no part of this
    started = time.monotonic()
    key = "large/no_context/scripted/large"
    first = many.get(f"/api/questions/{key}?from=0&count=100")
    early = time.monotonic() - started
    last = many.get(f"/api/questions/{key}?from=9900&count=100")
    late = time.monotonic() - started
    assert (len(first["rows"]), len(last["rows"]), first["count"]) == (100, 100, QUESTIONS)
    assert early < 1 or early < late / 2


def test_ten_thousand_questions_scroll_and_filter_with_a_few_rows_in_the_page(chromium: Browser, many: Viewing) -> None:
    chromium.resize(1400, 900)
    chromium.visit(many.address)
    chromium.visit(f"{many.base}run/large/no_context/scripted/large#questions", f"{LISTED} > 5")
    chromium.wait("document.documentElement.dataset.ready === 'yes'")
    assert chromium.value("byId('shown').textContent") == "10000 of 10000 questions"
    for place in (0, 250_000, 530_000):
        chromium.value(f"byId('list').scrollTop = {place}")
        chromium.wait(f"rows[{place // 54}] && drawn.has({place // 54})")
        assert chromium.value(LISTED) < 40
    chromium.value("location.hash = '#q=q09999'")
    chromium.wait("(document.querySelector('#question .marks')?.textContent ?? '').includes('q09999')")
    chromium.value("byId('search').value = 'candle'; byId('search').dispatchEvent(new Event('input'))")
    assert chromium.value("visible.length") == chromium.value(
        "rows.filter((r) => r.searched.includes('candle')).length"
    )
    assert 0 < chromium.value("visible.length") < QUESTIONS
    assert chromium.value(LISTED) < 40


SCROLLED = """new Promise((resolve) => {
    const [node, by, every] = [%s, %d, %d];
    let [left, added] = [every, 0];
    const seen = new MutationObserver((changes) => changes.forEach((each) => {
        added += [...each.addedNodes].filter((made) => made.nodeName === %s).length;
    }));
    seen.observe(node, {childList: true, subtree: true});
    const step = () => {
        node.scrollTop += by;
        if (left-- > 0) return requestAnimationFrame(step);
        seen.disconnect();
        resolve(added / every);
    };
    requestAnimationFrame(step);
})"""


@pytest.mark.parametrize("rows", [1, 3])
def test_a_frame_of_a_scroll_makes_the_rows_that_came_into_sight(chromium: Browser, many: Viewing, rows: int) -> None:
    """Not all that are in sight; what a frame takes, scripts/bench_viewer.py measures."""
    chromium.resize(1400, 900)
    chromium.visit(many.address)
    made = {"runs": chromium.value(SCROLLED % ("document.querySelector('#table')", 34 * rows, 60, "'TR'"))}
    chromium.visit(f"{many.base}run/large/no_context/scripted/large#questions", f"{LISTED} > 5")
    chromium.wait("document.documentElement.dataset.ready === 'yes'", 120)
    made["questions"] = chromium.value(SCROLLED % ("byId('list')", 54 * rows, 60, "'LI'"))
    both = "&".join([quote("large/no_context/scripted/large", safe="")] * 2)
    chromium.visit(f"{many.base}#compare={both}")
    chromium.wait("document.querySelector('.answers-view output')?.textContent === '10000 of 10000 questions'", 120)
    made["side by side"] = chromium.value(SCROLLED % ("document.querySelector('.answers')", 58 * rows, 60, "'LI'"))
    assert all(0.8 * rows <= count <= 1.2 * rows for count in made.values()), made


def test_a_thousand_runs_are_a_table_with_a_few_rows_in_the_page(chromium: Browser, many: Viewing) -> None:
    chromium.visit(many.address)
    drawn = "document.querySelectorAll('#table tr[data-key]').length"
    assert chromium.value("document.querySelector('#shown').textContent") == f"{RUNS + 1} of {RUNS + 1}"
    assert chromium.value(drawn) < 60
    chromium.value("document.querySelector('#table').scrollTop = 15000")
    chromium.wait(
        "document.querySelector('#table tr[aria-current], #table tr[data-key]').previousSibling.offsetHeight > 9000"
    )
    assert chromium.value(drawn) < 60
    for _ in range(3):
        chromium.press("j")
    assert chromium.value("document.activeElement.closest('tr').getAttribute('aria-current')") == "true"
