"""What verdicts come to: counts, the share of noise, means of what was counted on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kgqa.artefacts.metrics import Costs
from kgqa.artefacts.verification import MatchedLines, VerificationOutcome, VerifiedQuestion
from kgqa.experiment.session.experiment import Experiment
from kgqa.scoring.intervals import estimate


def summed(
    experiment: Experiment,
    verdicts: Sequence[VerifiedQuestion],
    by: str,
    listed: MatchedLines | None = None,
    cost: Costs | None = None,
) -> VerificationOutcome:
    fates = Counter(line.verdict for line in verdicts)
    flags = sum((Counter(line.flags) for line in verdicts), Counter[str]())
    return VerificationOutcome(
        dataset=experiment.name("dataset"),
        split=str(experiment.config["dataset"].get("split", "")),
        by=by,
        swapped=experiment.verification.swap_answers and listed is None,
        questions=len(verdicts),
        valid=fates["valid"],
        noise=fates["noise"],
        unverified=fates["unverified"],
        failed=sum(line.error is not None for line in verdicts),
        noise_percent=estimate([float(line.verdict == "noise") for line in verdicts], experiment.settings.seed),
        figures=_means(verdicts),
        flags=dict(sorted(flags.items())),
        listed=listed,
        cost=cost,
    )


def _means(verdicts: Sequence[VerifiedQuestion]) -> dict[str, float]:
    """Over the questions that have the figure at all; a round that no passage came to has added nothing."""
    asked = [line.figures for line in verdicts if line.figures]
    names = dict.fromkeys(name for figures in asked for name in figures)
    means = {}
    for name in names:
        known = [figures[name] for figures in asked if name in figures]
        of = len(known) if name == "triples in the path" else len(asked)
        means[name] = round(sum(known) / of, 4)
    return means
