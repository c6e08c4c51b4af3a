"""A folder of a person's own: what `kgqa new` writes there runs, is swept over, and is run again when it changes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import invalidate_caches
from pathlib import Path

import pytest

from kgqa.cli.system import FIRST_RUNS
from tests.e2e.conftest import Kgqa

Run = Callable[[str], str]


@pytest.fixture(name="kgqa")
def run_here(kgqa: Kgqa) -> Run:
    """Run a command line in an own folder and give its output. Modules of that folder are imported anew."""

    def run(line: str) -> str:
        sys.modules.pop("mine", None)
        invalidate_caches()
        ran = kgqa(*line.split())
        return ran.out + ran.err

    return run


def test_what_kgqa_new_writes_runs_and_passes_its_test(kgqa: Run, tmp_path: Path) -> None:
    for group in ("method", "dataset", "retriever"):
        told = FIRST_RUNS[group].format(name=f"own_{group}")
        assert told in kgqa(f"new {group} own_{group}")
        folder = tmp_path / kgqa(told.removeprefix("kgqa ")).splitlines()[-1]
        metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
        assert metrics["questions"] > 1
        assert metrics["failed"] == 0
        assert "this name exists. Choose another name" in kgqa(f"new {group} own_{group}")
    files = [str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()]
    assert sorted(file for file in files if not file.startswith("outputs") and file.endswith(("l", ".py", ".j2"))) == [
        *(f"conf/{group}/own_{group}.yaml" for group in ("dataset", "method", "retriever")), "data/own_dataset.jsonl",
        "own_dataset.py", "own_method.py", "own_retriever.py", "prompts/own_method/answer.j2",
        *(f"test_own_{group}.py" for group in ("dataset", "method", "retriever")),
    ]  # fmt: skip
    tested = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, tmp_path.glob("test_own_*.py"))]
    ended = subprocess.run(tested, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def test_passages_of_an_own_dataset_are_searched(kgqa: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("mine", encoding="utf-8")
    assert kgqa("new method mine") == "kgqa: mine.py: this file exists. Choose another name.\n"
    assert [file.name for file in tmp_path.iterdir()] == ["mine.py"]
    assert "use small letters, digits and underscores only" in kgqa("new method Mine")
    assert "an installed module has this name" in kgqa("new method json")
    (tmp_path / "mine.py").unlink()
    kgqa("new dataset mine")
    folder = tmp_path / kgqa("run method=retrieve_read dataset=mine engine=scripted").splitlines()[-1]
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    assert (metrics["failed"], metrics["retrieval"]["recall"]["15"]["mean"]) == (0, 100.0)
    (tmp_path / "data" / "mine.jsonl").unlink()
    assert "no mine.jsonl (plain or .gz) in" in (said := kgqa("run method=golden dataset=mine engine=scripted"))
    assert "put it in one of these folders" in said


def test_new_model_names_its_weights(kgqa: Run) -> None:
    for number, (source, key) in enumerate([
        ("Qwen/Qwen3-8B", "hub: Qwen/Qwen3-8B"),
        ("Qwen/Qwen3-8B-GGUF:q8.gguf", "hub: Qwen/Qwen3-8B-GGUF:q8.gguf"),
        ("/weights/q8.gguf", "path: /weights/q8.gguf"),
        ("", "hub: Qwen/Qwen3-0.6B"),
    ]):  # fmt: skip
        assert f"kgqa run model=mine{number}" in kgqa(f"new model mine{number} {source}")
        assert f"{key} #" in Path(f"conf/model/mine{number}.yaml").read_text(encoding="utf-8")


def test_first_failure_of_each_kind_shows_own_lines(kgqa: Run, tmp_path: Path) -> None:
    kgqa("new method mine")
    module, template = tmp_path / "mine.py", tmp_path / "prompts" / "mine" / "answer.j2"
    text = module.read_text(encoding="utf-8")
    line = text[: text.index('render("mine')].count("\n") + 1
    template.write_text(template.read_text(encoding="utf-8").replace("context", "contexts"), encoding="utf-8")
    ran = kgqa("run method=mine dataset=demo engine=scripted limit=3").splitlines()
    assert [each for each in ran if "UndefinedError" in each and "kgqa:" not in each] == [
        "failed: 2hop__demo_01: UndefinedError: 'contexts' is undefined (prompts/mine/answer.j2:5)"
    ]
    assert any(each.startswith(f"  mine.py:{line}: render(") for each in ran)
    assert "  prompts/mine/answer.j2:5: {{ contexts }}" in ran
    log = (tmp_path / ran[-1] / "log.jsonl").read_text(encoding="utf-8").splitlines()
    traces = [each["traceback"] for each in map(json.loads, log) if "traceback" in each]
    assert len(traces) == 1
    assert "Traceback (most recent call last)" in traces[0]
    module.write_text(text.replace("await Search", "Search"), encoding="utf-8")
    ran = kgqa("run method=mine dataset=demo engine=scripted limit=3").splitlines()
    assert "Is `await` missing before Search(…)?" in ran[0]


@pytest.mark.parametrize(
    ("right", "wrong", "line", "message"),
    [
        ("        return Answer(", "        return text\n        return Answer(", "async def answer",
         "TypeError: {}: answer must return Answer(text: str, …), not str"),
        ("            text,\n", "            None,\n", "async def answer",
         "TypeError: {}: answer must return Answer(text: str, …), not Answer(text=None)"),
        ('{"model", "pool"}', '{"model"}', "await Search", '{}: this method awaits Search: add "pool" to its `uses`'),
        ('{"model", "pool"}', '{"pool"}', "await Generate", '{}: this method calls a model: add "model" to its `uses`'),
        ("        text = reply", "        while True:\n            await CountTokens('a')\n        text = reply",
         "await CountTokens('a')", "more than max_calls=50 calls. End the loop, or increase max_calls ({})"),
    ],
    ids=["returns-str", "returns-no-text", "no-pool", "no-model", "endless-loop"],
)  # fmt: skip
def test_defect_of_a_method_names_its_line(
    kgqa: Run, tmp_path: Path, right: str, wrong: str, line: str, message: str
) -> None:
    kgqa("new method mine")
    module = tmp_path / "mine.py"
    text = module.read_text(encoding="utf-8")
    assert right in text
    text = text.replace(right, wrong)
    module.write_text(text, encoding="utf-8")
    place = f"mine.py:{text[: text.index(line)].count(chr(10)) + 1}"
    assert message.format(place) in kgqa("run method=mine dataset=demo engine=scripted limit=2 max_calls=50")


def test_broken_files_are_rows_of_models_and_doctor(kgqa: Run, tmp_path: Path) -> None:
    kgqa("new model sound")
    kgqa("new method mine")
    folder = tmp_path / "conf" / "model"
    (folder / "cut.yaml").write_text("hub: [a\n", encoding="utf-8")
    (folder / "odd.yaml").write_text("hub: a/b\ncontexts: 7\n", encoding="utf-8")
    with (tmp_path / "mine.py").open("a", encoding="utf-8") as module:
        module.write("    more: int\n    least: int = 3\n")
    listed = kgqa("models").split()
    assert {"cut:", "odd:", "sound", "smollm2_135m"} <= set(listed)
    found = " ".join(kgqa("doctor").split())
    assert "conf/model/cut.yaml:2: did not find expected" in found
    assert "conf/model/odd.yaml: model.contexts=7: unknown key. Did you mean context?" in found
    missing = "conf/method/mine.yaml:3: no value for 'more', a field of mine.Mine."
    assert missing in found
    assert f"kgqa: {missing} Add the line more: VALUE" in kgqa("run method=mine dataset=demo engine=scripted")
