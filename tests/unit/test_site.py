"""Test the site: generated pages are complete, and it builds without a broken link."""

from __future__ import annotations

import re

from kgqa.cli.commands import BY_NAME
from kgqa.config.files import groups
from scripts.site.pages import PAGES


def test_catalog_is_complete() -> None:
    page = PAGES["zoo.md"]()
    named = {name for group in ("method", "dataset", "retriever", "model") for name in groups()[group]}
    assert named == set(re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE))


def test_reference_is_complete() -> None:
    commands, keys = PAGES["reference/commands.md"](), PAGES["reference/keys.md"]()
    assert all(f"## kgqa {name}\n" in commands for name in BY_NAME if " " not in name)
    assert all(f"### {group}={name}\n" in keys for group, names in groups().items() for name in names)
