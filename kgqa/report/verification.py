"""Build the report of `kgqa data verify`: SAFE's Table 2 next to ours, graph figures and agreement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kgqa.artifacts.metrics import Agreement, Costs
from kgqa.artifacts.run import MADE_UP, SCRIPTED
from kgqa.artifacts.verification import MatchedLines, VerificationOutcome
from kgqa.report.content import Section, agreement_section, figure
from kgqa.report.summary import tokens_text
from kgqa.util.text import pluralize


class Published(NamedTuple):
    """Of the same data set and split, in SAFE's Table 2."""

    total: float
    noise: float
    percent: float


def verification_sections(
    outcome: VerificationOutcome, agreements: Mapping[str, Agreement], published: Published | None
) -> list[Section]:
    listed = [
        _counts(outcome, published),
        _list_questions(outcome.listed),
        Section("Graphs, per question", (), [(name, f"{mean:,.2f}") for name, mean in outcome.figures.items()]),
        Section("Oddities", ("flag", "count"), [(name, f"{count:,}") for name, count in outcome.flags.items()]),
        cost_section(outcome.cost),
        *(agreement_section(f"Agreement with {name}", ("here", "there"), found) for name, found in agreements.items()),
    ]
    return [section for section in listed if section.rows]


def _counts(outcome: VerificationOutcome, published: Published | None) -> Section:
    share = outcome.noise_percent
    interval = "" if share.low is None or share.high is None else f" [{share.low:.2f}, {share.high:.2f}]"
    ours = "–" if share.mean is None else f"{share.mean:.2f} %{interval}"
    rows = [(outcome.name, *_numbers(outcome.questions, outcome.noise, outcome.valid, outcome.unverified), ours)]
    if published:
        total, noise, percent = published
        rows.append(("SAFE, Table 2", f"{total:,.0f}", f"{noise:,.0f}", "–", "–", f"{percent:.2f} %"))
    text = ["Ratio: of noise among all questions; brackets: a 95 % bootstrap interval."]
    if outcome.unverified:
        failed = f", {pluralize(outcome.failed, 'question')} among them failed" if outcome.failed else ""
        text.append(f"Unverified: nothing was decided, so neither valid nor noise{failed}.")
    if outcome.swapped:
        text.append("Each question was given another one's answer: whatever is valid here should not be.")
    made_up = MADE_UP if outcome.by.endswith(f"@{SCRIPTED}") else ""
    return Section("Questions", ("", "Total", "Noise", "Valid", "Unverified", "Ratio"), rows, tuple(text), made_up)


def _numbers(*counts: int) -> tuple[str, ...]:
    return tuple(f"{count:,}" for count in counts)


def _list_questions(listed: MatchedLines | None) -> Section:
    if listed is None:
        return Section("The list", (), ())
    rows = [
        ("lines", figure(listed.lines)),
        ("distinct questions", figure(listed.distinct)),
        ("matched", figure(listed.matched)),
        ("unmatched", figure(listed.unmatched)),
    ]
    return Section("The list", (), rows + [("unmatched, e.g.", text) for text in listed.examples])


def cost_section(cost: Costs | None) -> Section:
    if cost is None:
        return Section("Cost", (), ())
    method, paid = cost.method, cost.paid
    rows = [
        ("model calls", f"{method.calls:,} ({method.calls_per_question} per question), {paid.calls:,} paid"),
        ("tokens", tokens_text(method)),
        ("model seconds", f"{method.seconds:,.1f}, {paid.seconds:,.1f} paid"),
    ]
    return Section("Cost", (), rows + ([("USD", f"{method.usd:,.4f}")] if method.usd is not None else []))
