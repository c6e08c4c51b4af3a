"""Test that runs with `prompts=` use these templates, and are told apart by their texts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import kgqa as api
from kgqa.runtime.display import QUIET
from kgqa.util.places import prompt_folders, shipped_prompts
from tests.e2e.conftest import QUICK, Kgqa
from tests.unit.files import refusal, write

DEMO = ("dataset=demo", "limit=2", *QUICK)
READER = "reader/answer"
BLOCK = "{%% block user %%}%s: {{ question }}{%% endblock %%}"


def write_prompt(folder: str, text: str, name: str = READER) -> None:
    write(f"{folder}/{name}.j2", BLOCK % text)


def has_text(folder: Path, text: str) -> bool:
    """Return whether every prompt of a run contains a text."""
    prompts = [str(call["request"]) for call in api.load(folder).calls if call["template"]]
    return all(text in prompt for prompt in prompts)


@pytest.fixture
def variants(kgqa: Kgqa) -> Kgqa:
    """Run command lines in a folder with a prompt in prompts/ and another one in short/."""
    write_prompt("prompts", "Mine")
    write_prompt("short", "Briefly")
    return kgqa


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "Mine: "),
        (("prompts=short",), "Briefly: "),
        (("prompts=./short",), "Briefly: "),
        (("prompts=shipped",), "as briefly as possible"),
    ],
    ids=["default", "folder", "path", "shipped"],
)
def test_run_renders_the_chosen_prompts(variants: Kgqa, words: tuple[str, ...], text: str) -> None:
    ran = variants("run", "method=no_context", *words, *DEMO)
    assert has_text(ran.folder, text)
    assert prompt_folders() == (Path("prompts"), shipped_prompts())


def test_prompts_without_use_are_named(variants: Kgqa) -> None:
    write_prompt("other", "Mine", "trace/select")
    ran = variants("run", "-m", "method=golden", "prompts=shipped,other", *DEMO)
    assert "these values of prompts= do not change the answers of method=golden" in ran.err


def test_sweep_compares_prompts(variants: Kgqa) -> None:
    values = "prompts=shipped,short"
    ran = variants("run", "-m", "method=no_context,golden", values, *DEMO, "sweep.name=p")
    rows = [line.split()[:3] for line in ran.out.splitlines() if line.strip()[:1].isdigit()]
    assert [row for row in rows if row[1] in ("no_context", "golden")] == [
        ["0", "no_context", "shipped"],
        ["1", "no_context", "short"],
        ["2", "golden", "shipped"],
        ["3", "golden", "short"],
    ]
    runs = api.load("p")
    assert [has_text(run.folder, "Briefly: ") for run in runs] == [False, True, False, True]
    # as in the report of the sweep
    compared = variants("compare", "p/0", "p/1").out
    assert "A  no_context · prompts shipped  " in compared
    assert "B  no_context · prompts short  " in compared
    assert "| no_context · prompts short |" in (ran.folder / "report.md").read_text("utf-8")


def test_changed_prompt_is_named_by_its_file(variants: Kgqa) -> None:
    words = ("run", "method=no_context", "prompts=short", *DEMO)
    first = variants(*words).folder
    write_prompt("short", "Shorter")
    second = variants(*words).folder
    compared = variants("compare", str(first), str(second)).out
    assert len(set(re.findall(r"short/reader/answer\.j2 [0-9a-f]{6}  ", compared))) == 2


def test_run_is_identified_by_the_texts(variants: Kgqa) -> None:
    shipped = variants("run", "method=no_context", "prompts=shipped", *DEMO).folder
    short = variants("run", "method=no_context", "prompts=short", *DEMO).folder
    write(f"same/{READER}.j2", Path(f"short/{READER}.j2").read_text())
    same = variants("run", "method=no_context", "prompts=same", *DEMO).folder
    write_prompt("short", "Shorter")
    changed = variants("run", "method=no_context", "prompts=short", *DEMO).folder
    Path(f"prompts/{READER}.j2").unlink()
    default = variants("run", "method=no_context", *DEMO).folder
    assert (same, default) == (short, shipped)
    assert len({shipped, short, changed}) == 3


def test_triples_are_those_of_the_prompts(variants: Kgqa) -> None:
    text = "{% block user %}Triples of {{ title }}: {{ text }}{% endblock %}"
    write("other/trace/extract.j2", text)
    words = ("method=trace", *DEMO)
    shipped = variants("run", *words, "prompts=shipped")
    other = variants("run", *words, "prompts=other")
    again = variants("run", *words, "prompts=shipped", "run_name=again")
    assert shipped.folder != other.folder
    lines = [
        line.rpartition(" · ")[2]
        for ran in (shipped, other, again)
        for line in ran.out.splitlines()
        if line.startswith("passages: ") and "calls" in line
    ]
    assert lines == ["10 calls, 0 % cached", "10 calls, 0 % cached", "10 calls, 100 % cached"]


def test_own_method_keeps_its_prompts(kgqa: Kgqa) -> None:
    kgqa("new", "method", "walk_back")
    write_prompt("short", "Briefly")
    first = kgqa("run", "method=walk_back", *DEMO).folder
    for prompts in ("shipped", "short"):
        assert kgqa("run", "method=walk_back", f"prompts={prompts}", *DEMO).folder == first


def test_ask_and_python_use_the_prompts(variants: Kgqa) -> None:
    keys: dict[str, Any] = {"method": "no_context", "engine": "scripted", "display": QUIET}
    asked = api.ask("Who?", [("Mill", "Ann built it.")], prompts="short", **keys)
    assert "Briefly: " in str(asked.calls[0].request)
    runs = api.sweep(prompts=["shipped", "short"], dataset="demo", limit=2, **keys)
    assert [has_text(run.folder, "Briefly: ") for run in runs] == [False, True]


@pytest.mark.parametrize(
    "words", [("prompts=nix",), ("-m", "prompts=shipped,nix")], ids=["run", "sweep"]
)
def test_folder_without_templates_is_rejected(kgqa: Kgqa, words: tuple[str, ...]) -> None:
    Path("nix").mkdir()
    ran = kgqa("run", *words, "method=no_context", *DEMO)
    assert ran.code == 2
    assert "prompts=nix: no folder with templates, such as nix/reader/answer.j2." in ran.err
    assert "0 s" not in ran.out


def test_prompts_without_use_are_warned_of(variants: Kgqa) -> None:
    write_prompt("walk", "Choose", "trace/select")
    ran = variants("run", "method=no_context", "prompts=walk", *DEMO)
    assert "warning: prompts=walk has no effect: method=no_context renders none" in ran.out
    ran = variants("run", "method=no_context", "prompts=short", *DEMO)
    assert "prompts=short has no effect" not in ran.out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{% block user %}{{ qestion }}{% endblock %}", ":1: 'qestion' is undefined. Did you mean"),
        ("Answer {{ question }}", ": no {% block user %}. Write the prompt between"),
    ],
    ids=["value", "block"],
)
def test_error_in_a_prompt_is_named_before_the_run(kgqa: Kgqa, text: str, expected: str) -> None:
    write("short/reader/answer.j2", text)
    message = refusal(
        lambda: api.run(method="no_context", prompts="short", dataset="demo", engine="scripted")
    )
    assert f"short/reader/answer.j2{expected}" in message
    assert not Path("outputs/demo").exists()
