"""Make the trained models that a table's cells lack, in order."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kgqa.artifacts.trained import Trained, find_trained, finished
from kgqa.config.overrides import merge_overrides, override_group, override_key
from kgqa.errors import DataError, UsageError
from kgqa.reproduce.artifacts import TRAINED, Step, artefact, gpu
from kgqa.reproduce.cells import split_cells
from kgqa.reproduce.gpu_hours import FORMULA, Taken, estimate_hours, in_all
from kgqa.reproduce.published import PublishedCell
from kgqa.runtime.display import QUIET
from kgqa.training.train.examples import prepare_examples
from kgqa.training.train.request import TrainRequest

VERBS = ("verify", "collect", "train", "bootstrap")  # commands whose own keys begin with their name
# keys of other commands as well; "data" is kgqa data verify
TAKES = {"train": ("train", "collect"), "bootstrap": ("bootstrap", "collect", "train"), "data": ("verify",)}
Run = Callable[[Sequence[str]], int]  # a command of kgqa; gives the exit code


@dataclass(frozen=True)
class Task:
    """`words`: a command without its kgqa."""

    words: tuple[str, ...]
    step: Step

    @classmethod
    def of(cls, step: Step, given: Sequence[str]) -> Task:
        """Return `given`: words for all commands; each takes its own keys and those of none, a training its examples'
        too, a
        bootstrapping those of both."""
        _, *words = shlex.split(step.command)
        theirs = TAKES.get(words[0], words[:1])
        taken_over = [word for word in given if override_group(word) not in VERBS or override_group(word) in theirs]
        own = [word for word in words if "=" in word and not word.startswith("-")]
        return cls((*(word for word in words if word not in own), *merge_overrides(own, taken_over)), step)

    @property
    def command(self) -> str:
        return shlex.join(("kgqa", *self.words))

    @cached_property
    def cost(self) -> Taken:
        return estimate_hours(self.step, self.words)

    def line(self) -> str:
        return f"{self.command} ({self.cost})"


@dataclass(frozen=True)
class Making:
    """Artefacts that have to be made, and what makes each, those first that others need."""

    tasks: Mapping[str, tuple[Task, ...]]

    @classmethod
    def of(cls, names: Iterable[str], given: Sequence[str] = ()) -> Making:
        """Return `given`: words that their commands take over.

        Raises:
            ConfigError: there is none of a name.
        """
        tasks: dict[str, tuple[Task, ...]] = {}
        for name in names:
            for each in _with_needed(name, anew=bool(given)):
                tasks.setdefault(each, tuple(Task.of(step, given) for step in artefact(each).makes))
        return cls(tasks)

    @property
    def distinct(self) -> list[Task]:
        """Return a command that makes several stands once."""
        return list({task.words: task for tasks in self.tasks.values() for task in tasks}.values())

    def cost(self) -> Taken:
        return in_all(task.cost for task in self.distinct)

    def lines(self) -> Iterator[str]:
        """Return the lines for a person."""
        told: set[tuple[str, ...]] = set()
        for name, tasks in self.tasks.items():
            new = [task for task in tasks if task.words not in told]
            told |= {task.words for task in tasks}
            if new:
                yield f"to be made: {name}: {artefact(name).what}"
            else:
                yield f"to be made: {name}: by the same"
            yield from (f"  {task.line()}" for task in new)
        if self.tasks:
            price = f"one {gpu().name} at {gpu().usd_an_hour:.2f} USD an hour"
            yield f"in all {self.cost()}; estimated: {price}, {FORMULA}"

    def make(self, run: Run) -> dict[str, Path]:
        """Run the commands; gives the folder of each artefact. What is finished is left as it is, the rest goes on.

        Raises:
            UsageError: a command did not come to its end.
        """
        ended: set[tuple[str, ...]] = set()
        made = {}
        for name, tasks in self.tasks.items():
            for task in tasks:
                if task.words not in ended and run(task.words):
                    raise UsageError(f"{task.command}: not done; see above, then give the same command again")
                ended.add(task.words)
            made[name] = _make(name, tasks[-1])
        return made


def lacking(cells: Iterable[PublishedCell], given: Sequence[str]) -> list[str]:
    """Return the artifacts that cells need and that are neither given nor replaced, each once."""
    overrides, trained = split_cells(given)
    named = {override_key(override) for override in overrides}
    needed = (name for cell in cells for key, name in cell.trained if key not in named)
    return list(dict.fromkeys(name for name in needed if name not in trained))


def those_here(names: Iterable[str]) -> dict[str, Path]:
    """Return the newest finished training of each name that has one."""
    return {name: found[0] for name in names if (found := [each for each in finished(name) if _sound(each)])}


def given_as(folders: Mapping[str, Path]) -> tuple[str, ...]:
    """Return folders as command-line arguments."""
    return tuple(f"{TRAINED}{name}={folder}" for name, folder in folders.items())


def _with_needed(name: str, *, anew: bool) -> Iterator[str]:
    for needed in artefact(name).needs:
        if anew or not those_here([needed]):
            yield from _with_needed(needed, anew=anew)
    yield name


def _make(name: str, last: Task) -> Path:
    """Of a training the folder of these very settings and examples: a newer one of the name may be of others."""
    if last.words[0] != "train":
        return find_trained(name)
    request = TrainRequest.of(last.words[1], last.words[2:])
    return request.folder(prepare_examples(request, QUIET))


def _sound(folder: Path) -> bool:
    """Return whether its manifest can be read; what cannot is as good as not there, where nobody named it."""
    try:
        Trained.read(folder)
    except DataError:
        return False
    return True
