"""A run's folder through any life: begun, killed at any write, resumed, asked fewer or more questions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kgqa.artifacts.metrics import METRICS
from kgqa.artifacts.predictions import PREDICTIONS, Prediction, question_ids
from kgqa.artifacts.run import IDENTITY
from kgqa.artifacts.trace import read_trace
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.session import identity
from kgqa.runtime.folder import RunFolder
from kgqa.types import Answer, Question
from kgqa.util import fs
from kgqa.util.fs import has_content, jsonl_text

QUESTIONS = [Question(f"q{number}", "Who?", ("Ann",)) for number in range(6)]
ASKED = st.one_of(
    st.integers(1, len(QUESTIONS)).map(lambda limit: tuple(range(limit))),  # limit=
    st.sets(st.integers(0, len(QUESTIONS) - 1), min_size=1).map(lambda ids: tuple(sorted(ids))),  # ids=
)
# counted from the last question: most kills hit what follows it, where files take each other's places
WRITES = st.integers(-len(QUESTIONS), 10)  # a life that is not cut short has fewer
ORDER = st.randoms(use_true_random=False)


class Killed(BaseException):
    """Nothing in the program may catch a kill."""


def prediction(question: Question) -> Prediction:
    return Prediction.of(question, Answer(f"answer to {question.id}"))


def whole(questions: Sequence[Question]) -> str:
    return jsonl_text(prediction(question).json() for question in questions)


@contextmanager
def killed_at(write: int, *, after: bool) -> Iterator[None]:
    """Killed at the write of this number, before or after the disk has it, and nothing is written from then on.

    Making, renaming, removing and appending count.
    """
    left = write

    def deadly(real: Any) -> Any:
        def counted(*given: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left >= 0:
                return real(*given, **named)
            if left == -1 and after:
                with suppress(OSError):
                    real(*given, **named)
            if left == -1:
                raise Killed
            return None

        return counted

    with (
        patch.object(Path, "replace", deadly(Path.replace)),
        patch.object(Path, "unlink", deadly(Path.unlink)),
        patch.object(fs, "create_private", deadly(fs.create_private)),
        patch.object(RunFolder, "record", deadly(RunFolder.record)),
    ):
        yield


def hurried() -> ExitStack:
    """Until it is closed nothing waits for the disk, as only a power cut would show."""
    patched = ExitStack()
    patched.enter_context(patch.object(fs, "_to_disk", lambda _: None))
    return patched


class Life(RuleBasedStateMachine):
    @initialize(chosen=st.booleans())
    def begin(self, chosen: bool) -> None:
        """chosen: by `out=`, where no other place may be taken."""
        self.hurried = hurried()
        self.root = Path(mkdtemp())
        self.place, self.chosen = self.root / "run", chosen
        self.committed: dict[Path, set[str]] = {}  # by folder
        self.ended: dict[Path, tuple[int, ...]] = {}  # what was asked of each that ended last

    def teardown(self) -> None:
        self.hurried.close()
        shutil.rmtree(self.root)

    @rule(asked=ASKED, order=ORDER, write=WRITES, after=st.booleans())
    def killed(self, asked: tuple[int, ...], order: Any, write: int, after: bool) -> None:
        try:
            with killed_at(max(0, len(asked) + write), after=after):
                self._run(asked, order)
        except Killed:
            pass

    @rule(asked=ASKED, order=ORDER)
    def run_to_its_end(self, asked: tuple[int, ...], order: Any) -> None:
        """Whatever was before, the same command ends with the same bytes."""
        folder = self._run(asked, order)
        if folder is None:
            return
        assert (folder / PREDICTIONS).read_text() == whole([QUESTIONS[number] for number in asked])
        assert sorted(traced.question.id for traced in read_trace(folder)) == [f"q{number}" for number in asked]
        assert not list(folder.glob("*.partial.*"))
        assert json.loads((folder / IDENTITY).read_text()) == {"seed": 0}
        assert self._place(asked) == folder

    @rule(asked=ASKED, more=ASKED, order=ORDER, write=WRITES.map(abs), after=st.booleans())
    def killed_as_it_is_enlarged(
        self, asked: tuple[int, ...], more: tuple[int, ...], order: Any, write: int, after: bool
    ) -> None:
        self.run_to_its_end(asked, order)
        held = (int(name[1:]) for name in answered(self.place))
        self.killed(tuple(sorted({*held, *more})), order, write, after)

    @rule(asked=ASKED)
    def another_configuration_is_refused(self, asked: tuple[int, ...]) -> None:
        place = self._place(asked)
        if place is not None and has_content(place / IDENTITY):
            before = contents(place)
            with pytest.raises(ConfigError, match=r"belongs to another configuration; it differs in seed \(0 → 1\)"):
                RunFolder(place, {"seed": 1})
            assert contents(place) == before

    @rule()
    def a_full_disk_left_an_empty_identity(self) -> None:
        for file in self.root.glob(f"*/{IDENTITY}"):
            file.write_bytes(b"")

    @invariant()
    def nothing_committed_is_lost(self) -> None:
        for folder in self.root.iterdir():
            kept = answered(folder)
            assert kept >= self.committed.get(folder, set())
            self.committed[folder] = kept

    @invariant()
    def a_run_that_ended_is_whole(self) -> None:
        for folder in self.root.iterdir():
            if (folder / METRICS).is_file():
                asked = tuple(int(line[1:]) for line in question_ids(folder))
                assert (folder / PREDICTIONS).read_text() == whole([QUESTIONS[number] for number in asked])
                assert json.loads((folder / METRICS).read_text())["questions"] == len(asked)  # not an earlier run's
                assert len(asked) >= len(self.ended.get(folder, ()))
                self.ended[folder] = asked

    def _place(self, asked: tuple[int, ...]) -> Path | None:
        """None: refused, since the place was chosen and holds more."""
        keys = SimpleNamespace(limit=len(asked), ids=None, name=None, out=str(self.place) if self.chosen else None)
        questions = [QUESTIONS[number] for number in asked]
        experiment = SimpleNamespace(settings=keys, questions=questions, question_ids=[each.id for each in questions])
        session: Any = SimpleNamespace(experiment=experiment)
        with patch.object(identity, "_default_folder", lambda _: self.place):
            if self.chosen and answered(self.place) - {question.id for question in experiment.questions}:
                with pytest.raises(ConfigError, match="would replace them"):
                    identity.run_folder(session)
                return None
            return identity.run_folder(session)

    def _run(self, asked: tuple[int, ...], order: Any) -> Path | None:
        """As `execute` does it, with questions that end in any order."""
        if (place := self._place(asked)) is None:
            return None
        questions = [QUESTIONS[number] for number in asked]
        folder = RunFolder(place, {"seed": 0})
        try:
            with pytest.raises(ConfigError, match="another kgqa process is writing this run"):
                RunFolder(place, {"seed": 0})
            for question in order.sample(questions, len(questions)):
                folder.record(question, prediction(question), [])
            folder.finish(map(prediction, questions))
            folder.write_json(METRICS, {"questions": len(questions)})
        finally:
            folder.close()  # the system lets go of a killed process's lock
        return place


def contents(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def answered(folder: Path) -> set[str]:
    try:
        return set(question_ids(folder))
    except DataError:
        return set()


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=80, stateful_step_count=12, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", range(-4, 12))
def test_killed_enlargement_keeps_metrics_and_predictions_together(write: int, after: bool) -> None:
    life, order = Life(), Random(0)
    life.begin(chosen=False)
    life.run_to_its_end((0, 1), order)
    life.killed((0, 1, 2, 3), order, write, after)
    life.nothing_committed_is_lost()
    life.a_run_that_ended_is_whole()
    life.run_to_its_end((0, 1, 2, 3), order)
    life.teardown()
