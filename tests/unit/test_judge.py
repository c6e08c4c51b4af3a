"""Judges: a closed vocabulary read whole, asked twice, and no verdict is neither right nor wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kgqa.artifacts.metrics import UNDEFINED
from kgqa.artifacts.verdicts import Fate, Judgement, Vote
from kgqa.calls import Generate
from kgqa.config.building import build
from kgqa.errors import ConfigError, EngineError
from kgqa.experiment.judging import explain_unreadable
from kgqa.judge.judges import FORMS, AnyJudge, Judge, JudgedAnswer, Panel, Verdict
from kgqa.scoring.summary import summarise_verdicts
from kgqa.testing import drive
from kgqa.types import Passage
from tests.composed import composed_node
from tests.method_world import World

PASSAGE = Passage.of("Ilse Ravenholt", "The parish register names her home.")
ANSWER = JudgedAnswer(
    "Where was Ilse Ravenholt born?", ("Pellery", "the town of Pellery"), "in Pellery", (PASSAGE,)
)


def judged(
    judge: AnyJudge, *replies: str | Exception, answer: JudgedAnswer = ANSWER
) -> tuple[Verdict, list[Generate]]:
    """The verdict and the calls, answered by the replies in turn."""
    world = World(replies)
    return drive(judge.judge(answer), world), world.generations


def one(form: str = "three_way", **changed: Any) -> Judge:
    judge: Judge = build({**composed_node("judge", form), **changed}, "judge")
    return judge


READINGS: dict[str, dict[str, str | None]] = {
    "three_way": {
        '{"verdict": "correct"}': "correct",
        '{"verdict": "incorrect"}': "incorrect",
        '{"verdict": "not_attempted"}': "not_attempted",
        '```json\n{"verdict": "Not attempted"}\n```': "not_attempted",
        "INCORRECT.": "incorrect",
        " not-attempted \n": "not_attempted",
        "The answer is correct": None,
        "correct or incorrect": None,
        '{"verdict": "correctish"}': None,
        '{"verdict": true}': None,
        '{"answer": "correct"}': None,
        '{"verdict": "correct"': None,
        '{"verdict": ' + "9" * 5000 + "}": None,
        "": None,
    },
    "kgp": {"1": "correct", " 0\n": "incorrect", "1.": "correct", "10": None, "0 or 1": None, "one": None, "": None},
    "safe": {
        '{"is_correct": "correct", "reasoning": "the same town"}': "correct",
        '{"is_correct": "wrong", "reasoning": "a {brace}"}': "incorrect",
        '{"is_correct": "incorrect", "reasoning": ""}': None, '{"is_correct": true}': None, "wrong": "incorrect",
    },
    "faithful": {
        '{"verdict": "supported"}': "correct", "Unsupported.": "incorrect",
        '{"verdict": "not_attempted"}': "not_attempted",
        "correct": None,
    },
}  # fmt: skip
REFUSALS = {"three_way": "incorrect", "kgp": "0", "safe": "wrong", "faithful": "unsupported"}


@pytest.mark.parametrize(
    ("form", "text", "label"),
    [
        (form, text, label)
        for form, readings in READINGS.items()
        for text, label in readings.items()
    ],
)
def test_reply_is_a_verdict_or_none(form: str, text: str, label: str | None) -> None:
    assert FORMS[form].read(text) == label


@pytest.mark.parametrize("form", FORMS)
def test_unreadable_reply_is_repeated_once(form: str) -> None:
    verdict, calls = judged(one(form), "Well, it depends.", REFUSALS[form])
    assert (verdict.label, len(verdict.votes[0].replies)) == ("incorrect", 2)
    first, second = (call.prompt.messages[-1].content for call in calls)
    assert "Your last reply" in second
    assert "Your last reply" not in first
    assert (calls[0].role, calls[0].temperature, calls[0].schema) == (
        "judge",
        0,
        FORMS[form].schema,
    )
    verdict, calls = judged(one(form), "banana", "banana")
    assert verdict.label is None
    assert len(calls) == 2


LONG_REASON = (
    f"reply '{'x' * 80}… (19 more characters)' is not in its vocabulary "
    "correct, incorrect, not_attempted"
)

OTHER_KEY = (
    """reply '{"label": "incorrect"}' has no key 'verdict' with one of """
    "correct, incorrect, not_attempted"
)


@pytest.mark.parametrize(
    ("votes", "reason"),
    [
        ([("correct", "1"), ("incorrect", "0")], None),
        ([("correct", "1"), (None, "right")], "reply 'right' is not in its vocabulary 1, 0"),
        ([(None, "x" * 99)], LONG_REASON),
        ([(None, '{"label": "incorrect"}')], OTHER_KEY),
    ],
    ids=["readable", "second", "long", "other key"],
)
def test_unreadable_vote_has_a_reason(
    votes: list[tuple[str | None, str]], reason: str | None
) -> None:
    panel = Panel(members=("three_way", "kgp"))
    verdict = Verdict(None, tuple(Vote(verdict=one, replies=(text,)) for one, text in votes))
    assert explain_unreadable(panel, verdict) == reason


@pytest.mark.parametrize("form", FORMS)
def test_judge_sees_gold_answers_or_passages(form: str) -> None:
    _, (call,) = judged(one(form), "correct" if form == "three_way" else REFUSALS[form])
    text = call.prompt.messages[-1].content
    assert ANSWER.question in text
    assert ANSWER.answer in text
    assert ("Answer: Pellery" in text or '"Pellery"' in text or "Reference: Pellery" in text) is (
        form != "faithful"
    )
    assert ("parish register" in text) is (form == "faithful")


@pytest.mark.parametrize(("share", "label"), [(1.0, "correct"), (0.5, "incorrect")])
def test_score_judges_without_a_call(share: float, label: str) -> None:
    answer = replace(ANSWER, shares={"em": share, "containment": 1 - share})
    verdict, calls = judged(build(composed_node("judge", "em"), "judge"), answer=answer)
    assert (verdict.label, calls) == (label, [])


def test_exact_match_is_judged_unless_skipped() -> None:
    exact = JudgedAnswer(ANSWER.question, ANSWER.golds, "The Town of Pellery!")
    verdict, calls = judged(one(), '{"verdict": "incorrect"}', answer=exact)
    assert (verdict.label, len(calls)) == ("incorrect", 1)
    default, calls = judged(one(skip_exact=True), answer=exact)
    assert (default.label, default.votes, calls) == ("correct", (), [])
    asked, calls = judged(one(skip_exact=True), '{"verdict": "correct"}')
    assert (asked.label, len(calls)) == ("correct", 1)


@pytest.mark.parametrize(
    ("votes", "label"),
    [
        pytest.param(("correct", "1", "wrong"), "correct", id="majority"),
        # a tie
        pytest.param(("not attempted", "0", "correct"), None, id="tie"),
        # a tie
        # a vote that cannot be read counts towards the half
        pytest.param(("correct", "x", "x", "x", "x"), None, id="unreadable votes"),
        pytest.param((EngineError("gone"), "0", "wrong"), "incorrect", id="failed vote"),
    ],
)
def test_panel_verdict_is_the_majority(
    votes: tuple[str | Exception, ...], label: str | None
) -> None:
    verdict, calls = judged(Panel(32, False, ("three_way", "kgp", "safe")), *votes)
    assert (verdict.label, [call.role for call in calls[:2]]) == (label, ["judge_1", "judge_2"])
    assert verdict.votes[0].error == (
        "EngineError: gone" if isinstance(votes[0], EngineError) else None
    )


def test_panel_has_two_judges_and_their_roles() -> None:
    assert judged(Panel(32, False, ("three_way", "kgp")), "correct", "0")[0].label is None
    roles = {"judge_1": "a@vllm", "judge_2": None, "judge_3": "b"}
    assert Panel(32, False, ("three_way:a@vllm", "three_way", "kgp:b")).roles == roles
    with pytest.raises(ConfigError, match=r"judge\.max_tokens=0"):
        one(max_tokens=0)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        pytest.param(("three_way",), "at least two", id="one judge"),
        pytest.param(("kgp", "kgp"), "each once", id="equal judges"),
        pytest.param(("kgp", "trueway"), "is not form", id="unknown judge"),
    ],
)
def test_invalid_panel_is_rejected(members: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Panel(32, False, members)


def test_accuracy_counts_failed_answers_as_wrong() -> None:
    def judgement(verdict: str | None, fate: Fate) -> Judgement:
        return Judgement(question_id="q", verdict=verdict, fate=fate, votes=(), judge="three_way")

    judged = [
        judgement(verdict, "judged") for verdict in ("correct", "correct", "not_attempted", None)
    ]
    rows = [*judged, judgement(None, "failed"), judgement("correct", "exact")]
    summary = summarise_verdicts(rows, [True, False, False, True, False, True])
    assert summary.accuracy.mean == pytest.approx(60.0)
    assert summary.accuracy.n == 5
    assert summary.verdicts == {"correct": 3, "incorrect": 0, "not_attempted": 1}
    assert (summary.unscored, summary.failed, summary.exact) == (1, 1, 1)
    # neither unscored, nor failed, nor taken for correct unseen
    assert summary.agreement_with_em.n == 3
    assert summary.agreement_with_em.percent == pytest.approx(200 / 3)
    # of two answers that the judge accepts, EM rejects one
    assert summary.agreement_with_em.confusion["correct"] == {"correct": 1, "incorrect": 1}
    silent = summarise_verdicts(
        [judgement(None, "judged"), judgement(None, "failed")], [True, False]
    )
    assert (silent.accuracy, silent.unscored) == (UNDEFINED, 1)
