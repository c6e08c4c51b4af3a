"""Test that imports have no cycles, and that each package has a docstring."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

import kgqa

PACKAGE = Path(kgqa.__file__).parent
PACKAGES = sorted(PACKAGE.rglob("__init__.py"))


def test_imports_have_no_cycles() -> None:
    """Imports inside functions and under `TYPE_CHECKING` count: they only hide a cycle."""
    graph = grimp.build_graph("kgqa", cache_dir=None)
    arrows = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(reversed(error.args[1])))


@pytest.mark.parametrize("file", PACKAGES, ids=lambda file: str(file.parent.relative_to(PACKAGE.parent)))
def test_packages_say_what_is_in_them(file: Path) -> None:
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    assert len(docstring) > 80
