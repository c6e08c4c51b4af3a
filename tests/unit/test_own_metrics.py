"""Metrics of the user: which values they can return, and what failed questions count."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from kgqa.artifacts.metrics import Estimate, Metrics
from kgqa.artifacts.predictions import Prediction
from kgqa.engines.scripted import Scripted
from kgqa.errors import ConfigError, DataError, UsageError
from kgqa.experiment.calibration import read_labels
from kgqa.report.columns import CORRECTED_ACCURACY, JUDGE_ACCURACY
from kgqa.report.warnings import find_undefined_metrics
from kgqa.scoring.own_metrics import OwnMetric, check_own_metrics, list_own_metrics
from kgqa.scoring.questions import METRICS, collect_shares, prediction_lines, score_questions
from kgqa.scoring.summary import summarise
from kgqa.types import Question
from kgqa.util.redaction import function_line

RUN = Path(__file__).parents[1] / "golden/artefacts/trace"
QUESTION = Question("q1", "Who?", ("Ann",))
ANSWER = Prediction("q1", "Ann", evidence=("p1", "p2"), notes={"chains": []})


def metric(value: object, *, lower_is_better: bool = False) -> OwnMetric:
    def function(question: Question, answer: str) -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    return OwnMetric(
        Path("conf/metric/mine.yaml"), "mine.metric", function, "Mine", lower_is_better
    )


def test_misspelled_attribute_of_a_question_has_a_hint() -> None:
    def function(question: Any, answer: str) -> float:
        return float(question.txt == answer)

    mine = OwnMetric(Path("mine.yaml"), "mine.metric", function, "Mine", False)
    with pytest.raises(
        ConfigError, match=r"no attribute 'txt' .*\. Did you mean text\? The answers are saved"
    ):
        mine.share(QUESTION, ANSWER)


@pytest.mark.parametrize("value", [0, 0.0, 0.25, 1, 1.0, True, None])
def test_metric_is_a_share_or_undefined(value: float | None) -> None:
    share = metric(value).share(QUESTION, ANSWER)
    assert share == value
    assert share is None or type(share) is float


@pytest.mark.parametrize(
    ("value", "share"),
    [
        (np.float32(0.5), 0.5),
        (np.float64(0.25), 0.25),
        (np.int64(1), 1.0),
        (np.bool_(True), 1.0),
        (Decimal("0.1"), 0.1),
        (Fraction(1, 4), 0.25),
        (sum([0.1] * 3) / 0.3, 1.0),
        (-1e-12, 0.0),
    ],
    ids=["float32", "float64", "int64", "bool", "Decimal", "Fraction", "above 1", "below 0"],
)
def test_every_real_number_is_a_share(value: object, share: float) -> None:
    number = metric(value).share(QUESTION, ANSWER)
    assert (number, type(number)) == (share, float)


@pytest.mark.parametrize(
    "value",
    [
        *(-0.01, 1.01, 50, "1", np.str_("1"), float("nan"), float("inf")),
        *(Decimal("sNaN"), np.array([0.5, 0.5]), 0.5j, [0.5]),
    ],
    ids=repr,
)
def test_other_values_of_a_metric_are_rejected(value: object) -> None:
    with pytest.raises(
        ConfigError,
        match=r"question q1, answer 'Ann': must return a number from 0 to 1 or None, not",
    ):
        metric(value).share(QUESTION, ANSWER)


def test_error_of_a_metric_names_its_file_and_question() -> None:
    with pytest.raises(
        ConfigError, match=r"conf/metric/mine\.yaml: question q1, answer 'Ann': .*no such word"
    ):
        metric(ValueError("no such word")).share(QUESTION, ANSWER)


@pytest.mark.parametrize(
    ("stop", "text"),
    [(SystemExit(), "SystemExit"), (SystemExit(3), "SystemExit: 3")],
    ids=["without a code", "with a code"],
)
def test_exit_of_a_metric_is_an_error_of_it(stop: SystemExit, text: str) -> None:
    with pytest.raises(
        ConfigError,
        match=rf"question q1, answer 'Ann': {text} \(.*test_own_metrics\.py:\d+\)",
    ):
        metric(stop).share(QUESTION, ANSWER)


def test_interrupt_stops_a_metric() -> None:
    with pytest.raises(KeyboardInterrupt):
        metric(KeyboardInterrupt()).share(QUESTION, ANSWER)


def test_metric_of_a_prediction_gets_what_is_saved() -> None:
    saved: list[Prediction] = []

    def function(question: Question, answer: str, prediction: Prediction) -> float:
        saved.append(prediction)
        return len(prediction.evidence or ()) / 4

    mine = OwnMetric(Path("mine.yaml"), "mine.metric", function, "Mine", False)
    assert mine.share(QUESTION, ANSWER) == 0.5
    # the file of predictions has no notes
    assert saved == [Prediction("q1", "Ann", evidence=("p1", "p2"))]


@pytest.mark.parametrize(
    ("lower_is_better", "share"), [(False, 0.0), (True, None)], ids=["higher", "lower"]
)
def test_failed_question_counts_as_the_worst_or_not(
    lower_is_better: bool, share: float | None
) -> None:
    assert (
        metric(1.0, lower_is_better=lower_is_better).share(
            QUESTION, Prediction("q1", None, "failed")
        )
        == share
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("_target_: a.b\nlabel mine\n", "mine.yaml:2: no colon after the key. Write KEY: VALUE"),
        ("label: a: b\n", "mine.yaml:1: a second colon in this line, or none in the line before"),
        ("_target_ a.b\n", "mine.yaml: must have the line _target_: MODULE.FUNCTION"),
        ("_target_: [a\n", "expected ',' or ']'"),
    ],
    ids=["no colon", "second colon", "no key", "open list"],
)
def test_wrong_yaml_names_line_and_form(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf/metric").mkdir(parents=True)
    file = tmp_path / "conf/metric/mine.yaml"
    file.write_text(text)
    assert message in check_own_metrics()[file]
    with pytest.raises(UsageError, match=re.escape(message)):
        list_own_metrics()


@pytest.fixture
def write_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return a function that writes the file of a metric into an own folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "labeled_metric", raising=False)
    (tmp_path / "conf/metric").mkdir(parents=True)

    def write(name: str, *lines: str) -> Path:
        file = tmp_path / f"conf/metric/{name}.yaml"
        file.write_text("\n".join(["_target_: labeled_metric.one", *lines]))
        return file

    (tmp_path / "labeled_metric.py").write_text("def one(question, answer):\n    return 1.0\n")
    return write


@pytest.mark.parametrize("label", ["EM", "em", "noise", JUDGE_ACCURACY, CORRECTED_ACCURACY])
def test_label_of_a_score_of_kgqa_is_rejected(
    write_metric: Callable[..., Path], label: str
) -> None:
    file = write_metric("mine", f"label: {label}")
    message = f"{file}: kgqa has a score with the label {label}. Write another label: in this file"
    with pytest.raises(ConfigError, match=re.escape(message)):
        list(METRICS)


def test_equal_labels_name_both_files(write_metric: Callable[..., Path]) -> None:
    first, second = (write_metric(name, "label: Mine") for name in ("first", "second"))
    with pytest.raises(
        ConfigError, match=re.escape(f"{second}: {first} has a score with the label Mine.")
    ):
        list(METRICS)


@pytest.mark.parametrize("value", ["maybe", "3", '"no"', "null"])
def test_direction_is_true_or_false(write_metric: Callable[..., Path], value: str) -> None:
    file = write_metric("mine", f"lower_is_better: {value}")
    with pytest.raises(
        ConfigError, match=re.escape(f"{file}: lower_is_better: must be true or false, not ")
    ):
        list_own_metrics()


def test_metric_file_of_another_suffix_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf/metric").mkdir(parents=True)
    (tmp_path / "conf/metric/mine.yml").write_text("_target_: a.b\n")
    with pytest.raises(ConfigError, match=r"mine\.yml: rename it to mine\.yaml"):
        list_own_metrics()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("async def one(question, answer):\n    return 1.0\n", "must not be async. Remove async"),
        ("import rouge_scor\n", "Install the package of rouge_scor, or correct the name"),
    ],
    ids=["async", "missing package"],
)
def test_error_in_a_module_says_how_to_fix_it(
    write_metric: Callable[..., Path], tmp_path: Path, code: str, message: str
) -> None:
    write_metric("mine")
    (tmp_path / "labeled_metric.py").write_text(code)
    with pytest.raises(ConfigError, match=re.escape(message)):
        list_own_metrics()


def test_test_file_is_no_hint_for_a_module(
    write_metric: Callable[..., Path], tmp_path: Path
) -> None:
    write_metric("mine")
    (tmp_path / "labeled_metric.py").rename(tmp_path / "test_labeled_metric.py")
    with pytest.raises(ConfigError, match="no module 'labeled_metric' in") as error:
        list_own_metrics()
    assert "test_labeled_metric" not in str(error.value)


@pytest.mark.parametrize(
    "read",
    [read_labels, lambda file: Scripted(cast(Any, None), str(file), 0.0, 1)],
    ids=["labels", "rules"],
)
def test_path_of_a_missing_file_is_named_once(
    read: Callable[[Path], object], tmp_path: Path
) -> None:
    file = tmp_path / "missing.jsonl"
    with pytest.raises(DataError, match="No such file or directory") as error:
        read(file)
    assert str(error.value).count("missing.jsonl") == 1
    assert "Errno" not in str(error.value)


COUNTED = """
calls = []


def count_words(question, answer):
    calls.append(question.id)
    return 0.5
"""


def test_metric_is_called_once_per_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf/metric").mkdir(parents=True)
    (tmp_path / "conf/metric/counted.yaml").write_text("_target_: counted_metric.count_words\n")
    (tmp_path / "counted_metric.py").write_text(COUNTED)
    monkeypatch.syspath_prepend(str(tmp_path))

    rows = score_questions([QUESTION], {"q1": Prediction("q1", "Ann")}, "musique")
    summary = summarise(rows)
    (line,) = prediction_lines(rows, summary)

    import counted_metric  # type: ignore[import-not-found]

    assert summary.score("counted").mean == 50.0
    assert collect_shares(rows)["counted"] == {"q1": 0.5}
    assert line["em"] == 100.0
    assert counted_metric.calls == ["q1"]


FAILING = """
def divide(question, answer):
    return 1 / (question.id != "q2")
"""


def test_metric_that_fails_once_has_no_score(
    write_metric: Callable[..., Path], tmp_path: Path
) -> None:
    write_metric("mine").write_text("_target_: labeled_metric.divide\n")
    (tmp_path / "labeled_metric.py").write_text(FAILING)
    questions = [Question(f"q{number}", "Who?", ("Ann",), hops=2) for number in (1, 2, 3)]
    rows = score_questions(questions, {q.id: Prediction(q.id, "Ann") for q in questions}, "musique")
    summary = summarise(rows)
    assert list(summary.failed_metrics or {}) == ["mine"]
    assert (summary.score("mine").n, summary.score("em").mean) == (0, 100.0)
    assert summary.by_hops["2"].keys() == {"n", "em", "f1"}
    assert collect_shares(rows)["mine"] == {"q1": None, "q2": None, "q3": None}


@pytest.mark.parametrize(
    ("names", "is_reported"),
    [({"em"}, True), ({"em", "mine"}, False), (set(), False)],
    ids=["undefined", "defined", "no_answers"],
)
def test_undefined_metric_is_reported(names: set[str], is_reported: bool) -> None:
    mine = metric(None)
    scores = dict.fromkeys(names, Estimate(mean=50.0, low=50.0, high=50.0, n=1))
    metrics = Metrics.read(RUN).replace(questions=2, scores=scores)

    lines = find_undefined_metrics(metrics, {"mine": mine})
    warnings = [line.partition(". ")[0] for line in lines]

    place = function_line(mine.function)
    line = f"metric mine ({place}) is not defined for any of 2 questions"
    assert warnings == [line] * is_reported
