"""Test the site: generated pages are complete, and it builds without a broken link."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from kgqa.cli.commands import BY_NAME
from kgqa.config.files import groups
from scripts.site.pages import PAGES

ROOT = Path(__file__).resolve().parents[2]


def test_catalog_is_complete() -> None:
    page = PAGES["zoo.md"]()
    named = {name for group in ("method", "dataset", "retriever", "model") for name in groups()[group]}
    assert named == set(re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE))


def test_reference_is_complete() -> None:
    commands, keys = PAGES["reference/commands.md"](), PAGES["reference/keys.md"]()
    assert all(f"## kgqa {name}\n" in commands for name in BY_NAME if " " not in name)
    assert all(f"### {group}={name}\n" in keys for group, names in groups().items() for name in names)


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs-material is not installed")
def test_site_builds_strictly(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", str(ROOT / "scripts/site/mkdocs.yml"), "-d",
         str(tmp_path / "site")],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "site" / "reference" / "keys.html").is_file()
