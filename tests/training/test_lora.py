"""LoRA on a causal model: the loss, equal bytes, checkpoints, and errors in one line."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from kgqa.training.trainers import LoraTraining
from kgqa.training.trainers.process import TrainResult
from kgqa.util.fs import sha256
from tests.training import tiny
from tests.training.tiny import LORA, losses, run, task, train

pytestmark = pytest.mark.filterwarnings("ignore")
FILES = ("adapter_model.safetensors", "adapter_config.json")


def training(**values: Any) -> LoraTraining:
    return LoraTraining(**{**LORA, "target_modules": ("all-linear",), "dropout": 0.0, **values})


def hashes(folder: Path) -> list[str]:
    return [sha256(folder / "adapter" / name) for name in FILES]


@pytest.mark.parametrize("loss_on", ["target", "all"])
def test_loss_is_cross_entropy_of_target(llama: Path, tmp_path: Path, loss_on: str) -> None:
    """The held-out loss before training equals the mean of log-probabilities computed by hand."""
    import torch
    from transformers import AutoModelForCausalLM

    settings = task(tmp_path, "LoraTraining", llama, {**LORA, "loss_on": loss_on, "max_steps": 1})
    recipe = training(loss_on=loss_on)
    network = AutoModelForCausalLM.from_pretrained(llama).eval()
    expected = []
    for row in recipe.load(settings.parent / "examples" / "held_out.jsonl", llama).rows:
        ids, first = row["input_ids"], row["completion_mask"].index(1) if loss_on == "target" else 1
        with torch.inference_mode():
            logits = network(torch.tensor([ids])).logits[0].log_softmax(-1)
        expected.append(-sum(float(logits[n - 1, ids[n]]) for n in range(first, len(ids))) / (len(ids) - first))
    assert train(settings) == 0
    assert TrainResult.read(tmp_path).held_out_loss[0] == pytest.approx(sum(expected) / len(expected), rel=1e-4)


def test_equal_trainings_give_equal_bytes(llama: Path, trained: Path, tmp_path: Path) -> None:
    assert train(task(tmp_path, "LoraTraining", llama, LORA)) == 0
    assert hashes(tmp_path) == hashes(trained)
    assert losses(tmp_path) == losses(trained)
    assert train(task(tmp_path / "other", "LoraTraining", llama, {**LORA, "seed": 8})) == 0
    assert hashes(tmp_path / "other") != hashes(trained)


def test_result_has_figures(trained: Path) -> None:
    result, steps = TrainResult.read(trained), losses(trained)
    assert sum(steps[-5:]) < sum(steps[:5])
    assert (result.steps, result.examples, result.left_out, result.processes) == (15, 10, 0, 1)
    assert result.tokens > 15 * 2 * 10
    assert 0 < result.trainable < result.parameters
    replies = [json.loads(line) for line in (trained / "replies.jsonl").read_text().splitlines()]
    assert [reply["id"] for reply in replies] == ["q10", "q11"]
    evaluated = [point.step for point in result.curve if point.held_out_loss is not None]
    assert evaluated == [0, 5, 10, 15]
    assert result.held_out_loss[1] == result.curve[-1].held_out_loss
    assert result.series()["loss"][0] == (1, steps[0])


def test_interrupted_training_resumes_to_equal_bytes(llama: Path, trained: Path, tmp_path: Path) -> None:
    """Also from the last complete checkpoint, if a crash left a newer one incomplete."""
    settings = task(tmp_path, "LoraTraining", llama, LORA)
    assert tiny.train_step(settings) == tiny.train_step(settings) == 130
    newest = tmp_path / "checkpoints" / "checkpoint-2"
    shutil.copytree(newest, tmp_path / "checkpoints" / "checkpoint-3")
    (tmp_path / "checkpoints" / "checkpoint-3" / "trainer_state.json").write_text('{"epo')
    code, events = run(task(tmp_path, "LoraTraining", llama, LORA))
    assert code == 0
    assert events[0]["text"] == "continuing from step 2"
    assert hashes(tmp_path) == hashes(trained)
    assert TrainResult.read(tmp_path).tokens == TrainResult.read(trained).tokens


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"target_modules": ["w_proj"]}, r"target_modules=w_proj: the base has no such layer. It has down_proj, gate"),
        ({"max_length": 3}, "all of its 10 examples are too long. Raise train.max_length"),
        ({"learning_rate": 1e30}, "is no longer finite. Lower train.learning_rate"),
    ],
)
def test_impossible_training_is_one_line(llama: Path, tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    code, events = run(task(tmp_path, "LoraTraining", llama, LORA | changed))
    assert code == 2
    assert re.search(message, events[-1]["text"])
    assert not (tmp_path / "adapter").exists()


def test_base_of_another_kind_is_refused(llama: Path, t5: Path, tmp_path: Path) -> None:
    assert "not a causal model" in run(task(tmp_path / "a", "LoraTraining", t5, LORA))[1][-1]["text"]
    seq2seq = {**tiny.SCHEDULE, "max_input": 64, "max_output": 64, "truncation": True, "replies": 0, "reply_tokens": 1,
               "activation_checkpointing": False, "group_by_length": False}  # fmt: skip
    assert "not an encoder-decoder model" in run(task(tmp_path / "b", "Seq2SeqTraining", llama, seq2seq))[1][-1]["text"]


def test_qlora_learns(tmp_path: Path) -> None:
    """The code path of a GPU, without one."""
    pytest.importorskip("bitsandbytes", reason="train.quantization needs bitsandbytes", exc_type=ImportError)
    (tmp_path / "base").mkdir()
    base = tiny.llama(tmp_path / "base", width=256)
    recipe = {**LORA, "quantization": "nf4", "lora_r": 16, "lora_alpha": 32, "epochs": 10, "replies": 0}
    assert train(task(tmp_path, "LoraTraining", base, {**recipe, "activation_checkpointing": True})) == 0
    steps = losses(tmp_path)
    assert sum(steps[-5:]) < 0.6 * sum(steps[:5])


def test_adapter_is_plain_peft(llama: Path, trained: Path) -> None:
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
