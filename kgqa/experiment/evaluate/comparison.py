"""Finished runs on the same questions, who wins where, and the questions that flipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from string import ascii_uppercase

from kgqa.artifacts.verdicts import VERDICTS, judge_of, read_verdicts
from kgqa.errors import ConfigError
from kgqa.experiment.evaluate.answered import AnsweredQuestions, open_run, share_questions
from kgqa.report.card import cards
from kgqa.report.content import Section
from kgqa.report.evaluation import comparison_section
from kgqa.report.splits import HEADER, NOTE, Answered, split_by_knowledge
from kgqa.scoring.comparison import compare
from kgqa.util.text import pluralize

Shares = list[float | None]


@dataclass(frozen=True)
class ComparisonRequest:
    runs: tuple[Path, ...]
    profile: str | None
    seed: int
    difference: float  # in points, whose number of questions is told
    in_all: bool  # over the questions that all runs have
    flips: int | None  # how many questions that flipped are shown of a pair; None: all


@dataclass(frozen=True)
class Comparison:
    heading: str
    sections: list[Section]

    def _repr_html_(self) -> str:
        return cards(self.heading, self.sections)


def compare_answers(request: ComparisonRequest) -> Comparison:
    """Return every pair of runs in EM, F1 and, where one judge judged all of them, its verdicts.

    Raises:
        ConfigError: the runs are over different questions, or scored by different profiles.
        DataError: one is not the folder of a finished run.
    """
    runs = [open_run(folder, request.profile) for folder in request.runs]
    if len({run.profile for run in runs}) > 1:
        raise ConfigError(f"scored by {' and '.join(sorted({run.profile for run in runs}))}; give one with profile=")
    count = len(runs[0].questions)
    runs = share_questions(runs, common=request.in_all)
    names = ascii_uppercase[: len(runs)]
    scores = _scores(runs, names)
    verdicts, notes = _verdicts(runs, names)
    differences = compare({**scores, **({"judge": verdicts} if verdicts else {})}, request.seed)
    flips = _flips(runs, names, verdicts or scores["EM"], request.flips)
    title = f"{pluralize(len(runs[0].questions), 'question')}, profile {runs[0].profile}"
    if request.in_all:
        title += f" (those that all runs have; {names[0]} has {count:,})"
    lines = [f"{name}: {run.name}{run.simulation_note}" for name, run in zip(names, runs, strict=True)]
    shown = [comparison_section(differences, request.difference), *_knowledge(runs, names, scores["EM"]), *flips]
    return Comparison("\n".join([title, *lines, *notes]), shown)


def _knowledge(runs: Sequence[AnsweredQuestions], names: str, em: Mapping[str, Shares]) -> list[Section]:
    """Compare each run with a run without context, if there is one: what retrieval adds to the model's own
    knowledge.
    """
    ids = [question.id for question in runs[0].questions]
    answered = [
        Answered(name, run.method, run.reader, dict(zip(ids, em[name], strict=True)))
        for name, run in zip(names, runs, strict=True)
    ]
    rows = split_by_knowledge(answered)
    return [Section("Right without context", ("run", *HEADER), rows, (NOTE,))] if rows else []


def _scores(runs: Sequence[AnsweredQuestions], names: str) -> dict[str, dict[str, Shares]]:
    """Return EM and F1 by run."""
    scores: dict[str, dict[str, Shares]] = {"EM": {}, "F1": {}}
    for name, run in zip(names, runs, strict=True):
        rows = run.rows()
        scores["EM"][name], scores["F1"][name] = [row.em for row in rows], [row.f1 for row in rows]
    return scores


def _verdicts(runs: Sequence[AnsweredQuestions], names: str) -> tuple[dict[str, Shares] | None, list[str]]:
    """Return shares by run if one judge judged them all and what they now answer; else None, and why not if any was
    judged.
    """
    folders = [Path(run.name) for run in runs]
    if not any((folder / VERDICTS).is_file() for folder in folders):
        return None, []
    without = [name for name, folder in zip(names, folders, strict=True) if not (folder / VERDICTS).is_file()]
    if without:
        return None, [f"verdicts are not compared: {', '.join(without)} not judged"]
    read = [read_verdicts(folder) for folder in folders]
    judges = sorted(set(map(judge_of, read)))
    if len(judges) > 1:
        return None, [f"verdicts are not compared: given by {' and by '.join(judges)}"]
    shares: dict[str, Shares] = {}
    for name, run, verdicts in zip(names, runs, read, strict=True):
        stale = [row.id for row in run.rows() if (line := verdicts.get(row.id)) is None or line.answer != row.answer]
        if stale:
            return None, [f"verdicts are not compared: {name} answers question {stale[0]} anew since it was judged"]
        shares[name] = [verdicts[question.id].share for question in run.questions]
    return shares, [f"judge: {judges[0]}"]


def _flips(
    runs: Sequence[AnsweredQuestions], names: str, right: Mapping[str, Shares], limit: int | None
) -> list[Section]:
    """Return the flips for each pair the questions that one run has right and the other wrong, in order."""
    sections = []
    for (first, mine), (second, theirs) in combinations(zip(names, runs, strict=True), 2):
        rows = []
        for question, a, b in zip(mine.questions, right[first], right[second], strict=True):
            if a is not None and b is not None and a != b:
                texts = (run.predictions[question.id].answer for run in (mine, theirs))
                answers = ["(failed)" if text is None else text for text in texts]
                rows.append((question.id, question.text, first if a > b else second, *answers, question.answers[0]))
        if rows:
            more = [f"{len(rows) - limit:,} more; --all shows them"] if limit is not None and len(rows) > limit else []
            header = ("question", "text", "right", f"{first} answers", f"{second} answers", "gold")
            title = f"Flipped between {first} and {second}: {len(rows):,}"
            sections.append(Section(title, header, rows[:limit], tuple(more)))
    return sections
