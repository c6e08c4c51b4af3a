"""Trainers: LoRA, encoder-decoder models and bi-encoders learn, resume to equal bytes, and say what is wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kgqa.calls import Generate, Rank
from kgqa.engines.transformers import Transformers
from kgqa.engines.weights import Model
from kgqa.extras.training.trainers import BiEncoderTraining, LoraTraining
from kgqa.extras.training.trainers.process import HELD_OUT, TRAIN, TrainResult
from kgqa.extras.training.trainers.seq2seq import split_prompt
from kgqa.retrieval.encoders import SentenceTransformer
from kgqa.types import Completion, Message, Prompt
from kgqa.util.fs import sha256
from tests.training import tiny
from tests.training.tiny import LORA, jsonl, losses, run, task, train

pytestmark = pytest.mark.filterwarnings("ignore")
FILES = ("adapter_model.safetensors", "adapter_config.json")


def hashes(folder: Path) -> list[str]:
    return [sha256(folder / "adapter" / name) for name in FILES]


@pytest.mark.parametrize("loss_on", ["target", "all"])
def test_loss_is_cross_entropy_of_target(llama: Path, tmp_path: Path, loss_on: str) -> None:
    """The held-out loss before training equals the mean of log-probabilities computed by hand."""
    import torch
    from transformers import AutoModelForCausalLM

    settings = task(tmp_path, "LoraTraining", llama, {**LORA, "loss_on": loss_on, "max_steps": 1})
    values: dict[str, Any] = {**LORA, "target_modules": ("all-linear",), "loss_on": loss_on}
    recipe = LoraTraining(**values)
    network = AutoModelForCausalLM.from_pretrained(llama).eval()
    expected = []
    for row in recipe.load(settings.parent / "examples" / "held_out.jsonl", llama).rows:
        ids, first = row["input_ids"], row["completion_mask"].index(1) if loss_on == "target" else 1
        with torch.inference_mode():
            logits = network(torch.tensor([ids])).logits[0].log_softmax(-1)
        expected.append(
            -sum(float(logits[n - 1, ids[n]]) for n in range(first, len(ids))) / (len(ids) - first)
        )
    assert train(settings) == 0
    loss = TrainResult.read(tmp_path).series["held_out_loss"][0][1]
    assert loss == pytest.approx(sum(expected) / len(expected), rel=1e-4)


def test_equal_trainings_give_equal_bytes_and_figures(
    llama: Path, trained: Path, tmp_path: Path
) -> None:
    assert train(task(tmp_path, "LoraTraining", llama, LORA)) == 0
    assert hashes(tmp_path) == hashes(trained)
    assert losses(tmp_path) == losses(trained)
    assert train(task(tmp_path / "other", "LoraTraining", llama, {**LORA, "seed": 8})) == 0
    assert hashes(tmp_path / "other") != hashes(trained)
    result, steps = TrainResult.read(trained), losses(trained)
    assert sum(steps[-5:]) < sum(steps[:5])
    assert (result.steps, result.examples, result.left_out, result.processes) == (15, 10, 0, 1)
    assert result.tokens > 15 * 2 * 10
    assert 0 < result.trainable < result.parameters
    replies = [json.loads(line) for line in (trained / "replies.jsonl").read_text().splitlines()]
    assert [reply["id"] for reply in replies] == ["q10", "q11"]
    assert [step for step, _ in result.series["held_out_loss"]] == [0, 5, 10, 15]
    assert result.series["loss"][0] == (1, steps[0])
    config = json.loads((trained / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "tiny"
    assert config["target_modules"] == sorted(config["target_modules"])


def test_interrupted_training_resumes_to_equal_bytes(
    llama: Path, trained: Path, tmp_path: Path
) -> None:
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


def test_impossible_training_is_one_line(llama: Path, t5: Path, tmp_path: Path) -> None:
    seq2seq = {**tiny.SCHEDULE, "max_input": 64, "max_output": 64, "truncation": True, "replies": 0, "reply_tokens": 1,
               "activation_checkpointing": False, "group_by_length": False}  # fmt: skip
    for kind, base, recipe, message in [
        (
            "LoraTraining",
            llama,
            LORA | {"target_modules": ["w_proj"]},
            "target_modules=w_proj: the base has no such",
        ),
        (
            "LoraTraining",
            llama,
            LORA | {"max_length": 3},
            "all of its 10 examples are too long. Raise train.max",
        ),
        (
            "LoraTraining",
            llama,
            LORA | {"learning_rate": 1e30},
            "is no longer finite. Lower train.learning_rate",
        ),
        ("LoraTraining", t5, LORA, "not a causal model"),
        ("Seq2SeqTraining", llama, seq2seq, "not an encoder-decoder model"),
    ]:
        shutil.rmtree(tmp_path)
        code, events = run(task(tmp_path, kind, base, recipe))
        assert code == 2
        assert message in events[-1]["text"]
        assert not (tmp_path / "adapter").exists()


def test_qlora_learns(tmp_path: Path) -> None:
    """The code path of a GPU, without one."""
    pytest.importorskip(
        "bitsandbytes", reason="train.quantization needs bitsandbytes", exc_type=ImportError
    )
    (tmp_path / "base").mkdir()
    base = tiny.llama(tmp_path / "base", width=256)
    recipe = {
        **LORA,
        "quantization": "nf4",
        "lora_r": 16,
        "lora_alpha": 32,
        "epochs": 10,
        "replies": 0,
    }
    assert (
        train(task(tmp_path, "LoraTraining", base, {**recipe, "activation_checkpointing": True}))
        == 0
    )
    steps = losses(tmp_path)
    assert sum(steps[-5:]) < 0.6 * sum(steps[:5])


SEQ2SEQ = tiny.SCHEDULE | {
    "max_input": 64, "max_output": 64, "truncation": True, "activation_checkpointing": False, "group_by_length": True,
    "replies": 8, "reply_tokens": 24, "epochs": 60, "batch_size": 4, "batch_per_device": 4, "learning_rate": 5e-3,
}  # fmt: skip


def test_engine_answers_with_eight_learned_pairs(t5: Path, tmp_path: Path) -> None:
    """Prompts are rendered by the engine that answers in the end."""
    settings = task(tmp_path, "Seq2SeqTraining", t5, SEQ2SEQ)
    model = Model("tiny", str(t5), None, (), None, 128, "off", None, None)
    engine = Transformers(model, "float32", None, batch_size=8, device="cpu", max_model_len=None)
    calls = [call(line["prompt"]) for line in tiny.lines(8)]
    pairs = [
        {**line, "prompt": engine.render(asked)}
        for line, asked in zip(tiny.lines(8), calls, strict=True)
    ]
    # the same, as memory is what is looked at
    for name in (TRAIN, HELD_OUT):
        (tmp_path / name).write_text(jsonl(pairs))
    assert train(settings) == 0
    assert losses(tmp_path)[-1] < 0.3 < losses(tmp_path)[0]
    replies = [json.loads(line) for line in (tmp_path / "replies.jsonl").read_text().splitlines()]
    texts = {reply["id"]: reply["reply"] for reply in replies}
    assert sum(texts[line["id"]] == line["completion"] for line in pairs) >= 7
    own = Model("own", str(tmp_path / "model"), None, (), None, 128, "off", None, None)
    answering = Transformers(own, "float32", None, batch_size=8, device="cpu", max_model_len=None)
    answers = answering.answer(calls)
    assert [reply.text for reply in answers if isinstance(reply, Completion)] == [
        texts[line["id"]] for line in pairs
    ]
    answering.close()


def call(text: str) -> Generate:
    return Generate(
        Prompt("test/completion", (Message("user", text.strip()),), form="completion"), 24
    )


def test_prompt_is_split_before_the_reply() -> None:
    split = [
        split_prompt(prompt, end=1, start=0)
        for prompt in ([5, 6, 1, 0], [5, 1, 0, 7, 8], [5, 6], [5, 1])
    ]
    assert split == [([5, 6, 1], []), ([5, 1], [7, 8]), ([5, 6, 1], []), ([5, 1], [])]


BIENCODER = tiny.SCHEDULE | {
    "dimension": 16, "max_question": 32, "max_follow_up": 64, "max_passage": 64, "negatives": 1, "scale": None,
    "chunk_size": 3, "batch_size": 4, "batch_per_device": 4, "epochs": 6, "learning_rate": 2e-3,
    "lr_scheduler": "linear",
}  # fmt: skip


def test_batches_have_pairs_of_one_hop() -> None:
    values: Any = ("a", "1", 1, ("x", "y")), ("b", "2", 2, ("x",)), ("c", "3", 1, ("z",))
    rows = [
        dict(zip(("anchor", "positive", "hop", "negatives"), each, strict=True)) for each in values
    ]
    datasets = BiEncoderTraining(**BIENCODER)._datasets(rows)
    assert {name: each.to_list() for name, each in datasets.items()} == {
        "hop 1, 1 negatives": [
            {"anchor": "a", "positive": "1", "negative 1": "x"},
            {"anchor": "c", "positive": "3", "negative 1": "z"},
        ],
        "hop 2, 1 negatives": [{"anchor": "b", "positive": "2", "negative 1": "x"}],
    }


def test_texts_are_truncated_by_kind(bert: Path, tmp_path: Path) -> None:
    recipe = BiEncoderTraining(
        **{**BIENCODER, "max_question": 4, "max_follow_up": 6, "max_passage": 5}
    )
    pair = {
        "anchor": "a b c d e f",
        "positive": "a b c d e f",
        "negatives": ["f e d c b a"],
        "question": "q",
    }
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
    assert train(task(whole, "BiEncoderTraining", bert, BIENCODER, held_out=4)) == 0
    assert tiny.train_step(task(parts, "BiEncoderTraining", bert, BIENCODER, held_out=4)) == 130
    assert train(task(parts, "BiEncoderTraining", bert, BIENCODER, held_out=4)) == 0
    assert (whole / "encoder/model.safetensors").read_bytes() == (
        parts / "encoder/model.safetensors"
    ).read_bytes()
    steps = losses(whole)
    assert sum(steps[-5:]) < sum(steps[:5])
    assert TrainResult.read(whole).tokens > 0
    ranker = SentenceTransformer.of(str(whole / "encoder"))
    [scores] = ranker.score(
        [Rank("mayor of Rome?", ("Rome lies in the north.", "Oslo has no mayor."), "ranker")]
    )
    assert len(set(scores)) == 2
    code, events = run(
        task(tmp_path / "two", "BiEncoderTraining", bert, {**BIENCODER, "processes": 2})
    )
    assert code == 2
    assert "train.processes=2: a bi-encoder is trained by one" in events[-1]["text"]
