"""Bi-encoders: which passages are candidates, truncation by kind, and a folder that rankers load."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kgqa.calls import Rank
from kgqa.retrieval.encoders import SentenceTransformer
from kgqa.training.trainers import BiEncoderTraining, biencoder
from kgqa.training.trainers.process import TrainResult
from tests.training import tiny
from tests.training.tiny import losses, run, task, train

pytestmark = pytest.mark.filterwarnings("ignore")
RECIPE = tiny.SCHEDULE | {
    "dimension": 16, "max_question": 32, "max_follow_up": 64, "max_passage": 64, "negatives": 1, "scale": None,
    "chunk_size": 3, "batch_size": 4, "batch_per_device": 4, "epochs": 6, "learning_rate": 2e-3,
    "lr_scheduler": "linear",
}  # fmt: skip


def row(anchor: str, positive: str, hop: int | None, *negatives: str) -> dict[str, Any]:
    return {"question": "q", "anchor": anchor, "positive": positive, "hop": hop, "negatives": negatives}


def candidates(monkeypatch: pytest.MonkeyPatch, *rows: dict[str, Any]) -> list[list[str]]:
    """The passages that are ranked against the positive, for each row."""
    ranked: list[list[str]] = []

    def rank(network: Any, anchor: str, gold: str, others: list[str]) -> int:
        ranked.append(others)
        return 2

    monkeypatch.setattr(biencoder, "_rank", rank)
    BiEncoderTraining(**RECIPE).evaluate(SimpleNamespace(model=None), SimpleNamespace(rows=rows))
    return ranked


def test_fact_in_anchor_is_no_candidate_at_second_hop(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = row("who?", "one", 1, "no"), row("who? one", "two", 2, "no", "never")
    assert candidates(monkeypatch, *rows) == [["never", "no", "two"], ["never", "no"]]


def test_batches_have_pairs_of_one_hop() -> None:
    rows = [row("a", "1", 1, "x", "y"), row("b", "2", 2, "x"), row("c", "3", 1, "z")]
    datasets = BiEncoderTraining(**RECIPE)._datasets(rows)
    assert {name: each.to_list() for name, each in datasets.items()} == {
        "hop 1, 1 negatives": [
            {"anchor": "a", "positive": "1", "negative 1": "x"},
            {"anchor": "c", "positive": "3", "negative 1": "z"},
        ],
        "hop 2, 1 negatives": [{"anchor": "b", "positive": "2", "negative 1": "x"}],
    }


def test_texts_are_truncated_by_kind(bert: Path, tmp_path: Path) -> None:
    recipe = BiEncoderTraining(**{**RECIPE, "max_question": 4, "max_follow_up": 6, "max_passage": 5})
    pair = {"anchor": "a b c d e f", "positive": "a b c d e f", "negatives": ["f e d c b a"], "question": "q"}
    lines = [{"id": str(hop), "hop": hop, **pair} for hop in (1, 2)]
    (tmp_path / "pairs.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    loaded = recipe.load(tmp_path / "pairs.jsonl", bert)
    assert [(one["anchor"], one["positive"], one["negatives"]) for one in loaded.rows] == [
        ("a b", "a b c", ["f e d"]),
        ("a b c d", "a b c", ["f e d"]),
    ]
    assert loaded.tokens == 4 + 5 + 5 + 6 + 5 + 5


def test_encoder_learns_resumes_and_ranks(bert: Path, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train(task(whole, "BiEncoderTraining", bert, RECIPE, held_out=4)) == 0
    assert tiny.train_step(task(parts, "BiEncoderTraining", bert, RECIPE, held_out=4)) == 130
    assert train(task(parts, "BiEncoderTraining", bert, RECIPE, held_out=4)) == 0
    assert (whole / "encoder/model.safetensors").read_bytes() == (parts / "encoder/model.safetensors").read_bytes()
    steps = losses(whole)
    assert sum(steps[-5:]) < sum(steps[:5])
    result = TrainResult.read(whole)
    assert {*result.measured} == {f"{name}, hop {hop}" for name in ("first place", "reciprocal rank") for hop in (1, 2)}
    assert result.tokens > 0
    ranker = SentenceTransformer.of(str(whole / "encoder"))
    [scores] = ranker.score([Rank("mayor of Rome?", ("Rome lies in the north.", "Oslo has no mayor."), "ranker")])
    assert len(set(scores)) == 2


def test_several_processes_are_refused(bert: Path, tmp_path: Path) -> None:
    code, events = run(task(tmp_path, "BiEncoderTraining", bert, {**RECIPE, "processes": 2}))
    assert code == 2
    assert "train.processes=2: a bi-encoder is trained by one" in events[-1]["text"]
