"""The viewer's pages by axe-core, which npm fetches for this alone: it is under the MPL and no part of kgqa."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.e2e.browser import Browser
from tests.viewer.viewing import Viewing

AXE = "axe-core@4.14.1"
FOUND = """axe.run({resultTypes: ['violations']}).then(({violations}) => violations
    .filter(({impact}) => ['serious', 'critical'].includes(impact))
    .map(({id, nodes}) => [id, nodes.slice(0, 3).map(({html}) => html.slice(0, 200))]))"""


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm to fetch axe-core with")
    base = tmp_path_factory.mktemp("axe")
    command = [npm, "install", "--prefix", str(base), "--no-audit", "--no-fund", "--silent", "--ignore-scripts", AXE]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        pytest.skip(f"npm cannot fetch {AXE} here")
    return Path(base / "node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_pages_are_accessible(
    browser: Browser, viewing: Viewing, keys: dict[str, str], axe: str, width: int, scheme: str
) -> None:
    browser.resize(width, 900)
    browser.prefer(scheme)
    both = urlencode([("run", key) for key in keys.values()])
    for path in ("", f"compare?{both}", f"tests?{both}", "plots?run=sweeps/lengths", "ask"):
        browser.visit(f"{viewing.base}{path}")
        browser.value(f"{axe};0")
        assert browser.value(FOUND) == [], path


def test_question_page_is_accessible(browser: Browser, viewing: Viewing, keys: dict[str, str], axe: str) -> None:
    browser.visit(f"{viewing.base}question/{keys['trace']}?id=2hop__demo_02#q=2hop__demo_02")
    browser.wait("!!document.querySelector('#question h2')")
    browser.value("{ for (const each of document.querySelectorAll('#question details')) each.open = true }")
    browser.value(f"{axe};0")
    assert browser.value(FOUND) == []
