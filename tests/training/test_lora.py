"""LoRA on a causal model: the loss, equal bytes, checkpoints, and what is refused in one line."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from kgqa.errors import ConfigError
from kgqa.storage import sha256
from kgqa.training import LoraTraining, lora
from kgqa.training.checkpoints import MARK
from kgqa.training.curves import curve
from kgqa.training.job import Outcome
from kgqa.training.texts import Row
from tests.training import tiny
from tests.training.tiny import LORA, job, steps, train

pytestmark = [pytest.mark.weights, pytest.mark.filterwarnings("ignore")]
FILES = ("adapter_model.safetensors", "adapter_config.json")


def training(**values: Any) -> LoraTraining:
    return LoraTraining(**{**LORA, "targets": ("all-linear",), "dropout": 0.0, **values})


def bytes_of(folder: Path) -> list[str]:
    return [sha256(folder / "adapter" / name) for name in FILES]


@pytest.mark.parametrize("loss_on", ["target", "all"])
def test_the_loss_is_the_cross_entropy_of_what_is_to_be_learnt(llama: Path, loss_on: str) -> None:
    """Padded on the left and with a few logits, as one row after the other with all of them."""
    import torch
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(llama).eval()
    rows = [Row("a", (9, 8, 7, 6, 5, 4, 3, 1), 5, 8), Row("b", (30, 31, 32, 1), 2, 4)]
    batch = training(loss_on=loss_on)._collate(rows)
    with torch.inference_mode():
        ours = float(lora._summed_loss(network, batch))
        expected = 0.0
        for row in rows:
            logits = network(torch.tensor([row.ids])).logits[0].log_softmax(-1)
            first = row.begins if loss_on == "target" else 1
            expected -= sum(float(logits[place - 1, row.ids[place]]) for place in range(first, row.length))
    assert ours == pytest.approx(expected, rel=1e-5)
    learnt = sum(row.length - (row.begins if loss_on == "target" else 1) for row in rows)
    assert int((batch["labels"] != -100).sum()) == learnt


def test_two_trainings_are_equal_to_the_byte(llama: Path, trained: Path, tmp_path: Path) -> None:
    assert train(job(tmp_path, "LoraTraining", llama, LORA)) == 0
    assert bytes_of(tmp_path) == bytes_of(trained)
    assert [line["loss"] for line in steps(tmp_path)] == [line["loss"] for line in steps(trained)]
    assert train(job(tmp_path / "other", "LoraTraining", llama, {**LORA, "seed": 8})) == 0
    assert bytes_of(tmp_path / "other") != bytes_of(trained)


def test_the_loss_falls_and_the_outcome_says_what_was_done(trained: Path) -> None:
    outcome, losses = Outcome.read(trained), [line["loss"] for line in steps(trained)]
    assert sum(losses[-5:]) < sum(losses[:5])
    assert (outcome.steps, outcome.examples, outcome.left_out, outcome.processes) == (15, 10, 0, 1)
    assert outcome.tokens == steps(trained)[-1]["tokens"] > 15 * 2 * 10
    assert 0 < outcome.trainable < outcome.parameters
    replies = [json.loads(line) for line in (trained / "replies.jsonl").read_text().splitlines()]
    assert [reply["id"] for reply in replies] == ["q10", "q11"]
    before, after = outcome.measured["loss"]
    assert len(before) == len(after) == 2


def test_held_out_examples_are_measured_before_between_epochs_and_at_the_end(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = []

    def held_out_loss(*words: Any) -> tuple[float, list[float | None]]:
        measured.append(words)
        return float(len(measured)), [0.0, 0.0]

    monkeypatch.setattr(lora, "held_out_loss", held_out_loss)
    assert train(job(tmp_path, "LoraTraining", llama, LORA)) == 0
    said = [point for point in curve(tmp_path) if point.held_out_loss is not None]
    assert [(point.step, point.held_out_loss) for point in said] == [(0, 1.0), (5, 2.0), (10, 3.0), (15, 4.0)]
    assert Outcome.read(tmp_path).held_out_loss == (1.0, 4.0)
    assert len(measured) == 4


def test_what_ended_in_between_goes_on_to_the_same_bytes(llama: Path, trained: Path, tmp_path: Path) -> None:
    """Hours that are over, a checkpoint that is damaged, and one that was never finished."""
    settings = job(tmp_path, "LoraTraining", llama, {**LORA, "save_minutes": 0, "max_hours": 1e-9})
    assert train(settings) == 2  # one step a command
    assert train(settings) == 2
    newest, older = (tmp_path / "checkpoints" / f"checkpoint-{step}" for step in (2, 1))
    shutil.copytree(newest, tmp_path / "checkpoints" / "checkpoint-3")
    (tmp_path / "checkpoints" / "checkpoint-3" / MARK).unlink()
    (newest / "optimizer.pt").write_bytes(b"\0" * 100)
    assert older.is_dir()
    assert train(job(tmp_path, "LoraTraining", llama, LORA)) == 0
    said = [json.loads(line).get("text") or "" for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    notes = [text for text in said if text]
    assert any("damaged (optimizer.pt has another sha256); the one before it is taken" in text for text in notes)
    assert notes[-1] == "going on from step 1"
    assert bytes_of(tmp_path) == bytes_of(trained)
    assert Outcome.read(tmp_path).tokens == Outcome.read(trained).tokens


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"rank": 4000}, r"train\.rank=4000: too large for .*_proj, which has \d+ × \d+ weights; take 16 or less"),
        ({"targets": ["w_proj"]}, r"train\.targets=w_proj: the base has no such layer; it has down_proj, gate_proj"),
        ({"max_length": 3}, "none of its 10 examples is short enough; raise train.max_length"),
        ({"learning_rate": 1e30}, "is no number any more; lower train.learning_rate"),
    ],
)
def test_what_cannot_be_is_one_line(
    llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, Any], told: str
) -> None:
    assert train(job(tmp_path, "LoraTraining", llama, LORA | changed)) == 2
    last = [line for line in capsys.readouterr().err.splitlines() if line.startswith("kgqa: ")]
    assert len(last) == 1
    assert re.search(told, last[0])
    assert not (tmp_path / "adapter").exists()


def test_a_model_that_is_none_of_the_kind_is_refused(llama: Path, t5: Path, tmp_path: Path, capsys: Any) -> None:
    assert train(job(tmp_path / "a", "LoraTraining", t5, LORA)) == 2
    assert "not a causal model" in capsys.readouterr().err
    seq2seq = {**tiny.SCHEDULE, "max_input": 64, "max_output": 64, "too_long": "cut", "replies": 0, "reply_tokens": 1,
               "activation_checkpointing": False, "group_by_length": False}  # fmt: skip
    assert train(job(tmp_path / "b", "Seq2SeqTraining", llama, seq2seq)) == 2
    assert "is no encoder-decoder model" in capsys.readouterr().err


def test_nf4_without_its_library_is_a_config_error(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lora, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"train\.quantization=nf4 needs bitsandbytes; pip install"):
        training(quantization="nf4").network(llama, "cpu")


def test_an_adapter_is_trained_on_a_base_in_four_bits(tmp_path: Path) -> None:
    """QLoRA: the path of a GPU, without one."""
    pytest.importorskip("bitsandbytes", reason="train.quantization needs bitsandbytes", exc_type=ImportError)
    (tmp_path / "base").mkdir()
    base = tiny.llama(tmp_path / "base", width=256)
    recipe = {**LORA, "quantization": "nf4", "rank": 16, "alpha": 32, "epochs": 10, "replies": 0}
    assert train(job(tmp_path, "LoraTraining", base, {**recipe, "activation_checkpointing": True})) == 0
    losses = [line["loss"] for line in steps(tmp_path)]
    assert sum(losses[-5:]) < 0.6 * sum(losses[:5])


def test_gradients_pass_four_bits_after_an_evaluation(llama: Path) -> None:
    """An untrained model is measured first, and on some CPUs bitsandbytes then packed its weights for reading only."""
    pytest.importorskip("bitsandbytes", reason="train.quantization needs bitsandbytes", exc_type=ImportError)
    recipe = training(quantization="nf4", precision="bfloat16")
    network = recipe.network(llama, "cpu")
    lora.held_out_loss(recipe, network, (Row("a", (9, 8, 7, 6, 5, 4, 3, 1), 5, 8),))
    batch = recipe._collate([Row("b", (30, 31, 32, 1), 1, 4)])
    lora._summed_loss(network.train(), batch).backward()
    untouched = [name for name, each in network.named_parameters() if "lora_B" in name and not each.grad.any()]
    assert untouched == []


def test_the_adapter_is_plain_peft_and_changes_what_the_base_says(llama: Path, trained: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(llama)
    ids = torch.tensor([[9, 8, 7]])
    with torch.inference_mode():
        plain = base(ids).logits
        adapted = PeftModel.from_pretrained(base, str(trained / "adapter")).eval()(ids).logits
    assert float((plain - adapted).abs().max()) > 1e-3
    config = json.loads((trained / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "tiny"
    assert config["target_modules"] == sorted(config["target_modules"])
