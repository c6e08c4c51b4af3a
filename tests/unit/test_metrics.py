"""EM and F1 under all profiles, against values computed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgqa.errors import ConfigError
from kgqa.scoring.metrics import PROFILES, abstains, best_alignment, contains_gold, drop_scores, score
from kgqa.scoring.normalisation import normalise, normalise_for_drop

ANSWERS = st.text() | st.sampled_from(["yes", "no", "the", "", "1,000", "nan", "-5", "Paris, France", "the Paris"])


def em_and_f1(prediction: str | None, golds: list[str], profile: str) -> tuple[float, float]:
    scores = score(prediction, golds, profile)
    assert set(scores) == {"em", "f1"}
    return scores["em"], scores["f1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Beatles!", "beatles"),
        ("a man, an apple and the sea", "man apple and sea"),
        ("another theme", "another theme"),
        ("U.S.A.", "usa"),
        ("four-year", "fouryear"),
        ("The", ""),
        ("“Paris”", "“paris”"),
        ("1939–1945", "1939–1945"),
        ("São\u00a0Paulo", "são paulo"),
    ],
)
def test_normalisation_drops_case_ascii_punctuation_articles_and_blanks(text: str, expected: str) -> None:
    assert normalise(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,000 men", "1000.0 men"),
        ("1000.0", "1000.0"),
        ("$3.50", "350.0"),  # the "$" makes it no number, so its point goes with the punctuation
        ("3.50", "3.5"),
        ("-5", "5.0"),
        ("the four-year term", "four year term"),
        ("8th", "8th"),
    ],
)
def test_drop_puts_numbers_in_one_notation_and_splits_at_hyphens(text: str, expected: str) -> None:
    assert normalise_for_drop(text) == expected


@pytest.mark.parametrize("profile", PROFILES)
def test_equal_missing_and_empty_answers_score_alike_under_every_profile(profile: str) -> None:
    assert em_and_f1("The Eiffel Tower.", ["eiffel tower"], profile) == (1, 1)
    assert em_and_f1(None, ["Paris"], profile) == (0, 0)
    assert em_and_f1(None, [""], profile) == (0, 0)
    assert em_and_f1("", ["Paris"], profile) == (0, 0)


@pytest.mark.parametrize("profile", ["hotpotqa", "2wiki", "trace"])
def test_yes_or_no_inside_a_longer_answer_earns_nothing_where_the_yes_no_rule_holds(profile: str) -> None:
    assert em_and_f1("Yes, both", ["yes"], profile) == (0, 0)
    assert em_and_f1("no", ["no one"], profile) == (0, 0)
    assert em_and_f1("noanswer", ["noanswer given"], profile) == (0, 0)
    assert em_and_f1("YES.", ["yes"], profile) == (1, 1)


@pytest.mark.parametrize("profile", ["musique", "drop"])
def test_yes_or_no_is_a_word_like_any_other_without_the_rule(profile: str) -> None:
    # precision 1/2, recall 1; DROP rounds 2/3 to two digits
    assert em_and_f1("Yes, both", ["yes"], profile) == (0, 0.67 if profile == "drop" else 2 / 3)


@pytest.mark.parametrize(("profile", "f1"), [("hotpotqa", 0), ("2wiki", 0), ("trace", 0), ("musique", 1), ("drop", 1)])
def test_two_answers_of_articles_only_match_exactly_and_share_tokens_where_the_scorer_says_so(
    profile: str, f1: float
) -> None:
    assert em_and_f1("the", [""], profile) == (1, f1)


@pytest.mark.parametrize("profile", ["hotpotqa", "2wiki", "musique", "trace"])
def test_a_repeated_token_counts_as_often_as_both_sides_have_it(profile: str) -> None:
    # shared: york once of two, new twice; precision 3/4, recall 3/3
    assert em_and_f1("new york new york", ["New New York"], profile) == pytest.approx((0, 6 / 7))


def test_drop_compares_sets_of_words_so_repetition_is_free() -> None:
    assert em_and_f1("new york new york", ["New New York"], "drop") == (0, 1)


def test_aliases_count_where_the_benchmark_counts_them() -> None:
    golds = ["International Business Machines", "IBM"]
    assert em_and_f1("IBM", golds, "hotpotqa") == (0, 0)
    assert em_and_f1("IBM", golds, "2wiki") == (1, 1)
    assert em_and_f1("IBM", golds, "musique") == (1, 1)
    assert em_and_f1("IBM", golds, "drop") == (1, 1)
    assert em_and_f1("IBM", golds, "trace") == (1, 0)  # EM over all golds, F1 on the first


def test_kgp_counts_one_gold_answer_or_the_best_span_of_a_list() -> None:
    assert em_and_f1("Rome", ["Paris", "Rome"], "kgp") == (0, 0)
    assert em_and_f1("Rome", ['["Paris", "Rome"]'], "kgp") == (1, 1)
    assert em_and_f1("yes", ["yes indeed"], "kgp") == (0, 0)


def test_the_best_gold_for_em_and_for_f1_need_not_be_the_same() -> None:
    # shares 1 of 3 tokens with the first gold, 2 of 3 with the second
    assert em_and_f1("James Howard Meredith", ["James Brown", "James Meredith"], "musique") == pytest.approx((0, 0.8))


def test_a_number_the_prediction_lacks_closes_the_number_gate() -> None:
    assert em_and_f1("16 January 1959", ["1 January 1986"], "drop") == (0, 0)
    assert em_and_f1("January 1986", ["1 January 1986"], "drop") == (0, 0.8)
    assert em_and_f1("January 1986", ["January"], "drop") == (0, 0.67)  # the gate asks for the gold's numbers only


def test_drop_rounds_each_questions_f1_to_two_digits() -> None:
    # precision 1/3, recall 1/4: F1 2/7 = 0.2857…
    assert score("alpha beta gamma", ["alpha delta epsilon zeta"], "drop")["f1"] == 0.29


@pytest.mark.parametrize(
    ("predicted", "gold", "expected"),
    [
        (["Bob Hope", "Ann"], ["Ann", "Bob Hope"], (1, 1)),
        (["Ann", "Bob"], ["Ann"], (0, 0.5)),
        (["Ann"], ["Ann", "Bob", "Cy"], (0, 0.33)),
        (["Ann", "Ann"], ["Ann", "Bob"], (0, 0.5)),
        (["Ann", "Ann"], ["Ann"], (0, 0.5)),
    ],
)
def test_drop_pairs_spans_one_to_one(predicted: list[str], gold: list[str], expected: tuple[float, float]) -> None:
    assert drop_scores(predicted, gold) == expected


def test_the_alignment_is_the_best_overall_and_not_greedy() -> None:
    # greedy would take 0.9 and then 0
    assert best_alignment([[0.9, 0.8], [0.8, 0.0]]) == pytest.approx(1.6)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        drop_scores(["Ann"], [])
    for prediction in ("Paris", None):
        with pytest.raises(ValueError, match="without gold answers"):
            score(prediction, [], "musique")
    with pytest.raises(TypeError, match="list of gold answers"):
        score("Paris", "Paris", "musique")
    with pytest.raises(ConfigError, match=r"'hotpot' is unknown. Did you mean hotpotqa\?"):
        score("Paris", ["Paris"], "hotpot")


@given(prediction=ANSWERS, golds=st.lists(ANSWERS, min_size=1, max_size=3), profile=st.sampled_from(sorted(PROFILES)))
def test_any_text_scores_between_zero_and_one(prediction: str, golds: list[str], profile: str) -> None:
    scores = score(prediction, golds, profile)
    assert 0 <= scores["em"] <= 1
    assert 0 <= scores["f1"] <= 1


@pytest.mark.parametrize(
    ("prediction", "em", "f1"),
    [("Ann", 0, 0.5), ('["Bob Hope", "Ann"]', 1, 1), ("[Ann, Bob]", 0, 0.83), ("Ann, Bob Hope", 0, 0.4), ("[]", 0, 0)],
)
def test_drop_takes_lists_for_several_spans(prediction: str, em: float, f1: float) -> None:
    """A gold as a JSON list is one gold of several spans; a prediction in brackets is parted by commas, as in IRCoT."""
    assert em_and_f1(prediction, ['["Ann", "Bob Hope"]'], "drop") == (em, f1)


def test_drop_takes_brackets_inside_a_gold_for_text() -> None:
    assert em_and_f1("sic", ["[sic]"], "drop") == (1, 1)


def test_saying_that_there_is_no_answer_is_abstaining() -> None:
    for answer in [
        "",
        " ",
        "The",
        "N/A",
        "Unknown",
        "unknown.",
        "I don't know.",
        "I do not know the answer to this question.",
        "I cannot determine the answer from the given passages.",
        "Not mentioned",
        "not provided",
        "No information",
        "No information available",
        "Cannot be determined",
        "It cannot be determined from the passages.",
        "It is not mentioned in the passages who wrote it.",
        "It is not possible to say.",
        "There is no information about his mother.",
        "There is not enough information to answer.",
        "Insufficient information.",
        "The passages do not mention the founder.",
        "The provided context does not specify the year.",
        "I'm not sure.",
        "Unable to determine",
        "The answer is not provided",
        "Unanswerable",
        "Not found",
        "not found.",
        "Unclear",
        "It is unclear.",
        "Impossible to answer",
        "It's impossible to answer this question.",
        "Impossible to determine the answer.",
        "Cannot determine based on provided passages.",
        "Information not found in the passages",
        "Not mentioned in the given passages.",
        "Not explicitly stated",
        "No answer found in the documents.",
        "None of the retrieved documents relate to the question.",
        "None of the passages directly mention her.",
        "The passage does not provide the name of the father.",
        "I'm sorry, but I cannot provide an answer.",
        "I don't have any information about her.",
        "Based on the given passages, there is no information about it.",
    ]:
        assert abstains(answer)


def test_an_answer_with_such_words_in_it_is_an_answer() -> None:
    for answer in [
        "no",
        "yes",
        "none",
        "None",
        "Nobody",
        "Nobody Knows",
        "I Don't Want to Know",
        "Unknown Pleasures",
        "Not Without My Daughter",
        "No Country for Old Men",
        "The Unknown Soldier",
        "0",
        "NA-17",
        "Paris, which the passages do not mention",
        "None of the Above",
        "None of My Business",
        "Not Fade Away",
        "Mission: Impossible",
        "The Impossible",
        "Unclear Physics",
        "Lost and Found",
        "Not Found in Paris",
        "Information Society",
        "The Given Day",
        "Cannot Buy My Love",
    ]:
        assert not abstains(answer)


def test_the_words_of_a_gold_answer_are_in_the_answer() -> None:
    for answer, golds, contained in [
        ("It was written in Paris, France.", ["Paris"], 1),
        ("The Paris.", ["paris"], 1),
        ("Parisian", ["Paris"], 0),
        ("I do not know", ["no"], 0),
        ("No, it is not.", ["no"], 1),
        ("Rolling on the river", ["river rolling"], 0),
        ("He is known as J.R.R. Tolkien", ["Tolkien, J.R.R.", "J. R. R. Tolkien", "JRR Tolkien"], 1),
        ("City of Light", ["Paris", "city of light"], 1),
        ("Paris", ["The"], 0),
        ("", ["the"], 1),
        ("", ["Paris"], 0),
    ]:
        assert contains_gold(answer, golds) == contained
