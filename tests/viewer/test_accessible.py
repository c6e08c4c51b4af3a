"""The viewer's pages by axe-core, which npm fetches for this alone: it is under the MPL and no part of kgqa."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.e2e.browser import Browser
from tests.e2e.invented_island import BORN
from tests.viewer.asking import ENDED, ask
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
def test_nothing_serious_is_found(
    browser: Browser, viewing: Viewing, keys: dict[str, str], axe: str, width: int, scheme: str
) -> None:
    browser.resize(width, 900)
    browser.prefer(scheme)
    both = "&".join(quote(key, safe="") for key in keys.values())
    pages = ("", f"#compare={both}", "#plots=sweeps%2Flengths", f"run/{keys['trace']}")
    for rest in (*pages, f"run/{keys['trace']}#q=2hop__demo_02"):
        browser.visit(f"{viewing.base}{rest}")
        if "#q=" in rest:
            browser.wait("!!document.querySelector('#question h2')")
            browser.value("{ for (const each of document.querySelectorAll('#question details')) each.open = true }")
            browser.wait("document.querySelectorAll('#question pre').length > 5")
        if rest == "":
            browser.value("document.querySelector('td.pick input').click()")
        browser.value(f"{axe};0")
        assert browser.value(FOUND) == [], rest


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("method", ["trace", "kgp"])
def test_nothing_serious_is_found_where_documents_are_asked(tab: Browser, axe: str, method: str, scheme: str) -> None:
    """The tab with an answer, all of it unfolded, and the question's own page."""
    tab.prefer(scheme)
    ask(tab, BORN, method)
    tab.wait(ENDED)
    tab.value("{ for (const each of document.querySelectorAll('.told details')) each.open = true }")
    tab.value(f"{axe};0")
    assert tab.value(FOUND) == []
    tab.visit(tab.value("`${document.querySelector('.answer .take a').href}#q=asked`"))
    tab.wait("!!document.querySelector('#question h2')")
    tab.value("{ for (const each of document.querySelectorAll('#question details')) each.open = true }")
    tab.value(f"{axe};0")
    assert tab.value(FOUND) == []
