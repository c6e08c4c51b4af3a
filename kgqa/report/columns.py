"""The scores and costs of runs that sweeps and the viewer show next to each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from kgqa.artifacts.metrics import UNDEFINED, Estimate, JudgeMetrics, Metrics
from kgqa.artifacts.run import DEPLOYMENT
from kgqa.artifacts.sweep import REPEAT, SET, Cell
from kgqa.config.keys import load_node
from kgqa.config.run_keys import RunSettings
from kgqa.config.targets import import_target
from kgqa.errors import ConfigError
from kgqa.scoring.comparison import mark_direction
from kgqa.scoring.questions import METRICS, show_score
from kgqa.util.settings import declared_fields
from kgqa.util.text import pluralize, score_text

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)
# between the settings in the name of a run
SEPARATOR = " · "
MIXED_JUDGES = "Judge accuracy is by different judges, and neither ranked nor tested"
JUDGE_ACCURACY, CORRECTED_ACCURACY = "judge accuracy", "judge accuracy, corrected"
# keys with values that need no key next to them
_SELF_EXPLANATORY = ("method", "model", "dataset", "retriever")
_NAMES = {
    SET: "few-shot set",
    "method.few_shot.sample": "few-shot set",
    DEPLOYMENT: "server",
}
_EXPLANATIONS = {
    REPEAT: "repeat 2: the second run with the same settings, but another random seed or other few-shot examples "
    "(repeats=).",
    "few-shot set": "few-shot set 2: the second random selection of few-shot examples (method.demonstration_set=2).",
}
# settings that describe no run
_NO_DIFFERENCE = ("run_name", "output_dir")
_ABOUT_MODEL = "model.about."
_ADDRESS = re.compile(r"https?://(.+?)(/v1)?/?")


@dataclass(frozen=True)
class Measured:
    """A figure of a run. Only scores have an interval.

    fewer: the questions of a score, if they are fewer than those of the run.
    """

    value: float
    low: float | None = None
    high: float | None = None
    of: int | None = None  # the total of a count
    # after the point. None: three significant digits
    digits: int | None = None
    fewer: int | None = None

    @property
    def brief(self) -> str:
        """Return a score with its interval in whole points, and other figures as they are."""
        if self.low is None or self.high is None:
            return str(self)
        low, high = score_text(self.low, digits=0), score_text(self.high, digits=0)
        return f"{count_fewer(self.value, self.fewer)} [{low}, {high}]"

    def __str__(self) -> str:
        if self.low is not None and self.high is not None:
            ends = f"[{score_text(self.low)}, {score_text(self.high)}]"
            return f"{count_fewer(self.value, self.fewer)} {ends}"
        if self.of is not None:
            return f"{self.value:,.0f} of {self.of:,}"
        if self.digits is None:
            return f"{self.value:,.0f}" if self.value >= 100 else f"{self.value:.3g}"
        return f"{self.value:,.{self.digits}f}"


def count_fewer(mean: float, fewer: int | None) -> str:
    """Return a score, with its number of questions if they are fewer than those of the run."""
    return score_text(mean) if fewer is None else f"{score_text(mean)} of {fewer:,}"


def measure_score(score: Estimate, questions: int) -> Measured | None:
    """Return a score of a run with this number of questions, None if it is undefined."""
    if score.mean is None:
        return None
    fewer = score.n if score.n < questions else None
    return Measured(score.mean, score.low, score.high, fewer=fewer)


@dataclass(frozen=True)
class Column:
    """`score`: the name of the metric, or "judge". None: a cost. `brief`: the label on a terminal, "" if not there."""

    label: str
    measure: Callable[[Metrics], Measured | None]
    score: str | None = None
    lower_is_better: bool = False
    brief: str = ""

    @property
    def title(self) -> str:
        return mark_direction(self.label, lower_is_better=self.lower_is_better)


def columns() -> list[Column]:
    """Return the columns: the scores of `METRICS`, the judge's, costs."""
    scores = [
        Column(
            m.label, partial(_score, m.name), m.name, m.lower_is_better, m.title if m.tested else ""
        )
        for m in METRICS.values()
        if m.column
    ]
    return [*scores, *_OTHERS]


def name_by_settings(values: Mapping[str, str]) -> str:
    """Return a short name such as "trace · minilm · beam 5 · no selector". Settings without a value are omitted."""
    parts = []
    for key, value in values.items():
        name = _NAMES.get(key) or key.rpartition(".")[2].replace("_", " ")
        switches = {"true": name, "false": f"no {name}"}
        if value != "null":
            parts.append(
                value if key in _SELF_EXPLANATORY else switches.get(value, f"{name} {value}")
            )
    return SEPARATOR.join(parts)


def shorten_address(text: str) -> str:
    """Return the host and port of a server's address, and other texts as they are."""
    parts = _ADDRESS.fullmatch(text)
    return parts[1] if parts else text


def warn_of_missing(cells: Iterable[Cell]) -> list[str]:
    """Return a line with the reason for each cell of a sweep without results."""
    return [
        f"cell {cell.number} ({cell.name}) has no results and is omitted: "
        f"{cell.status}{f' ({cell.error})' if cell.error else ''}"
        for cell in cells
    ]


def list_missing(cells: Iterable[Cell]) -> str:
    """Return a sentence on the cells of a sweep without results."""
    named = ", ".join(f"cell {cell.number} ({cell.name})" for cell in cells)
    return f"Without results and omitted: {named}."


def describe_costs(rows: Iterable[tuple[str, Metrics]]) -> list[str]:
    """Return notes on the costs of rows: that they are per answered question, and what they leave out.

    They leave out the calls that extracted triples before the questions, because runs share these.
    rows: the name and the metrics of each run of a table.
    """
    return join_names(
        (name, text)
        for name, metrics in rows
        for text in (note_failed(metrics), note_extraction(metrics))
        if text
    )


def note_failed(metrics: Metrics) -> str:
    """Return a note on the costs of a run with failed questions, or "". It is the same for all such runs."""
    text = "costs are per answered question, and contain the calls of failed ones."
    return text if metrics.failed else ""


def note_extraction(metrics: Metrics) -> str:
    """Return which calls the costs of a run leave out, or ""."""
    cost = metrics.cost.extraction
    if not (cost and cost.calls):
        return ""
    figures = f"{pluralize(cost.calls, 'call')}, {cost.prompt_tokens + cost.output_tokens:,} tokens"
    return f"costs without the extraction of triples ({figures}, shared by runs)."


def group_texts(texts: Iterable[tuple[T, Key]]) -> dict[Key, list[T]]:
    """Return each text (or another key) once, with what has it: rows, cells or runs."""
    groups: dict[Key, dict[T, None]] = {}
    for owner, text in texts:
        groups.setdefault(text, {})[owner] = None
    return {text: list(owners) for text, owners in groups.items()}


def group_judges(judged: Iterable[tuple[T, JudgeMetrics | None]]) -> dict[str, list[T]]:
    """Return each judge with its models, and the runs (or their names) that it judged.

    A judge's settings, such as its prompt, are a hash in its identity. It is shown if the names do not separate judges.
    """
    names = dict[str, str]()
    owners = list[tuple[T, str]]()
    for owner, judge in judged:
        if judge:
            name = " ".join((judge.judge, *judge.models.values()))
            owners.append((owner, judge.identity or name))
            names[judge.identity or name] = name
    is_unique = len({*names.values()}) == len(names)
    groups = group_texts(owners)
    return {names[each] if is_unique else each: groups[each] for each in groups}


def list_judges(judges: Mapping[str, Sequence[str]], noun: str = "") -> str:
    """Return the judges of `group_judges`, each with what it judged: "em (A, B), kgp (C)"."""
    return ", ".join(f"{name} ({noun}{', '.join(owners)})" for name, owners in judges.items())


def join_names(sentences: Iterable[tuple[str, str]]) -> list[str]:
    """Return each sentence once, after the names of the rows that have it."""
    return [f"{', '.join(names)}: {sentence}" for sentence, names in group_texts(sentences).items()]


def find_differing(runs: Sequence[Mapping[str, str]], *, is_minor: bool = False) -> list[str]:
    """Return the keys that all runs have, with several values.

    is_minor: return only settings that change no file of a run, such as `engine.concurrency`. Otherwise they are
    omitted. Without the settings of a component whose name differs, facts about models, and settings that follow
    another one: of repeated runs only `repeat` is listed, not the few-shot examples that it changes.
    """
    shared = [key for key in runs[0] if all(key in run for run in runs)] if runs else []
    columns = {key: [run[key] for run in runs] for key in shared if key not in _NO_DIFFERENCE}
    several = {
        key: values
        for key, values in columns.items()
        if len(set(values)) > 1 and can_change_files(key, runs[0].get("engine")) != is_minor
    }
    keys: list[str] = []
    for key, values in several.items():
        group = key.partition(".")[0]
        is_listed = key != group and group in several
        # method.few_shot.sample follows method.demonstration_set, which follows repeat
        can_follow = key in (SET, "method.seed") or key.count(".") > 1
        follows = can_follow and any(several[other] == values for other in keys)
        if not (is_listed or follows or key.startswith(_ABOUT_MODEL)):
            keys.append(key)
    return keys


def can_change_files(key: str, engine: str | None) -> bool:
    """Return whether a setting can change a file of runs. `engine.concurrency` only changes how long they take."""
    group, _, name = key.rpartition(".")
    kind: object = RunSettings
    if group:
        if group != "engine" or engine is None:
            return True
        try:
            kind = import_target(str(load_node("engine", engine)["_target_"]), "engine")
        except (ConfigError, KeyError):
            # the user removed the engine after the run
            return True
    fields = declared_fields(kind)
    return name not in fields or fields[name].can_change_files


def choose_keys(keys: Sequence[str], runs: Sequence[Mapping[str, str]], count: int) -> list[str]:
    """Return `count` of the keys by which runs differ, or more if these do not separate all runs.

    The key that separates most runs is first.
    """
    separating = list[str]()
    rest, groups = list(keys), 1
    while rest:
        sizes = {
            key: len({tuple(run[each] for each in (*separating, key)) for run in runs})
            for key in rest
        }
        best = max(rest, key=lambda key: sizes[key])
        if sizes[best] == groups:
            break
        groups = sizes[best]
        separating.append(best)
        rest.remove(best)
    return [*separating, *rest[: max(0, count - len(separating))]]


def explain_names(names: Iterable[str]) -> list[str]:
    """Return a sentence for each word in the names of runs that a new user cannot know."""
    text = SEPARATOR.join(names)
    return [sentence for word, sentence in _EXPLANATIONS.items() if f"{SEPARATOR}{word} " in text]


def tokens(metrics: Metrics) -> Measured | None:
    return _per_question(
        metrics, metrics.cost.method.prompt_tokens + metrics.cost.method.output_tokens, 0
    )


def dollars(metrics: Metrics) -> Measured | None:
    return _per_question(metrics, metrics.cost.method.usd)


def _score(name: str, metrics: Metrics) -> Measured | None:
    return measure_score(show_score(metrics, name), metrics.questions)


def _per_question(
    metrics: Metrics, total: float | None, digits: int | None = None
) -> Measured | None:
    """Return a cost per answered question, with the calls of failed ones. A run that fails must not look cheaper."""
    answered = metrics.answered_questions
    return None if total is None or not answered else Measured(total / answered, digits=digits)


_CALLS = Column(
    "calls / question",
    lambda metrics: _per_question(metrics, metrics.cost.method.calls, 1),
    brief="calls",
)
_TOKENS = Column("tokens / question", tokens, brief="tokens")
_SECONDS = Column(
    "model s / question", lambda metrics: _per_question(metrics, metrics.cost.method.seconds, 2)
)
_DOLLARS = Column("USD / question", dollars, brief="USD")
# by the name in metrics= of a table for a paper
COSTS = {"calls": _CALLS, "tokens": _TOKENS, "seconds": _SECONDS, "usd": _DOLLARS}
# costs are as if nothing had been cached, so that they do not depend on the order of the cells
_OTHERS = (
    Column(
        JUDGE_ACCURACY,
        lambda metrics: (
            measure_score(metrics.judge.accuracy, metrics.questions) if metrics.judge else None
        ),
        "judge",
        brief=JUDGE_ACCURACY,
    ),
    Column(
        CORRECTED_ACCURACY,
        lambda metrics: measure_score(
            (metrics.judge and metrics.judge.corrected) or UNDEFINED, metrics.questions
        ),
    ),
    Column(
        "failed questions",
        lambda metrics: Measured(metrics.failed, of=metrics.questions) if metrics.failed else None,
        brief="failed",
    ),
    *COSTS.values(),
)
