"""The process that trains: `python -m` this module with SETTINGS.json, alone or by `accelerate launch`.

It writes events to standard output, one JSON object per line. The exit code is 0 at the end, 2 for an invalid input,
130 when interrupted. After that the same command continues from the last checkpoint.
"""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TextIO

from kgqa.artifacts.schema import check_json, read
from kgqa.errors import DataError, KgqaError
from kgqa.extras.training import trainers
from kgqa.extras.training.trainers.process import (
    CHECKPOINTS,
    HELD_OUT,
    REPLIES,
    RESULT,
    TRAIN,
    WORKER_LOCK,
    TrainEvent,
    TrainResult,
    TrainTask,
)
from kgqa.util.fs import json_text, jsonl_text, lock_file, replace_file

PACKAGES = (
    "torch", "transformers", "trl", "peft", "accelerate", "bitsandbytes", "sentence-transformers", "tokenizers",
)  # fmt: skip
# What torch and safetensors report for a full disk. None of it is an OSError.
FULL_DISK = (
    "PytorchStreamWriter|inline_container|file write failed|No space left|File too large|os error"
)
OUT_OF_MEMORY = (
    "out of memory: lower train.batch_per_device or train.max_length, or set train.activation_checkpointing=true or "
    "train.quantization=nf4. The same command continues"
)


def main(words: list[str], out: TextIO) -> int:
    """Train one task and return the exit code. `out`: where events are written."""
    is_first = os.environ.get("RANK", "0") == "0"

    def emit(event: TrainEvent) -> None:
        if is_first:
            out.write(f"{json.dumps(event.json())}\n")
            out.flush()

    try:
        task = read(TrainTask, Path(words[0]))
        recipe = check_json(getattr(trainers, task.kind), dict(task.recipe), words[0])
        if not is_first:
            return train(task, recipe, emit)
        # a worker without parent ends at its next event
        with lock_file(task.path / WORKER_LOCK):
            return train(task, recipe, emit)
    except BrokenPipeError:
        return 130
    except KgqaError as error:
        message = str(error)
    except OSError as error:
        message = f"{error.filename or 'the disk'}: {error.strerror or error}. Free some space, then run it again"
    except Exception as error:
        if re.search("out of memory|can't allocate memory", str(error)):
            message = OUT_OF_MEMORY
        elif re.search(FULL_DISK, str(error)):
            message = f"{str(error).splitlines()[0]:.160}. Free some space, then run it again"
        else:
            raise
    emit(TrainEvent(event="error", text=message))
    return 2


def train(task: TrainTask, recipe: Any, emit: Any) -> int:
    """Train from the examples to the weights and return the exit code.

    Raises:
        ConfigError: the base and the recipe do not fit together.
        DataError: an example cannot be read, or the loss is not a number.
    """
    from transformers import PrinterCallback, set_seed

    from kgqa.extras.training.trainers import library

    rows, held_out = (recipe.load(task.path / name, Path(task.base)) for name in (TRAIN, HELD_OUT))
    if not rows.rows:
        raise DataError(
            f"{task.path / TRAIN}: all of its {rows.left_out} examples are too long. Raise train.max_length, or set "
            "train.truncation=true"
        )
    trainer = recipe.build(task, rows, held_out)
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(library.Progress(recipe.save_minutes, emit))
    checkpoint = library.last_checkpoint(task.path / CHECKPOINTS)
    if checkpoint:
        emit(TrainEvent(event="note", text=f"continuing from step {checkpoint.rpartition('-')[2]}"))
    set_seed(recipe.seed)
    trainer.train(resume_from_checkpoint=checkpoint)
    if trainer.state.global_step < trainer.state.max_steps:
        return 130
    if trainer.args.process_index == 0:
        recipe.save(trainer, task, task.path / recipe.output)
        lines = zip(held_out.rows, recipe.reply(trainer, held_out), strict=False)
        replace_file(
            task.path / REPLIES, jsonl_text({"id": row["id"], "reply": text} for row, text in lines)
        )
        result = _result(trainer, rows, held_out)
        # last: it marks the training as finished
        replace_file(task.path / RESULT, json_text(result.json()))
    return 0


def _result(trainer: Any, rows: Any, held_out: Any) -> TrainResult:
    import torch

    from kgqa.extras.training.trainers.library import series

    state = trainer.state
    parameters = list(trainer.model.parameters())
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    if trainer.args.device.type == "cuda":
        device, memory = (
            torch.cuda.get_device_name(trainer.args.device),
            torch.cuda.max_memory_allocated(),
        )
        versions["cuda"] = torch.version.cuda or ""
    else:
        device = f"CPU {platform.machine()}, {torch.get_num_threads()} threads"
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
            1 if sys.platform == "darwin" else 1024
        )
    return TrainResult(
        steps=state.global_step,
        epochs=round(state.epoch, 3),
        tokens=round(rows.tokens * state.epoch),
        seconds=next(
            (line["seconds"] for line in reversed(state.log_history) if "seconds" in line), 0
        ),
        peak_memory=memory,
        trainable=sum(each.numel() for each in parameters if each.requires_grad),
        parameters=sum(each.numel() for each in parameters),
        device=device,
        processes=trainer.args.world_size,
        versions=versions,
        examples=len(rows.rows),
        left_out=rows.left_out + held_out.left_out,
        cut=rows.cut + held_out.cut,
        series=series(state.log_history),
    )


if __name__ == "__main__":
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    events = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries print
    sys.exit(main(sys.argv[1:], events))
