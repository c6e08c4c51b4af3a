"""From a cross-encoder on disk to the report. Its weights are random: this shows the way, not its quality."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.trace import read_trace
from tests.e2e.conftest import QUICK, Kgqa
from tests.retrieval.tiny_models import BERT, saved, seeded

transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")


@pytest.fixture(scope="module")
def crossencoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = transformers.BertConfig(vocab_size=seeded(), num_labels=1, **BERT)
    return saved(transformers.BertForSequenceClassification(config), tmp_path_factory.mktemp("cross"), "bert")


def test_what_a_reranker_puts_first_is_read_and_reported(kgqa: Kgqa, crossencoder: Path) -> None:
    asked = ("run", "method=retrieve_read", "limit=3", "retriever=bm25", *QUICK)
    reranking = ("method.reranker=true", "reranker=minilm_cross", f"reranker.model={crossencoder}")
    fitting = ("reranker.max_length=32", "reranker.device=cpu")
    plain, reranked = kgqa(*asked), kgqa(*asked, *reranking, *fitting)
    assert reranked.code == 0, reranked.err
    for traced in read_trace(reranked.folder):
        [found] = [call.reply for call in traced.calls if call.kind == "search"]
        [scores] = [call.reply for call in traced.calls if call.kind == "rank"]
        evidence = traced.prediction.evidence or ()
        best = sorted(range(len(found)), key=lambda place: (-scores[place], place))
        assert len(set(scores)) > 1
        assert [found[place]["id"] for place in best][: len(evidence)] == list(evidence)
    orders = [
        [json.loads(line)["evidence"] for line in (ran.folder / "predictions.jsonl").read_text("utf-8").splitlines()]
        for ran in (plain, reranked)
    ]
    assert orders[0] != orders[1]
    retrieval = reranked.json("metrics.json")["retrieval"]
    assert retrieval["n"] == 3
    assert set(retrieval["recall"]) == {"2", "5", "10", "15"}
    assert str(crossencoder) in json.dumps(reranked.json("settings.json"))
    assert reranked.json("manifest.json")["reranker"]
    for report in ("report.md", "report.html"):
        text = (reranked.folder / report).read_text(encoding="utf-8")
        assert "minilm_cross" in text
        assert f"{retrieval['recall']['5']['mean']:.1f}" in text
