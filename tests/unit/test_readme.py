"""What the README and docs/ tell people to type must be known to kgqa, and the code they show must run."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kgqa.cli.commands import parse
from kgqa.config.composing import compose
from scripts.walk_readme import read_commands
from tests.shown_commands import ROOT, elsewhere, every_command
from tests.without_weights import stand_in_defaults

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TYPED = [(each.place, each.typed) for page in every_command().values() for each in page]
SHOWN = {
    place: shlex.split(typed.replace("\\\n", " ")) for place, typed in TYPED if re.match(r"(\w+=\S+ )*kgqa ", typed)
}
GIVEN = {place: [word for word in words[words.index("kgqa") + 1 :] if word != "…"] for place, words in SHOWN.items()}


def test_every_command_shown_is_known_with_its_options() -> None:
    for place in GIVEN:
        assert vars(parse([word for word in GIVEN[place] if word not in ("-h", "--help")]))


NOT_RUN = {place for place, typed in TYPED if elsewhere(typed) or "engine" in typed or "model" in typed}


@pytest.mark.parametrize(
    "place", [place for place in GIVEN if place in NOT_RUN and GIVEN[place][0] == "run" and GIVEN[place][1] != "-m"]
)
def test_every_key_of_a_run_shown_is_known(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check commands that test_shown_commands.py does not run, or runs with a scripted engine."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    own = "draft_and_check", "my_model", "trivia", "walk_back"  # what OWN_CODE shows how to add
    assert compose([key for key in GIVEN[place] if "=" in key and key.partition("=")[2] not in own])


def shown_files() -> dict[str, str]:
    """The files that are shown in full, by their path: named in the text right before the block."""
    text = (ROOT / "docs/OWN_CODE.md").read_text(encoding="utf-8")
    found = re.findall(
        r"`([\w/]+\.(?:py|yaml))`[^`]*(?:`[^`\n]+`[^`]*)?\n\n```(?:python|yaml)\n(.*?)```", text, re.DOTALL
    )
    return dict(found)


def test_the_method_dataset_and_model_that_own_code_shows_how_to_add_run(tmp_path: Path) -> None:
    for name, content in shown_files().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    question = {"question": "Who built it?", "answer": "Ann", "texts": {"Mill": "Ann built the mill."}}
    (tmp_path / "trivia.jsonl").write_text(json.dumps(question) + "\n", encoding="utf-8")
    keys = (
        "method=draft_and_check dataset=trivia dataset.path=trivia.jsonl model=my_model engine=scripted output_dir=run"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "kgqa", "run", *keys.split()],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text(encoding="utf-8"))
    assert (metrics["questions"], metrics["failed"], metrics["calls"]["Search"]) == (1, 0, 1)


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.stem)
def test_the_python_that_is_shown_compiles(file: Path) -> None:
    for block in re.findall(r"```python\n(.*?)```", file.read_text(encoding="utf-8"), re.DOTALL):
        compile(block, str(file), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_python_that_the_tutorial_shows_runs(tmp_path: Path) -> None:
    stand_in_defaults(tmp_path)
    (shown,) = re.findall(
        r"```python\n(import kgqa\n.*?)```", (ROOT / "docs/TUTORIAL.md").read_text(encoding="utf-8"), re.DOTALL
    )
    ended = subprocess.run([sys.executable, "-c", shown], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert len(list((tmp_path / "outputs" / "demo").glob("*/*/*/report.html"))) == 3


def test_the_walk_finds_the_commands_of_the_quickstart_and_what_they_need() -> None:
    commands = read_commands((ROOT / "README.md").read_text(encoding="utf-8"))
    assert [command.split()[:2] for command, needs in commands if not needs] == [
        ["kgqa", "demo"], ["mkdir", "-p"], ["kgqa", "ask"], ["kgqa", "run"],
    ]  # fmt: skip
    assert {needs for _, needs in commands} == {"", "a server", "MuSiQue"}
