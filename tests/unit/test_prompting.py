"""Test the rendering of prompt templates."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgqa.prompting import render
from kgqa.types import Passage, Prompt, Triple

TEMPLATE = "{% block completion %}{{ shown }} {{ text }}{% endblock %}"
ALDER = Passage.of("Alder", "Alder is a tree.")


@pytest.fixture(autouse=True)
def _own_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(TEMPLATE)


def write(template: str) -> None:
    file = Path("prompts/once/ask.j2")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(template, encoding="utf-8")


def said(shown: object, text: object = "") -> Prompt:
    return render("once/ask", shown=shown, text=text)


def test_render_values_of_all_kinds() -> None:
    shown = [(ALDER,), (ALDER, ALDER), (), "", 1, True, 1.0, None, "1", (Triple("a", "b", "c"),)]
    texts = [said(each).messages[0].content for each in shown]
    assert texts == [f"{each} ".strip("\n") for each in shown]


def test_render_changed_values() -> None:
    words = ["one"]
    held = {"in": words}
    assert [said(words).messages[0].content, said(held).messages[0].content] == ["['one'] ", "{'in': ['one']} "]
    words.append("two")
    assert said(words).messages[0].content == "['one', 'two'] "
    assert said(held).messages[0].content == "{'in': ['one', 'two']} "


def test_render_edited_template() -> None:
    said("x", "y")
    write("{% block completion %}another {{ shown }}{% endblock %}")
    import os

    os.utime("prompts/once/ask.j2", (1, 1))
    assert said("x", "y").messages[0].content == "another x"
