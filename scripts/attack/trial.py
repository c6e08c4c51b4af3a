"""One try: a folder of its own, dice of its own, the commands that it runs, and what was found in it."""

from __future__ import annotations

import json
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.attack import judging, processes
from scripts.attack.judging import Finding, Harm
from scripts.attack.processes import Command, Ended

SECONDS = 60.0  # that a command of a try may take, on a machine that has other things to do
QUICK = ("engine=scripted", "ranker=lexical", "demonstrations_ranker=lexical")  # no weights


class Skipped(Exception):
    """This machine cannot do it; the message says why."""


@dataclass
class Trial:
    """`sound` is the folder of sound runs that is there to be copied; `real`: by `python -m kgqa`, not by a fork."""

    attack: str
    number: int
    seed: str
    dice: random.Random
    folder: Path
    sound: Path
    real: bool
    findings: list[Finding] = field(default_factory=list)
    commands: list[tuple[str, ...]] = field(default_factory=list)
    done: list[str] = field(default_factory=list)  # what was done to kgqa, in words
    began: float = field(default_factory=time.time)

    @property
    def terminal(self) -> Path:
        """What the commands print, a file a stream; beside the folder that they work in."""
        return self.folder / "terminal"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def kgqa(self, *argv: str, allowed: tuple[int, ...] = (judging.FINE, judging.TOLD), **how: Any) -> Ended:
        """Run it to its end and hold it to what no command may do; `how` as in `command`."""
        return self.judged(self.running(*argv, **how), allowed)

    def running(self, *argv: str, **how: Any) -> processes.Running:
        self.commands.append(argv)
        return processes.Running(self.command(argv, **how), self.terminal, real=self.real)

    def judged(self, running: processes.Running, allowed: tuple[int, ...]) -> Ended:
        ended = running.wait()
        self.findings.extend(judging.of_command(ended, allowed))
        for report in self.home.rglob("errors/kgqa-*.txt"):  # what kgqa keeps of an error that it did not foresee
            self.found(Harm.TRACEBACK, report.read_text(encoding="utf-8", errors="replace")[-1200:])
            report.unlink()
        return ended

    def command(
        self,
        argv: tuple[str, ...],
        environment: Mapping[str, str | None] | None = None,
        within: str = "",
        limit: float = SECONDS,
        signalled: tuple[signal.Signals, float] | None = None,
        file_limit: int | None = None,
        output: str = "file",
        program: str = "kgqa",
        python: str = sys.executable,
    ) -> Command:
        """`within`: the folder below `work` that it runs in; a variable that is None is not there; the rest as in
        `Command`."""
        own = {
            "OPENAI_API_KEY": judging.KEY,
            "HOME": str(self.home),
            "TMPDIR": str(self.home / "tmp"),
            "KGQA_DATA": str(self.home / "nothing"),
        }
        every = {name: value for name, value in {**own, **(environment or {})}.items() if value is not None}
        return Command(argv, self.work / within, every, limit, signalled, file_limit, output, program, python)

    def found(self, harm: Harm, what: str) -> None:
        self.findings.append(Finding(harm, what))

    def take(self, *names: str) -> None:
        """Copy sound runs and files, by their paths, to where the commands work."""
        for name in names:
            copy = shutil.copytree if (self.sound / name).is_dir() else shutil.copy2
            copy(self.sound / name, self.work / name)

    def sound_bytes(self, name: str) -> bytes:
        return (self.sound / name).read_bytes()

    def unchanged(self, name: str, why: str, below: str = "") -> None:
        """Whether this file, in the folder `below`, is what it is among the sound runs; anything else is a silent
        change."""
        file = self.work / below / name
        if not file.is_file():
            self.found(Harm.SILENT, f"{name} is not there: {why}")
        elif file.read_bytes() != self.sound_bytes(name):
            self.found(Harm.SILENT, f"{name} is another one: {why}")


@dataclass(frozen=True)
class Attack:
    """`tries` at SIZE=1; `slow`: seconds of a try on a machine at rest, so that long ones begin first."""

    name: str
    attempt: Callable[[Trial], None]
    tries: int
    slow: float = 0.4


def tried(attack: Attack, number: int, seed: str, folder: Path, sound: Path, *, real: bool) -> Trial:
    """Do it once, in `folder`, which must not be there. Findings are in what comes back.

    Raises:
        Skipped: this machine cannot do it.
    """
    trial = Trial(attack.name, number, seed, random.Random(f"{attack.name}/{number}/{seed}"), folder, sound, real)
    for part in (trial.terminal, trial.work, trial.home / "tmp"):
        part.mkdir(parents=True)
    trial.began = time.time()
    attack.attempt(trial)
    trial.findings.extend(judging.keys_in(folder, trial.began - 1))
    return trial


def record(trial: Trial, kept: Path, repeat: str) -> str:
    """A line of JSON that says what was found and how to see it again."""
    return json.dumps(
        {
            "attack": trial.attack,
            "number": trial.number,
            "done": "; ".join(trial.done),
            "commands": [["kgqa", *argv] for argv in trial.commands],
            "found": [{"harm": finding.harm.value, "what": finding.what[-1500:]} for finding in trial.findings],
            "kept": str(kept),
            "repeat": repeat,
        }
    )
