"""KGP from the command line: graphs ahead and within a run, its trace and pictures, training texts, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kgqa.artifacts.trace import read_trace
from tests.e2e.conftest import QUICK, Kgqa

KGP = ("run", "method=kgp", "dataset=demo", "limit=2", *QUICK)


def test_a_run_builds_its_graphs_walks_and_reports_what_matching_took(kgqa: Kgqa) -> None:
    ran = kgqa(*KGP)
    assert ran.code == 0, ran.err
    metrics = ran.json("metrics.json")
    assert metrics["passage_graph"]["collections"] == 2
    assert metrics["calls"]["Neighbours"] == 16
    assert metrics["call_seconds"]["Neighbours"] > 0
    assert metrics["call_seconds"]["Rank"] > 0
    assert metrics["figures"]["seeds"] == 8
    graphs = list(Path("outputs/graphs/tfidf").rglob("*.npz"))
    assert len(graphs) == 2
    written = [file.stat().st_mtime_ns for file in graphs]
    assert kgqa(*KGP, "method.branching=2").code == 0
    assert [file.stat().st_mtime_ns for file in graphs] == written


def test_a_trace_holds_neighbours_by_id_and_no_pool(kgqa: Kgqa) -> None:
    ran = kgqa(*KGP)
    calls = [call for traced in read_trace(ran.folder) for call in traced.calls if call.kind == "neighbours"]
    assert calls
    assert all(isinstance(each, str) for call in calls for each in call.reply)
    assert all(len(call.request["pool"]) == 16 for call in calls)


def test_show_draws_the_walk_in_the_terminal_and_as_a_picture(kgqa: Kgqa) -> None:
    ran = kgqa(*KGP)
    question = json.loads((ran.folder / "predictions.jsonl").read_text(encoding="utf-8").splitlines()[0])["question_id"]
    shown = kgqa("show", str(ran.folder), question, "--svg", "walk.svg")
    assert shown.code == 0
    assert "agent: llm · 8 seeds" in shown.out
    assert "looks for" in shown.out
    assert shown.out.rstrip().endswith("walk.svg")
    picture = Path("walk.svg").read_text(encoding="utf-8")
    assert picture.count("<rect") >= 8
    assert "★" in picture


def test_show_says_where_there_is_nothing_to_draw(kgqa: Kgqa) -> None:
    ran = kgqa("run", "method=no_context", "dataset=demo", "limit=1", *QUICK)
    question = json.loads((ran.folder / "predictions.jsonl").read_text(encoding="utf-8"))["question_id"]
    shown = kgqa("show", str(ran.folder), question, "--svg", "walk.svg")
    assert shown.code == 2
    assert "no traversal in its trace" in shown.err


def test_graphs_are_built_ahead_and_counted(kgqa: Kgqa) -> None:
    chosen = ("graph=entities", "dataset=demo", "limit=3")
    early = kgqa("kg", "link-stats", *chosen)
    assert early.code == 2
    assert "3 collections are not linked yet; run: kgqa kg link graph=entities dataset=demo limit=3" in early.err
    built = kgqa("kg", "link", *chosen)
    assert built.code == 0, built.err
    assert "density" in built.out
    assert "0 built" in kgqa("kg", "link", *chosen).out
    assert kgqa("kg", "link-stats", *chosen).code == 0


def test_quality_is_written_as_csv_and_svg(kgqa: Kgqa) -> None:
    ran = kgqa("kg", "link-quality", "graph=tfidf", "dataset=demo", "limit=3", "--values", "0,3", "--seeds", "2")
    assert ran.code == 0, ran.err
    lines = Path("outputs/graph_quality/demo-tfidf.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "graph.keywords,questions,neighbours,density,sf_em,covered,precision"
    assert [line.split(",")[0] for line in lines[1:]] == ["0", "3"]
    none, three = (dict(zip(lines[0].split(","), map(float, line.split(",")), strict=True)) for line in lines[1:])
    assert none["neighbours"] < three["neighbours"]
    assert none["sf_em"] <= three["sf_em"]
    assert Path("outputs/graph_quality/demo-tfidf.svg").read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.parametrize(("option", "count"), [((), "neighbours"), (("--with-seeds",), "with_seeds")])
def test_a_run_measures_what_the_quality_command_measures(kgqa: Kgqa, option: tuple[str, ...], count: str) -> None:
    chosen = ("graph=tfidf", "dataset=demo", "limit=3")
    drawn = kgqa("kg", "link-quality", *chosen, "--values", "3", "--seeds", "2", *option)
    assert drawn.code == 0, drawn.err
    head, line = Path("outputs/graph_quality/demo-tfidf.csv").read_text(encoding="utf-8").splitlines()
    curve = dict(zip(head.split(","), map(float, line.split(",")), strict=True))
    ran = kgqa(
        "run", "method=neighbourhood", *chosen, "graph.keywords=3", "method.seeds=2", f"method.count={count}", "out=run"
    )
    assert ran.code == 0, ran.err
    figures = ran.json("metrics.json")["figures"]
    assert {key: curve[key] for key in ("sf_em", "covered", "precision")} == pytest.approx(
        {key: figures[key] for key in ("sf_em", "covered", "precision")}, abs=1e-4
    )
    assert ("seeds and" in Path("outputs/graph_quality/demo-tfidf.svg").read_text(encoding="utf-8")) == bool(option)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("kg link dataset=demo", "a graph is required"),
        ("kg link-quality graph=none", "no density to vary"),
        ("kg link-quality graph=tfidf --seeds many", "--seeds"),
        ("kg link-quality graph=tfidf --seeds 0", "--seeds=0: must be at least 1"),
        ("run method=kgp ranker@graph.encoder=minilm limit=2", "the chosen graph has no encoder that is a ranker"),
        ("run retriever=knn ranker@retriever.sparse=minilm limit=2", "the chosen retriever has no sparse that is"),
        ("run method=kgp graph=null", "graph=null: method=kgp needs one"),
        ("run method=kgp method.agent=oracle", "method.agent=oracle"),
        ("show somewhere --svg walk.svg", "name it: kgqa show RUN QUESTION --svg FILE"),
    ],
)
def test_a_mistake_is_one_line(kgqa: Kgqa, command: str, message: str) -> None:
    ran = kgqa(*command.split())
    assert ran.code == 2
    assert message in ran.err
    assert len(ran.err.strip().splitlines()) == 1
