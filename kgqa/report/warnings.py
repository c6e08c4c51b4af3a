"""Warnings about scores. The terminal and the reports of runs, sweeps and evaluations show them."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from inspect import getfile, unwrap
from pathlib import Path

from kgqa.artifacts.manifest import Manifest
from kgqa.artifacts.metrics import LACKS, JudgeMetrics, Metrics, ScoreSummary
from kgqa.artifacts.run import SWEEP, FinishedRun
from kgqa.artifacts.sweep import Sweep
from kgqa.errors import DataError
from kgqa.report.columns import join_names
from kgqa.scoring.own_metrics import OwnMetric, list_own_metrics
from kgqa.util.fs import sha256
from kgqa.util.redaction import function_line

# share of passages or answers that can lack something without a warning
ACCEPTED = 0.05


def find_warnings(run: FinishedRun) -> list[str]:
    """Return the warnings about the scores of a run. Those of its retrieval and its judge are in its metrics."""
    files = {Path(name).absolute() for name in (run.manifest.own.files if run.manifest.own else ())}
    # another metric can be newer than the scores
    scored = {
        name: metric
        for name, metric in list_own_metrics().items()
        if metric.file.absolute() in files
    }
    return [*find_doubts(run.metrics), *find_undefined_metrics(run.metrics, scored)]


def find_doubts(metrics: Metrics) -> list[str]:
    """Return the warnings about scores that are probably not those of the method, or too high by the judge."""
    return [*(metrics.judge.warnings if metrics.judge else ()), *find_wrong_scores(metrics)]


def find_wrong_scores(metrics: Metrics) -> list[str]:
    """Return the warnings about scores that are probably not those of the method."""
    return [
        *find_worthless_answers(metrics),
        *find_missing_verdicts(metrics.judge),
        *find_bad_inputs(metrics),
    ]


def name_doubts(rows: Iterable[tuple[str, Metrics]]) -> list[str]:
    """Return the warnings about wrong scores as sentences for a caption, each after the names of the rows that have it.

    A table that shows no judge has no warning about it.
    """
    return join_names(
        (name, f"{text}.") for name, metrics in rows for text in find_wrong_scores(metrics)
    )


def find_bad_inputs(metrics: Metrics) -> Iterator[str]:
    """Yield what the models have not read or chosen, and what the knowledge graph and the index lack."""
    yield from find_cut_prompts(metrics)
    yield from find_missed_choices(metrics)
    yield from find_lacks(metrics)


def find_undefined_metrics(
    scores: ScoreSummary, own_metrics: Mapping[str, OwnMetric]
) -> Iterator[str]:
    """Yield a line for each of the user's metrics that failed, or that no answered question defines.

    They are in no table.
    """
    failures = scores.failed_metrics or {}
    yield from failures.values()
    # without answers, because all failed or the method only searches, no metric is defined
    if not scores.score("em").n:
        return
    for name, metric in own_metrics.items():
        if name not in failures and not scores.score(name).n:
            place = function_line(metric.function)
            yield (
                f"metric {name} ({place}) is not defined for any of {scores.questions:,} questions. "
                "It must return a number from 0 to 1"
            )


def warn_of_new_metrics(
    places: Iterable[Path], metrics: Collection[str] | None = None
) -> Iterator[str]:
    """Yield a line for each finished run or sweep that was scored before the user added or changed metrics.

    It has the command that scores again. metrics: only warn of these. None: of all.
    """
    listed = list_own_metrics()
    own = {name: each for name, each in listed.items() if metrics is None or name in metrics}
    for place in places if own else ():
        try:
            sweep = Sweep.read(place) if (place / SWEEP).is_file() else None
            command = sweep.command if sweep else Manifest.read(place).command
            runs = [cell.run for cell in sweep.cells if cell.is_finished] if sweep else [place]
            scores = [Metrics.read(run).scores for run in runs if run]
            manifests = [Manifest.read(run) for run in runs if run]
        except DataError:
            # another message names the damaged file
            continue
        if names := [name for name in own if any(name not in each for each in scores)]:
            yield (
                f"{place} was scored without {', '.join(names)}, which its reports lack. "
                f"Score its answers again without new calls: {shlex.join(command)}"
            )
        elif names := [
            name for name in own if any(_is_changed(own[name], each) for each in manifests)
        ]:
            yield (
                f"{place} was scored before you changed {', '.join(names)}, and its reports have the earlier scores. "
                f"Score its answers again without new calls: {shlex.join(command)}"
            )


def _is_changed(metric: OwnMetric, manifest: Manifest) -> bool:
    """Return whether the file or the module of a metric has changed since a run was scored with it."""
    scored = manifest.own.files if manifest.own else {}
    hashes = {Path(name).absolute(): digest for name, digest in scored.items()}
    files = (metric.file, Path(getfile(unwrap(metric.function))))
    return any(
        file in hashes and hashes[file] != sha256(file) for file in map(Path.absolute, files)
    )


def find_worthless_answers(metrics: ScoreSummary) -> Iterator[str]:
    """Yield a line if more than half of the answers are empty, and one if so many reached their token limit.

    The cause is usually the server or its settings, and not the method.
    """
    answered = metrics.questions - metrics.failed
    counts = {
        "empty": metrics.answerless,
        "cut at max_tokens": metrics.flags.get("truncated_answer", 0),
    }
    for problem, count in counts.items():
        if 2 * count > answered:
            yield f"{count:,} of {answered:,} answers are {problem}"


def find_missing_verdicts(judge: JudgeMetrics | None) -> Iterator[str]:
    """Yield a line if many answers have no verdict, because the judge failed or its replies are no verdicts."""
    if judge is None:
        return
    answers = judge.questions - judge.failed
    if judge.unscored > ACCEPTED * answers:
        yield f"judge={judge.judge} gave no verdict on {judge.unscored:,} of {answers:,} answers"


def find_cut_prompts(metrics: Metrics) -> Iterator[str]:
    """Yield a line per role if the server truncated more than half of its prompts.

    The model has not read the rest of them.
    """
    for cost in filter(None, (metrics.cost.extraction, metrics.cost.method)):
        for role, calls in cost.by_role.items():
            flagged = calls.flags.get("cut_prompt")
            if flagged is not None and flagged.share > 1 / 2:
                yield (
                    f"the server truncated {flagged.calls:,} of {calls.calls:,} prompts of the {role}, so the scores "
                    "are not those of the method. Increase its context length, or set a smaller model.context"
                )


def find_missed_choices(metrics: Metrics) -> Iterator[str]:
    """Yield a line per role if many of its replies name no option, so that the method did not choose."""
    for role, calls in metrics.cost.method.by_role.items():
        flagged = calls.flags.get("no_choice")
        if flagged is not None and flagged.share > ACCEPTED:
            yield (
                f"{flagged.calls:,} of {calls.calls:,} replies of the {role} name no option, so that all options "
                "counted as equally likely. Use a server that returns log-probabilities, or another model"
            )


def find_lacks(metrics: Metrics) -> Iterator[str]:
    """Yield a line if many passages lack triples or what the retriever needs, or if an extraction failed."""
    graph, retriever = metrics.graph or {}, metrics.retriever or {}
    passages, failed, empty, unmatched = (
        int(graph.get(name) or 0) for name in ("passages", "failed", "empty", "unmatched")
    )
    if failed:
        yield (
            f"the knowledge graph is incomplete: the extraction of {failed:,} of {passages:,} passages failed. "
            "Run the command again"
        )
    if empty > ACCEPTED * passages:
        absent = f" ({unmatched:,} of them are not in the imported file)" if unmatched else ""
        yield f"the knowledge graph has no triples of {empty:,} of {passages:,} passages{absent}"
    total = retriever.get("passages", 0)
    lacks = {name: retriever[name] for name in LACKS if name in retriever}
    if "failed" in lacks or any(count > ACCEPTED * total for count in lacks.values()):
        listed = ", ".join(f"{count:,} {LACKS[name]}" for name, count in lacks.items())
        yield (
            f"the index is incomplete: of {total:,} passages {listed}. "
            "The retriever finds these by their text only"
        )
