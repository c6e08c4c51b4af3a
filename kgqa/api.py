"""kgqa from Python: the same runs as on the command line, as values.

What is written there as `key=value` is a keyword here (`method="trace"`), or a word where a key has dots
(`"method.beam=3"`). Runs lie in the same folders, so that what a terminal answered is not asked again. A mistake raises
the `kgqa.errors.KgqaError` whose one line the command would print. No event loop is started, so a running one, such as
a notebook's, is no matter.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kgqa.artefacts.metrics import Metrics
from kgqa.artefacts.run import FinishedRun
from kgqa.artefacts.runs import find_run
from kgqa.artefacts.trace import TracedQuestion, read_trace
from kgqa.datasets.given import Given
from kgqa.errors import ConfigError, nearest
from kgqa.experiment.config.composing import compose
from kgqa.experiment.config.overrides import Value, spelt, swept
from kgqa.experiment.evaluate.comparison import Comparison, ComparisonRequest, compare_answers
from kgqa.experiment.run.asking import answer_given
from kgqa.experiment.run.checking import check
from kgqa.experiment.run.executing import execute
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.session import Session
from kgqa.experiment.sweep.grid import Grid, run_sweep
from kgqa.experiment.sweep.request import SweepRequest
from kgqa.report.card import card
from kgqa.report.tables import Row, call_rows, prediction_rows
from kgqa.runtime.display import Display, PlainLines, log_lines

DIFFERENCE = 2.0  # in points: how many questions it would take to show it, as `kgqa compare` says


@dataclass(frozen=True)
class Run:
    """A finished run's folder, read when something is asked of it."""

    folder: Path

    @property
    def metrics(self) -> Metrics:
        """`metrics.json`: scores in percent with their intervals, costs, retrieval, the judge."""
        return self._finished.metrics

    @cached_property
    def predictions(self) -> list[Row]:
        """A row a question, in the data file's order: question, gold, answer, em, f1 (shares in 0..1), cost, …

        Rows have the same keys, so that `pandas.DataFrame(run.predictions)` takes them.
        """
        return list(prediction_rows(self._finished))

    @cached_property
    def calls(self) -> list[Row]:
        """A row a call, in the order in which questions ended: who asked, what, the reply, tokens, seconds."""
        return list(call_rows(self._finished))

    @property
    def report(self) -> Path:
        """The page with all of it."""
        return self.folder / "report.html"

    def question(self, id: str) -> TracedQuestion:  # noqa: A002 - the name it has everywhere
        """One question with its passages, its prediction and every call that led there.

        Raises:
            ConfigError: the run has no such question.
        """
        known = []
        for traced in read_trace(self.folder):
            if traced.question.id == id:
                return traced
            known.append(traced.question.id)
        raise ConfigError(f"{id}: no such question in {self.folder}; {nearest(id, known)}")

    @cached_property
    def _finished(self) -> FinishedRun:
        return FinishedRun.read(self.folder)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    def _repr_html_(self) -> str:
        return card(self._finished)


def run(*overrides: str, display: Display | None = None, **keys: Value) -> Run:
    """Answer a dataset's questions with a method and score them, or find that this was done: `kgqa run`.

    `display`: where it says what it does; without one, lines on stderr (`kgqa.runtime.display.QUIET`: nothing).

    Raises:
        UsageError: something is wrong with a key, a value or a file; nothing was asked.
        EngineError: a model went away; run it again to go on.
    """
    experiment = Experiment.of(_words(overrides, keys))
    if experiment.settings.dry_run:
        raise ConfigError("dry_run=true: a plan is a page for a terminal; kgqa run … dry_run=true")
    shown = display or PlainLines(sys.stderr)
    with log_lines(shown), Session(experiment) as session:
        check(session)
        return Run(execute(session, shown).folder)


def load(run: str | Path) -> Run:
    """A finished run: its folder, the beginning of its name, or "last".

    Raises:
        ConfigError: there is none, or there are several.
        DataError: it has not ended, or is damaged.
    """
    folder = find_run(str(run))
    FinishedRun.read(folder)
    return Run(folder)


def sweep(*overrides: str, name: str | None = None, display: Display | None = None, **keys: Value) -> list[Run]:
    """One run for every combination of values, the last key varying fastest: `kgqa run -m`.

    A list of values sweeps (`method=["trace", "ircot"]`); of finished cells nothing is asked. Cells that failed are
    left out: their errors are in the sweep's report, `outputs/sweeps/NAME/report.html`.
    """
    words = [*overrides, *(swept(key, value) for key, value in keys.items())]
    request = SweepRequest.of([*words, *([spelt("sweep.name", name)] if name else [])])
    planned = Grid.of(request)
    if request.sweeper != "basic" or planned.dry_run:
        raise ConfigError("kgqa.sweep runs every combination; searches and plans: kgqa run -m")
    ended = run_sweep(planned, request, display or PlainLines(sys.stderr))
    return [Run(result.run) for result in ended.results if result.run and result.status in ("done", "skipped")]


def compare(*runs: Run | str | Path, profile: str | None = None, in_all: bool = False, seed: int = 0) -> Comparison:
    """Who wins where on the same questions, with paired tests; the questions that flipped: `kgqa compare`.

    in_all: only the questions that all runs have. In a notebook it shows itself; `.sections` are its tables.
    """
    if len(runs) < 2:
        raise ConfigError(f"kgqa.compare: {len(runs)} run given; it takes two or more")
    folders = tuple(run.folder if isinstance(run, Run) else find_run(str(run)) for run in runs)
    return compare_answers(ComparisonRequest(folders, profile, seed, DIFFERENCE, in_all=in_all, flips=None))


def ask(
    question: str, passages: Sequence[tuple[str, str]], *overrides: str, display: Display | None = None, **keys: Value
) -> TracedQuestion:
    """Answer one question over titled texts, `[(title, text), …]`, with any method: what it answered, and how.

    `.prediction.answer`, or `.prediction.error` where the method failed; `.prediction.evidence_titles`; `.calls`.
    Nothing is scored, and nothing kept but replies in the call cache and triples.

    Raises:
        UsageError: something is wrong with a key or a value, or there is nothing to ask.
    """
    words, given = _words(overrides, keys), Given.of(question, passages)
    if "scope" in compose(words)["method"]:
        words.append("method.scope=own")  # these passages, without an index on disk
    shown = display or PlainLines(sys.stderr)
    with log_lines(shown), Session(Experiment.of(words, given=given)) as session:
        check(session)
        (answered,) = answer_given(session, shown)
    return answered


def _words(overrides: Sequence[str], keys: dict[str, Value]) -> list[str]:
    return [*overrides, *(spelt(key, value) for key, value in keys.items())]
