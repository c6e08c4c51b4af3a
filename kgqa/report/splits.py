"""Scores on the questions that a model gets right without any passage, and on the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kgqa.scoring.intervals import percent

NO_CONTEXT = "no_context"  # the method whose right answers come from the model alone
Shares = Mapping[str, float | None]  # by question

HEADER = ("EM where right without context", "EM elsewhere")
NOTE = (
    "What a model knows without a passage is no merit of retrieval: EM on the questions that method=no_context "
    "has right with the same model, and on the others (how many)."
)


@dataclass(frozen=True)
class Answered:
    """A run's exact matches, with what tells whose they are."""

    name: str
    method: str
    model: str
    em: Shares


def split_by_knowledge(runs: list[Answered]) -> list[tuple[str, str, str]]:
    """Return a row for each run whose model also answered without context: its name, EM where that was right, EM
    elsewhere.

    Nothing where no other method stands beside no_context.
    """
    known = {
        run.model: {key for key, share in run.em.items() if share == 1} for run in runs if run.method == NO_CONTEXT
    }
    split = [run for run in runs if run.model in known]
    if all(run.method == NO_CONTEXT for run in split):
        return []
    return [
        (run.name, _percent(run.em, known[run.model]), _percent(run.em, run.em.keys() - known[run.model]))
        for run in split
    ]


def _percent(em: Shares, among: set[str]) -> str:
    mean = percent([em.get(key) for key in among])
    return f"{'–' if mean is None else f'{mean:.1f}'} ({len(among):,})"
