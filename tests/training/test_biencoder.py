"""Bi-encoders: what counts as a negative, gradients a few texts at a time, and a folder that rankers load."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kgqa.calls import Rank
from kgqa.retrieval.encoders import SentenceTransformer
from kgqa.training import BiEncoderTraining
from kgqa.training.biencoder import Asked, Line, _batch
from kgqa.training.job import Outcome
from tests.training import tiny
from tests.training.tiny import job, steps, train

pytestmark = [pytest.mark.weights, pytest.mark.filterwarnings("ignore")]
RECIPE = tiny.SCHEDULE | {
    "dimension": 16, "max_question": 32, "max_follow_up": 64, "max_passage": 64, "negatives": 1, "scale": None,
    "texts_at_once": 3, "batch": 4, "batch_per_device": 4, "epochs": 6, "learning_rate": 2e-3, "decay": "linear",
}  # fmt: skip


def asked(*lines: Line) -> Any:
    return SimpleNamespace(lines=lines)


def test_the_second_fact_is_no_negative_at_the_first_hop_and_the_first_is_one_at_the_second() -> None:
    first, second = Line("a/1", "q", "one", ("no",), "a", 1), Line("a/2", "q one", "two", ("never",), "a", 2)
    other = Line("b/1", "r", "three", (), "b", 1)
    batch = _batch([asked(first, second), asked(other)], 1)
    assert [text for _, text in batch["texts"]] == ["q", "q one", "r", "one", "two", "three", "no", "never"]
    assert [kind for kind, _ in batch["texts"]][:3] == ["question", "follow-up", "question"]
    assert batch["masked"] == [[False, True, False, False, False], [False] * 5, [False] * 5]
    assert batch["gold"] == [0, 1, 2]


def test_without_an_order_a_questions_other_facts_are_no_negatives() -> None:
    batch = _batch([asked(Line("a/1", "q", "one", (), "a"), Line("a/2", "q", "two", (), "a"))], 0)
    assert batch["masked"] == [[False, True], [True, False]]


def test_gradients_of_a_few_texts_at_a_time_are_those_of_all_at_once(bert: Path) -> None:
    """In training mode, with the same draws of dropout in both passes: else the gradients would be of other vectors."""
    import torch
    from accelerate import Accelerator

    lines = [Line(**{**line, "negatives": tuple(line["negatives"])}) for line in tiny.pairs()[:8]]
    batch = _batch([asked(*lines[n : n + 2]) for n in range(0, 8, 2)], 1)
    training = BiEncoderTraining(**RECIPE)
    found = []
    for at_once in (False, True):
        network = training.network(bert, torch.device("cpu")).train()
        torch.manual_seed(3)
        if at_once:
            pieces = [training._embedded(network, batch["texts"][n : n + 3]) for n in range(0, len(batch["texts"]), 3)]
            (training._loss(network, torch.cat(pieces), batch) / len(batch["gold"])).backward()
        else:
            trainer = SimpleNamespace(
                compute_loss_context_manager=nullcontext, accelerator=Accelerator(cpu=True), tokens=0,
                current_gradient_accumulation_steps=1,
            )  # fmt: skip
            training._backward(trainer, network, batch)
            assert trainer.tokens > 0
        found.append({name: each.grad for name, each in network.named_parameters() if each.grad is not None})
    assert found[0].keys() == found[1].keys()
    for name, gradient in found[0].items():
        assert torch.allclose(gradient, found[1][name], atol=1e-5), name


def test_an_encoder_learns_goes_on_after_a_stop_and_ranks(bert: Path, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train(job(whole, "BiEncoderTraining", bert, RECIPE, held_out=4)) == 0
    assert train(job(parts, "BiEncoderTraining", bert, {**RECIPE, "max_hours": 1e-9}, held_out=4)) == 2
    assert train(job(parts, "BiEncoderTraining", bert, RECIPE, held_out=4)) == 0
    assert (whole / "encoder/model.safetensors").read_bytes() == (parts / "encoder/model.safetensors").read_bytes()
    losses = [line["loss"] for line in steps(whole)]
    assert losses[-1] < losses[0]
    outcome = Outcome.read(whole)
    assert {*outcome.measured} == {
        f"{name}, hop {hop}" for name in ("first place", "reciprocal rank") for hop in (1, 2)
    }
    assert outcome.tokens > 0
    ranker = SentenceTransformer.of(str(whole / "encoder"))
    [scores] = ranker.score([Rank("mayor of Rome?", ("Rome lies in the north.", "Oslo has no mayor."), "ranker")])
    assert len(set(scores)) == 2


def test_the_fact_in_the_anchor_is_not_among_those_ranked_at_the_second_hop() -> None:
    lines = (Line("a", "who?", "one", ("no",), "q", 1), Line("b", "who? one", "two", ("no",), "q", 2))
    batch = _batch([Asked("q", lines, 4)], None)
    assert batch["masked"] == [[False, True, False], [False, False, False]]  # of the loss, as MDR has it
    assert batch["known"] == [[False, False, False], [True, False, False]]  # of the figures


def test_several_processes_are_refused(bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(job(tmp_path, "BiEncoderTraining", bert, {**RECIPE, "processes": 2})) == 2
    assert "train.processes=2: a bi-encoder is trained by one" in capsys.readouterr().err
