"""Methods that retrieve, from the command line to metrics, report and terminal; BM25, and no weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kgqa.artifacts.trace import read_trace
from tests.e2e.conftest import QUICK, Kgqa
from tests.retrieval.tiny_models import BERT, saved, seeded

pytest.importorskip("tantivy")

RULES = [
    {"match": r"A: Birch is by Alder\. Alder lived in Cedar\.$", "reply": "So the answer is: Cedar."},
    {"match": r"A: Birch is by Alder\.$", "reply": "Alder lived in Cedar. And more."},
    {"match": r"Name \d+ Wikipedia pages? .*A:$", "reply": '["Alder", "Cedar"]'},
    {"match": r"A:$", "reply": "Birch is by Alder."},
]


def rules(folder: Path) -> str:
    path = folder / "rules.jsonl"
    path.write_text("".join(f"{json.dumps(rule)}\n" for rule in RULES), encoding="utf-8")
    return f"engine.rules={path}"


def musique(folder: Path, count: int = 1) -> Path:
    """Questions with one text, so that one retrieval is right for all of them."""
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
    path = folder / "musique.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return path


def test_retrieval_alone_needs_no_weights_and_scores_no_answers(kgqa: Kgqa) -> None:
    ran = kgqa("run", "method=retrieve_only", "limit=10", "model.path=/nowhere/model.gguf", "model.sha256=null")
    assert ran.code == 0
    assert ran.folder.parts[:4] == ("outputs", "demo", "retrieve_only", "bm25")
    metrics = ran.json("metrics.json")
    retrieval = metrics["retrieval"]
    recalls = [retrieval["recall"][budget]["mean"] for budget in ("2", "5", "10", "15")]
    assert recalls == sorted(recalls)
    assert 0 < recalls[0] < recalls[-1] <= 100
    assert retrieval["fixed_budget_recall"] == recalls[-1] == metrics["scores"]["support_recall"]["mean"]
    assert retrieval["all_gold"]["15"] <= recalls[-1]
    assert retrieval["mrr"] > 0
    assert retrieval["passages_per_question"] == 15
    assert set(retrieval["by_hops"]) >= {"2", "3"}
    assert retrieval["alarm"] is None
    assert metrics["scores"]["em"]["mean"] is None
    assert ran.json("manifest.json")["models"] == {}
    assert "smollm2" not in ran.out
    report = (ran.folder / "report.md").read_text(encoding="utf-8")
    assert "## Recall of gold passages" in report
    assert "| model." not in report
    assert "recall" in ran.out
    assert "@15" in ran.out
    [first, *_] = (ran.folder / "predictions.jsonl").read_text().splitlines()
    assert len(json.loads(first)["evidence_titles"]) == 15


def test_ircot_reasons_and_retrieves_in_turn(kgqa: Kgqa, tmp_path: Path) -> None:
    ran = kgqa("run", "method=ircot", "dataset=musique", f"dataset.path={musique(tmp_path)}", rules(tmp_path), *QUICK)
    metrics = ran.json("metrics.json")
    assert metrics["calls"]["Search"] == 3
    assert metrics["calls"]["Generate"] == 4
    assert metrics["retrieval"]["ranked"] is False
    assert metrics["retrieval"]["mrr"] is None
    assert metrics["retrieval"]["fixed_budget_recall"] == 100
    shown = kgqa("show", str(ran.folder), "2hop__0").out
    for part in ("thoughts", "Alder lived in Cedar.", "search", "few_shot/answer", "query: "):
        assert part in shown


def test_the_same_passages_for_many_questions_raise_an_alarm(kgqa: Kgqa, tmp_path: Path) -> None:
    """And gold passages are found by title in a corpus with other texts."""
    corpus = tmp_path / "corpus.jsonl"
    texts = {"birch ": "Birch: a book which Alder wrote.", "Alder": "Alder lived in Cedar.", "Fir": "Fir is a tree."}
    corpus.write_text("".join(f"{json.dumps({'title': t, 'text': x})}\n" for t, x in texts.items()), encoding="utf-8")
    chosen = ("dataset=musique", f"dataset.path={musique(tmp_path, count=6)}", f"dataset.corpus={corpus}")
    ran = kgqa("run", "method=retrieve_only", *chosen)
    metrics = ran.json("metrics.json")
    alarm = "6 of 6 questions got the same passages in the same order"
    assert alarm in metrics["retrieval"]["alarm"]
    assert f"alarm: {alarm}" in ran.out
    assert f"**Alarm**: {alarm}" in (ran.folder / "report.md").read_text(encoding="utf-8")
    assert metrics["retrieval"]["recall"]["5"]["mean"] == 100
    assert metrics["scores"]["support_recall"]["mean"] == 50  # by id only


@pytest.mark.parametrize(
    ("method", "calls"),
    [
        ("ircot", 8 + 1),  # thoughts, and an answer
        ("knowtrace", 5 * (1 + 2) + 2),  # iterations of an exploration and two pairs; a forced thought and answer
        ("self_ask", 5 + 1),  # follow-ups; the forced answer
        ("react", 7),  # steps
        ("ge_reasoning", 1 + 4 * 3 + 1),  # the graph; sub-question, answer and confidence of each unknown; the answer
        ("era_cot", 3 + 3 + 1),  # three lists, the scores of three relations, the answer
        ("safe", 10 * (1 + 3) * 2 + 1),  # every try of every step with its verdict, the forced answer
    ],
)
def test_a_dry_run_counts_as_if_nothing_ended_a_method_early(kgqa: Kgqa, method: str, calls: int) -> None:
    planned = kgqa("run", f"method={method}", "limit=2", "dry_run=true", *QUICK).out
    assert f"{2 * calls} model calls, {2 * calls} of them new" in planned


def test_what_a_reranker_puts_first_is_read_and_reported(kgqa: Kgqa, tmp_path: Path) -> None:
    """With a cross-encoder of random weights."""
    for name in ("transformers", "sentence_transformers"):
        pytest.importorskip(name, reason=f"{name} is not installed", exc_type=ImportError)
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(vocab_size=seeded(), num_labels=1, **BERT)
    folder = saved(BertForSequenceClassification(config), tmp_path / "cross", "bert")
    reranking = ("method.reranker=true", "reranker=minilm_cross", f"reranker.model={folder}")
    fitting = ("reranker.max_length=32", "reranker.device=cpu")
    ran = kgqa("run", "method=retrieve_read", "limit=3", "retriever=bm25", *QUICK, *reranking, *fitting)
    assert ran.code == 0, ran.err
    for traced in read_trace(ran.folder):
        [found] = [call.reply for call in traced.calls if call.kind == "search"]
        [scores] = [call.reply for call in traced.calls if call.kind == "rank"]
        evidence = traced.prediction.evidence or ()
        best = sorted(range(len(found)), key=lambda place: (-scores[place], place))
        assert len(set(scores)) > 1
        assert [found[place]["id"] for place in best][: len(evidence)] == list(evidence)
    assert str(folder) in json.dumps(ran.json("settings.json"))
    assert ran.json("manifest.json")["reranker"]
    assert "minilm_cross" in (ran.folder / "report.md").read_text(encoding="utf-8")
