"""What the README and docs/ tell people to type must be known to kgqa, and the code they show must run."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path

import pytest

from kgqa.cli.commands import find_command, parse
from kgqa.cli.main import main
from kgqa.config.composing import compose
from tests.shown_commands import ROOT, elsewhere, every_command
from tests.unit.files import write
from tests.without_weights import stand_in_defaults

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TYPED = [(each.place, each.typed) for page in every_command().values() for each in page]
SHOWN = {
    place: shlex.split(typed.replace("\\\n", " "))
    for place, typed in TYPED
    if re.match(r"(\w+=\S+ )*kgqa ", typed)
}
GIVEN = {
    place: [word for word in words[words.index("kgqa") + 1 :] if word != "…"]
    for place, words in SHOWN.items()
}


def test_shown_commands_and_python_blocks_are_valid() -> None:
    for words in GIVEN.values():
        if {"-h", "--help"} & set(words):
            find_command(words)
        else:
            parse(words)
    for file in DOCUMENTS:
        for block in re.findall(
            r"```python\n(.*?)```", file.read_text(encoding="utf-8"), re.DOTALL
        ):
            compile(block, str(file), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


NOT_RUN = {
    place for place, typed in TYPED if elsewhere(typed) or "engine" in typed or "model" in typed
}


@pytest.mark.slow
def test_shown_keys_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check commands that test_shown_commands.py does not run, or runs with a scripted engine."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    # what OWN_CODE shows how to add
    own = "draft_and_check", "my_judge", "my_model", "trivia", "walk_back"
    runs = [
        words
        for place, words in GIVEN.items()
        if place in NOT_RUN and words[0] == "run" and words[1] != "-m"
    ]
    for keys in {
        tuple(key for key in words if "=" in key and key.partition("=")[2] not in own)
        for words in runs
    }:
        compose(keys)


def shown_files() -> dict[str, str]:
    """The files that are shown in full, by their path: named in the text right before the block."""
    text = (ROOT / "docs/OWN_CODE.md").read_text(encoding="utf-8")
    names = re.findall(
        r"`([\w/]+\.(?:py|yaml))`[^`]*(?:`[^`\n]+`[^`]*)?\n\n```(?:python|yaml)\n(.*?)```",
        text,
        re.DOTALL,
    )
    return dict(names)


def test_parts_of_the_own_code_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in shown_files().items():
        write(name, content)
    write(
        "trivia.jsonl",
        {"question": "Who built it?", "answer": "Ann", "texts": {"Mill": "Ann built the mill."}},
    )
    keys = (
        "method=draft_and_check dataset=trivia dataset.path=trivia.jsonl"
        " model=my_model engine=scripted judge=close_judge output_dir=run"
    )
    assert main(["run", *keys.split()]) == 0
    metrics = json.loads(Path("run/metrics.json").read_text(encoding="utf-8"))
    assert (metrics["questions"], metrics["failed"], metrics["calls"]["Search"]) == (1, 0, 1)
    assert metrics["judge"]["verdicts"] == {"correct": 0, "incorrect": 1, "not_attempted": 0}


@pytest.mark.slow
def test_the_python_that_the_tutorial_shows_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in_defaults(tmp_path)
    monkeypatch.chdir(tmp_path)
    tutorial = (ROOT / "docs/TUTORIAL.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(import kgqa\n.*?)```", tutorial, re.DOTALL)
    exec(code, {})
    assert len(list((tmp_path / "outputs" / "demo").glob("*/*/*/report.html"))) == 3


def test_extras_are_installed_from_the_clone() -> None:
    # kgqa is not on PyPI: 'kgqa[pdf]' works only where kgqa is installed
    line = re.compile(r"install[^`\n]*'kgqa\[[\w,-]+\]'")
    files = [*DOCUMENTS, *(ROOT / "conf").rglob("*.yaml"), *(ROOT / "kgqa").rglob("*.py")]
    assert [file for file in files if line.search(file.read_text(encoding="utf-8"))] == []
