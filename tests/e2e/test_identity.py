"""A run is identified by what answers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from kgqa.config.keys import load_node
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.identity import identify as identify_run
from kgqa.experiment.judging import identify_judge
from kgqa.experiment.session import Session
from kgqa.identity.component import identity_of
from kgqa.identity.program_code import user_code
from kgqa.util.places import package_folder
from tests.e2e.conftest import DEMO, QUICK, Kgqa, refused, write_file, write_lines, write_rules
from tests.e2e.judged_runs import answered


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KGQA_HOME", str(tmp_path / "home"))
    return tmp_path


def preset(group: str, name: str, source: str, /, **values: Any) -> None:
    write_file(f"conf/{group}/{name}.yaml", yaml.safe_dump({**load_node(group, source), **values}))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "model", ["model=smollm2_135m model.path=m.gguf model.sha256=null", "roles.reader=mine"]
)
def test_other_weights_under_one_path_are_another_run(model: str) -> None:
    words = ["method=no_context", *model.split()]
    preset("model", "mine", "smollm2_135m", name="mine", path="m.gguf", sha256=None)
    write_file("m.gguf", "first weights")
    first, status = identify_run(compose_experiment(words)), Path("m.gguf").stat()
    write_file("m.gguf", "other weights")
    os.utime("m.gguf", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert identify_run(compose_experiment(words)) != first


@pytest.mark.usefixtures("folder")
def test_any_edit_of_a_question_file_is_another_run() -> None:
    """Also one that keeps its size and times."""
    demo, file = DEMO.read_bytes().splitlines()[0], Path("questions.jsonl")
    words = ["method=no_context", "dataset=musique", f"dataset.path={file}", *QUICK]
    place = demo.index(b'"paragraph_text": "') + 22
    file.write_bytes(demo)
    times = file.stat()
    runs = [identify_run(compose_experiment(words))]
    for content in (demo[:place] + b"x" + demo[place + 1 :], demo):
        file.write_bytes(content)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        runs.append(identify_run(compose_experiment(words)))
    assert [run == runs[0] for run in runs] == [True, False, True]


ROLES = ("method=no_context", "engine=scripted", "roles.reader=my@mine")
EDITS = {
    "context": ("model", 1024), "name": ("model", "other"), "base_url": ("engine", "http://127.0.0.1:9/v2"),
    "served_model": ("engine", "other"), "extra_body": ("engine", {"top_k": 3}), "endpoints": ("engine", "chat"),
}  # fmt: skip


def role_and_judge(**edited: Any) -> tuple[Any, str]:
    """Return the identity of a run and of its judge, with own presets of their model and server."""
    own = {
        group: {key: edited[key] for key in edited if EDITS[key][0] == group}
        for group in ("model", "engine")
    }
    preset("model", "my", "gpt_4o_mini", **{"name": "my", **own["model"]})
    fields = {"base_url": "http://127.0.0.1:9/v1", "api_key_env": "NONE"}
    preset("engine", "mine", "openai", **{**fields, **own["engine"]})
    experiment = compose_experiment([*ROLES, "judge=three_way", "judge.model=my@mine"])
    with Session(experiment) as session:
        return identify_run(experiment), identify_judge(session)


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("key", EDITS)
def test_edited_preset_of_role_or_judge_is_another(key: str) -> None:
    first = role_and_judge()
    second = role_and_judge(**{key: EDITS[key][1]})
    assert (first[0] != second[0], first[1] != second[1]) == (True, True)


@pytest.mark.slow
def test_edited_rules_and_judges_run_again(kgqa: Kgqa) -> None:
    first = answered(kgqa)
    judge = write_rules([("Compare", {"verdict": "correct"}), (".", "Other")])
    command = ("run", "method=no_context", "limit=3", *QUICK, judge, "judge=three_way")
    ran = kgqa(*command)
    assert ran.folder != first
    assert "Other" in (ran.folder / "predictions.jsonl").read_text(encoding="utf-8")
    assert "already complete" in kgqa(*command).out
    preset("judge", "three_way", "three_way", max_tokens=7)
    assert "already complete" not in kgqa(*command).out


RANKER = """
class Mine:
    def identity(self):
        return {"ranker": "mine"}

    def score(self, calls):
        return [tuple(SIGN * float(len(text)) for text in call.texts) for call in calls]
"""


@pytest.mark.usefixtures("folder")
def test_edited_ranker_gets_new_calls_and_a_new_run() -> None:
    write_file("mine.py", RANKER.replace("SIGN", "1"))
    write_file("conf/ranker/mine.yaml", "_target_: mine.Mine\n")

    def identify() -> tuple[Any, Any]:
        experiment = compose_experiment(
            ["ranker=mine", "engine=scripted", "demonstrations_ranker=lexical"]
        )
        with Session(experiment) as session:
            return identify_run(experiment)["ranker"], identity_of(session.ranker("ranker"))

    before = identify()
    write_file("mine.py", RANKER.replace("SIGN", "-1"))
    after = identify()
    assert before[0] != after[0]
    assert before[1] != after[1]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("group", "words"), [("method", []), ("retriever", ["method=retrieve_only"])]
)
def test_edited_method_or_retriever_is_another_run(group: str, words: list[str]) -> None:
    def identify(code: str) -> tuple[Any, Any]:
        write_file(f"my_{group}.py", code)
        experiment = compose_experiment([*words, f"{group}=mine"])
        return identify_run(experiment), identity_of(experiment.retriever) if words else None

    assert (
        identity_of(compose_experiment(["method=retrieve_only"]).retriever).get("code") is None
    )  # of ours
    scaffold = package_folder() / "scaffold" / group
    text = (scaffold / f"my_{group}.py.txt").read_text(encoding="utf-8")
    write_file(f"conf/{group}/mine.yaml", f"_target_: my_{group}.My{group.title()}\n")
    first = identify(text)
    assert identify(f"# a comment\n{text}") == first
    other = identify(f"{text}\nMORE = 1\n")
    assert other[0] != first[0]
    assert other[1] != first[1] or not words  # the index


HELPERS = ["helper.py", "tools/__init__.py", "tools/deep.py", "plain/inner.py"]


@pytest.fixture
def own_walk(folder: Path) -> str | None:
    """Write a module with helpers and a template."""
    write_file(
        "own_walk.py",
        "import helper\nfrom plain.inner import two\nfrom tools import deep\nname = 'mine/ask'\n",
    )
    write_file("prompts/mine/ask.j2", "{% block user %}Who?{% endblock %}")
    for name in HELPERS:
        write_file(name, "one = two = 1\n")
    return user_code("own_walk")


@pytest.mark.parametrize("helper", HELPERS)
def test_code_of_a_helper_counts_without_comments(own_walk: str | None, helper: str) -> None:
    write_file(helper, "one = two = 1 # a comment\n")
    assert user_code("own_walk") == own_walk
    write_file(helper, "one = two = 2\n")
    assert user_code("own_walk") != own_walk


@pytest.mark.usefixtures("own_walk")
def test_template_with_a_composed_name_counts() -> None:
    write_file("own_walk.py", "import helper\nname = 'ask'\npath = '/'.join(['mine', name])\n")
    first = user_code("own_walk")
    write_file("prompts/mine/ask.j2", "{% block user %}What?{% endblock %}")
    assert user_code("own_walk") != first


def test_changed_predictions_are_noticed(kgqa: Kgqa) -> None:
    command = ("run", "method=no_context", "limit=3", "run_name=a", *QUICK)
    folder = kgqa(*command).folder
    file = folder / "predictions.jsonl"
    times, before = file.stat(), file.read_text(encoding="utf-8")
    lines = [{**json.loads(line), "answer": "other"} for line in before.splitlines()]
    write_lines(file, lines)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    refused(kgqa("report", str(folder)), "changed after it was scored")
    assert "already complete" not in kgqa(*command).out
    assert file.read_text(encoding="utf-8") == before


def test_comparison_warns_of_other_data(kgqa: Kgqa, tmp_path: Path) -> None:
    folders = []
    for name, count in (("a", 3), ("b", 4), ("c", 3)):
        file = tmp_path / f"{count}.jsonl"
        file.write_text(
            "\n".join(DEMO.read_text(encoding="utf-8").splitlines()[:count]), encoding="utf-8"
        )
        folders.append(str(answered(kgqa, name, "dataset=musique", f"dataset.path={file}")))
    assert "warning: these runs read different data files (A " in kgqa("compare", *folders).out
    assert "different data files" not in kgqa("compare", folders[0], folders[2]).out
