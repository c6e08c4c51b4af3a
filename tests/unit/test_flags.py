"""Every flag that the code sets has a meaning, and reports show it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

import kgqa
from kgqa.report.flags import MEANINGS, explain_flag

ROOT = Path(kgqa.__file__).parent
SOURCES = [file for file in ROOT.rglob("*.py") if file != ROOT / "report" / "flags.py"]
FLAG = re.compile(r"[a-z]+(_[a-z]+)+")


def is_flags(node: ast.AST) -> bool:
    return getattr(node, "attr", getattr(node, "id", "")) == "flags"


def strings(node: ast.AST) -> Iterator[str]:
    """Texts of an expression, without values of mappings."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    parts = node.keys if isinstance(node, ast.Dict) else ast.iter_child_nodes(node)
    for part in parts:
        if part is not None and not isinstance(part, ast.Compare | ast.comprehension):
            yield from strings(part)


def is_assignment(node: ast.AST) -> TypeGuard[ast.Assign | ast.keyword]:
    if isinstance(node, ast.Assign):
        return any(map(is_flags, node.targets))
    return isinstance(node, ast.keyword) and node.arg == "flags"


def set_flags(tree: ast.Module) -> Iterator[str]:
    """Flags that a module sets: flags[…], flags=…, flags.update(…) and add_flags(…)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and is_flags(node.value):
            yield from strings(node.slice)
        elif is_assignment(node):
            yield from strings(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_update = node.func.attr == "update" and is_flags(node.func.value)
            if is_update or node.func.attr == "add_flags":
                yield from (keyword.arg or "" for keyword in node.keywords)
                for argument in node.args:
                    yield from strings(argument)


def test_every_flag_has_a_meaning() -> None:
    texts = (file.read_text(encoding="utf-8") for file in SOURCES)
    # to parse a text takes longer than to search it
    trees = (ast.parse(text) for text in texts if "flags" in text)
    flags = {flag for tree in trees for flag in set_flags(tree) if FLAG.fullmatch(flag)}
    assert len(flags) > 60
    assert flags - set(MEANINGS) == set()


def test_every_explained_flag_is_in_the_code() -> None:
    words = {
        word for file in SOURCES for word in re.findall(r"\w+", file.read_text(encoding="utf-8"))
    }
    assert set(MEANINGS) - words == set()


@pytest.mark.parametrize(
    ("flag", "meaning"),
    [
        ("empty_answer", "The answer is empty."),
        ("answered_by:gpt-4o", "Another model than the requested one answered."),
        ("snapshot:gpt-4o-2024-08-06", "A dated version of the requested model answered."),
    ],
    ids=["answer", "other model", "snapshot"],
)
def test_flag_is_explained(flag: str, meaning: str) -> None:
    assert explain_flag(flag).startswith(meaning)


def test_flag_of_an_own_method_has_no_meaning() -> None:
    assert explain_flag("my_flag") == ""
