"""KILL, TERM and Ctrl-C at any moment of a training, of `kgqa train` or of the trainer that it starts, once or several
times; then the command is given again.

It ends with the weights, to the byte, of a training that nobody stopped. All by real processes: torch, once loaded, is
not to be forked. The variable TRAINER names a Python that has torch, where this one has none.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

from kgqa.storage import locked
from scripts.attack.judging import DIED, FINE, INTERRUPTED, Harm
from scripts.attack.on_kills import CODES, SIGNALS
from scripts.attack.processes import ROOT
from scripts.attack.trial import Skipped, Trial

SOUND = "training"
TRAIN = (
    "train", "kgp_llama", "train.base=smollm2_135m:base", "train.examples=lines.jsonl", "train.batch=2",
    "train.rank=4", "train.precision=float32", "train.held_out=2", "train.replies=2", "train.reply_tokens=4",
    "train.epochs=6", "train.save_minutes=0",
)  # fmt: skip
MATERIAL = """
from pathlib import Path
from tests.training import tiny
Path("base").mkdir()
tiny.llama(Path("base"))
Path("lines.jsonl").write_text(tiny.jsonl(tiny.lines()))
"""
WEIGHTS = "outputs/trained/kgp_llama/*/adapter/adapter_model.safetensors"
SLOW = 600.0  # seconds that a training may take
OF_TRAINER = {kind: (FINE, DIED if kind is signal.SIGKILL else INTERRUPTED) for kind in SIGNALS}
POLL = 0.02  # seconds


def kills(trial: Trial) -> None:
    """The moments are drawn from the seconds that the training takes by itself."""
    python, trial.real = _with_torch(), True
    sound, seconds = _sound(trial, python)
    for name in ("base", "lines.jsonl"):
        (trial.work / name).symlink_to(sound / name)
    for _ in range(trial.dice.choice((1, 1, 2, 3))):
        _stopped(trial, python, seconds)
    if trial.kgqa(*TRAIN, allowed=(FINE,), limit=SLOW, python=python).code != FINE:
        return
    trial.kgqa("trained", "check", "kgp_llama", allowed=(FINE,), python=python)
    if _weights(trial.work) != _weights(sound):
        trial.found(Harm.SILENT, "the training was stopped and given again: other weights")


def _stopped(trial: Trial, python: str, seconds: float) -> None:
    kind, moment = trial.dice.choice(SIGNALS), trial.dice.uniform(0, 1.1 * seconds)
    if trial.dice.random() < 0.7:
        trial.done.append(f"{kind.name} {moment:.2f} s into the training")
        trial.kgqa(*TRAIN, allowed=CODES[kind], limit=SLOW, signalled=(kind, moment), python=python)
        return
    trial.done.append(f"{kind.name} to the trainer after {moment:.2f} s")
    running = trial.running(*TRAIN, limit=SLOW, python=python)
    while not running.ended():
        trainers = running.children()
        if trainers and time.monotonic() - running.began >= moment:
            os.kill(trainers[0], kind)
            break
        time.sleep(POLL)
    trial.judged(running, OF_TRAINER[kind])


def _sound(trial: Trial, python: str) -> tuple[Path, float]:
    """Where a training is that nobody stopped, made by the first try that wants it, and the seconds that it took."""
    folder = trial.sound.parent / SOUND
    took = folder / "seconds"
    with locked(trial.sound.parent / f".{SOUND}.lock"):
        if not took.exists():
            first = Trial(SOUND, 0, "", random.Random(0), folder, folder, real=True)
            for part in (first.terminal, first.work, first.home / "tmp"):
                part.mkdir(parents=True)
            subprocess.run([python, "-c", MATERIAL], cwd=first.work, env=_paths(), capture_output=True, check=True)
            ended = first.kgqa(*TRAIN, allowed=(FINE,), limit=SLOW, python=python)
            assert not first.findings, first.findings
            took.write_text(f"{ended.seconds}", encoding="utf-8")
    return folder / "work", float(took.read_text(encoding="utf-8"))


def _weights(work: Path) -> list[tuple[str, bytes]]:
    return [(str(file.relative_to(work)), file.read_bytes()) for file in sorted(work.glob(WEIGHTS))]


@cache
def _with_torch() -> str:
    """Raises Skipped where there is none."""
    for python in (sys.executable, os.environ.get("TRAINER", "")):
        words = [python, "-c", "import torch, transformers, peft, accelerate, tokenizers"]
        if Path(python).is_file() and subprocess.run(words, capture_output=True, check=False).returncode == 0:
            return str(Path(python).absolute())
    raise Skipped("no torch here: TRAINER=PYTHON names a Python that has it")


def _paths() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}
