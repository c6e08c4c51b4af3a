"""The shared parts of all trainers in the worker's process: tokens, arguments, checkpoints, progress and replies."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, TrainerCallback

from kgqa.errors import ConfigError, DataError
from kgqa.extras.training.trainers.process import TrainEvent

REPLIES_AT_ONCE = 8


def load_tokenizer(base: Path, *, is_encoder: bool = False) -> Any:
    """Load the tokenizer of a transformers folder.

    Raises ConfigError: the folder has none, or the tokenizer of a model that writes has no end token.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(base, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{base}: not readable as a tokenizer: {error}") from error
    if is_encoder:
        return tokenizer
    if tokenizer.eos_token_id is None:
        raise ConfigError(f"{base / 'tokenizer_config.json'}: the tokenizer has no eos_token")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return tokenizer


def last_checkpoint(folder: Path) -> str | None:
    """Return the newest complete checkpoint, and remove newer ones that a crash left incomplete."""
    steps = {
        int(digits): path
        for path in folder.glob("checkpoint-*")
        if (digits := path.name[11:]).isdigit()
    }
    for _, checkpoint in sorted(steps.items(), reverse=True):
        with suppress(OSError, ValueError):
            json.loads(
                (checkpoint / "trainer_state.json").read_bytes()
            )  # the library writes it last
            return str(checkpoint)
        shutil.rmtree(checkpoint, ignore_errors=True)
    return None


class Progress(TrainerCallback):  # type: ignore[misc]
    """Reports each step, and saves by the clock."""

    def __init__(self, save_minutes: float, emit: Callable[[TrainEvent], None]) -> None:
        self._minutes, self._emit = save_minutes, emit
        self._started = self._saved = time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args, control
        # the seconds before the last interruption count
        self._started -= next(
            (line["seconds"] for line in reversed(state.log_history) if "seconds" in line), 0.0
        )
        self._emit(TrainEvent(event="begin", step=state.global_step, steps=state.max_steps))

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
        del args, control
        if "loss" not in logs:
            return
        loss = float(logs["loss"])
        if not math.isfinite(loss):
            raise DataError(
                f"the loss at step {state.global_step:,} is no longer finite. Lower train.learning_rate, or set "
                "train.precision=float32"
            )
        state.log_history[-1]["seconds"] = round(time.monotonic() - self._started, 2)
        self._emit(TrainEvent(event="step", step=state.global_step, loss=loss))

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: dict[str, float], **_: Any
    ) -> None:
        del args, control
        self._emit(TrainEvent(event="evaluation", step=state.global_step, loss=mean_loss(metrics)))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # an epoch's last step is saved after the epoch's evaluation, otherwise a resumed training would skip it
        if not float(state.epoch).is_integer():
            self._save_if_due(args, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # not after a stop within the epoch
        if float(state.epoch).is_integer():
            self._save_if_due(args, control)

    def _save_if_due(self, args: Any, control: Any) -> None:
        control.should_save = time.monotonic() - self._saved >= 60 * self._minutes
        # the first process decides, so that all save at the same step
        if args.world_size > 1:
            decision = torch.tensor([control.should_save], device=args.device)
            torch.distributed.broadcast(decision, src=0)
            control.should_save = bool(decision)
        if control.should_save:
            self._saved = time.monotonic()


def mean_loss(metrics: dict[str, float]) -> float | None:
    """Return the mean loss of the held-out sets. None: nothing is held out."""
    losses = [
        float(value)
        for name, value in metrics.items()
        if name.startswith("eval_") and name.endswith("loss")
    ]
    return sum(losses) / len(losses) if losses else None


def series(history: Sequence[dict[str, Any]]) -> dict[str, tuple[tuple[int, float], ...]]:
    """Return (step, value) pairs of the library's log by name. Step 0 is before training."""
    values: dict[str, dict[int, float]] = {}
    for line in history:
        losses = {
            "loss": line.get("loss"),
            "held_out_loss": mean_loss(line),
            "learning_rate": line.get("learning_rate"),
        }
        for name, value in losses.items():
            if value is not None:
                values.setdefault(name, {})[line["step"]] = value
    return {name: tuple(by_step.items()) for name, by_step in values.items()}


def generate_replies(
    network: Any, tokenizer: Any, prompts: Sequence[Sequence[int]], max_tokens: int
) -> list[str]:
    """Return the most likely reply to each prompt."""
    network.eval()
    replies: list[str] = []
    for first in range(0, len(prompts), REPLIES_AT_ONCE):
        batch = tokenizer.pad(
            {"input_ids": [list(prompt) for prompt in prompts[first : first + REPLIES_AT_ONCE]]},
            padding_side="left", return_tensors="pt",
        ).to(network.device)  # fmt: skip
        with torch.inference_mode():
            ids = network.generate(
                **batch, max_new_tokens=max_tokens, do_sample=False, use_cache=True,
                eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
            )  # fmt: skip
        output = ids if network.config.is_encoder_decoder else ids[:, batch["input_ids"].shape[1] :]
        replies += tokenizer.batch_decode(output, skip_special_tokens=True)
    return replies
