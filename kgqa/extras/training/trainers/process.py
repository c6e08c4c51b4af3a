"""Start a trainer's process, alone or several by accelerate, and pass on its events until it ends.

The process reads a `TrainTask` and two files of examples. It leaves weights, replies and a `TrainResult`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kgqa.artifacts.run import SETTINGS
from kgqa.artifacts.schema import Artifact, Number, check_json, omit_none, read
from kgqa.artifacts.trained import TrainFigures
from kgqa.errors import EngineDied, UsageError
from kgqa.types import Json
from kgqa.util.fs import explain_storage_errors, json_text, replace_file
from kgqa.util.jsonio import decode_json
from kgqa.util.text import one_line

TRAIN, HELD_OUT, RESULT = "examples/train.jsonl", "examples/held_out.jsonl", "outcome.json"
# of the trained model to held-out prompts
REPLIES = "replies.jsonl"
CHECKPOINTS, LOG = "checkpoints", "worker.log"
LOCK, WORKER_LOCK = ".lock", ".worker.lock"
# seconds for an interrupted worker to write its checkpoint
PATIENCE = 120.0
# the latter before it has set its signal handlers
INTERRUPTED = (130, -signal.SIGINT, -signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class TextExample:
    """A rendered prompt with its completion."""

    prompt: str
    completion: str
    id: str = ""
    question: str = ""
    label: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        return self.prompt, self.completion


@dataclass(frozen=True, slots=True)
class PairExample:
    """Texts that an encoder shall bring together, and those that it shall not.

    hop: 1 if the anchor is the question, 2 if it continues with the first fact. None: the facts have no order.
    """

    anchor: str
    positive: str
    negatives: tuple[str, ...] = ()
    id: str = ""
    question: str = ""
    hop: int | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        return self.anchor, self.positive, *self.negatives


AnyExample = TextExample | PairExample


class TrainTask(Artifact):
    """`kind`: the class in `kgqa.extras.training.trainers`. `recipe`: its fields. `base`: a transformers folder.

    base_name: what an adapter's configuration calls its base, so that it has no path of this machine.
    """

    kind: str
    recipe: Mapping[str, Json]
    base: str
    base_name: str
    folder: str

    @property
    def path(self) -> Path:
        return Path(self.folder)


class TrainEvent(Artifact):
    """One line that the worker sends to its parent. `event`: begin, step, evaluation, note or error."""

    event: str
    step: int = 0
    steps: int | None = omit_none()
    loss: Number | None = omit_none()
    text: str | None = omit_none()


class TrainResult(TrainFigures):
    """The figures of a finished training."""

    examples: int
    left_out: int  # examples longer than the limit
    cut: int  # examples truncated to it
    # (step, value) by name: loss, held_out_loss, learning_rate
    series: Mapping[str, tuple[tuple[int, float], ...]]

    @classmethod
    def read(cls, folder: Path) -> TrainResult:
        """Read the result. Raises DataError: the training is not finished, or the file is damaged."""
        return read(cls, folder / RESULT, missing="no such file: the training is not finished")


def run_worker(task: TrainTask, processes: int, show: Callable[[TrainEvent], None]) -> None:
    """Run a training to its end.

    Raises:
        UsageError: what the worker reports as invalid.
        EngineDied: the worker crashed.
        KeyboardInterrupt: after the worker has written its checkpoint.
    """
    settings = replace_file(task.path / SETTINGS, json_text(task.json()))
    error, log = "", task.path / LOG
    with explain_storage_errors(log), log.open("ab") as file:
        worker = subprocess.Popen(  # noqa: S603 - ourselves
            command(settings, processes),
            env=environment(processes, os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file,
            # Ctrl-C reaches only this process, which passes it on once
            start_new_session=True,
        )
    assert worker.stdout is not None
    try:
        for line in worker.stdout:
            event = check_json(TrainEvent, decode_json(line), "the trainer's output")
            if event.event == "error":
                error = event.text or ""
            else:
                show(event)
        worker.wait()
    finally:
        _stop(worker)
    check_exit(worker.returncode, error, log)


def command(settings: Path, processes: int) -> list[str]:
    """Return the worker's command line."""
    worker = ["-m", "kgqa.extras.training.trainers.worker", str(settings.absolute())]
    if processes == 1:
        return [sys.executable, *worker]
    # --multi_gpu starts plain processes, with or without GPUs; accelerate's --cpu needs MPI
    launcher = [
        "-m",
        "accelerate.commands.launch",
        "--multi_gpu",
        "--num_processes",
        str(processes),
    ]
    own = [
        "--num_machines",
        "1",
        "--mixed_precision",
        "no",
        "--dynamo_backend",
        "no",
        "--main_process_port",
        "0",
    ]
    return [sys.executable, *launcher, *own, *worker]


def environment(processes: int, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the worker's environment. One process uses one GPU: transformers would use all visible ones, slowly."""
    own = {"GOMP_SPINCOUNT": "0", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    if processes == 1:
        own["CUDA_VISIBLE_DEVICES"] = inherited.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    else:
        own["OMP_NUM_THREADS"] = inherited.get(
            "OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes))
        )
        # all on one machine: gloo would look up its name and use that address
        if sys.platform == "linux":
            own["GLOO_SOCKET_IFNAME"] = inherited.get("GLOO_SOCKET_IFNAME", "lo")
    return {**inherited, **own}


def _stop(worker: subprocess.Popen[bytes]) -> None:
    """End a worker that still runs: first with time for a checkpoint, then by force."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if worker.poll() is None:
            with suppress(ProcessLookupError, subprocess.TimeoutExpired, KeyboardInterrupt):
                os.killpg(worker.pid, number)
                worker.wait(PATIENCE)


def check_exit(code: int, error: str, log: Path) -> None:
    """Raise what a worker's exit code and error mean."""
    if error:
        raise UsageError(error)
    if code in INTERRUPTED:
        raise KeyboardInterrupt
    if code:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        killed = ", perhaps killed because memory was short" if code == -signal.SIGKILL else ""
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [
            "no message"
        ]
        raise EngineDied(
            f"the trainer crashed ({how}{killed}): {one_line(lines[-1])[:160]}. Its output is in {log}"
        )
