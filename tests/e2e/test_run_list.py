"""What tables on the terminal show about runs: settings that differ, repeats, intervals and scripted replies."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from kgqa.artifacts.run import IDENTITY, read_identity
from kgqa.report.changes import name_changes
from kgqa.types import Json, JsonObject
from kgqa.util.digests import text_digest
from tests.e2e.conftest import QUICK, Kgqa, Ran, interrupt_run, refused, run_in, write_rules

GOLDEN = ("method=golden", "limit=2", *QUICK)


@pytest.fixture(scope="module")
def two_models(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models")
    for model in ("smollm2_135m", "qwen2_5_coder_1_5b"):
        assert run_in(folder, "run", *GOLDEN, f"model={model}").code == 0
    return run_in(folder, "runs").out


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run_in(tmp_path_factory.mktemp("repeats"), "run", "-m", *GOLDEN, "repeats=2")


@pytest.mark.parametrize("model", ["smollm2_135m", "qwen2_5_coder_1_5b"])
def test_runs_differ_in_the_name_of_the_model(two_models: str, model: str) -> None:
    assert f"model={model}" in two_models


@pytest.mark.parametrize("key", ["model.about", "model.hub", "model.sha256"])
def test_facts_about_models_are_no_difference(two_models: str, key: str) -> None:
    assert key not in two_models


@pytest.mark.parametrize("width", [40, 60])
def test_narrow_list_of_runs_has_the_scores(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    words = ("method=ircot", "limit=1", "method.demonstration_set=1,2", *QUICK)
    assert kgqa("run", "-m", *words).code == 0
    monkeypatch.setenv("COLUMNS", str(width))
    listed = kgqa("runs").out
    assert re.search(r"questions +EM +F1", listed), listed
    assert listed.count("0.0") == 4
    assert "not shown in" in listed


def test_interrupted_run_shows_how_to_continue(kgqa: Kgqa) -> None:
    folder = kgqa("run", *GOLDEN).folder
    interrupt_run(Path.cwd(), folder, "run", *GOLDEN)
    name = folder.relative_to("outputs")
    command = f"Continue with: kgqa run {' '.join(GOLDEN)}"
    assert f"{name}: not finished. {command}\n" in kgqa("runs").out
    assert command in kgqa("runs", "--running").out


def test_equal_settings_are_explained_among_others(kgqa: Kgqa) -> None:
    words = ("run", "method=retrieve_read", "limit=1", *QUICK)
    # the third run has other replies, but no other setting
    for passages, answer in ((1, "no"), (2, "no"), (2, "yes")):
        rules = write_rules([("Question", answer)])
        assert kgqa(*words, f"method.passages={passages}", rules).code == 0
    listed = kgqa("runs").out
    assert listed.count("method.passages=1  ") == 1
    texts = [f"method.passages=2 · engine rules [[Question,{reply}]]" for reply in ("no", "yes")]
    assert [listed.count(text) for text in texts] == [1, 1]


def engine(**settings: Json) -> dict[str, Json]:
    return {"answering": {"default": {"class": "Scripted", **settings}}}


@pytest.mark.parametrize(
    ("identity", "text"),
    [
        ({"code": {"method": "0123456789ab"}}, "code of method golden 012345"),
        ({"code": {"kg": "0123456789ab"}}, "code of kg 012345"),
        (engine(deployment="http://ford:8000/v1"), "server ford:8000"),
        ({"answering": {"selector": {"deployment": "gate"}}}, "selector server gate"),
        (engine(extra_body={"top_k": 3}), "engine extra body top k 3"),
        (engine(model={"class": "Model", "sha256": "f" * 64}), "model sha256 ffffff"),
        (
            {"retriever": {"encoder": {"server": "s" * 50}}},
            f"retriever encoder server {text_digest('s' * 50, 6)}",
        ),
        ({"corpus": {"class": "Wiki", "size": 5}}, "corpus Wiki"),
        ({}, ""),
    ],
    ids=["method", "extraction", "server", "role", "request", "weights", "long", "class", "same"],
)
def test_equal_names_have_what_differs(tmp_path: Path, identity: JsonObject, text: str) -> None:
    run = tmp_path / run_in(tmp_path, "run", *GOLDEN).folder
    other = shutil.copytree(run, run.with_name("other"))
    (other / IDENTITY).write_text(json.dumps({**read_identity(run), **identity}))
    name, _ = name_changes([other, run], "golden")
    assert text in name.split(" · ")


def test_equal_runs_have_no_difference(kgqa: Kgqa) -> None:
    for name in ("one", "two"):
        kgqa("run", *GOLDEN, f"run_name={name}")
    assert "differs in" not in kgqa("runs").out
    Path("outputs/demo/golden/scripted/one/identity.json").unlink()
    assert "unknown settings" in kgqa("runs").out


@pytest.mark.parametrize(
    "text",
    [
        "mean of 2 runs",
        "a row with several cells: the mean of its runs",
        "0.0 [0, 66]",
        "[low, high]: 95 % interval",
        "warning: engine=scripted calls no model, so the scores are meaningless",
    ],
    ids=["name", "note", "interval", "legend", "warning"],
)
def test_table_of_repeats_explains_itself(sweep: Ran, text: str) -> None:
    assert text in f"{sweep.out}{sweep.err}"


@pytest.mark.parametrize(
    ("words", "is_noted"),
    [
        ("method=golden", True),
        ("method=ircot retriever=bm25", False),
        ("method=ircot retriever=bm25 method.demonstration_set=1", True),
        ("method=search_agent retriever=bm25 method.temperature=1", False),
    ],
    ids=["greedy", "random sets", "one set", "sampled"],
)
def test_equal_repeats_are_noted_at_the_start(kgqa: Kgqa, words: str, is_noted: bool) -> None:
    lines = kgqa("run", *words.split(), "limit=1", "repeats=2", *QUICK).out.splitlines()
    start = "note: repeats=2 has no effect on "
    assert [line.startswith(start) for line in lines[:2]] == [is_noted, False]


def test_finished_run_names_its_limit(kgqa: Kgqa) -> None:
    command = ("run", "method=golden", "limit=100", *QUICK)
    outputs = [kgqa(*command).out for _ in range(2)]
    assert ["limit=100: the dataset has 36 questions" in output for output in outputs] == [True] * 2


def test_name_of_a_sweep_lists_its_runs(kgqa: Kgqa) -> None:
    kgqa("run", "-m", "method=golden,no_context", *QUICK, "sweep.name=two")
    kgqa("run", "method=all_documents", *QUICK)
    listed = kgqa("runs", "two").out
    assert ("/golden/" in listed, "/no_context/" in listed) == (True, True)
    assert "/all_documents/" not in listed
    # as kgqa show: a name must exist, and a filter can match no run
    refused(kgqa("runs", "twoo"), "twoo: no finished run matches. Did you mean two?")
    empty = kgqa("runs", "two", "method=trace")
    assert (empty.code, empty.out) == (0, "no such runs in outputs/. List all: kgqa runs\n")
