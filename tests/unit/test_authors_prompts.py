"""Templates that are written from the strings of a program, which is parsed and not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgqa.config.composing import compose
from kgqa.datasets.authors_prompts import AuthorsTemplate, write_templates
from kgqa.errors import ConfigError, DataError
from kgqa.prompting import render, template_names
from kgqa.system.downloads import list_sources

PROGRAM = '''raise SystemExit("never run")
def ask(question, limit):
    return (
        f"Search {limit} times. "
        f"""Use {{braces}}, {'%'}.
Question: {question.strip()}

"""
    )
notice = "\\nAgain {% in here %}.\\n"
prompts = {"v0": "Answer {question}\\n"}
'''
PARTS = {
    "f-string": (
        {
            "user": (4,),
            "values": {"limit": "{{ searches }}", "'%'": "%", "question.strip()": "{{ question }}"},
        },
        "Search 4 times. Use {braces}, %.\nQuestion: Who?\n\n",
    ),
    "line-breaks": ({"user": (10,)}, "\nAgain {% in here %}.\n"),
    "longest-of-line": ({"user": (11,), "values": {"question": "{{ question }}"}}, "Answer Who?\n"),
    "joined": (
        {"user": (11, 10), "values": {"question": "1"}},
        "Answer 1\n\nAgain {% in here %}.\n",
    ),
    "loop": (
        {"user": (11,), "values": {"question": "{% for n in [1] %}{{ n }}{% endfor %}"}},
        "Answer 1\n",
    ),
    "file": ({"completion": ()}, PROGRAM),
    "text": ({"user": "{{ question }}"}, "Who?"),
}


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "conf").mkdir()
    monkeypatch.setenv("KGQA_CONF", str(tmp_path / "conf"))
    file = tmp_path / "program.py"
    file.write_text(PROGRAM, encoding="utf-8")
    return file


@pytest.mark.parametrize(("parts", "expected"), PARTS.values(), ids=PARTS)
def test_template_renders_the_programs_text(
    parts: dict[str, object], expected: str, program: Path
) -> None:
    template = AuthorsTemplate.model_validate(parts)
    write_templates(program, {"authors/prompt": template}, program.parent / "prompts")
    assert render("authors/prompt", question="Who?", searches=4).messages[0].content == expected


WRONG = {
    "no-string": ({"user": (1000,)}, r"program\.py:1000: no string starts here"),
    "no-expression": (
        {"user": (10,), "values": {"limit": "4"}},
        r"program\.py: no \{limit\} in this text",
    ),
}


@pytest.mark.parametrize(("parts", "message"), WRONG.values(), ids=WRONG)
def test_another_version_of_a_program_is_an_error(
    parts: dict[str, object], message: str, program: Path
) -> None:
    with pytest.raises(DataError, match=message):
        write_templates(program, {"p": AuthorsTemplate.model_validate(parts)}, program.parent)


def test_all_sources_of_prompts_are_pinned() -> None:
    authors = {name: source for name, source in list_sources().items() if source.templates}
    assert len(authors) == 17
    unpinned = [
        name
        for name, source in authors.items()
        if not source.sha256 or len(source.urls[0].split("/")[5]) != 40
    ]
    assert unpinned == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "experiment",
    ["search_r1", "r1_searcher", "research", "search_o1", "simple_deep_searcher", "step_search"],
)
def test_experiment_names_downloaded_templates(experiment: str) -> None:
    method = compose([f"experiment={experiment}_released"])["method"]
    named = {method["prompt"], method["read_prompt"], *method["notices"].values()} - {None}
    assert named <= {name for source in list_sources().values() for name in source.templates}


def test_arag_downloads_all_templates_of_the_agent() -> None:
    templates = {name for source in list_sources().values() for name in source.templates}
    own = {name.partition("/")[2] for name in template_names() if name.startswith("tool_agent/")}
    assert {f"arag/{name}" for name in own} <= templates


MISSING = {
    "program": (
        "corag_released/query",
        r"For the prompts of a released program: kgqa data download corag$",
    ),
    "own": ("mine/verdict", r"Create prompts/mine/verdict\.j2$"),
    "typing-mistake": ("corag/queri", "Did you mean corag/query"),
}


@pytest.mark.parametrize(("name", "hint"), MISSING.values(), ids=MISSING)
def test_missing_template_has_a_remedy(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name}\.j2: no such template .*{hint}"):
        render(name)
