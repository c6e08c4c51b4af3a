"""Sources of the settings of search agents: a value of "released code" names a file and its line."""

from __future__ import annotations

import re
from typing import Annotated, get_args, get_origin, get_type_hints

import pytest
import yaml

from kgqa.methods.corag import CoRAG
from kgqa.methods.search_agent import SearchAgent
from kgqa.methods.tool_agent import ToolAgent
from kgqa.util.places import package_conf
from kgqa.util.settings import Setting

AGENTS = [
    "search_agent", "r1_searcher", "research", "search_o1", "simple_deep_searcher", "zero_search", "step_search",
    "tool_agent", "react_tools", "corag",
]  # fmt: skip
PLACE = re.compile(r"[\w.]+\.(py|yaml|sh|md):\d+")


@pytest.mark.parametrize("name", AGENTS)
def test_released_code_of_a_choice_has_file_and_line(name: str) -> None:
    node = yaml.safe_load((package_conf() / "method" / f"{name}.yaml").read_text(encoding="utf-8"))
    code = node.get("origins", {}).get("code", {})
    assert [source for source in code.values() if not PLACE.match(source)] == []


@pytest.mark.parametrize("component", [SearchAgent, ToolAgent, CoRAG])
def test_released_code_of_a_default_has_file_and_line(component: type) -> None:
    hints = get_type_hints(component, include_extras=True).values()
    marks = [mark for hint in hints if get_origin(hint) is Annotated for mark in get_args(hint)]
    code = [mark.code for mark in marks if isinstance(mark, Setting) and mark.code]
    assert len(code) >= 3
    assert [source for source in code if not PLACE.match(source)] == []
