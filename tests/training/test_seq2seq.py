"""Full fine-tuning of an encoder-decoder model, and the engine that answers with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kgqa.calls import Generate
from kgqa.engines.transformers import Transformers
from kgqa.engines.weights import Model
from kgqa.training.trainers.process import HELD_OUT, TRAIN
from kgqa.training.trainers.seq2seq import split_prompt
from kgqa.types import Completion, Message, Prompt
from tests.training import tiny
from tests.training.tiny import jsonl, losses, task, train

pytestmark = pytest.mark.filterwarnings("ignore")
RECIPE = tiny.SCHEDULE | {
    "max_input": 64, "max_output": 64, "truncation": True, "activation_checkpointing": False, "group_by_length": True,
    "replies": 8, "reply_tokens": 24, "epochs": 60, "batch_size": 4, "batch_per_device": 4, "learning_rate": 5e-3,
}  # fmt: skip


def test_eight_pairs_are_learned_and_the_engine_answers_with_them(t5: Path, tmp_path: Path) -> None:
    """Prompts are rendered by the engine that answers in the end."""
    settings = task(tmp_path, "Seq2SeqTraining", t5, RECIPE)
    model = Model("tiny", str(t5), None, (), None, 128, "off", None, None)
    engine = Transformers(model, "float32", None, batch_size=8, device="cpu", max_model_len=None)
    calls = [call(line["prompt"]) for line in tiny.lines(8)]
    pairs = [{**line, "prompt": engine.render(asked)} for line, asked in zip(tiny.lines(8), calls, strict=True)]
    for name in (TRAIN, HELD_OUT):  # the same, as memory is what is looked at
        (tmp_path / name).write_text(jsonl(pairs))
    assert train(settings) == 0
    assert losses(tmp_path)[-1] < 0.3 < losses(tmp_path)[0]
    replies = [json.loads(line) for line in (tmp_path / "replies.jsonl").read_text().splitlines()]
    written = {reply["id"]: reply["after"] for reply in replies}
    assert sum(written[line["id"]] == line["completion"] for line in pairs) >= 7
    own = Model("own", str(tmp_path / "model"), None, (), None, 128, "off", None, None)
    answering = Transformers(own, "float32", None, batch_size=8, device="cpu", max_model_len=None)
    answers = answering.answer(calls)
    assert [reply.text for reply in answers if isinstance(reply, Completion)] == [written[line["id"]] for line in pairs]
    answering.close()


def call(text: str) -> Generate:
    return Generate(Prompt("test/completion", (Message("user", text.strip()),), form="completion"), 24)


@pytest.mark.parametrize(
    ("prompt", "read", "begun"),
    [([5, 6, 1, 0], [5, 6, 1], []), ([5, 1, 0, 7, 8], [5, 1], [7, 8]), ([5, 6], [5, 6, 1], []), ([5, 1], [5, 1], [])],
)
def test_prompt_is_split_before_the_reply(prompt: list[int], read: list[int], begun: list[int]) -> None:
    assert split_prompt(prompt, end=1, start=0) == (read, begun)
