"""The process that trains: `python -m kgqa.training.worker SETTINGS.json`, alone or under `accelerate launch`.

It takes a `Job`, says how far it is in progress.jsonl, and leaves weights and outcome.json. Exit code 0 when it came to
its end, 2 with one line on standard error for what a person can mend (its hours being over is such), 130 interrupted;
in the latter two the same command goes on from the last checkpoint.
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
from typing import Any

from kgqa import training
from kgqa.artefacts.form import checked, read_json
from kgqa.errors import DataError, KgqaError
from kgqa.inert import one_line
from kgqa.storage import json_text, locked, replace_file
from kgqa.training.job import BEFORE, OUTCOME, REPLIES, WORKER_LOCK, Job, Outcome
from kgqa.training.loop import Fitted, arguments, fit
from kgqa.training.progress import Progress, Said
from kgqa.training.stopping import Stop
from kgqa.training.texts import Rows

PACKAGES = ("torch", "transformers", "peft", "accelerate", "bitsandbytes", "sentence-transformers", "tokenizers")


# what torch and safetensors say of it, none of it an OSError; "inline_container" is the file that torch.save writes
FULL_DISK = (
    "PytorchStreamWriter", "inline_container", "file write failed", "No space left", "File too large", "os error",
)  # fmt: skip


def main(words: list[str]) -> int:
    """Gives the exit code."""
    if len(words) != 1:
        return _refused("expected one word, a trainer's settings; kgqa train starts it")
    try:
        job = Job.read(Path(words[0]))
        recipe = checked(getattr(training, job.kind), dict(job.recipe), words[0])
        stop = Stop(job.place, recipe.max_hours)
        stop.listen()
        first = os.environ.get("RANK", "0") == "0"
        if not first:
            return _ended(train(job, recipe, Progress(job.place, writes=False), stop), recipe)
        with locked(job.place / WORKER_LOCK):  # of one whose kgqa was killed: it ends at its next checkpoint
            return _ended(train(job, recipe, Progress(job.place), stop), recipe)
    except KgqaError as error:
        return _refused(str(error))
    except OSError as error:
        return _refused(f"{error.filename or 'the disk'}: {error.strerror or error}; make room, then run it again")
    except Exception as error:  # safetensors' own error for a full disk is none of Python's
        if told := _in_our_words(error):
            return _refused(told)
        raise


def train(job: Job, recipe: Any, progress: Progress, stop: Stop) -> Fitted:
    """From the examples to the weights.

    Raises:
        ConfigError: the base and the recipe do not fit together.
        DataError: an example or a checkpoint that cannot be read, or a loss that is no number.
        StorageError: the disk is full or refuses.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    base = Path(job.base)
    rows, held_out = recipe.read(job.train, base), recipe.read(job.held_out, base)
    if not rows.rows:
        raise DataError(
            f"{job.train}: none of its {rows.left_out} examples is short enough; raise train.max_length, or give "
            "train.too_long=cut"
        )
    args = arguments(recipe, job, len(rows.rows))
    network = recipe.network(base, args.device)
    if args.process_index == 0:
        _before(job, recipe, network, held_out, progress)
    fitted = fit(recipe.lesson(network, rows, held_out), job, (recipe, args), progress, stop)
    if fitted.why is None and args.process_index == 0:
        outcome = _finish(job, recipe, network, (rows, held_out), (fitted, args))
        progress.held_out(fitted.steps, outcome.held_out_loss[1])
        replace_file(job.place / OUTCOME, json_text(outcome.json()))
    if fitted.why is None:
        progress.say(Said(event="end", step=fitted.steps))
    return fitted


def _before(job: Job, recipe: Any, network: Any, held_out: Rows, progress: Progress) -> None:
    """What the untrained model makes of the held-out examples; measured once."""
    if (job.place / BEFORE).is_file():
        return
    loss, figures = recipe.losses(network, held_out)
    progress.held_out(0, loss)
    replies = recipe.answer(network, Path(job.base), held_out)
    replace_file(job.place / BEFORE, json_text({"loss": loss, "figures": figures, "replies": replies}))


def _finish(job: Job, recipe: Any, network: Any, read: tuple[Rows, Rows], fitted: tuple[Fitted, Any]) -> Outcome:
    """Leaves the weights and the replies; the outcome, once written, says that all is there."""
    rows, held_out = read
    done, args = fitted
    recipe.save(network, job)
    before = read_json(job.place / BEFORE)
    loss, figures = recipe.losses(network, held_out)
    replies = zip(held_out.rows, before["replies"], recipe.answer(network, Path(job.base), held_out), strict=False)
    lines = [{"id": row.id, "before": old, "after": new} for row, old, new in replies]
    replace_file(job.place / REPLIES, "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines))
    return Outcome(
        steps=done.steps,
        examples=len(rows.rows),
        left_out=rows.left_out + held_out.left_out,
        cut=rows.cut + held_out.cut,
        trainable=sum(each.numel() for each in network.parameters() if each.requires_grad),
        parameters=sum(each.numel() for each in network.parameters()),
        tokens=done.tokens,
        seconds=round(done.seconds, 1),
        peak_memory=_peak_memory(),
        device=_device(args),
        processes=args.world_size,
        versions=_versions(),
        held_out_loss=(before["loss"], loss),
        measured={name: (tuple(before["figures"][name]), tuple(each)) for name, each in figures.items()},
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

    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found | ({"cuda": torch.version.cuda} if torch.version.cuda else {})


def _ended(fitted: Fitted, recipe: Any) -> int:
    if fitted.why == "interrupted":
        return 130
    if fitted.why == "hours":
        return _refused(
            f"train.max_hours={recipe.max_hours:g}: ended at a checkpoint, step {fitted.steps:,}; the same command "
            "goes on from there"
        )
    return 0


def _refused(message: str) -> int:
    sys.stderr.write(f"kgqa: {one_line(message)}\n")
    return 2


def _in_our_words(error: Exception) -> str:
    """Of what torch says about memory and disks; "" for everything else."""
    text = str(error)
    if "out of memory" in text or "can't allocate memory" in text:
        return (
            "out of memory: lower train.batch_per_device or train.max_length, give "
            "train.activation_checkpointing=true or train.quantization=nf4; the same command goes on"
        )
    if any(words in text for words in FULL_DISK):
        return f"{text.splitlines()[0]:.160}; make room, then run the same command again: the checkpoint before stays"
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
