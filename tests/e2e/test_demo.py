"""`kgqa demo`: three methods side by side, gone on with and shown again."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.trace import read_trace
from kgqa.engines.scripted import Scripted
from kgqa.experiment.run.demo import leading_chain
from tests.e2e.conftest import Kgqa

SMALL = ("demo", "engine=scripted", "ranker=lexical")  # no weights


def test_three_methods_answer_the_same_questions_and_trace_shows_its_chain(kgqa: Kgqa) -> None:
    ran = kgqa(*SMALL)
    assert (ran.code, ran.err) == (0, "")
    rows = [line.split()[0] for line in ran.out.splitlines() if re.match(r"\w+ +\d+\.\d +\d+\.\d +\d", line)]
    assert rows == ["no_context", "all_documents", "trace"]
    assert ran.out.count("  gold ") == 3
    assert "3 questions show how answers are found, not how good a method is" in ran.out
    (trace,) = Path("outputs/demo/trace").glob("*/*")
    for traced in read_trace(trace):
        for head, relation, tail in leading_chain(traced):
            assert f"{head} — {relation} → {tail}" in ran.out
    assert f"kgqa show {trace} ID" in ran.out


def test_a_second_demo_is_read_from_its_folders(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    first = kgqa(*SMALL)
    monkeypatch.setattr(Scripted, "answer", lambda *_: pytest.fail("a model was asked again"))
    again = kgqa(*SMALL)
    assert again.code == 0
    assert again.out.count("finished with this code, data and settings") == 3
    assert again.out.partition("method ")[2] == first.out.partition("method ")[2]


def test_an_interrupted_demo_goes_on_where_it_stopped(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, asked = Scripted.answer, 0

    def interrupted(self: Scripted, calls: list[object]) -> object:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise KeyboardInterrupt
        return whole(self, calls)  # type: ignore[arg-type]

    monkeypatch.setattr(Scripted, "answer", interrupted)
    monkeypatch.setattr("os._exit", sys.exit)
    with pytest.raises(SystemExit, match="130"):
        kgqa(*SMALL)
    monkeypatch.setattr(Scripted, "answer", whole)
    ran = kgqa(*SMALL)
    assert ran.code == 0
    assert ran.out.count("finished with this code") == 2
    assert len(list(Path("outputs/demo").glob("*/*/*/metrics.json"))) == 3


def test_keys_reach_all_three_and_those_of_trace_only_trace(kgqa: Kgqa) -> None:
    assert kgqa(*SMALL, "limit=2", "method.beam=1", "method.chains=1", "seed=7").code == 0
    configs = {file.parts[2]: file.read_text() for file in Path("outputs/demo").glob("*/*/*/config.yaml")}
    assert len(configs) == 3
    assert all("seed: 7\n" in config and "limit: 2\n" in config for config in configs.values())
    assert "beam: 1\n" in configs["trace"]


@pytest.mark.parametrize("word", ["method=golden", "experiment=quick", "dry_run=true", "name=mine", "out=here"])
def test_what_the_demo_chooses_itself_is_refused(kgqa: Kgqa, word: str) -> None:
    ran = kgqa("demo", word)
    assert ran.code == 2
    assert ran.err == f"kgqa: {word}: kgqa demo sets {word.split('=')[0]} itself; use kgqa run {word} …\n"
    assert not Path("outputs").exists()


def test_one_question_is_told_of_as_one(kgqa: Kgqa) -> None:
    ran = kgqa(*SMALL, "limit=1", "method.beam=1", "method.chains=1")
    assert "\n1 question shows how answers are found" in ran.out


def test_scores_are_those_of_the_runs(kgqa: Kgqa) -> None:
    ran = kgqa(*SMALL, "limit=5")
    for folder in Path("outputs/demo").glob("*/*/*"):
        scores = Metrics.read(folder).scores
        assert re.search(rf"^{folder.parts[2]} +{scores.em.mean:.1f} +{scores.f1.mean:.1f} ", ran.out, re.MULTILINE)


def test_who_has_no_weights_is_told_of_the_recorded_demo(kgqa: Kgqa) -> None:
    ran = kgqa("demo", "model.path=none.gguf")
    assert ran.code == 2
    assert "none.gguf: no such file" in ran.err
    assert "kgqa demo --recorded" in ran.err
