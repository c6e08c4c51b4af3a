"""Scores of a run and of retrieval, computed by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any

import pytest

from kgqa.artifacts.metrics import UNDEFINED, FoundAndRight, Wording
from kgqa.artifacts.predictions import Prediction
from kgqa.artifacts.schema import as_json
from kgqa.artifacts.verdicts import Fate, Judgement
from kgqa.errors import ConfigError, DataError
from kgqa.scoring.intervals import estimate
from kgqa.scoring.metrics import available_profiles
from kgqa.scoring.questions import ScoredQuestion, percent_scores, score_question, score_support
from kgqa.scoring.retrieval import (
    GoldPassage,
    Page,
    RetrievedPassages,
    all_gold,
    gold_pages,
    gold_passages,
    gold_ranks,
    normalize_title,
    recall,
    reciprocal_rank,
    same_passages_alarm,
    summarise_retrieval,
)
from kgqa.scoring.summary import group_verdicts, summarise
from kgqa.types import Passage, Question

TEN = "abcdefghij"
GIVEN = tuple(Passage(letter, letter.upper(), "") for letter in TEN)
ASKED: dict[str, Any] = {
    "text": "Where?", "answers": ("Paris", "City of Light"), "passages": GIVEN, "support": frozenset({"a", "b"}),
    "hops": 2, "type": "bridge",
}  # fmt: skip
ANSWERED: dict[str, Any] = {
    "answer": "Paris", "evidence": ("a", "b"), "context_tokens": 100, "flags": {"malformed_triple": 2},
    "figures": {"hops": 2.0},
}  # fmt: skip
LOST: dict[str, Any] = {
    "answer": None, "error": "prompt too long", "evidence": (), "context_tokens": None, "hops": 3, "flags": {},
    "figures": {},
}  # fmt: skip


def row(question_id: str = "q1", profile: str = "musique", **changed: Any) -> ScoredQuestion:
    asked = {**ASKED, **{key: value for key, value in changed.items() if key in ASKED}}
    answered = {**ANSWERED, **{key: value for key, value in changed.items() if key not in ASKED}}
    return score_question(
        Question(question_id, **asked), Prediction(question_id, **answered), profile
    )


RIGHT = row()
# F1 against "Geneva": precision 1/2, recall 1
HALF = row(
    "q2", answer="Lake Geneva", answers=("Geneva",), evidence=("a", "x", "y", "z"), context_tokens=300, hops=3,
    type="comparison", flags={"malformed_triple": 1, "empty_chain": 1}, figures={"hops": 3.0},
)  # fmt: skip
FAILED = row("q3", **LOST)
EMPTY = row("q4", answer=" ", evidence=(), context_tokens=0, hops=4, flags={})


def test_counts_and_means_in_any_order() -> None:
    metrics = summarise([RIGHT, HALF, FAILED, EMPTY])
    assert (metrics.questions, metrics.failed, metrics.answerless, metrics.profile) == (
        4,
        1,
        1,
        "musique",
    )
    assert metrics.flags == {"empty_chain": 1, "malformed_triple": 3}
    assert summarise([RIGHT, HALF, FAILED]).context_tokens == pytest.approx(200)
    assert summarise([FAILED]).context_tokens is None
    assert summarise([RIGHT, HALF, FAILED]).figures == {"hops": 2.5}
    with pytest.raises(ValueError, match="no questions"):
        summarise([])
    with pytest.raises(ValueError, match="2wiki, musique"):
        summarise([RIGHT, row("q2", "2wiki")])
    with pytest.raises(ConfigError, match="Did you mean musique"):
        row(profile="musiqe")
    with pytest.raises(
        DataError, match="question q1 has no answers, so its answer cannot be scored"
    ):
        row(answers=())
    assert as_json(summarise([EMPTY, FAILED, HALF, RIGHT])) == as_json(metrics)
    json.dumps([as_json(metrics), as_json(summarise([FAILED]))], allow_nan=False)


def test_scores_of_a_question_are_percentages() -> None:
    summary = summarise([RIGHT, HALF])
    scores = percent_scores(HALF, summary)
    assert (scores["em"], scores["f1"]) == (0.0, 66.666667)
    assert percent_scores(None, summary)["em"] is None
    assert percent_scores(RIGHT, None)["em"] is None


def test_failed_questions_score_zero_in_answers_only() -> None:
    scores = summarise([RIGHT, HALF, FAILED, EMPTY]).scores
    assert [scores["em"].mean, scores["f1"].mean] == pytest.approx([25, 100 * (1 + 2 / 3) / 4])
    assert scores["em"].n == scores["f1"].n == 4
    f1 = as_json(scores["f1"])
    assert 0 <= f1["low"] < f1["mean"] < f1["high"] <= 100
    assert scores["support_recall"].mean == pytest.approx(100 * (1 + 0.5 + 0) / 3)
    assert scores["support_precision"].mean == pytest.approx(100 * (1 + 0.25) / 2)
    assert [scores[f"support_{name}"].n for name in ("recall", "precision", "error_rate")] == [
        3,
        2,
        2,
    ]
    assert scores["support_error_rate"].mean == pytest.approx(100 * (0 + 0.75) / 2)
    assert scores["support_f1"].mean == pytest.approx(100 * (1 + 1 / 3) / 3)
    scores = summarise([RIGHT, HALF, FAILED, row("q5", answer="It is in Paris.")]).scores
    assert (scores["containment"], scores["em"].mean) == (estimate([1.0, 1.0, 0.0, 1.0]), 25)


def test_wording_figures_and_gold_passages() -> None:
    wording = summarise([RIGHT, HALF, FAILED, EMPTY, row("q5", answer="I don't know")]).wording
    assert wording == Wording(words=(1 + 2 + 0 + 3) / 4, abstained=50.0)
    assert summarise([FAILED]).wording == Wording(words=None, abstained=None)
    again = row("q4", figures={"hops": 1.0})
    assert summarise([RIGHT, HALF, FAILED, again]).figures_if_right == {"hops": 1.5}
    assert summarise([HALF, FAILED]).figures_if_right is None
    lucky = row("q5", evidence=("a",))
    assert summarise([RIGHT, HALF, FAILED, EMPTY, lucky]).found_and_right == FoundAndRight(
        found_right=1, found_wrong=0, missed_right=1, missed_wrong=2
    )
    untold = summarise([row(support=frozenset())])
    assert (untold.found_and_right, untold.scores["support_recall"]) == (None, UNDEFINED)
    support = summarise([RIGHT, row("q2", support=frozenset({"a", "missing:Lyon"}))]).given
    assert as_json(support) == {
        "support_recall": pytest.approx(75),
        "support_error_rate": pytest.approx(85),
    }


def test_what_no_question_defines_is_null_and_not_zero() -> None:
    scores = summarise([RIGHT, row("q3", **LOST, support=frozenset())]).scores
    recall = as_json(scores["support_recall"])
    assert recall == {"mean": 100.0, "low": pytest.approx(20.65, abs=0.01), "high": 100.0, "n": 1}
    metrics = summarise([FAILED, FAILED])
    assert {score.n for score in metrics.scores.values()} == {0}
    assert (metrics.by_hops, metrics.by_type, metrics.profiles) == ({}, {}, {})
    metrics = summarise([row(error="the engine gave up"), EMPTY])
    assert (metrics.failed, metrics.scores["em"].mean, metrics.scores["support_recall"].mean) == (
        1,
        0,
        0,
    )
    assert metrics.scores["support_precision"].n == 0
    silent = row(evidence=None)
    assert (silent.em, silent.support.recall, silent.given.recall) == (1.0, None, None)
    assert row(passages=()).given.recall is None


def group_means(group: Mapping[str, Any]) -> dict[str, float | None]:
    """The sizes and means of a group, without intervals."""
    return {key: getattr(value, "mean", value) for key, value in group.items()}


def test_verdicts_are_grouped_by_hops() -> None:
    rows = [row(name, hops=hops) for name, hops in (("a", 2), ("b", 2), ("c", 3))]
    lines = [
        Judgement(question_id=each.id, verdict=verdict, fate="judged", votes=(), judge="x")
        for each, verdict in zip(rows, ("correct", "incorrect", None), strict=True)
    ]
    by_hops = group_verdicts(rows, lines)["by_hops"]
    assert by_hops == {
        "2": {"n": 2, "judge": estimate([1, 0])},
        # an unscored answer counts for no group
        "3": {"n": 1, "judge": estimate([None])},
    }


def test_groups_without_verdicts_have_no_accuracy() -> None:
    rows = [row("a", hops=2), row("b", hops=2, answer=None)]
    fates: tuple[Fate, Fate] = ("judged", "failed")
    lines = [
        Judgement(question_id=each.id, verdict=None, fate=fate, votes=(), judge="x")
        for each, fate in zip(rows, fates, strict=True)
    ]
    assert group_verdicts(rows, lines)["by_hops"] == {"2": {"n": 2, "judge": estimate([None])}}


def test_scores_are_grouped_by_hops_type_and_profile() -> None:
    metrics = summarise([HALF, FAILED, RIGHT, row("q4", answer=" ", hops=None)])
    assert list(metrics.by_hops) == ["2", "3", "unknown"]
    assert group_means(metrics.by_hops["2"]) == {"n": 1, "em": 100, "f1": 100}
    assert group_means(metrics.by_hops["3"]) == {"n": 2, "em": 0, "f1": pytest.approx(100 / 3)}
    assert metrics.by_hops["3"]["em"] == estimate([0, 0])
    assert metrics.by_type["bridge"]["n"] == 3
    comparison = group_means(metrics.by_type["comparison"])
    assert comparison == {"n": 1, "em": 0, "f1": pytest.approx(200 / 3)}
    plain = summarise([row(hops=None, type="")])
    assert (plain.by_hops, plain.by_type) == ({}, {})
    profiles = summarise([row(answer="City of Light")]).profiles
    assert set(profiles) == set(available_profiles())
    assert profiles["musique"] == {"em": 100, "f1": 100, "containment": 100}
    assert profiles["hotpotqa"] == {"em": 0, "f1": 0, "containment": 100}
    assert profiles["trace"] == {"em": 100, "f1": 0, "containment": 100}
    assert profiles["linearrag"] == {"em": 0, "f1": 0, "containment": 0}


def test_struct_em_is_em_over_the_structural_questions() -> None:
    other = row("q2", answer="Lake Geneva", answers=("Geneva",), type="structural")
    rows = [row(type="structural"), other, RIGHT, FAILED]
    assert (summarise(rows).score("struct_em").mean, summarise(rows).score("struct_em").n) == (
        50.0,
        2,
    )
    failed = summarise([*rows, row("q3", **LOST, type="structural")])
    assert failed.score("struct_em").mean == pytest.approx(100 / 3)
    assert "struct_em" not in summarise([RIGHT, HALF, FAILED]).scores


@pytest.mark.parametrize(
    ("evidence", "gold", "cited", "expected"),
    [
        pytest.param(
            ["a", "b", "c"],
            {"a", "d"},
            TEN,
            (1 / 2, 1 / 3, 2 / 5, 2 / 3, 1.0, 0.8),
            id="one of two",
        ),
        pytest.param(["b"], {"a", "d"}, TEN, (0, 0, 0, 1, 1.0, 0.8), id="none"),
        pytest.param(
            ["a", "a", "b", "a"],
            {"a", "d"},
            TEN,
            (1 / 2, 1 / 2, 1 / 2, 1 / 2, 1.0, 0.8),
            id="repeated",
        ),
        pytest.param([], {"a", "d"}, TEN, (0, None, 0, None, 1.0, 0.8), id="no evidence"),
        pytest.param(["a"], set[str](), TEN, (None, None, None, None, None, None), id="no gold"),
        # a gold passage that is not among the given ones stays in the denominator
        pytest.param(
            ["a", "b"],
            {"a", "missing:Paris"},
            TEN,
            (1 / 2, 1 / 2, 1 / 2, 1 / 2, 1 / 2, 0.9),
            id="missing gold",
        ),
        pytest.param(
            ["a", "x"], {"a", "d"}, "", (1 / 2, 1 / 2, 1 / 2, 1 / 2, 0, None), id="no own passages"
        ),
    ],
)
def test_support_figures_are_those_computed_by_hand(
    evidence: list[str], gold: set[str], cited: Sequence[str], expected: tuple[float | None, ...]
) -> None:
    of_given = score_support(cited, gold)
    assert (
        *astuple(score_support(evidence, gold)),
        of_given.recall,
        of_given.error_rate,
    ) == expected


ALDER, BIRCH = Passage.of("Alder", "Alder is a tree."), Passage.of("Birch", "Birch is white.")
# MuSiQue: two paragraphs with one title
OTHER_ALDER = Passage.of("Alder", "Alder is also a town.")
QUESTION = Question(
    "q", "?", ("a",), (ALDER, OTHER_ALDER, BIRCH), support=frozenset({ALDER.id, BIRCH.id}),
    support_titles=frozenset({"Alder", "Birch"}),
)  # fmt: skip
MORE_ALDER = Passage.of("alder", "The Alder is a tree of wet places.")


def corpus(*passages: Passage) -> Page:
    return lambda title: [
        passage for passage in passages if normalize_title(passage.title) == normalize_title(title)
    ]


def retrieved(
    *ids: str, places: tuple[int | None, ...] = (None,), hops: int | None = None
) -> RetrievedPassages:
    return RetrievedPassages(ids, places, places, hops, "")


def test_gold_passages_match_by_id_words_or_title() -> None:
    pages = [corpus(OTHER_ALDER, ALDER, BIRCH), corpus(), corpus(OTHER_ALDER, MORE_ALDER, BIRCH)]
    golds = [tuple(gold_passages(QUESTION, page)) for page in pages]
    ranks = [gold_ranks(gold, (OTHER_ALDER.id, BIRCH.id), ("Alder", "Birch")) for gold in golds]
    assert ranks == [(None, 2)] * 3
    gold = golds[-1]
    assert gold_ranks(gold, (OTHER_ALDER.id, MORE_ALDER.id), ("Alder", "alder")) == (2, None)
    both = replace(
        QUESTION, support=frozenset({ALDER.id, OTHER_ALDER.id}), support_titles=frozenset({"Alder"})
    )
    assert gold_ranks(gold_passages(both, corpus(MORE_ALDER)), (MORE_ALDER.id,), ("alder",)) == (1,)
    bare = Question("q", "?", ("a",), support_titles=frozenset({"Birch", "Alder"}))
    gold = gold_passages(bare, corpus())
    assert [each.title for each in gold] == ["Alder", "Birch"]
    assert gold_ranks(gold, ("x", "y", "z"), ("Cedar", "birch", "Alder")) == (3, 2)
    partly = replace(QUESTION, passages=(ALDER,), support=frozenset({ALDER.id, "missing:Birch"}))
    gold = gold_passages(partly, corpus())
    assert gold_ranks(gold, (ALDER.id,), ("Alder",)) == (1, None)
    assert gold_ranks(gold, (ALDER.id, "x"), ("Alder", "Birch")) == (1, 2)
    twins = (GoldPassage((), "Alder"), GoldPassage((), "Alder"))
    assert gold_ranks(twins, ("x",), ("Alder",)) == (1, None)
    assert gold_ranks(twins, ("x", "y"), ("Alder", "Alder")) == (1, 2)
    assert gold_ranks((GoldPassage(("y",), "Alder"), twins[0]), ("y", "x"), ("Alder", "Alder")) == (
        1,
        2,
    )  # ids first


def test_quoted_and_pinned_passages() -> None:
    quoted = (
        Passage.of("alder", "also a  Town"),
        Passage.of("Birch", "is white"),
        Passage.of("Fir", "is not here"),
    )
    question = Question(
        "q", "?", ("a",), support_titles=frozenset({"alder", "Birch", "Fir"}), quoted=quoted
    )
    page = corpus(ALDER, OTHER_ALDER, MORE_ALDER, BIRCH)
    ids, titles = (
        (ALDER.id, MORE_ALDER.id, BIRCH.id, OTHER_ALDER.id),
        ("Alder", "alder", "Birch", "Alder"),
    )
    gold = gold_passages(question, page)
    assert (gold_ranks(gold, ids, titles), gold_ranks(gold_pages(gold), ids, titles)) == (
        (4, 3, None),
        (1, 3, None),
    )
    question = Question("q", "?", ("a",), quoted=(Passage.of("Alder", "a tree"),), pinned=(ALDER,))
    assert gold_passages(question, corpus(ALDER)) == ()
    pinned = replace(QUESTION, pinned=(ALDER,))
    assert [each.title for each in gold_passages(pinned, corpus())] == ["Birch"]


def test_recall_all_gold_and_reciprocal_rank() -> None:
    places = (1, 6, None)
    assert [recall(places, 2), recall(places, 6)] == pytest.approx([1 / 3, 2 / 3])
    assert recall((), 5) is None
    assert [all_gold((2, 5), budget) for budget in (2, 4, 5)] == [0, 0, 1]
    assert all_gold((1, None), 15) == 0
    assert all_gold((), 15) is None
    assert (reciprocal_rank((4, 2, None)), reciprocal_rank((None, None))) == (0.5, 0)
    assert reciprocal_rank(()) is None


def test_summary_is_the_mean_of_questions_with_gold() -> None:
    rows = [
        # recall@2 100, all gold, rank 1
        retrieved("a", "b", places=(1, 2), hops=2),
        # @2 0, @5 50, rank 3
        retrieved("c", "d", "e", places=(3, None), hops=2),
        retrieved(places=(None,), hops=3),  # nothing retrieved
        retrieved("f", places=()),  # no gold known
    ]
    measured = summarise_retrieval(rows, ranked=True)
    assert measured.n == 3
    assert [measured.recall[str(budget)].mean for budget in (2, 5, 10, 15)] == pytest.approx(
        [100 / 3, 50, 50, 50]
    )
    assert [measured.all_gold["15"], measured.fixed_budget_recall] == pytest.approx([100 / 3, 50])
    assert measured.mrr == pytest.approx(100 * (1 + 1 / 3 + 0) / 3)
    assert [measured.passages_per_question, measured.without_passages] == pytest.approx([6 / 4, 1])
    assert measured.by_hops["2"] == {"n": 2, "2": 50, "5": 75, "10": 75, "15": 75}
    assert (list(measured.by_hops), measured.by_type) == (["2", "3", "unknown"], {})
    assert measured.alarm is None
    assert summarise_retrieval([retrieved("a", places=(1,))], ranked=False).mrr is None
    # three passages have the same recall at 10
    assert (measured.most_passages, measured.budgets) == (3, ("2", "5"))
    with pytest.raises(ValueError, match="no questions"):
        summarise_retrieval([], ranked=True)
    same, other = (
        retrieved("a", places=(None, 1)),
        RetrievedPassages(("a",), (None, 1), (1,), None, ""),
    )
    assert summarise_retrieval([same], ranked=True).page_recall is None
    measured = summarise_retrieval([same, other], ranked=True)
    assert measured.recall["2"].mean == 50
    assert measured.page_recall is not None
    assert measured.page_recall["2"].mean == 75


@pytest.mark.parametrize(
    ("alike", "different", "alarmed"),
    [
        pytest.param(6, 0, True, id="6 of 6"),
        pytest.param(5, 0, False, id="5 of 5"),
        pytest.param(6, 23, True, id="6 of 29"),
        pytest.param(6, 24, False, id="6 of 30"),
        pytest.param(21, 79, True, id="21 of 100"),
        pytest.param(20, 80, False, id="20 of 100"),
    ],
)
def test_alarm_needs_six_questions_and_over_a_fifth(
    alike: int, different: int, alarmed: bool
) -> None:
    rows = [retrieved("a", "b")] * alike + [retrieved(str(number)) for number in range(different)]
    alarm = same_passages_alarm(rows)
    same = f"{alike} of {alike + different} questions got the same passages in the same order"
    assert alarm.startswith(same) if alarm else not alarmed
    assert (alarm is not None) == alarmed


def test_alarm_needs_the_same_order_and_passages() -> None:
    assert same_passages_alarm([retrieved("a", "b"), retrieved("b", "a")] * 5) is None
    assert same_passages_alarm([retrieved()] * 50) is None


def test_leaves_of_summaries_have_their_own_recall() -> None:
    rows = [
        replace(retrieved("a", places=(1, None)), leaf_ranks=(1, 20)),
        replace(retrieved("b"), leaf_ranks=(None,)),
    ]
    measured = summarise_retrieval(rows, ranked=True)
    assert (measured.recall["15"].mean, measured.leaf_recall) == (25, 50)
    assert summarise_retrieval([retrieved("a")], ranked=True).leaf_recall is None


@pytest.mark.parametrize(
    ("entities", "count"), [((True, False), 1), ((None, None), None)], ids=["graph", "others"]
)
def test_questions_without_entities_are_counted(
    entities: tuple[bool | None, ...], count: int | None
) -> None:
    rows = [replace(retrieved("a"), has_entities=each) for each in entities]
    assert summarise_retrieval(rows, ranked=True).without_entities == count


def test_fixed_budget_is_15_passages() -> None:
    """IRCoT compares retrievers by it."""
    rows = [retrieved("a", places=(15,)), retrieved("b", places=(16,))]
    assert summarise_retrieval(rows, ranked=True).fixed_budget_recall == 50
