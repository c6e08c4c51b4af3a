"""The shared parts of all trainers in the worker's process: tokens, arguments, checkpoints, progress and replies."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, TrainerCallback

from kgqa.artifacts.schema import check_json, read_lines
from kgqa.errors import ConfigError, DataError
from kgqa.protocols.training import Trainer
from kgqa.training.trainers.task import CHECKPOINTS, CurvePoint, TrainEvent, TrainTask

SCHEDULERS = {"cosine": "cosine", "linear": "linear", "constant": "constant_with_warmup"}
LOGGED = 1000  # points of a curve
DDP_TIMEOUT = 7200  # seconds that the other processes wait while the first one writes replies
REPLIES_AT_ONCE = 8
Emit = Callable[[TrainEvent], None]


@dataclass(frozen=True)
class Rows:
    """Examples as the library reads them, each with its id."""

    rows: list[dict[str, Any]]
    tokens: int
    left_out: int = 0
    cut: int = 0


@dataclass(frozen=True, slots=True)
class Text:
    """A line of a file of rendered examples, as `kgqa train` writes it."""

    id: str
    prompt: str
    completion: str


def read_texts(file: Path) -> Iterator[Text]:
    """Read the lines of a file. Raises DataError naming the line."""
    for place, line in read_lines(file):
        yield check_json(Text, line, place)


def load_tokenizer(base: Path) -> Any:
    """Load the tokenizer of a transformers folder.

    Raises:
        ConfigError: the folder has none, or the tokenizer has no end token.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(base, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{base}: not readable as a tokenizer: {error}") from error
    if tokenizer.eos_token_id is None:
        raise ConfigError(f"{base / 'tokenizer_config.json'}: the tokenizer has no eos_token")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return tokenizer


def encode(tokenizer: Any, text: str) -> list[int]:
    """Return the tokens of a rendered text, which already contains its special tokens."""
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def arguments(recipe: Trainer, task: TrainTask, examples: int, held_out: int) -> dict[str, Any]:
    """Return the values for `transformers.TrainingArguments` that follow from the shared settings."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    cpu = recipe.device == "cpu" or not torch.cuda.is_available()
    return {
        "output_dir": str(task.path / CHECKPOINTS),
        "per_device_train_batch_size": recipe.batch_per_device,
        "per_device_eval_batch_size": recipe.batch_per_device,
        "gradient_accumulation_steps": recipe.accumulation(processes),
        "num_train_epochs": recipe.epochs,
        "max_steps": recipe.max_steps or -1,
        "learning_rate": recipe.learning_rate,
        "lr_scheduler_type": SCHEDULERS[recipe.lr_scheduler],
        "warmup_steps": recipe.warmup,
        "weight_decay": recipe.weight_decay,
        "max_grad_norm": recipe.clip,
        "bf16": recipe.precision == "bfloat16",
        "optim": "adamw_torch",
        "seed": recipe.seed,
        "use_cpu": cpu,
        "ddp_backend": "gloo" if cpu and processes > 1 else None,
        "ddp_find_unused_parameters": False,
        "ddp_timeout": DDP_TIMEOUT,
        "save_strategy": "no",  # `Progress` saves by the clock
        "save_total_limit": 2,
        "enable_jit_checkpoint": True,  # at SIGTERM
        "eval_strategy": "epoch" if held_out else "no",
        # an evaluation before `train` would keep the model out of DistributedDataParallel
        "eval_on_start": held_out > 0,
        "logging_strategy": "steps",
        "logging_steps": max(1, recipe.steps(examples) // LOGGED),
        "logging_nan_inf_filter": False,
        "report_to": "none",
        "disable_tqdm": True,
    }


def last_checkpoint(folder: Path) -> str | None:
    """Return the newest complete checkpoint, and remove newer ones that a crash left incomplete."""
    found = [path for path in folder.glob("checkpoint-*") if re.fullmatch(r"checkpoint-\d+", path.name)]
    for checkpoint in sorted(found, key=lambda path: int(path.name.partition("-")[2]), reverse=True):
        if _is_complete(checkpoint):
            return str(checkpoint)
        shutil.rmtree(checkpoint, ignore_errors=True)
    return None


def _is_complete(checkpoint: Path) -> bool:
    try:
        json.loads((checkpoint / "trainer_state.json").read_bytes())  # the library writes it last
    except (OSError, ValueError):
        return False
    return True


class Progress(TrainerCallback):  # type: ignore[misc]
    """Reports each step, saves by the clock and stops when the hours are over."""

    def __init__(self, recipe: Trainer, emit: Emit) -> None:
        self._recipe, self._emit = recipe, emit
        self._started = self._saved = time.monotonic()
        self._earlier = 0.0  # seconds before the last interruption
        self.hours_over = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args, control
        self._earlier = next((line["seconds"] for line in reversed(state.log_history) if "seconds" in line), 0.0)
        self._emit(TrainEvent(event="begin", step=state.global_step, steps=state.max_steps))

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
        del args, control
        if "loss" not in logs:
            return
        loss = float(logs["loss"])
        if not math.isfinite(loss):
            raise DataError(
                f"the loss at step {state.global_step:,} is not a number any more; lower train.learning_rate, or set "
                "train.precision=float32"
            )
        state.log_history[-1]["seconds"] = round(self._earlier + time.monotonic() - self._started, 2)
        self._emit(TrainEvent(event="step", step=state.global_step, loss=loss))

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: dict[str, float], **_: Any) -> None:
        del args, control
        self._emit(TrainEvent(event="evaluation", step=state.global_step, loss=mean_loss(metrics)))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # an epoch's last step is saved after the epoch's evaluation, otherwise a resumed training would skip it
        if not float(state.epoch).is_integer():
            self._save_or_stop(args, state, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if float(state.epoch).is_integer():  # not after a stop within the epoch
            self._save_or_stop(args, state, control)

    def _save_or_stop(self, args: Any, state: Any, control: Any) -> None:
        """Request a checkpoint if one is due, and a stop if the hours are over."""
        now = _first_clock(args)
        control.should_save = now - self._saved >= 60 * self._recipe.save_minutes
        hours = self._recipe.max_hours
        if hours is not None and now - self._started > 3600 * hours and state.global_step < state.max_steps:
            self.hours_over = control.should_save = control.should_training_stop = True
        if control.should_save:
            self._saved = now


def _first_clock(args: Any) -> float:
    """Return the clock of the first process, so that all processes save and stop at the same step."""
    if args.world_size == 1:
        return time.monotonic()
    clock = torch.tensor([time.monotonic()], dtype=torch.float64, device=args.device)
    torch.distributed.broadcast(clock, src=0)
    return float(clock)


def mean_loss(metrics: dict[str, float]) -> float | None:
    """Return the mean loss of the held-out sets. None: nothing is held out."""
    losses = [float(value) for name, value in metrics.items() if name.startswith("eval_") and name.endswith("loss")]
    return sum(losses) / len(losses) if losses else None


def curve(history: Sequence[dict[str, Any]]) -> Iterator[CurvePoint]:
    """Yield the points of the library's log."""
    steps = {line["step"]: line for line in history if "loss" in line}
    evaluated: dict[int, dict[str, float]] = {}
    for line in history:
        evaluated.setdefault(line["step"], {}).update({key: line[key] for key in line if key.startswith("eval_")})
    for step in sorted({*steps, *(step for step, metrics in evaluated.items() if metrics)}):
        line = steps.get(step, {})
        yield CurvePoint(
            step=step,
            epoch=line.get("epoch") and round(line["epoch"], 4),
            loss=line.get("loss"),
            held_out_loss=mean_loss(evaluated.get(step, {})),
            learning_rate=line.get("learning_rate"),
            seconds=line.get("seconds"),
        )


def generate_replies(network: Any, tokenizer: Any, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[str]:
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
        written = ids if network.config.is_encoder_decoder else ids[:, batch["input_ids"].shape[1] :]
        replies += tokenizer.batch_decode(written, skip_special_tokens=True)
    return replies


def replace_folder(folder: Path, save: Callable[[Path], None]) -> None:
    """Save a model so that the folder is either complete or missing."""
    fresh = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    save(fresh)
    shutil.rmtree(folder, ignore_errors=True)
    fresh.replace(folder)
