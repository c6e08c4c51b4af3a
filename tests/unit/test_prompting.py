"""A prompt is rendered once for equal values, and anew for whatever could make another one of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgqa import prompting
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


@pytest.fixture
def renderings(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One for each time that a template was asked for its text."""
    made: list[object] = []
    block = prompting._block

    def counted(*asked: object) -> str:
        made.append(asked)
        return block(*asked)  # type: ignore[arg-type]

    monkeypatch.setattr(prompting, "_block", counted)
    return made


def test_equal_passages_are_rendered_once_however_often_they_are_made(renderings: list[object]) -> None:
    first = said((ALDER,), "Which?")
    assert said((Passage.of("Alder", "Alder is a tree."),), "Which?") is first
    assert len(renderings) == 1


def test_other_words_passages_and_kinds_of_values_are_other_prompts() -> None:
    shown = [(ALDER,), (ALDER, ALDER), (), "", 1, True, 1.0, None, "1", (Triple("a", "b", "c"),)]
    texts = [said(each).messages[0].content for each in shown]
    assert texts == [f"{each} ".strip("\n") for each in shown]


def test_what_can_be_changed_is_rendered_each_time() -> None:
    words = ["one"]
    held = {"in": words}
    assert [said(words).messages[0].content, said(held).messages[0].content] == ["['one'] ", "{'in': ['one']} "]
    words.append("two")
    assert said(words).messages[0].content == "['one', 'two'] "
    assert said(held).messages[0].content == "{'in': ['one', 'two']} "


def test_a_template_that_was_edited_is_rendered_anew() -> None:
    said("x", "y")
    write("{% block completion %}another {{ shown }}{% endblock %}")
    import os

    os.utime("prompts/once/ask.j2", (1, 1))
    assert said("x", "y").messages[0].content == "another x"


def test_objects_that_are_gone_are_not_mistaken_for_new_ones_in_their_place(renderings: list[object]) -> None:
    texts = {said((Triple(f"head {number}", "is", "tail"),)).messages[0].content for number in range(1000)}
    assert len(texts) == len(renderings) == 1000
