"""The process that trains: `python -m kgqa.training.trainers.worker SETTINGS.json`, alone or by `accelerate launch`.

It reads a `TrainTask`, writes events to standard output, and leaves weights and outcome.json. The exit code is 0 at the
end, 2 for an invalid input or when the hours are over, 130 when interrupted. After the latter two the same command
continues from the last checkpoint.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TextIO

from kgqa.artifacts.schema import check_json, read_json
from kgqa.errors import DataError, KgqaError
from kgqa.training import trainers
from kgqa.training.trainers.task import (
    BEFORE,
    CHECKPOINTS,
    EXAMPLES,
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
# what torch and safetensors report for a full disk, none of it an OSError
FULL_DISK = (
    "PytorchStreamWriter", "inline_container", "file write failed", "No space left", "File too large", "os error",
)  # fmt: skip


def main(words: list[str], out: TextIO) -> int:
    """Train one task and return the exit code. `out`: where events are written, one JSON object per line."""

    def emit(event: TrainEvent) -> None:
        if os.environ.get("RANK", "0") == "0":
            out.write(f"{json.dumps(event.json())}\n")
            out.flush()

    try:
        task = TrainTask.read(Path(words[0]))
        recipe = check_json(getattr(trainers, task.kind), dict(task.recipe), words[0])
        if os.environ.get("RANK", "0") != "0":
            return train(task, recipe, emit)
        with lock_file(task.path / WORKER_LOCK):  # a worker without parent ends at its next event
            return train(task, recipe, emit)
    except BrokenPipeError:
        return 130
    except KgqaError as error:
        message = str(error)
    except OSError as error:
        message = f"{error.filename or 'the disk'}: {error.strerror or error}; free some space, then run it again"
    except Exception as error:  # safetensors' error for a full disk is its own class
        message = _explain(error)
        if not message:
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

    from kgqa.training.trainers.library import Progress, last_checkpoint, replace_folder

    rows, held_out = (recipe.load(task.path / EXAMPLES / name, Path(task.base)) for name in (TRAIN, HELD_OUT))
    if not rows.rows:
        raise DataError(
            f"{task.path / EXAMPLES / TRAIN}: all of its {rows.left_out} examples are too long; raise "
            "train.max_length, or set train.truncation=true"
        )
    trainer = recipe.build(task, rows, held_out)
    trainer.remove_callback(PrinterCallback)
    before = _measure_untrained(task, recipe, trainer, held_out)
    progress = Progress(recipe, emit)
    trainer.add_callback(progress)
    checkpoint = last_checkpoint(task.path / CHECKPOINTS)
    if checkpoint:
        emit(TrainEvent(event="note", text=f"continuing from step {checkpoint.rpartition('-')[2]}"))
    set_seed(recipe.seed)
    trainer.train(resume_from_checkpoint=checkpoint)
    step = trainer.state.global_step
    if progress.hours_over:
        raise DataError(
            f"train.max_hours={recipe.max_hours:g}: stopped at a checkpoint, step {step:,}; the same command continues"
        )
    if step < trainer.state.max_steps:
        return 130
    if trainer.args.process_index == 0:
        figures, replies = recipe.evaluate(trainer, held_out)
        replace_folder(task.path / recipe.output, lambda folder: recipe.save(trainer, task, folder))
        lines = zip(held_out.rows, before["replies"], replies, strict=False)
        replies_text = jsonl_text({"id": row["id"], "before": old, "after": new} for row, old, new in lines)
        replace_file(task.path / REPLIES, replies_text)
        result = _result(trainer, (rows, held_out), before, figures)
        replace_file(task.path / RESULT, json_text(result.json()))  # last: it marks the training as finished
    return 0


def _measure_untrained(task: TrainTask, recipe: Any, trainer: Any, held_out: Any) -> Any:
    """Return figures and replies of the untrained model. They are measured once."""
    file = task.path / BEFORE
    if file.is_file():
        return read_json(file)
    if trainer.args.process_index:
        return {}
    figures, replies = recipe.evaluate(trainer, held_out)
    before = {"figures": figures, "replies": replies}
    replace_file(file, json_text(before))
    return before


def _result(trainer: Any, read: tuple[Any, Any], before: Any, figures: Any) -> TrainResult:
    from kgqa.training.trainers.library import curve

    (rows, held_out), state = read, trainer.state
    points = tuple(curve(state.log_history))
    return TrainResult(
        steps=state.global_step,
        epochs=round(state.epoch, 3),
        examples=len(rows.rows),
        left_out=rows.left_out + held_out.left_out,
        cut=rows.cut + held_out.cut,
        trainable=sum(each.numel() for each in trainer.model.parameters() if each.requires_grad),
        parameters=sum(each.numel() for each in trainer.model.parameters()),
        tokens=round(rows.tokens * state.epoch),
        seconds=next((point.seconds for point in reversed(points) if point.seconds is not None), 0),
        peak_memory=_peak_memory(),
        device=_device(trainer.args),
        processes=trainer.args.world_size,
        versions=_versions(),
        held_out_loss=(
            points[0].held_out_loss,
            points[-1].held_out_loss,
        ),  # evaluated before the first step and after the last
        measured={name: (tuple(before["figures"][name]), tuple(each)) for name, each in figures.items()},
        curve=points,
    )


def _peak_memory() -> int:
    import torch

    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _device(args: Any) -> str:
    import torch

    if args.device.type == "cuda":
        return str(torch.cuda.get_device_name(args.device))
    return f"CPU {platform.machine()}, {torch.get_num_threads()} threads"


def _versions() -> dict[str, str]:
    import torch

    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions | ({"cuda": torch.version.cuda} if torch.version.cuda else {})


def _explain(error: Exception) -> str:
    """Return a message for what torch reports about memory and disks; "" for anything else."""
    text = str(error)
    if "out of memory" in text or "can't allocate memory" in text:
        return (
            "out of memory: lower train.batch_per_device or train.max_length, or set "
            "train.activation_checkpointing=true or train.quantization=nf4; the same command continues"
        )
    if any(words in text for words in FULL_DISK):
        return f"{text.splitlines()[0]:.160}; free some space, then run the same command again"
    return ""


if __name__ == "__main__":
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    events = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries print
    sys.exit(main(sys.argv[1:], events))
