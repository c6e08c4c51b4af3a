"""The figures and notices at the top of a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kgqa.artifacts.metrics import UNDEFINED, Estimate, Flagged, Metrics
from kgqa.artifacts.run import FinishedRun
from kgqa.report.run_report import Headline, accuracy_text, headlines, notices, sections
from kgqa.report.warnings import (
    find_cut_prompts,
    find_doubts,
    find_missed_choices,
    find_missing_verdicts,
    find_worthless_answers,
)
from kgqa.util.text import duration

RUN = Path(__file__).parents[1] / "golden/artefacts/trace"
RETRIEVAL = RUN.with_name("retrieval")


def figure(label: str, *, usd: float | None = None, new_calls: int = 34, **changes: Any) -> Any:
    """Return the figure with this label of the golden run with these changes, or None."""
    metrics = Metrics.read(RUN)
    cost = metrics.cost
    cost = cost.replace(
        method=cost.method.replace(usd=usd), paid=cost.paid.replace(calls=new_calls)
    )
    lines = headlines(metrics.replace(cost=cost, **changes))
    return next((line for line in lines if line.label == label), None)


def test_answered_and_failed_questions_are_counted() -> None:
    assert figure("answered", failed=2, questions=1005) == Headline("answered", "1,003", "of 1,005")
    assert figure("failed", failed=2, questions=1005) == Headline("failed", "2", "of 1,005", True)
    assert figure("failed") == Headline("failed", "0", "", False)


def test_figures_are_rounded_as_in_tables() -> None:
    # 12.75 without the error of a sum
    near = 12.749999999999998
    score = Estimate(mean=near, low=near, high=near, n=80)
    metrics = Metrics.read(RUN)
    assert figure("EM", scores={**metrics.scores, "em": score}) == Headline(
        "EM", "12.8", "12.8 to 12.8"
    )
    retrieval = FinishedRun.read(RETRIEVAL)
    means = retrieval.metrics.retrieval
    assert means
    run = replace(
        retrieval,
        metrics=retrieval.metrics.replace(
            retrieval=means.replace(mrr=near, all_gold=dict.fromkeys(means.budgets, near))
        ),
    )
    rows = {row[0]: row[1] for each in sections(run) for row in each.rows}
    assert rows["reciprocal rank"] == "12.8"
    assert rows["all gold found"].startswith("@2 12.8  @5 12.8")


@pytest.mark.parametrize(
    ("usd", "expected"),
    [
        pytest.param(1234.5, Headline("cost", "1,234.50", "USD"), id="dollars"),
        pytest.param(1.0, Headline("cost", "1.00", "USD"), id="one dollar"),
        pytest.param(0.0123, Headline("cost", "0.0123", "USD"), id="cents"),
        pytest.param(0.0, Headline("cost", "0.0000", "USD"), id="free"),
    ],
)
def test_cost_replaces_the_tokens(usd: float, expected: Headline) -> None:
    assert figure("cost", usd=usd) == expected
    assert figure("tokens", usd=usd) is None


def test_calls_without_a_price_show_their_tokens() -> None:
    # 11,879 prompt tokens and 38 generated ones
    assert figure("tokens") == Headline("tokens", "11,917", "34 calls")
    assert figure("cost") is None


@pytest.mark.parametrize(
    ("seconds", "new_calls", "expected"),
    [
        pytest.param(61.4, 34, Headline("time", "61 s", ""), id="all calls new"),
        pytest.param(600.0, 2, Headline("time", "10 min", "2 new calls"), id="most calls cached"),
        pytest.param(0.5, 0, None, id="all calls stored"),
        pytest.param(None, 34, None, id="unknown"),
    ],
)
def test_time_names_new_calls(
    seconds: float | None, new_calls: int, expected: Headline | None
) -> None:
    assert figure("time", seconds=seconds, new_calls=new_calls) == expected


def test_scores_have_their_interval() -> None:
    score = Metrics.read(RUN).scores["support_recall"].replace(mean=50.0, low=9.4, high=90.55)
    scores = {"em": score, "f1": score.replace(mean=None)}
    assert figure("EM", scores=scores) == Headline("EM", "50.0", "9.4 to 90.5")
    assert figure("F1", scores=scores) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(99.4, "99 s"), (100, "2 min"), (5999, "100 min"), (6000, "1.7 h"), (90_000, "25.0 h")],
)
def test_duration_has_a_readable_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def new_notices(**changes: Any) -> list[str]:
    """Return the notices of the golden run with these changes that it does not have without them."""
    run = FinishedRun.read(RUN)
    changed = replace(run, metrics=run.metrics.replace(**changes))
    return [text for text in notices(changed) if text not in notices(run)]


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        pytest.param({"passages": 100, "empty": 5}, None, id="5 % empty"),
        pytest.param(
            {"passages": 100, "empty": 6},
            "**Warning**: the knowledge graph has no triples of 6 of 100 passages.",
            id="6 % empty",
        ),
        pytest.param(
            {"passages": 100, "empty": 6, "unmatched": 2},
            "**Warning**: the knowledge graph has no triples of 6 of 100 passages "
            "(2 of them are not in the imported file).",
            id="imported",
        ),
        pytest.param(
            {"passages": 1200, "failed": 1},
            "**Warning**: the knowledge graph is incomplete: the extraction of 1 of 1,200 passages "
            "failed. Run the command again.",
            id="one failed",
        ),
    ],
)
def test_incomplete_graph_has_a_notice(graph: Mapping[str, int], expected: str | None) -> None:
    assert new_notices(graph=graph) == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("lacks", "listed"),
    [
        pytest.param({"without_entities": 5}, None, id="5 % without entities"),
        pytest.param({"without_entities": 6}, "6 without entities", id="6 % without entities"),
        pytest.param(
            {"failed": 1, "without_triples": 2},
            "1 failed model calls of the index, 2 without triples",
            id="one call failed",
        ),
    ],
)
def test_incomplete_index_has_a_notice(lacks: Mapping[str, int], listed: str | None) -> None:
    expected = f"**Warning**: the index is incomplete: of 100 passages {listed}. "
    texts = [text for text in new_notices(retriever={"passages": 100, **lacks}) if "index" in text]
    assert [text.startswith(expected) for text in texts] == [True] * (listed is not None)


@pytest.mark.parametrize(("failed", "is_invalid"), [(2, False), (3, True)])
def test_scores_above_the_failure_rate_are_invalid(failed: int, is_invalid: bool) -> None:
    run = FinishedRun.read(RUN)
    settings = (("max_failure_rate", "0.05", ""),)
    metrics = run.metrics.replace(questions=40, failed=failed, judge=None)
    text = notices(replace(run, metrics=metrics, settings=settings))[-1]
    assert f"answered {40 - failed} of 40: {failed} of 40 questions failed" in text
    assert (
        "more than max_failure_rate=0.05 allows: the scores are not valid" in text
    ) is is_invalid


@pytest.mark.parametrize(
    ("empty", "cut", "expected"),
    [
        pytest.param(2, 0, [], id="half"),
        pytest.param(3, 0, ["3 of 4 answers are empty"], id="empty"),
        pytest.param(0, 4, ["4 of 4 answers are cut at max_tokens"], id="cut"),
    ],
)
def test_worthless_answers_have_a_warning(empty: int, cut: int, expected: list[str]) -> None:
    metrics = Metrics.read(RUN).replace(
        questions=5, failed=1, answerless=empty, flags={"truncated_answer": cut}
    )
    assert list(find_worthless_answers(metrics)) == expected


@pytest.mark.parametrize(
    ("failed", "unscored", "expected"),
    [
        pytest.param(0, 5, [], id="5 %"),
        pytest.param(0, 6, ["judge=three_way gave no verdict on 6 of 100 answers"], id="6 %"),
        pytest.param(80, 20, ["judge=three_way gave no verdict on 20 of 20 answers"], id="all"),
        pytest.param(100, 0, [], id="no answers"),
    ],
)
def test_missing_verdicts_have_a_warning(failed: int, unscored: int, expected: list[str]) -> None:
    judge = Metrics.read(RUN).judge
    assert judge
    changed = judge.replace(questions=100, failed=failed, unscored=unscored)
    assert list(find_missing_verdicts(changed)) == expected
    assert list(find_missing_verdicts(None)) == []


def test_judge_that_is_the_reader_has_a_warning() -> None:
    metrics = Metrics.read(RUN)
    reader = "the judge is the reader: smollm2_135m grades its own answers"
    assert find_doubts(metrics)[0] == reader
    assert not any(reader in text for text in find_doubts(metrics.replace(judge=None)))


@pytest.mark.parametrize(
    ("failed", "unscored", "answers", "text"),
    [
        (0, 0, 9, "50.0  [9.0, 90.0]"),
        (1, 2, 9, "50.0  [9.0, 90.0]  (1 failed question counted as wrong, 2 answers without a verdict)"),
        (0, 2, 0, "unscored  (2 answers without a verdict)"),
        (2, 0, 0, "unscored  (2 failed questions)"),
    ],
    ids=["scored", "some", "no verdicts", "failed"],
)  # fmt: skip
def test_accuracy_counts_missing_verdicts(
    failed: int, unscored: int, answers: int, text: str
) -> None:
    judge = Metrics.read(RUN).judge
    assert judge
    accuracy = Estimate(mean=50.0, low=9.0, high=90.0, n=answers) if answers else UNDEFINED
    assert accuracy_text(judge.replace(failed=failed, unscored=unscored, accuracy=accuracy)) == text


@pytest.mark.parametrize(("cut", "is_warned"), [(5, False), (6, True)], ids=["half", "more"])
@pytest.mark.parametrize(("stage", "role"), [("method", "reader"), ("extraction", "extractor")])
def test_truncated_prompts_have_a_warning(cut: int, is_warned: bool, stage: str, role: str) -> None:
    metrics = Metrics.read(RUN)
    flags = {"cut_prompt": Flagged(calls=cut, share=cut / 10)}
    calls = metrics.cost.method.by_role["reader"].replace(calls=10, flags=flags)
    cost = metrics.cost.method.replace(by_role={role: calls})
    lines = list(find_cut_prompts(metrics.replace(cost=metrics.cost.replace(**{stage: cost}))))
    expected = [f"the server truncated {cut} of 10 prompts of the {role}, so"] * is_warned
    assert [line.partition(" the scores")[0] for line in lines] == expected


@pytest.mark.parametrize(("missed", "is_warned"), [(5, False), (6, True)], ids=["few", "many"])
def test_replies_that_name_no_option_have_a_warning(missed: int, is_warned: bool) -> None:
    metrics = Metrics.read(RUN)
    flags = {"no_choice": Flagged(calls=missed, share=missed / 100)}
    calls = metrics.cost.method.by_role["reader"].replace(calls=100, flags=flags)
    method = metrics.cost.method.replace(by_role={"selector": calls})
    lines = list(find_missed_choices(metrics.replace(cost=metrics.cost.replace(method=method))))
    texts = [f"{missed} of 100 replies of the selector name no option"] * is_warned
    assert [line.partition(",")[0] for line in lines] == texts
