"""Estimate the calls, tokens and hours of each bootstrapping round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from kgqa.artifacts.bootstrap import ROUND
from kgqa.cache.store import CallCache
from kgqa.experiment.run.checking import check
from kgqa.experiment.run.estimating import Estimated, duration, estimate_roles, measure_rates
from kgqa.experiment.run.planning import Shared, plan_calls
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.session import Session
from kgqa.report.content import Section
from kgqa.sweeps.cells import Cell
from kgqa.sweeps.estimates import first_questions, in_all, times
from kgqa.training.bootstrap.request import BootstrapRequest
from kgqa.training.train.planning import plan_tokens

PLANNED = 5  # questions of a run that a plan looks at
TEXT = (
    f"Runs: planned with made-up replies to the first {PLANNED} questions, times their number, with no call cached.",
    "Trainings: at most, as if every answer were right and every reply kept.",
)


@dataclass(frozen=True)
class Asked:
    """The estimated calls of a run, and the tokens of each role's prompts and replies."""

    estimated: Estimated
    tokens: dict[str, int]

    @classmethod
    def by(cls, words: Sequence[str]) -> Asked:
        """Raise ConfigError: it cannot be run."""
        whole = Experiment.of(words)
        count = len(whole.questions)
        experiment = first_questions(Cell(0, "", whole), PLANNED).experiment
        with TemporaryDirectory(prefix="kgqa-plan-") as folder:
            cache = CallCache(Path(folder))
            try:
                with Session(experiment, calls=cache) as session:
                    check(session)
                    plan = plan_calls(session, Shared())
            finally:
                cache.close()
        share = max(1.0, count / PLANNED)
        tokens = {name: round(share * (role.prompt_tokens + role.output_tokens)) for name, role in plan.items()}
        estimated = times(estimate_roles(plan.values(), measure_rates()), share)
        assert isinstance(estimated, Estimated)
        return cls(estimated, tokens)


def plan_sections(request: BootstrapRequest, folder: Path) -> list[Section]:
    """Return a row a stage. `folder`: where it is or will be; what has ended there takes nothing."""
    learning, evaluating = Asked.by(request.learning({})), Asked.by(request.evaluating({}))
    rows = list[tuple[str, ...]]()
    left = list[Estimated]()
    seconds: list[float | None] = []
    for stage, place in _stages(request, folder):
        if (place / ROUND).is_file():
            rows.append((stage, "ended", "", "", ""))
            continue
        if place.name != "round0":
            rows.append((f"{stage}: run", *_figures(learning.estimated)))
            left.append(learning.estimated)
            for role in request.settings.train:
                tokens = learning.tokens.get(role, 0)
                taken = plan_tokens(request.training(role, "any"), tokens).seconds()
                seconds.append(taken and taken[0])
                time = f"{duration(taken[0])} ({taken[1].partition(':')[0]})" if taken else "not known"
                rows.append((f"{stage}: train {role}", "–", f"{tokens:,}", time, ""))
        rows.append((f"{stage}: evaluate", *_figures(evaluating.estimated)))
        left.append(evaluating.estimated)
    asked = in_all(left)
    known = [each for each in seconds if each is not None]
    unknown = asked.seconds is None or len(known) < len(seconds)
    whole = replace(asked, seconds=None if unknown else (asked.seconds or 0.0) + sum(known))
    rows.append(("all", *_figures(whole)))
    return [Section("Plan", ("stage", "calls", "tokens", "time", "USD"), rows, TEXT)]


def _stages(request: BootstrapRequest, folder: Path) -> Iterator[tuple[str, Path]]:
    yield "round 0", folder / "round0"
    for filter_ in request.settings.filter:
        for number in range(1, request.settings.rounds + 1):
            yield f"round {number}, {filter_}", folder / filter_ / f"round{number}"


def _figures(estimated: Estimated) -> tuple[str, str, str, str]:
    time = "not known" if estimated.seconds is None else duration(estimated.seconds)
    return (
        f"{estimated.calls:,}",
        f"{estimated.tokens:,}",
        time,
        "" if estimated.usd is None else f"{estimated.usd:,.2f}",
    )
