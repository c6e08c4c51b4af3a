"""`kgqa train` with a launcher of Hydra's: trainers as jobs of submitit, here without Slurm."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kgqa.artefacts.choosing import TrainingChoice
from kgqa.artefacts.trained import kept_trainings
from kgqa.training.checkpoints import MARK
from kgqa.training.progress import PROGRESS
from tests.training import tiny

pytestmark = [pytest.mark.weights, pytest.mark.filterwarnings("ignore")]
ROOT = Path(__file__).parents[2]
JOBS = ("hydra/launcher=submitit_local", "hydra.launcher.timeout_min=30")
SLOW = 600  # seconds that a loaded machine may take


@pytest.fixture(autouse=True)
def _submitit() -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="needs kgqa[submitit]")


def words(llama: Path, *more: str) -> list[str]:
    Path("lines.jsonl").write_text(tiny.jsonl(tiny.lines()))
    return [
        "train", "kgp_llama", f"train.base=smollm2_135m:{llama}", "train.examples=lines.jsonl", "train.batch=2",
        "train.rank=4", "train.precision=float32", "train.held_out=2", "train.replies=0",
        "train.save_minutes=0", *more,
    ]  # fmt: skip


def started(given: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KGQA_TRAINED": ""}
    return subprocess.Popen(
        [sys.executable, "-m", "kgqa", *given], env=environment, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=SLOW)
    assert process.returncode == 0, said
    return said


def test_trainings_in_jobs_are_those_that_would_be_trained_here(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = words(llama, "-m", "train.epochs=1", "train.learning_rate=5e-2,1e-4")
    said = ended(started([*given, *JOBS]))
    (file,) = Path("outputs/sweeps").glob("train-kgp_llama-*/choice.json")
    record = TrainingChoice.read(file.parent)
    assert said.splitlines()[-1] == record.tried[0].folder
    assert f"{record.tried[1].settings}: step" in said  # what each trainer says, with its name
    bytes_of = {
        kept.name: (kept.folder / "adapter/adapter_model.safetensors").read_bytes() for kept in kept_trainings()
    }
    assert len(list((file.parent / "launcher").rglob("*_result.pkl"))) == 2
    assert "trained with these" not in ended(started([*given, *JOBS]))
    assert len(list((file.parent / "launcher").rglob("*_result.pkl"))) == 2, "no job for what is finished"
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    ended(started(words(llama, "-m", "train.epochs=1", "train.learning_rate=5e-2,1e-4")))
    assert TrainingChoice.read(file.parent).tried == record.tried
    assert bytes_of == {
        kept.name: (kept.folder / "adapter/adapter_model.safetensors").read_bytes() for kept in kept_trainings()
    }


def test_a_job_that_is_killed_is_told_and_the_same_command_goes_on(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [*words(llama, "train.epochs=40"), *JOBS]
    process = started(given)
    until = time.monotonic() + SLOW
    while not list(tmp_path.glob(f"outputs/trained/kgp_llama/*/checkpoints/*/{MARK}")):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.05)
    _kill_trainers(str(tmp_path))
    said, _ = process.communicate(timeout=SLOW)
    assert process.returncode == 2, said
    assert "the trainer died (signal 9" in said
    again = ended(started(given))
    (kept,) = kept_trainings()
    begun = [said["step"] for line in (kept.folder / PROGRESS).open() if (said := json.loads(line))["event"] == "begin"]
    assert begun[0] == 0
    assert begun[1] > 0
    assert again.splitlines()[-1] == str(kept.folder)


def _kill_trainers(folder: str) -> None:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            said = (process / "cmdline").read_bytes().decode()
        except OSError:
            continue
        if "kgqa.training.worker" in said and folder in said:
            os.kill(int(process.name), signal.SIGKILL)


def test_what_hydra_is_told_in_vain_is_refused(llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for word, why in (
        ("hydra/launcher=submitit_slrum", "no such launcher"),
        ("hydra.launcher.partition=gpu", "nothing reads it without hydra/launcher="),
        ("hydra/sweeper=optuna", "kgqa train takes hydra/launcher="),
    ):
        process = started([*words(llama), word])
        said, _ = process.communicate(timeout=SLOW)
        assert process.returncode == 2
        assert said.startswith(f"kgqa: {word}: ")
        assert why in said
        assert "\n" not in said.strip()
