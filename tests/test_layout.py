"""How the house stands: no circles, a word on every room."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

import kgqa

PACKAGE = Path(kgqa.__file__).parent
ROOMS = sorted(PACKAGE.rglob("__init__.py"))


def test_no_import_goes_in_a_circle() -> None:
    """Imports inside functions and under `TYPE_CHECKING` count: they only hide a circle."""
    graph = grimp.build_graph("kgqa", cache_dir=None)
    arrows = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(reversed(error.args[1])))


@pytest.mark.parametrize("room", ROOMS, ids=lambda file: str(file.parent.relative_to(PACKAGE.parent)))
def test_a_room_says_what_lives_there(room: Path) -> None:
    said = ast.get_docstring(ast.parse(room.read_text(encoding="utf-8")))
    assert said
    assert len(said) > 80
