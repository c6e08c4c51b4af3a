"""The folder of a run: what takes its place, when it is complete, damaged or empty, and who may read it."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest

import kgqa as kgqa_api
from kgqa.artifacts.predictions import question_ids
from kgqa.artifacts.run import MADE_UP
from kgqa.errors import ConfigError
from kgqa.experiment.experiment import Experiment
from kgqa.runtime.folder import RunFolder
from tests.e2e.conftest import DEMO, QUICK, TWO, Kgqa

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
    for place in ("output_dir=here", "run_name=here"):  # a place that was chosen is not exchanged
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
    RunFolder(Path("run"), {"code": {"method": "a"}}).close()
    with pytest.raises(ConfigError, match=r"It differs in code\.method \(a → b\)"):
        RunFolder(Path("run"), {"code": {"method": "b"}})


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
        ("engine=scripted method=golden judge=three_way judge.model=gpt_4o_mini@openai", "OPENAI_API_KEY"),
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


PRICES = "model.prices={input: 1.0, cached: 0.5, output: 2.0}"
COMMAND = ("run", "method=all_documents", *QUICK)


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.iterdir()}


def test_a_finished_run_is_shown_and_stays_as_it_is(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    first = kgqa(*COMMAND)
    before = files(first.folder)
    Path("outputs/.cache/calls.sqlite").unlink()
    monkeypatch.setattr(Experiment, "_sample", lambda *_: pytest.fail("read the questions"))
    again = kgqa(*COMMAND, "max_parallel_questions=3")
    assert (again.code, again.folder) == (0, first.folder)
    assert "already complete" in again.out
    assert files(first.folder) == before
    scores = [[line for line in ran.out.splitlines() if line.startswith(("EM", "F1"))] for ran in (first, again)]
    assert scores[0] == scores[1]


def test_a_run_without_judge_keeps_earlier_verdicts(kgqa: Kgqa) -> None:
    folder = kgqa(*COMMAND, "judge=kgp").folder
    before = files(folder)
    again = kgqa(*COMMAND)
    assert "already complete" in again.out
    assert files(folder) == before


def test_a_change_of_settings_files_or_data_runs_again(kgqa: Kgqa) -> None:
    lines = DEMO.read_text(encoding="utf-8").splitlines()[:2]
    file, command = Path("own.jsonl"), (*COMMAND, "dataset=musique", "dataset.path=own.jsonl")
    file.write_text("\n".join(lines), encoding="utf-8")
    folder, named = kgqa(*command).folder, kgqa(*command, "run_name=a").folder
    for change in ("scoring=drop", PRICES, "report.html", "trace.jsonl.zst", "settings.json"):
        if "=" not in change:
            (named / change).unlink()
        changed = (*command, "run_name=a", *([change] if "=" in change else []))
        again = kgqa(*changed)
        assert (again.code, again.folder) == (0, named)
        assert "already complete" not in again.out
        assert (named / "report.html").is_file()
        assert "already complete" in kgqa(*changed).out
    assert kgqa(*command, "seed=3").folder != folder
    file.write_text("\n".join([json.dumps({**json.loads(lines[0]), "question": "Who else?"}), lines[1]]), "utf-8")
    again = kgqa(*command)
    assert "already complete" not in again.out
    assert again.folder != folder


TRACE = ("run", "method=trace", "limit=2", *QUICK)


def test_a_run_or_sweep_with_an_empty_file_is_completed_by_the_same_command(kgqa: Kgqa) -> None:
    folder, sweep = kgqa(*TRACE).folder, kgqa(*TWO).folder
    lasting = {file: file.read_bytes() for file in (folder / "predictions.jsonl", sweep / "cells/001.yaml")}
    for command, file in (
        *((TRACE, folder / name) for name in ("identity.json", "metrics.json", "predictions.jsonl")),
        *((TWO, sweep / name) for name in ("sweep.json", "cells/000.json")),
    ):
        file.write_bytes(b"")
        ran = kgqa(*command)
        assert (ran.code, ran.folder) == (0, folder if command == TRACE else sweep), ran.err
        assert {kept: kept.read_bytes() for kept in lasting} == lasting
        assert file.read_bytes()


def test_empty_files_of_triples_and_of_an_index_count_as_absent(kgqa: Kgqa) -> None:
    searching = ("run", "method=retrieve_read", "limit=2", *QUICK)
    assert (kgqa(*TRACE).code, kgqa(*searching).code) == (0, 0)
    files = [*Path("outputs/kg").rglob("manifest.json"), *Path("outputs/index").rglob("manifest.json")]
    assert len(files) == 2
    files += Path("outputs/index").rglob("corpus.json")
    for file in files:
        file.write_bytes(b"")
    for command in (TRACE, searching):
        ran = kgqa(*command, "run_name=again")  # a finished run reads none of them
        assert ran.code == 0, ran.err
    assert all(file.read_bytes() for file in files if "index" in file.parts)  # triples': when some are added


def test_new_folders_are_private_and_a_folder_that_its_owner_opened_stays_open(kgqa: Kgqa) -> None:
    """What a run leaves may hold private documents."""

    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    before = os.umask(0o022)
    try:
        run = ("run", "method=trace", "dataset=demo", "limit=2", *QUICK)
        assert kgqa(*run, "output_dir=elsewhere").code == 0
        assert mode(Path("outputs")) == mode(Path("elsewhere")) == 0o700
        Path("outputs").chmod(0o755)
        assert kgqa(*run, "seed=1").code == 0
        assert not [path for path in Path("outputs").rglob("*") if mode(path) & 0o444 != 0o444]
    finally:
        os.umask(before)


@pytest.mark.parametrize("end", ["\u2028", "\u0085"], ids=ascii)
def test_a_run_ends_and_is_read_again_whatever_its_texts_hold(kgqa: Kgqa, end: str) -> None:
    passage = {"idx": 0, "title": f"Elm{end}Road", "paragraph_text": f"In Pellery{end}town.", "is_supporting": True}
    asked = {
        "id": f"2hop__{end}1", "question": f"Where{end}is it?", "answer": f"Pellery{end}town", "answer_aliases": [],
        "paragraphs": [passage], "question_decomposition": [], "answerable": True,
    }  # fmt: skip
    Path("own.jsonl").write_text(json.dumps(asked, ensure_ascii=False) + "\n", encoding="utf-8")
    rule = {"match": "", "reply": f"Pellery{end}town"}
    Path("rules.jsonl").write_text(json.dumps(rule, ensure_ascii=False) + "\n", encoding="utf-8")
    words = ("dataset=musique", "dataset.path=own.jsonl", "engine=scripted", "engine.rules=rules.jsonl")
    ran = kgqa("run", "method=all_documents", *words, "run_name=odd")
    assert ran.code == 0, ran.err
    for command in (("show",), ("report",), ("evaluate",), ("report", "--format", "jsonl", "--out", "exported")):
        again = kgqa(*command, str(ran.folder))
        assert again.code == 0, (command, again.err)
    assert json.loads((ran.folder / "metrics.json").read_text(encoding="utf-8"))["scores"]["em"]["mean"] == 100
