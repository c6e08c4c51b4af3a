"""Nothing that kgqa depends on is under a licence that nobody looked at."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("tomllib", reason="reading pyproject.toml needs Python 3.11")
from scripts.licences import PAGE, Licensed, complaints, licensed, permissive

ROWS = [Licensed("asked", "MIT", ("core",)), Licensed("odd", "LGPL-2.1-only", ("vllm",), "used as it is")]


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the page is of the pinned versions, of Python 3.11")
def test_what_is_installed_here_has_a_licence_that_the_page_lists() -> None:
    packages = licensed(sys.path)
    assert {"numpy", "httpx2", "pytest"} <= {package.name for package in packages}
    assert complaints(packages, PAGE.read_text(encoding="utf-8")) == []


def test_an_unknown_or_strict_licence_needs_a_reason() -> None:
    page = "\n".join(package.row() for package in ROWS)
    assert complaints(ROWS, page) == []
    strict = Licensed("odd", "LGPL-2.1-only", ("vllm",))
    unknown = Licensed("asked", "", ("core",))
    assert [line.partition(";")[0] for line in complaints([strict, unknown], page)] == [
        "odd: LGPL-2.1-only",
        "odd: docs/LICENCES.md does not have it so",
        "asked: no licence in its metadata",
        "asked: docs/LICENCES.md does not have it so",
    ]


@pytest.mark.parametrize(
    ("expression", "is_permissive"),
    [
        ("MIT", True),
        ("MIT AND (Apache-2.0 OR BSD-2-Clause)", True),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only AND MIT", False),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("", False),
    ],
)
def test_of_alternatives_one_is_enough(expression: str, is_permissive: bool) -> None:
    assert permissive(expression) is is_permissive


def test_the_page_names_no_machine() -> None:
    assert str(Path.home()) not in PAGE.read_text(encoding="utf-8")
