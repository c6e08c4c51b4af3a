"""Test the site: generated pages are complete, and it builds without a broken link."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from kgqa.cli.commands import BY_NAME
from kgqa.config.files import groups
from scripts.site.pages import PAGES, on_page_markdown


def test_catalog_is_complete() -> None:
    page = PAGES["zoo.md"]()
    named = {name for group in ("method", "dataset", "retriever", "model") for name in groups()[group]}
    assert named == set(re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE))


def test_reference_is_complete() -> None:
    commands, keys = PAGES["reference/commands.md"](), PAGES["reference/keys.md"]()
    assert all(f"## kgqa {name}\n" in commands for name in BY_NAME if " " not in name)
    assert all(f"### {group}={name}\n" in keys for group, names in groups().items() for name in names)


def test_colab_badge_names_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="TUTORIAL.md"), meta={})
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    link = "[kgqa.ipynb](kgqa.ipynb)"
    assert on_page_markdown(link, page, None, None) == "`docs/kgqa.ipynb`"  # type: ignore[arg-type]
    monkeypatch.setenv("GITHUB_REPOSITORY", "owner/name")
    badge = on_page_markdown(link, page, None, None)  # type: ignore[arg-type]
    assert "(https://colab.research.google.com/github/owner/name/blob/main/docs/kgqa.ipynb)" in badge
