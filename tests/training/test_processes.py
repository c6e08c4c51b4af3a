"""Trainers in processes of their own: killed, interrupted, on a full disk, several at once; and the commands above."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.schema import read
from kgqa.artifacts.trained import Trained
from kgqa.cli.main import main
from kgqa.extras.training.trainers.process import TrainTask, run_worker
from tests.training import tiny
from tests.training.tiny import LORA, losses, task, train

pytestmark = pytest.mark.filterwarnings("ignore")
ROOT = Path(__file__).parents[2]
# seconds that a loaded machine may need
SLOW = 600
COMMAND = """
import sys
from kgqa.cli.main import main
code = main(sys.argv[1:])
assert not {"torch", "transformers", "peft"} & set(sys.modules)
sys.exit(code)
"""


def start(command: list[str], folder: Path, **options: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KGQA_TRAINED": ""}
    # a limit on file size would also cut compiled modules, which Python stores unchecked for all later processes
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    return subprocess.Popen(
        [sys.executable, *command], cwd=folder, env=environment, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, **options,
    )  # fmt: skip


def weights(folder: Path) -> bytes:
    return (folder / "adapter/adapter_model.safetensors").read_bytes()


def test_full_disk_is_one_line_and_spares_checkpoints(
    llama: Path, trained: Path, tmp_path: Path
) -> None:
    """A limit on file size is refused by the kernel like a full disk. It is less than the adapter's matrices."""
    settings = task(tmp_path, "LoraTraining", llama, LORA)
    assert tiny.train_step(settings) == 130
    process = start(
        ["-m", "kgqa.extras.training.trainers.worker", str(settings)], tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, 8_000)),
    )  # fmt: skip
    out, errors = process.communicate()
    assert process.returncode == 2, errors
    assert "Free some space" in json.loads(out.splitlines()[-1])["text"]
    assert train(settings) == 0
    assert weights(tmp_path) == weights(trained)


def test_two_processes_equal_one_with_a_double_batch(llama: Path, tmp_path: Path) -> None:
    recipe = {**LORA, "dropout": 0.0, "epochs": 1, "replies": 0}
    both, one = tmp_path / "both", tmp_path / "one"
    settings = task(both, "LoraTraining", llama, {**recipe, "processes": 2})
    run_worker(read(TrainTask, settings), 2, lambda event: None)
    assert train(task(one, "LoraTraining", llama, {**recipe, "batch_per_device": 2})) == 0
    assert losses(both) == pytest.approx(losses(one), abs=1e-4)
    assert json.loads((both / "outcome.json").read_text())["processes"] == 2
    assert len(weights(both)) == len(weights(one))


def test_interrupted_training_resumes_and_is_complete(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(here := tmp_path)
    monkeypatch.delenv("KGQA_TRAINED", raising=False)
    Path("lines.jsonl").write_text(tiny.jsonl(tiny.lines()))
    words = [
        "train", "kgp_llama", f"train.base=smollm2_135m:{llama}", "train.examples=lines.jsonl", "train.batch_size=2",
        "train.lora_r=4", "train.precision=float32", "train.eval_fraction=2", "train.replies=2",
        "train.reply_tokens=4", "train.epochs=20", "train.save_minutes=0",
    ]  # fmt: skip
    process = start(["-c", COMMAND, *words], here)
    until = time.monotonic() + SLOW
    while not [
        *here.glob("outputs/trained/kgp_llama/*/checkpoints/checkpoint-*/trainer_state.json")
    ]:
        assert time.monotonic() < until
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    errors = process.communicate()[1]
    assert process.returncode == 130, errors
    process = start(["-c", COMMAND, *words], here)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    [folder] = here.glob("outputs/trained/kgp_llama/*/")
    assert output.splitlines()[-1] == str(folder.relative_to(here))
    assert "continuing from step" in output
    manifest = Trained.read(folder)
    assert (manifest.base, manifest.rank, manifest.steps) == ("smollm2_135m", 4, 100)
    assert (manifest.losses.last or 9) < (manifest.losses.first or 0)
    for name in ("README.md", "report.html", "losses.svg"):
        assert (folder / name).stat().st_size > 100
    assert main(["models", "trained", "kgp_llama"]) == 0
    assert main(["models", "trained", "kgp_llama", "--gguf", "--out", "adapter.gguf"]) == 0
    assert Path("adapter.gguf").read_bytes().startswith(b"GGUF")
