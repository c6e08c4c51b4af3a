"""KGP from the command line: graphs ahead and within a run, its trace and pictures, training texts, and bad input."""

from __future__ import annotations

from pathlib import Path

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


def test_graphs_are_built_ahead_and_counted(kgqa: Kgqa) -> None:
    chosen = ("graph=entities", "dataset=demo", "limit=3")
    early = kgqa("kg", "link-stats", *chosen)
    assert early.code == 2
    assert "3 collections are not linked yet. Run: kgqa kg link graph=entities dataset=demo limit=3" in early.err
    built = kgqa("kg", "link", *chosen)
    assert built.code == 0, built.err
    assert "density" in built.out
    assert "0 built" in kgqa("kg", "link", *chosen).out
    assert kgqa("kg", "link-stats", *chosen).code == 0
