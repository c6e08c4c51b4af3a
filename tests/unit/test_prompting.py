"""What a prompt says; its loops over demonstrations are rendered once for all questions, and anew for other ones."""

from __future__ import annotations

from dataclasses import dataclass
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


def test_objects_that_are_gone_are_not_mistaken_for_new_ones_in_their_place() -> None:
    write("{% block completion %}{% for triple in shown %}{{ triple.head }}{% endfor %}{% endblock %}")
    texts = [said((Triple(f"head {number}", "is", "tail"),)).messages[0].content for number in range(1000)]
    assert texts == [f"head {number}" for number in range(1000)]


@dataclass(frozen=True)
class Example:
    """A demonstration that counts how often it is asked what it says."""

    words: str
    asked: list[str]

    @property
    def said(self) -> str:
        self.asked.append(self.words)
        return self.words


LOOP = """
{% block user %}
{% macro case(text) %}{{ text }} in {{ style }}{% endmacro %}
{% for example in examples %}{{ loop.index }} {{ case(example.said) }}, {% endfor %}
{{ case(question) }}
{% endblock %}
{% block system %}
{% for example in examples %}{{ example.said }}.{% endfor %}
{% endblock %}
"""


def test_a_loop_over_demonstrations_is_rendered_once_for_all_questions() -> None:
    write(LOOP)
    asked: list[str] = []
    examples = tuple(Example(words, asked) for words in ("one", "two"))
    shown = [render("once/ask", examples=examples, style="brief", question=question) for question in "abc"]
    assert [prompt.messages[1].content for prompt in shown] == [
        f"1 one in brief, 2 two in brief, {question} in brief" for question in "abc"
    ]
    assert {prompt.messages[0].content for prompt in shown} == {"one.two."}
    assert asked == ["one", "two", "one", "two"]  # for each of the two blocks


def test_a_loop_is_rendered_anew_where_a_name_that_it_or_its_macro_uses_says_something_else() -> None:
    write(LOOP)
    examples = tuple(Example(words, []) for words in ("one", "two"))

    def told(shown: tuple[object, ...], style: object) -> str:
        return render("once/ask", examples=shown, style=style, question="?").messages[1].content

    assert told(examples, "brief") == "1 one in brief, 2 two in brief, ? in brief"
    assert told(examples, "full") == "1 one in full, 2 two in full, ? in full"
    assert told(examples[1:], "full") == "1 two in full, ? in full"
    style = ["x"]
    assert told(examples[:1], style) == "1 one in ['x'], ? in ['x']"
    style.append("y")
    assert told(examples[:1], style) == "1 one in ['x', 'y'], ? in ['x', 'y']"


@pytest.mark.parametrize(
    ("loop", "said"),
    [
        ("{% for x in x %}{{ x.said }}{% endfor %}", "one"),
        ("{% for e in x if e.said != left %}{{ e.said }}{% else %}none{% endfor %}", "none"),
        ("{% for e in x %}{% set told = e.said %}{{ told }}{% endfor %}", "one"),
        ("{% for e in x %}{% for c in e.said %}{{ c }}{{ loop.index }}{% endfor %}{{ left }}{% endfor %}", "o1n2e3one"),
    ],
)  # fmt: skip
def test_loops_of_every_make_say_what_they_said_before_they_were_kept(loop: str, said: str) -> None:
    write("{% block completion %}{{ n }}" + loop + "{% endblock %}")
    for number in range(2):
        prompt = render("once/ask", x=(Example("one", []),), left="one", n=number)
        assert prompt.messages[0].content == f"{number}{said}"
