"""A folder of runs: two methods on the same questions, one of them hostile, and a sweep."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kgqa.artifacts.run import list_runs
from kgqa.cli.main import main
from tests.e2e.browser import CHROMIUM, Browser
from tests.e2e.conftest import DEMO, QUICK, run_in, write_rules
from tests.viewer.viewing import Viewing

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"
# an id that means something to HTML and to addresses
HOSTILE = "2hop__demo_01&call=0/<img src=x>%zz\"'"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("viewed")
    first, *others = DEMO.read_text(encoding="utf-8").splitlines()[:12]
    hostile = json.loads(first)
    hostile["id"] = HOSTILE
    hostile["question"] += SCRIPT
    for paragraph in hostile["paragraphs"]:
        paragraph["title"] += SCRIPT
        paragraph["paragraph_text"] += SCRIPT
    (base / "questions.jsonl").write_text(
        "\n".join([json.dumps(hostile), *others]), encoding="utf-8"
    )
    towns = ("In which town was the architect", f"Pellery {SCRIPT}")
    ruled = write_rules(
        [("Which bridge was opened first", "the Candle Bridge"), towns], base / "rules.jsonl"
    )
    asked = ("dataset=musique", f"dataset.path={base / 'questions.jsonl'}", *QUICK)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base)
        patch.delenv("KGQA_CACHE", raising=False)
        assert main(["run", "method=trace", *asked]) == 0
        assert main(["run", "method=no_context", *asked, ruled]) == 0
        words = (
            "method=no_context",
            "method.max_answer_tokens=3,1,2",
            "dataset=demo",
            "limit=2",
            *QUICK,
        )
        assert main(["run", "-m", *words, "sweep.name=lengths"]) == 0
    return base


@pytest.fixture(scope="session")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three repeats of two methods, of which only those of ircot differ."""
    base = tmp_path_factory.mktemp("repeated")
    towns = r"Write only the answer itself[\s\S]*architect of the Candle"
    rules = write_rules([(towns, "Pellery")], base / "rules.jsonl")
    words = ("method=golden,ircot", "limit=4", "repeats=3", "sweep.name=rep", *QUICK, rules)
    assert run_in(base, "run", "-m", *words).code == 0
    return base


@pytest.fixture(scope="session")
def viewing(folder: Path) -> Iterator[Viewing]:
    pytest.importorskip("starlette", reason="kgqa view needs the extra view")
    viewing = Viewing.start(folder)
    yield viewing
    code, out, err = viewing.interrupt()
    assert (code, err, "Traceback" in out) == (0, "", False)


@pytest.fixture(scope="session")
def keys(folder: Path) -> dict[str, str]:
    root = folder / "outputs"
    return {each.parts[1]: each.name for each in list_runs(root) if each.parts[0] == "musique"}


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def browser(chromium: Browser, viewing: Viewing) -> Iterator[Browser]:
    """A browser on the first page, with the cookie. The page must not log errors or policy violations."""
    yield from _opened(chromium, viewing)


def _opened(chromium: Browser, viewing: Viewing) -> Iterator[Browser]:
    # leave the page of a viewer that may have ended
    chromium.ask("Page.navigate", url="about:blank")
    chromium.complaints.clear()
    chromium.prefer("light")
    chromium.resize(1400, 900)
    chromium.visit(viewing.address)
    chromium.visit(viewing.base)
    yield chromium
    assert not chromium.complaints
