"""The folder of a run: no other code and fewer questions take its place, and its name says who answered."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import kgqa as kgqa_api
from kgqa.artifacts.predictions import question_ids
from kgqa.artifacts.run import MADE_UP
from kgqa.errors import ConfigError
from kgqa.runtime.folder import RunFolder
from tests.e2e.conftest import Kgqa

GOLDEN = ("run", "method=golden", "dataset=demo", "engine=scripted")
OWN = """from dataclasses import dataclass
from kgqa.types import Answer

@dataclass(frozen=True)
class Echo:
    uses = frozenset({"model"})
    async def answer(self, question):
        return Answer(question.text)
"""


def test_fewer_questions_never_replace_more(kgqa: Kgqa) -> None:
    first, whole = kgqa(*GOLDEN, "limit=2"), kgqa(*GOLDEN, "limit=5")
    assert (first.folder, len(question_ids(whole.folder))) == (whole.folder, 5)
    before = (whole.folder / "predictions.jsonl").read_bytes()
    few, one = kgqa(*GOLDEN, "limit=2"), kgqa(*GOLDEN, "ids=[2hop__demo_01]")
    assert (whole.folder / "predictions.jsonl").read_bytes() == before
    assert [len(question_ids(ran.folder)) for ran in (few, one)] == [2, 1]
    assert few.folder.parent == one.folder.parent == whole.folder.parent
    assert few.folder.name.startswith(f"{whole.folder.name}-2-")
    assert kgqa(*GOLDEN, "limit=2").folder == few.folder


@pytest.mark.parametrize("place", ["output_dir=here", "run_name=here"])
def test_a_place_that_was_chosen_is_not_exchanged(kgqa: Kgqa, place: str) -> None:
    whole = kgqa(*GOLDEN, "limit=3", place)
    refused = kgqa(*GOLDEN, "limit=2", place)
    assert refused.code == 2
    assert "here: 3 questions are answered in this folder. A run of 2 would replace them" in refused.err
    assert len(question_ids(whole.folder)) == 3


def test_a_changed_method_gets_its_own_folder(kgqa: Kgqa) -> None:
    Path("conf/method").mkdir(parents=True)
    Path("conf/method/echo.yaml").write_text("_target_: echo_method.Echo\n", encoding="utf-8")
    folders = []
    for code in (OWN, "# a comment\n" + OWN, OWN.replace("Answer(question.text)", 'Answer("broken")')):
        Path("echo_method.py").write_text(code, encoding="utf-8")
        sys.modules.pop("echo_method", None)
        folders.append(kgqa("run", "method=echo", "dataset=demo", "engine=scripted", "limit=2").folder)
    sys.modules.pop("echo_method", None)
    assert folders[0] == folders[1] != folders[2]
    assert "broken" not in (folders[0] / "predictions.jsonl").read_text(encoding="utf-8")


def test_a_folder_belongs_to_one_code(tmp_path: Path) -> None:
    RunFolder(tmp_path / "run", {"code": {"method": "a"}}).close()
    with pytest.raises(ConfigError, match=r"It differs in code\.method \(a → b\)"):
        RunFolder(tmp_path / "run", {"code": {"method": "b"}})


def test_a_scripted_run_says_so_in_its_name_and_every_report(kgqa: Kgqa) -> None:
    first = kgqa(*GOLDEN, "limit=2", "model=llama3_8b_instruct")
    assert first.folder.parts[:-1] == ("outputs", "demo", "golden", "scripted")
    for form, name in (("md", "report.md"), ("html", "report.html"), ("latex", "report.tex")):
        kgqa("report", str(first.folder), "--format", form)
        assert MADE_UP in (first.folder / name).read_text(encoding="utf-8"), form
    assert MADE_UP in first.out + kgqa_api.load(first.folder)._repr_html_()
    second = kgqa(*GOLDEN, "limit=2", "seed=1")
    assert kgqa("compare", str(first.folder), str(second.folder)).out.count(MADE_UP) == 2
    swept = kgqa("run", "-m", "method=golden,no_context", "limit=2", "engine=scripted")
    assert f"cell 0, 1: {MADE_UP}" in (swept.folder / "report.html").read_text(encoding="utf-8")
    plain = kgqa("run", "method=retrieve_only", "limit=2", "engine=scripted")
    assert plain.folder.parts[-2] == "bm25"
    assert MADE_UP not in plain.out + (plain.folder / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("method.beam=five", "method.beam"),
        ("model=qwen3_8b engine=openai", "OPENAI_API_KEY"),
        ("model.path=folder model.sha256=null", "engine=llamacpp reads .gguf files only"),
        ("engine=transformers model.path=folder model.sha256=null", "folder: no tokenizer.json. Save"),
        ("engine=scripted method=kgp graph=tagme", "TAGME_TOKEN"),
    ],
)
def test_failed_start_leaves_nothing(words: str, said: str, kgqa: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "config.json").write_text("{}", encoding="utf-8")
    ran = kgqa("run", "dataset=demo", "limit=1", *words.split())
    assert ran.code == 2
    assert said in ran.err
    assert "continue" not in ran.err
    assert [path for path in (tmp_path / "outputs").glob("*") if not path.name.startswith(".")] == []
