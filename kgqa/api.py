"""Run kgqa from Python, with the same runs and folders as the command line.

Pass `key=value` of the command line as a keyword (`method="trace"`), or as a text if the key has dots
(`"method.beam=3"`). Replies in the call cache are shared with the command line. Errors are `kgqa.errors.KgqaError` with
the line that the command prints. All functions also work in a notebook with a running event loop.
"""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kgqa.artifacts.evaluation import Evaluation
from kgqa.artifacts.metrics import Estimate, Metrics
from kgqa.artifacts.run import FinishedRun, find_run, run_json
from kgqa.artifacts.sweep import (
    find_missing,
    find_places,
    find_repeats,
    find_rows,
    find_sweep_runs,
    list_cell_commands,
    name_baseline,
    refuse_repeated,
    select_runs,
    warn_of_changed,
)
from kgqa.artifacts.trace import TracedQuestion, find_question
from kgqa.config.building import check_value
from kgqa.config.composing import compose
from kgqa.config.overrides import SCORE_KEYS, Value, format_override, format_sweep, parse_override
from kgqa.datasets.in_memory import InMemoryDataset
from kgqa.errors import ConfigError, InvalidScores, nearest
from kgqa.experiment.check import check
from kgqa.experiment.compare import Comparison, compare_answers
from kgqa.experiment.composing import compose_evaluation, compose_experiment
from kgqa.experiment.evaluate import EvaluationRequest, check_has_judge, open_places
from kgqa.experiment.evaluate import evaluate as evaluate_answers
from kgqa.experiment.explain import Explanation
from kgqa.experiment.explain import explain as explain_run
from kgqa.experiment.plan import ComparisonPlan, Points, Probability, plan_comparison
from kgqa.experiment.run import answer_unscored, execute
from kgqa.experiment.session import Session
from kgqa.experiment.significance import check_alpha, read_metrics
from kgqa.methods.function import describe_function
from kgqa.report.columns import warn_of_missing
from kgqa.report.page import notebook_html
from kgqa.report.questions import Row, call_rows, prediction_rows
from kgqa.report.run_report import sections
from kgqa.report.section import markdown
from kgqa.runtime.display import Display, PlainLines, log_lines
from kgqa.scoring.comparison import ALPHA, DIFFERENCE, HOLM, POWER, check_correction
from kgqa.sweeps.grid import SweepRequest, run_sweep
from kgqa.types import Json
from kgqa.util.registry import load_registered
from kgqa.util.validators import Natural


@dataclass(frozen=True)
class Run:
    """A finished run. Its files are read when they are used."""

    folder: Path

    @property
    def metrics(self) -> Metrics:
        """Return `metrics.json`: scores in percent with intervals, costs, retrieval, the last judge."""
        return self._find_finished.metrics

    @property
    def scores(self) -> Mapping[str, Estimate]:
        """Return the scores by name in percent, each with its interval: `run.scores["f1"].mean`.

        "judge" is the accuracy by the last judge of the answers, if there is one.
        """
        judge = self.metrics.judge
        return {**self.metrics.scores, **({"judge": judge.accuracy} if judge else {})}

    @cached_property
    def predictions(self) -> list[Row]:
        """Return one row per question in the order of the data file: question, gold, answer, em, f1, cost, …

        Scores are in percent. All rows have the same keys, as `pandas.DataFrame(run.predictions)` requires.
        """
        return list(prediction_rows(self._find_finished))

    @cached_property
    def calls(self) -> list[Row]:
        """Return one row per call: role, request, reply, tokens, seconds. The order is that of finished questions."""
        return list(call_rows(self._find_finished))

    def frame(self) -> Any:
        """Return the predictions as a DataFrame of pandas, which must be installed."""
        try:
            from pandas import DataFrame
        except ImportError:
            raise ConfigError(
                "frame() needs the package pandas. Install it, or use run.predictions"
            ) from None
        return DataFrame(self.predictions)

    def compare(self, *others: Run | str | Path, **keys: Any) -> Comparison:
        """Compare this run with others on the same questions. The keys are those of `kgqa.compare`."""
        return compare(self, *others, **keys)

    @property
    def report(self) -> Path:
        """Return the path of the HTML report."""
        return self.folder / "report.html"

    def open(self) -> None:
        """Open the report in the browser."""
        webbrowser.open(self.report.absolute().as_uri())

    def question(self, id: str) -> TracedQuestion:  # noqa: A002 - the name it has everywhere
        """Return one question with its passages, its prediction and all its calls.

        Raises:
            ConfigError: the run has no such question.
        """
        return find_question(self.folder, id)

    @property
    def _find_finished(self) -> FinishedRun:
        return FinishedRun.read(self.folder)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    def __str__(self) -> str:
        run = self._find_finished
        return markdown(f"{run.title}: {self.folder}", sections(run)[:1])

    def _repr_html_(self) -> str:
        run = self._find_finished
        return notebook_html(f"{run.title}\n{self.report}", sections(run)[:1])


def run(
    *overrides: str,
    method: str | object = "",
    dataset: str | Iterable[Mapping[str, Json]] = "",
    display: Display | None = None,
    **keys: Value,
) -> Run:
    """Answer the questions of a dataset and score the answers, or return the finished run: `kgqa run`.

    Args:
        method: a name, a function or coroutine `answer(question, tools)`, an object that can be called so, an object
            with `uses` and `answer(question)`, a module of DSPy, or a runnable of LangGraph, see docs/AGENTS.md.
        dataset: a name, or records with `question`, `answer` or `answers`, and optionally `id`, `passages` (pairs of
            title and text) and `supporting_titles`.
        display: where progress is shown (default: lines on stderr; `kgqa.runtime.display.QUIET`: no output).

    Raises:
        UsageError: a key, a value or a file is invalid. No call was made.
        InvalidScores: more questions failed than `max_failure_rate` allows, or the judge gave no verdict. `kgqa.load`
            returns the run with its answers.
        EngineError: a model failed. Run it again to resume.
    """
    words, dataset_rows, function = _words(overrides, keys), None, None
    if isinstance(method, str):
        words += [format_override("method", method)] * bool(method)
    else:
        function = method
        words = [
            "method=function",
            *(format_override(key, value) for key, value in _function_keys(method)),
            *words,
        ]
    if isinstance(dataset, str):
        words += [format_override("dataset", dataset)] * bool(dataset)
    else:
        dataset_rows = InMemoryDataset.of_records(dataset)
    experiment = compose_experiment(words, given=dataset_rows, function=function)
    if experiment.settings.dry_run:
        raise ConfigError(
            "dry_run=true: a plan is a page for a terminal. Use kgqa run … dry_run=true"
        )
    lines = display or PlainLines(sys.stderr)
    with log_lines(lines), Session(experiment) as session:
        executed = execute(session, lines)
    folder = executed.run.folder
    if executed.failure:
        raise InvalidScores(f"{executed.failure}. Its answers: kgqa.load({str(folder)!r})")
    return Run(folder)


def load(run: str | Path) -> Any:
    """Load a finished run by its folder, the start of its name, or "last".

    The name or folder of a sweep returns the list of its finished runs, in the order of its cells. "SWEEP/METHOD" is
    the run of a method, or the list of its repeats.

    Raises:
        ConfigError: no run or several runs match, or no run of the sweep is finished.
        DataError: the run is not finished or damaged.
    """
    # no union of types: callers know whether they name a run or a sweep
    if folders := find_sweep_runs(str(run)):
        return [_open(folder) for folder in folders]
    return _open(find_run(str(run)))


def _open(folder: Path) -> Run:
    FinishedRun.read(folder)
    return Run(folder)


def runs(name: str = "", *, dataset: str = "", method: str = "", model: str = "") -> list[Row]:
    """Return one row per run in `outputs/`, newest first, also unfinished ones: `kgqa runs --json`.

    The keys are folder, dataset, method, model, written, ended, questions, failed, em and f1. Load a finished run with
    `kgqa.load(row["folder"])`.

    Args:
        name: only runs with this prefix in their name, or in a part of it after a slash, or those of a sweep.

    Raises:
        ConfigError: no run or sweep has this name. Other filters can match no run.
    """
    listed = select_runs(name, dataset=dataset, method=method, model=model)
    return [run_json(run) for run in listed]


def sweep(
    *overrides: str, name: str | None = None, display: Display | None = None, **keys: Value
) -> list[Run]:
    """Run every combination of values, the last key varying fastest: `kgqa run -m`.

    Pass several values of a key as a list (`method=["trace", "ircot"]`). Finished cells make no calls. Failed cells are
    omitted: their errors are in the report, `outputs/sweeps/NAME/report.html`.
    """
    words = [*overrides, *(format_sweep(key, value) for key, value in keys.items())]
    request = SweepRequest.of([*words, *([format_override("sweep.name", name)] if name else [])])
    if request.sweeper != "basic" or request.dry_run:
        raise ConfigError(
            "kgqa.sweep runs every combination. For searches and plans use kgqa run -m"
        )
    report = run_sweep(request, display or PlainLines(sys.stderr))
    return [Run(cell.run) for cell in report.cells if cell.run and cell.is_finished]


def plan(
    *runs: Run | str | Path,
    difference: float = DIFFERENCE,
    power: float = POWER,
    scoring: str | None = None,
    seed: int = 0,
    alpha: float = ALPHA,
    baseline: Run | str | Path | None = None,
    metrics: str | Sequence[str] = (),
) -> ComparisonPlan:
    """Return how many questions show a difference between runs like these, and their cost: `kgqa plan`.

    The result shows its table, also in a notebook. `pandas.DataFrame(result.rows)` has a row per metric and pair.

    Args:
        runs, scoring, seed, alpha, baseline, metrics: as for `kgqa.compare`.
        difference: the points to show.
        power: the probability to show them, above 0.05 and alpha, and below 1.

    Raises:
        ConfigError: a value is out of range, there is no such baseline or metric, or the runs share no question.
    """
    points = check_value("difference", difference, Points)
    probability = check_value("power", power, Probability)
    names = _names(runs)
    places = find_places(names)
    _warn_of_cells(places)
    return plan_comparison(
        [*find_rows(names).values()],
        points,
        probability,
        scoring,
        seed=check_value("seed", seed, Natural),
        alpha=check_alpha(alpha),
        baseline=name_baseline(_name(baseline), places),
        metrics=read_metrics(metrics),
        commands=list_cell_commands(names),
    )


def explain(
    run: Run | str | Path,
    baseline: Run | str | Path | None = None,
    *,
    scoring: str | None = None,
    seed: int = 0,
) -> Explanation:
    """Return the causes of wrong answers of a run, with a baseline on the questions of both: `kgqa explain`.

    The result shows its tables, also in a notebook. `pandas.DataFrame(result.rows)` has their rows.
    `result.write(run.folder)` writes explain.md as the command does.

    Raises:
        ConfigError: no run or several runs match, or the runs are the same or share no question.
    """
    folders, reference = find_repeats(str(_name(run))), _name(baseline)
    others = [] if reference is None else find_repeats(reference)
    refuse_repeated([*others, *folders])
    return explain_run(folders, others, scoring, seed=check_value("seed", seed, Natural))


def evaluate(
    *runs: Run | str | Path,
    labels: str | Path | None = None,
    checks: bool = False,
    display: Display | None = None,
    **keys: Value,
) -> list[Evaluation]:
    """Score finished runs or sweeps again, with own metrics and a judge: `kgqa evaluate`.

    Returns one evaluation per run with `.scores`, `.judge` (None without a judge), `.calibration` and `.warnings`. It
    is saved in the run's folder, with the verdicts, which are then in `run.predictions`.

    Args:
        labels: a CSV file of labels by hand that correct the accuracy by the judge.
        checks: also measure the judge's consistency, with two more calls per answer.
        keys: judge, scoring and others of `kgqa evaluate`. Keys with dots: `**{"roles.judge": "qwen3_8b"}`.

    Raises:
        ConfigError: a key or value is invalid, a run was trained on its questions, or the labels are of other answers.
        EngineError: the judge's model failed. Evaluate again to resume.
    """
    if not runs:
        raise ConfigError("kgqa.evaluate: name one or more runs or sweeps. List runs: kgqa.runs()")
    words = _words((), keys)
    for word in words:
        if (group := parse_override(word).group.partition(".")[0]) not in SCORE_KEYS:
            raise ConfigError(f"{word}: not a key of kgqa.evaluate. {nearest(group, SCORE_KEYS)}")
    if labels is not None or checks:
        check_has_judge("checks=True" if labels is None else f"labels={labels}", keys)
    experiment = compose_evaluation(words)
    places = [find_run(name, sweeps=True) for name in _names(runs)]
    lines = display or PlainLines(sys.stderr)
    request = EvaluationRequest(experiment, None if labels is None else Path(labels), checks)
    with log_lines(lines):
        evaluated = evaluate_answers(
            request, open_places(places, experiment.settings.scoring), lines
        )
    for each in evaluated:
        for text in each.evaluation.warnings:
            lines.line(f"warning: {each.evaluation.source}: {text}", alarm=True)
    return [each.evaluation for each in evaluated]


def compare(
    *runs: Run | str | Path,
    scoring: str | None = None,
    common: bool = False,
    seed: int = 0,
    difference: float = DIFFERENCE,
    alpha: float = ALPHA,
    correction: str = HOLM,
    baseline: Run | str | Path | None = None,
    metrics: str | Sequence[str] = (),
) -> Comparison:
    """Compare runs on the same questions with paired tests and flipped questions: `kgqa compare`.

    The result shows its tables, also in a notebook. `pandas.DataFrame(result.rows)` has a row per metric and pair.

    Args:
        runs: two or more runs, or a sweep. Repeats are compared by their means: "SWEEP/METHOD" names those of a method.
        scoring: the rules of EM and F1, such as hotpotqa (default: those of the runs).
        common: compare only the questions that all runs have.
        seed: of the permutation test.
        difference: the points for equality, and for which the number of questions is estimated.
        alpha: a difference with a lower corrected p-value is significant.
        correction: holm, bh (Benjamini and Hochberg) or none.
        baseline: compare only pairs with this run: a run, or its letter, its name in the heading, its method, its
            folder, or the number of its cell if there is one sweep.
        metrics: compare only these, such as "em,f1" or a list, own metrics or judge (default: all that have a test).

    Raises:
        ConfigError: a value is out of range, there is no such baseline or metric, or the runs cannot be compared.
    """
    names = _names(runs)
    places = find_places(names)
    _warn_of_cells(places)
    return compare_answers(
        find_rows(names),
        scoring,
        seed=check_value("seed", seed, Natural),
        in_all=common,
        difference=check_value("difference", difference, Points),
        alpha=check_alpha(alpha),
        correction=check_correction(correction),
        baseline=name_baseline(_name(baseline), places),
        metrics=read_metrics(metrics),
        missing=find_missing(places),
    )


def ask(
    question: str,
    passages: Sequence[tuple[str, str]],
    *overrides: str,
    display: Display | None = None,
    **keys: Value,
) -> TracedQuestion:
    """Answer one question over titled texts, `[(title, text), …]`, with any method.

    The result has `.prediction.answer` or `.prediction.error`, `.prediction.evidence_titles` and `.calls`. It is not
    scored. Only replies in the call cache are saved.

    Raises:
        UsageError: a key or a value is invalid, or the question or all passages are empty.
    """
    words, dataset_rows = _words(overrides, keys), InMemoryDataset.of(question, passages)
    if "scope" in compose(words)["method"]:
        # these passages, without an index on disk
        words.append("method.scope=own")
    lines = display or PlainLines(sys.stderr)
    with log_lines(lines), Session(compose_experiment(words, given=dataset_rows)) as session:
        check(session)
        (answered,) = answer_unscored(session, lines)
    return answered


def current_tools() -> Any:
    """Return the tools of the question that an agent of `kgqa.run(method=…)` answers, see docs/AGENTS.md.

    Raises:
        ConfigError: the calling thread answers no question.
    """
    return load_registered("current_tools")()


def _name(run: Run | str | Path | None) -> str | None:
    return None if run is None else str(run.folder if isinstance(run, Run) else run)


def _names(runs: Iterable[Run | str | Path]) -> list[str]:
    return [str(_name(run)) for run in runs]


def _warn_of_cells(places: Sequence[Path]) -> None:
    """Print warnings of cells that a sweep lacks, or whose questions another command changed."""
    for text in (*warn_of_missing(find_missing(places)), *warn_of_changed(places)):
        PlainLines(sys.stderr).line(f"warning: {text}", alarm=True)


def _function_keys(target: object) -> list[tuple[str, Value]]:
    """Return the keys that describe a function or an object as a method."""
    name, settings = describe_function(target)
    return [("method.function", name), *([("method.settings", settings)] if settings else [])]


def _words(overrides: Sequence[str], keys: dict[str, Value]) -> list[str]:
    return [*overrides, *(format_override(key, value) for key, value in keys.items())]
