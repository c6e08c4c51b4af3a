"""Split the questions of `kgqa tune`: those that choose the values, and those that measure the choice."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kgqa.artifacts.tuning import TunedPart
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.experiment.session.experiment import Experiment
from kgqa.sweeps.metric import refuse_unknown_metric
from kgqa.types import Question

KEYS = ("metric", "dev", "test", "dev_ids", "dev_path", "dev_split", "seed", "sets", "name")


@dataclass(frozen=True)
class Tuning:
    """The keys under `tune.`"""

    metric: str  # see `refuse_unknown_metric`
    dev: int | None  # questions; None: all that are there
    test: int | None
    dev_ids: Path | None  # a file with an id a line, in place of a random choice
    dev_path: Path | None  # the data file of dev, where it has one of its own
    dev_split: str | None  # or of the data set
    seed: int  # of the random choice
    sets: tuple[str, ...]  # of demonstrations, one test run each
    name: str | None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Tuning:
        """Raise ConfigError naming the key."""
        for key, value in given.items():
            if key not in KEYS:
                raise ConfigError(f"tune.{key}={value}: unknown key; {nearest(key, KEYS)}")
        metric = given.get("metric", "")
        refuse_unknown_metric("tune.metric", metric)
        where = [f"tune.{key}" for key in ("dev_ids", "dev_path", "dev_split") if key in given]
        if len(where) > 1:
            raise ConfigError(f"{' and '.join(where)}: give one of them, each says which questions dev has")
        return cls(
            metric,
            _count(given, "dev"),
            _count(given, "test"),
            Path(given["dev_ids"]) if "dev_ids" in given else None,
            Path(given["dev_path"]) if "dev_path" in given else None,
            given.get("dev_split"),
            _count(given, "seed") or 0,
            tuple(name for name in given.get("sets", "").split(",") if name),
            given.get("name"),
        )


@dataclass(frozen=True)
class Part:
    """Some questions of one data file, in its order."""

    path: str | None  # the file, where it is not the data set's own
    sha256: str
    ids: tuple[str, ...]

    def record(self) -> TunedPart:
        """Return this part as `tune.json` stores it."""
        return TunedPart(file=self.path, sha256=self.sha256, questions=len(self.ids), ids=self.ids)


def parts(experiment: Experiment, tuning: Tuning) -> tuple[Part, Part]:
    """Return dev and test, without a question in common: neither an id nor a text.

    Chosen by a seeded shuffle of the file's ids, so the same seed gives the same dev questions whatever the size of
    test.

    Raises:
        ConfigError: too few questions, or dev is to be everything.
        DataError: `dev_ids` names an unknown question, or dev and test overlap.
    """
    own, dev_path, seed = list(experiment.dataset.questions()), tuning.dev_path, tuning.seed
    if tuning.dev_split is not None:
        dev_path = Experiment.of([*experiment.overrides, f"dataset.split={tuning.dev_split}"]).source.file
    if dev_path is not None:
        other = Experiment.of([*experiment.overrides, f"dataset.path='{dev_path}'"]).dataset
        questions = list(other.questions())
        dev = _part(str(dev_path), other.sha256, questions, _choose(questions, tuning.dev, seed))
        texts = {question.text for question in questions if question.id in dev.ids}
        rest = own
    else:
        if tuning.dev_ids is None and tuning.dev is None:
            raise ConfigError(
                "tune.dev: say how many questions dev has, or which: tune.dev_ids=FILE or tune.dev_path=FILE"
            )
        wanted = _list_values(tuning.dev_ids, own) if tuning.dev_ids else _choose(own, tuning.dev, seed)
        dev = _part(None, experiment.data_sha256, own, wanted)
        texts = {question.text for question in own if question.id in dev.ids}
        rest = [question for question in own if question.id not in dev.ids]
    shared = [question.id for question in rest if question.id in dev.ids or question.text in texts]
    if dev_path is not None and shared:
        raise DataError(
            f"tune.dev_path={dev_path}: question {shared[0]} is in dev and in test, as are {len(shared) - 1:,} others"
        )
    rest = [question for question in rest if question.id not in shared]
    return dev, _part(None, experiment.data_sha256, own, _choose(rest, tuning.test, seed, "tune.test"))


def _choose(questions: Sequence[Question], count: int | None, seed: int, key: str = "tune.dev") -> set[str]:
    ids = [question.id for question in questions]
    if not ids or (count is not None and count > len(ids)):
        raise ConfigError(f"{key}={count}: only {len(ids):,} questions are left for it")
    random.Random(seed).shuffle(ids)  # noqa: S311 - a choice to be repeated, no secret
    return set(ids[:count])


def _list_values(file: Path, questions: Sequence[Question]) -> set[str]:
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"tune.dev_ids={file}: {error}; give a file with a question's id a line") from error
    known = {question.id for question in questions}
    for number, line in enumerate(lines, start=1):
        if line.strip() and line.strip() not in known:
            hint = nearest(line.strip(), known) if len(known) < 100 else "see the data file for its ids"
            raise DataError(f"{file}:{number}: no question {line.strip()} in the data set; {hint}")
    return {line.strip() for line in lines if line.strip()}


def _part(path: str | None, sha256: str, questions: Sequence[Question], wanted: set[str]) -> Part:
    return Part(path, sha256, tuple(question.id for question in questions if question.id in wanted))


def _count(given: Mapping[str, str], key: str) -> int | None:
    value = given.get(key)
    if value is None:
        return None
    if not value.isdecimal() or (key != "seed" and int(value) < 1):
        raise ConfigError(f"tune.{key}={value}: must be a number from {0 if key == 'seed' else 1}")
    return int(value)
