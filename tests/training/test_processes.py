"""Trainers in processes of their own: killed, interrupted, without room, two at once; the command above them."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kgqa.training.checkpoints import newest, step_of
from kgqa.training.job import Job
from kgqa.training.launch import run
from kgqa.training.progress import Said
from tests.training import tiny
from tests.training.tiny import LORA, job, steps, train

pytestmark = [pytest.mark.weights, pytest.mark.filterwarnings("ignore")]
ROOT = Path(__file__).parents[2]
SLOW = 600  # seconds that a loaded machine may take
COMMAND = """
import sys
from kgqa.cli import main
code = main(sys.argv[1:])
assert not {"torch", "transformers", "peft"} & set(sys.modules)
sys.exit(code)
"""


def started(command: list[str], folder: Path, **options: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KGQA_TRAINED": ""}
    return subprocess.Popen(
        [sys.executable, *command], cwd=folder, env=environment, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, **options,
    )  # fmt: skip


def wait_for(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + SLOW
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.02)


def weights(folder: Path) -> bytes:
    return (folder / "adapter/adapter_model.safetensors").read_bytes()


def test_a_killed_trainer_goes_on_to_the_same_bytes(llama: Path, trained: Path, tmp_path: Path) -> None:
    settings = job(tmp_path, "LoraTraining", llama, {**LORA, "save_minutes": 0})
    process = started(["-m", "kgqa.training.worker", str(settings)], tmp_path)
    wait_for(lambda: (tmp_path / "progress.jsonl").exists() and len(steps(tmp_path)) >= 4)
    process.kill()
    process.communicate()
    assert not (tmp_path / "adapter").exists()
    assert train(settings) == 0
    assert weights(tmp_path) == weights(trained)


def test_two_launched_processes_learn_as_one_with_twice_the_batch(llama: Path, tmp_path: Path) -> None:
    recipe = {**LORA, "dropout": 0.0, "epochs": 1, "replies": 0}
    both, one = tmp_path / "both", tmp_path / "one"
    settings = job(both, "LoraTraining", llama, {**recipe, "processes": 2})
    run(Job.read(settings), 2, lambda said: None)
    assert train(job(one, "LoraTraining", llama, {**recipe, "batch_per_device": 2})) == 0
    assert [line["loss"] for line in steps(both)] == pytest.approx([line["loss"] for line in steps(one)], abs=1e-4)
    assert json.loads((both / "outcome.json").read_text())["processes"] == 2
    assert len(weights(both)) == len(weights(one))


def test_at_slurms_signal_the_checkpoint_comes_before_the_queue(llama: Path, tmp_path: Path) -> None:
    settings = job(tmp_path, "LoraTraining", llama, {**LORA, "epochs": 400})
    at_the_queue: list[Path | None] = []

    def requeue(*_: object) -> None:  # as submitit does
        at_the_queue.append(newest(tmp_path / "checkpoints", print))
        sys.exit(-1)

    def hear(said: Said) -> None:
        if said.event == "step" and said.step >= 3 and not at_the_queue:
            (trainer,) = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            for process in (int(trainer), os.getpid()):  # Slurm sends it to all
                os.kill(process, signal.SIGUSR2)

    before = signal.signal(signal.SIGUSR2, requeue)
    try:
        with pytest.raises(SystemExit):
            run(Job.read(settings), 1, hear)
        assert signal.getsignal(signal.SIGUSR2) is requeue
    finally:
        signal.signal(signal.SIGUSR2, before)
    (checkpoint,) = at_the_queue
    assert checkpoint is not None
    assert steps(tmp_path)[-1]["step"] == step_of(checkpoint)


def test_a_full_disk_is_one_line_and_the_checkpoint_before_stays(llama: Path, trained: Path, tmp_path: Path) -> None:
    settings = job(tmp_path, "LoraTraining", llama, {**LORA, "save_minutes": 0, "max_hours": 1e-9})
    assert train(settings) == 2
    limit = 20_000  # bytes: the adapter's matrices are more

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    process = started(["-m", "kgqa.training.worker", str(settings)], tmp_path, preexec_fn=limited)
    err = process.communicate()[1]
    told = [line for line in err.splitlines() if line.startswith("kgqa: ")]
    assert process.returncode == 2, err
    assert len(told) == 1
    assert "make room" in told[0]
    assert (tmp_path / "checkpoints" / "checkpoint-1" / "whole.json").exists()
    assert train(job(tmp_path, "LoraTraining", llama, LORA)) == 0
    assert weights(tmp_path) == weights(trained)


def test_the_command_is_interrupted_goes_on_and_leaves_card_and_curves(llama: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.jsonl").write_text(tiny.jsonl(tiny.lines()))
    words = [
        "train", "kgp_llama", f"train.base=smollm2_135m:{llama}", "train.examples=lines.jsonl", "train.batch=2",
        "train.rank=4", "train.precision=float32", "train.held_out=2", "train.replies=2", "train.reply_tokens=4",
        "train.epochs=40", "train.save_minutes=0",
    ]  # fmt: skip
    process = started(["-c", COMMAND, *words], tmp_path)

    def begun() -> bool:
        found = list(tmp_path.glob("outputs/trained/kgp_llama/*/progress.jsonl"))
        return bool(found) and len(steps(found[0].parent)) >= 3

    wait_for(begun)
    process.send_signal(signal.SIGINT)
    told = process.communicate()[1]
    assert process.returncode == 130, told
    [folder] = tmp_path.glob("outputs/trained/kgp_llama/*/")
    reached = len(steps(folder))
    assert reached < 200
    assert list(folder.glob("checkpoints/*/whole.json"))
    process = started(["-c", COMMAND, *words], tmp_path)
    shown, told = process.communicate()
    assert process.returncode == 0, told
    assert shown.splitlines()[-1] == str(folder.relative_to(tmp_path))
    assert f"going on from step {reached}" in shown
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["base"], manifest["rank"], manifest["steps"]) == ("smollm2_135m", 4, 200)
    assert manifest["losses"]["last"] < manifest["losses"]["first"]
    assert "make" not in told
    for name in ("README.md", "report.html", "losses.svg", "losses.csv"):
        assert (folder / name).stat().st_size > 100
    assert len((folder / "losses.csv").read_text().splitlines()) == 1 + 1 + 200
    checked = subprocess.run(
        [sys.executable, "-m", "kgqa", "trained", "check", "kgp_llama"], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr
