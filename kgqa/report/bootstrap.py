"""Build the report of `kgqa bootstrap`: a row per round, and KnowTrace's Figure 4."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kgqa.artifacts.bootstrap import Round, Rounds
from kgqa.artifacts.metrics import Estimate
from kgqa.report.content import Section
from kgqa.report.plots import Plot, Point, Series, svg
from kgqa.report.summary import interval_text

HEADER = ("round", "EM", "F1", "FA", "right answers", "examples", "evaluated in")
NAMES = {"backtracing": "KnowTrace*", "none": "Non-Backtracing"}
TEXT = (
    "EM and F1: of the questions that are evaluated on, with 95 % bootstrap intervals; round 0 is the base model.",
    "FA: of the tokens of right answers, which the round before wrote, the percent that backtracing filters.",
)


def rounds_sections(rounds: Rounds) -> list[Section]:
    first, others = rounds.rounds[0], rounds.rounds[1:]
    filters = dict.fromkeys(one.filter for one in others)
    if not filters:
        return [Section("Rounds", HEADER, [_row(first)], TEXT)]
    return [
        Section(name(each), HEADER, [_row(one) for one in (first, *others) if one.filter in ("", each)], TEXT)
        for each in filters
    ]


def name(filter_: str) -> str:
    return NAMES.get(filter_, filter_)


def curve(rounds: Rounds) -> str:
    """Return EM and FA by round, in percent, as an <svg>."""
    return svg(Plot(rounds.title, "round", "percent", list(_series(rounds.rounds))))


def html(rounds: Rounds, command: str) -> str:
    """Return report.html: one file that needs no network."""
    from markupsafe import Markup

    from kgqa.report.page import page

    return page(
        "curves.html.j2",
        ["report.css", "sweep.css"],
        title=rounds.title,
        command=command,
        heading="EM and FA by round",
        curves=Markup(curve(rounds)),  # noqa: S704 - escaped by svg
        sections=rounds_sections(rounds),
    )


def _series(rounds: Sequence[Round]) -> Iterator[Series]:
    first, others = rounds[0], rounds[1:]
    for colour, filter_ in enumerate(dict.fromkeys(one.filter for one in others) or [""]):
        chosen = [one for one in others if one.filter == filter_]
        label = f", {name(filter_)}" if filter_ else ""
        yield Series(f"EM{label}", list(_points((one.number, one.em) for one in (first, *chosen))), colour)
        yield Series(f"FA{label}", list(_points((one.number, one.filtered) for one in chosen)), colour, hollow=True)


def _points(estimates: Iterator[tuple[int, Estimate]]) -> Iterator[Point]:
    for number, score in estimates:
        if score.mean is not None:
            yield Point(number, score.mean, score.low, score.high)


def _row(one: Round) -> tuple[str, ...]:
    right = f"{one.right:,} of {one.asked:,}" if one.run else "–"
    kept = ", ".join(f"{role} {count:,}" for role, count in one.kept.items()) or "–"
    return (str(one.number), *map(_figure, (one.em, one.f1, one.filtered)), right, kept, one.dev)


def _figure(score: Estimate) -> str:
    return "–" if score.mean is None else interval_text(score)
