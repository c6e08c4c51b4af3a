"""Metrics of the user: a file `conf/metric/NAME.yaml` with a function of a question and its answer.

A function with a parameter `prediction` also gets the evidence, flags and figures of the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from inspect import iscoroutinefunction, signature
from pathlib import Path
from typing import Any

from kgqa.artifacts.predictions import Prediction
from kgqa.errors import ConfigError, UsageError, nearest
from kgqa.types import Question
from kgqa.util.jsonio import encode_json
from kgqa.util.places import conf_folders
from kgqa.util.plugins import import_member
from kgqa.util.redaction import describe_error, function_line, show_file
from kgqa.util.text import shorten
from kgqa.util.yaml_files import parse_yaml

NO_TARGET = "must have the line _target_: MODULE.FUNCTION"
MAX_ANSWER = 60  # characters in a message
# a mean of shares that are all 1 can be 1.0000000000000002
ROUNDING = 1e-9
SAVED = "The answers are saved. Correct the metric, then run the same command again"
# the optional parameter of a metric
PREDICTION = "prediction"
KEYS = ("_target_", "label", "lower_is_better")


@dataclass(frozen=True)
class OwnMetric:
    """`function`: the share of an answer from 0 to 1, or None if the question does not define it."""

    file: Path
    target: str  # MODULE.FUNCTION
    function: Callable[..., float | None]
    label: str
    lower_is_better: bool

    @property
    def name(self) -> str:
        return self.file.stem

    @cached_property
    def _reads_prediction(self) -> bool:
        return PREDICTION in signature(self.function).parameters

    def share(self, question: Question, prediction: Prediction) -> float | None:
        """Return the share. A failed question counts as 0, or not at all where 0 is the best.

        Raises ConfigError: the function fails, or returns something else.
        """
        answer = prediction.scored_answer
        if answer is None:
            return None if self.lower_is_better else 0.0
        try:
            # predictions.jsonl has no notes, so a finished run would get other scores with them
            more = {PREDICTION: replace(prediction, notes={})} if self._reads_prediction else {}
            value: Any = self.function(question, answer, **more)
        # a metric that calls sys.exit() fails, too
        except (Exception, SystemExit) as error:
            cause = describe_error(error)
            end = "" if cause.endswith("?") else "."
            raise ConfigError(
                f"{show_file(self.file)}: {_name_place(question, answer)}: {cause}{end} {SAVED}"
            ) from error
        if value is None:
            return None
        number = _read_number(value)
        if -ROUNDING <= number <= 1 + ROUNDING:
            return min(max(0.0, number), 1.0)
        place = function_line(self.function)
        raise ConfigError(
            f"{place}: {_name_place(question, answer)}: must return a number from 0 to 1 or None, not {value!r}. "
            f"{SAVED}"
        )


def _read_number(value: Any) -> float:
    """Return a real number of any type, such as those of NumPy, Decimal and Fraction. NaN: it is none."""
    # float() also reads text
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        return math.nan
    try:
        return float(value)
    # of arrays, for example
    except (ArithmeticError, RuntimeError, TypeError, ValueError):
        return math.nan


def _name_place(question: Question, answer: str) -> str:
    return f"question {question.id}, answer {shorten(answer, MAX_ANSWER)!r}"


def list_own_metrics() -> dict[str, OwnMetric]:
    """Return the user's metrics by name. Raises ConfigError: a file or its function cannot be used."""
    return _load(_list_files())


def check_own_metrics() -> dict[Path, str]:
    """Return for each file of the user's metrics why it cannot be used, or ""."""
    return {file: _explain_unusable(file) for file, _ in _list_files()}


def _explain_unusable(file: Path) -> str:
    try:
        _load_metric(file)
    except UsageError as error:
        return str(error)
    return ""


def _list_files() -> tuple[tuple[Path, int], ...]:
    """Return the files of the user's metrics with the times of their last changes."""
    files = (
        file
        for folder in conf_folders()[:-1]
        for file in sorted((folder / "metric").glob("*.y*ml"))
    )
    return tuple((file.absolute(), file.stat().st_mtime_ns) for file in files)


@lru_cache(maxsize=4)
def _load(files: tuple[tuple[Path, int], ...]) -> dict[str, OwnMetric]:
    return {file.stem: _load_metric(file) for file, _ in files}


def _load_metric(file: Path) -> OwnMetric:
    if file.suffix != ".yaml":
        raise ConfigError(f"{file}: rename it to {file.stem}.yaml, so that kgqa finds it")
    node = parse_yaml(file, "Fix this file")
    if not isinstance(node, dict):
        raise ConfigError(f"{file}: {NO_TARGET}")
    for key in node:
        if key not in KEYS:
            # the closest name would invert the metric
            opposite = "A higher value is better without it" if key == "higher_is_better" else ""
            raise ConfigError(f"{file}: {key}: unknown key. {opposite or nearest(str(key), KEYS)}")
    if "_target_" not in node:
        raise ConfigError(f"{file}: {NO_TARGET}")
    target = str(node["_target_"])
    function = _import_function(file, target)
    if iscoroutinefunction(function):
        raise ConfigError(f"{function_line(function)}: must not be async. Remove async")
    label = str(node.get("label") or file.stem.replace("_", " "))
    lower_is_better = node.get("lower_is_better", False)
    if not isinstance(lower_is_better, bool):
        raise ConfigError(
            f"{file}: lower_is_better: must be true or false, not {encode_json(lower_is_better).decode()}"
        )
    return OwnMetric(file, target, function, label, lower_is_better)


def _import_function(file: Path, target: str) -> Callable[..., float | None]:
    """Return the function that a file names. Raise ConfigError if it is not one of a question and an answer."""
    if "." not in target:
        raise ConfigError(f"{file}: _target_={target}: write MODULE.FUNCTION")
    try:
        function = import_member(target)
    except ConfigError as error:
        raise ConfigError(f"{file}: _target_={target}: {error}") from error
    if not callable(function) or isinstance(function, type):
        raise ConfigError(f"{file}: _target_={target}: not a function")
    try:
        parameters = signature(function)
        more = {PREDICTION: ""} if PREDICTION in parameters.parameters else {}
        parameters.bind("question", "answer", **more)
    except TypeError as error:
        raise ConfigError(
            f"{function_line(function)}: must take (question, answer) or (question, answer, prediction)"
        ) from error
    return function  # type: ignore[no-any-return]
