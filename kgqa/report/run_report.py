"""The sections of a run's report and its warnings, and the report in all formats."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kgqa.artifacts.manifest import Manifest
from kgqa.artifacts.metrics import (
    Agreement,
    Figures,
    FoundAndRight,
    JudgeMetrics,
    Means,
    Retrieval,
    RoleCost,
    ScoreSummary,
)
from kgqa.artifacts.predictions import run_predictions
from kgqa.artifacts.run import SCRIPTED, FinishedRun, Setting
from kgqa.artifacts.schema import Number
from kgqa.config.files import flatten
from kgqa.report.questions import prediction_rows
from kgqa.report.section import FILES, Section, csv_text, latex, markdown
from kgqa.report.summary import accuracy_text, cost_rows, failed_note, summary_rows
from kgqa.scoring.questions import METRICS
from kgqa.types import Json
from kgqa.util.fs import replace_file, replace_file_parts
from kgqa.util.text import pluralize

USED = ("method", "kg", "retriever", "ranker", "demonstrations_ranker", "reranker", "engine", "model", "dataset")
_REASONS = 3  # most frequent reasons of failed questions in a notice
_LONGEST = 300  # characters of a reason


def write_report(folder: Path, form: str, out: Path | None = None) -> Path:
    """Write a run's report in one of `FILES`, by default into its folder, and return the file."""
    from kgqa.report.explorer import run_page

    run, out = FinishedRun.read(folder), out or folder / FILES[form]
    match form:
        case "csv":
            return replace_file(out, _csv(run))
        case "latex":
            tables = [_scores_with_intervals(run), *(each for each in sections(run) if each.title != "Settings")]
            return replace_file(out, latex(run.title, tables, notices(run)))
        case "md":
            return replace_file(out, markdown(run.title, sections(run), notices(run)))
    return replace_file_parts(out, run_page(run, sections(run), notices(run)))


def sections(run: FinishedRun) -> list[Section]:
    """Return the sections without empty ones. A page folds all but groups, the judge's verdicts and alarms."""
    metrics = run.metrics
    listed = [
        replace(scores_section(metrics, summary_rows(metrics)), alarm=run.simulation_note),
        *judge_sections(metrics.judge),
        *breakdown_sections(metrics),
        _count_retrieval_errors(metrics.found_and_right),
        _retrieval(metrics.retrieval),
        figures_section("Process metrics, per question", metrics.figures),
        figures_section("Knowledge graph", metrics.graph or {}),
        figures_section("Reasoning chains", metrics.chains or {}),
        _costs(metrics.cost.method.by_role),
        _what_was_run(run.manifest),
        Section("Settings", ("key", "value", "source"), run.settings),
    ]
    # the scores are also headlines, and their alarm is a notice
    opened = [each.title != "Scores" and bool(each.alarm or each.title.startswith(("By ", "Judge"))) for each in listed]
    return [replace(each, is_folded=not shown) for each, shown in zip(listed, opened, strict=True) if each.rows]


def notices(run: FinishedRun) -> list[str]:
    """Return the warnings at the top: scripted replies, other models, trained questions, failed questions."""
    models, metrics, warnings = run.manifest.models, run.metrics, []
    scripted = sorted(role for role, identity in models.items() if identity.get("engine") == SCRIPTED)
    if scripted:
        roles = f" as {', '.join(scripted)}" if len(scripted) < len(models) else ""
        warnings.append(f"**Scripted replies: no model was called{roles}.** The scores are meaningless.")
    for model, calls in metrics.other_models.items():
        named = f"The run is named after {run.choices.get('model')}."
        warnings.append(f"**Another model answered {pluralize(calls, 'call')}: {model}.** {named}")
    for key, count in (metrics.trained_questions or {}).items():
        of = f"{count:,} of {metrics.questions:,} questions"
        warnings.append(f"**{key} was trained on {of}.** The scores include memorized answers.")
    if metrics.failed:
        limit = {key: value for key, value, _ in run.settings}.get("max_failure_rate")
        beyond = limit is not None and metrics.failed > float(limit) * metrics.questions
        above = f", more than max_failure_rate={limit} allows: the scores are not valid" if beyond else ""
        counted = "" if metrics.failed == metrics.questions else " and count as wrong"
        counts = f"{metrics.answered_text}: {metrics.failed:,} of {metrics.questions:,} questions failed"
        warnings.append(f"**{counts}**{counted}{above}. Why: {_reasons(run)}")
    if missing := (metrics.graph or {}).get("failed"):
        of = f"{missing:,} of {(metrics.graph or {}).get('passages'):,} passages"
        warnings.append(f"**The knowledge graph is incomplete: the extraction of {of} failed.** Run the command again.")
    return warnings


def _reasons(run: FinishedRun) -> str:
    errors = Counter(prediction.error for prediction in run_predictions(run.folder) if prediction.error is not None)
    reasons = [f"{count:,} × {' '.join(error.split()):.{_LONGEST}}" for error, count in errors.most_common(_REASONS)]
    more = len(errors) - _REASONS
    return "; ".join([*reasons, *([f"{more:,} other reasons"] if more > 0 else [])])


def list_used_settings(
    config: Mapping[str, Json], choices: Mapping[str, str], sources: Mapping[str, str], text: Callable[[Json], str]
) -> list[Setting]:
    """Return the settings that the run uses, with their sources. `text`: formats a value for a command line."""
    used = {group: config[group] for group in (*USED, "collection") if group in choices}
    values = {key: value for key, value in flatten(used).items() if not key.endswith("._target_")}
    values |= {key: config[key] for key in ("max_failure_rate",) if key in config}
    return [
        (key, text(value), sources.get(key, sources.get(key.rpartition(".")[0], ""))) for key, value in values.items()
    ]


def figure(value: str | Number | None, digits: int = 2) -> str:
    if value is None or isinstance(value, str):
        return value or "–"
    return f"{value:,.{digits}f}" if isinstance(value, float) else f"{value:,}"


def _score(value: Number | None) -> str:
    return figure(value, 1)


def figures_section(title: str, figures: Figures) -> Section:
    return Section(title, (), [(name.replace("_", " "), figure(value)) for name, value in figures.items()])


def judge_sections(judged: JudgeMetrics | None) -> list[Section]:
    """Return the judge's verdicts, models and costs, and its agreement with exact match, if there is a judge."""
    if judged is None:
        return []
    rows = [
        ("accuracy", accuracy_text(judged)),
        *((label.replace("_", " "), figure(count)) for label, count in judged.verdicts.items()),
        ("unscored", figure(judged.unscored)),
        ("exact matches (not sent to the judge)", figure(judged.exact)),
        *((f"model of {role}", label) for role, label in judged.models.items()),
        *((f"prompt {template}", digest) for template, digest in judged.prompts.items()),
        *cost_rows(judged.cost),
    ]
    warnings = tuple(f"**Warning**: {warning}." for warning in judged.warnings)
    text = (*warnings, "Answers without a verdict are unscored: they count neither as right nor as wrong.")
    agreement = agreement_section("Judge against exact match", ("judge", "EM"), judged.agreement_with_em)
    return [Section(f"Judge: {judged.judge}", (), rows, text), agreement]


def agreement_section(title: str, names: tuple[str, str], agreement: Agreement) -> Section:
    """Return the confusion table, with percent and kappa as text."""
    kappa = "not defined" if agreement.kappa is None else f"{agreement.kappa:.3f}"
    text = (
        f"{figure(agreement.percent)} % of {agreement.n:,} verdicts agree, Cohen's kappa {kappa}. "
        f"{agreement.left_out:,} without a verdict on both sides are excluded."
    )
    header = (names[0], *(f"{names[1]} {label}" for label in agreement.confusion))
    rows = [(label, *map(figure, counts.values())) for label, counts in agreement.confusion.items()]
    return Section(title, header, rows, (text,))


def breakdown_sections(summary: ScoreSummary) -> list[Section]:
    """Return the scores by profile, by hops and by type."""
    return [
        _scores_by("EM and F1 by scoring profile", "profile", summary.profiles),
        _scores_by("By hops", "hops", summary.by_hops if len(summary.by_hops) > 1 else {}),
        _scores_by("By type", "type", summary.by_type if len(summary.by_type) > 1 else {}),
    ]


def _csv(run: FinishedRun) -> str:
    """Return a line per question in the data file's order. Lists are JSON."""
    rows = list(prediction_rows(run))
    lines = (
        [json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value for value in row.values()]
        for row in rows
    )
    return csv_text([list(rows[0]), *lines])


def scores_section(summary: ScoreSummary, rows: Sequence[tuple[str, str]], notes: Sequence[str] = ()) -> Section:
    text = f"Scored by the {summary.profile} profile, in percent, with 95 % bootstrap intervals in brackets."
    return Section("Scores", (), rows, (text, failed_note(summary), *notes))


def _scores_with_intervals(run: FinishedRun) -> Section:
    scores = {metric.label: run.metrics.score(name) for name, metric in METRICS.items() if metric.listed}
    recalls = run.metrics.retrieval.recall if run.metrics.retrieval else {}
    scores |= {f"recall @{budget}": score for budget, score in recalls.items()}
    rows = [
        (label, f"{score.mean:.1f}", f"[{score.low:.1f}, {score.high:.1f}]", str(score.n))
        for label, score in scores.items()
        if score.mean is not None
    ]
    note = f" ({run.simulation_note})" if run.simulation_note else ""
    title = f"Scores by the {run.metrics.profile} profile, in percent{note}"
    return Section(title, ("score", "mean", "95 % interval", "questions"), rows)


def _count_retrieval_errors(counts: FoundAndRight | None) -> Section:
    """Return the numbers of questions by retrieval and answer."""
    rows = []
    if counts:
        rows = [
            ("all gold passages used", figure(counts.found_right), figure(counts.found_wrong)),
            ("some missed", figure(counts.missed_right), figure(counts.missed_wrong)),
        ]
    return Section("Retrieval and reader errors", ("questions", "right (EM)", "wrong"), rows)


def _scores_by(title: str, name: str, groups: Mapping[str, Means]) -> Section:
    rows = [(key, *map(_score, group.values())) for key, group in groups.items()]
    return Section(title, (name, *(["questions"] if name != "profile" else []), "EM", "F1"), rows)


def _retrieval(retrieval: Retrieval | None) -> Section:
    """Return the recall by budget, over all questions and by group."""
    title = "Recall of gold passages"
    if retrieval is None:
        return Section(title, (), ())
    groups = list[tuple[str, Mapping[str, Number | None]]]()
    for name, recalls in (("all", retrieval.recall), ("all, by page", retrieval.page_recall or {})):
        if recalls:
            groups.append((name, {"n": retrieval.n, **{budget: score.mean for budget, score in recalls.items()}}))
    for by_group in (retrieval.by_hops, retrieval.by_type):
        groups += by_group.items() if len(by_group) > 1 else ()
    rows = [(name, *(_score(means[key]) for key in ("n", *retrieval.recall))) for name, means in groups]
    header = ("group", "questions", *(f"@{budget}" for budget in retrieval.recall))
    return Section(title, header, rows, alarm=retrieval.alarm or "")


def _costs(roles: Mapping[str, RoleCost]) -> Section:
    header = ("role", "calls", "prompt tokens", "cached tokens", "output tokens", "seconds", "USD")
    rows = [
        (
            role,
            *map(figure, (cost.calls, cost.prompt_tokens, cost.cached_tokens, cost.output_tokens, cost.seconds)),
            "–" if cost.usd is None else f"{cost.usd:,.4f}",
        )
        for role, cost in roles.items()
    ]
    return Section("Cost by role", header, rows, ("Computed as if no reply had been cached.",))


def _what_was_run(manifest: Manifest) -> Section:
    values = manifest.json() | {"command": " ".join(manifest.command)}
    del values["packages"], values["prompts"]
    values["dataset"].pop("sampled", None)
    rows = [(key.replace("_", " "), str(value)) for key, value in flatten(values).items() if value is not None]
    return Section("Command, versions and data", (), rows)
