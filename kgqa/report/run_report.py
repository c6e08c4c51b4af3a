"""The sections of a run's report, its warnings, and its summary for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kgqa.artifacts.manifest import Identity, Manifest
from kgqa.artifacts.metrics import (
    Costs,
    Estimate,
    Estimates,
    Figures,
    FoundAndRight,
    JudgeMetrics,
    LabelAgreement,
    Means,
    Metrics,
    Retrieval,
    RoleCost,
    ScoreSummary,
)
from kgqa.artifacts.predictions import run_predictions
from kgqa.artifacts.run import IDENTITY, SCRIPTED, FinishedRun, list_runs
from kgqa.artifacts.schema import Artifact, read
from kgqa.config.files import flatten
from kgqa.datasets.verified import read_labels
from kgqa.errors import DataError
from kgqa.report.columns import JUDGE_ACCURACY, SEPARATOR, name_by_settings
from kgqa.report.flags import flags_section
from kgqa.report.section import Section, Value, cell_text
from kgqa.report.warnings import find_warnings
from kgqa.scoring.agreement import agreement as agreement_of
from kgqa.scoring.comparison import explain_direction
from kgqa.scoring.corrected import kappa_interval
from kgqa.scoring.questions import METRICS, show_score
from kgqa.scoring.summary import JUDGE
from kgqa.types import Json
from kgqa.util.settings import name_of
from kgqa.util.text import duration, pluralize, score_text, seconds_text, shorten

Rows = Iterator[tuple[str, str]]
# the passages of several searches
NO_ORDER = (
    "none in common to several searches. Only the recall of the largest budget has a clear meaning"
)
# most frequent reasons of failed questions in a notice
_REASONS = 3
_LONGEST = 300  # characters of a reason
# groups and keys in the title of a run's page, with their settings
_DESCRIBING = ("method.", "retriever.", "reranker", "kg", "collection", "repeat")
_VALUE = 60  # characters of a setting there


def sections(run: FinishedRun) -> list[Section]:
    """Return the sections without empty ones. A page folds all but groups, the judge's verdicts and alarms."""
    metrics = run.metrics
    listed = [
        replace(scores_section(metrics), alarm=run.simulation_note),
        *judge_sections(metrics.judge),
        *breakdown_sections(metrics, metrics.judge),
        _count_retrieval_errors(metrics.found_and_right),
        _recalls(metrics.retrieval),
        *compare_verifications(run),
        figures_section("Process metrics, per question", metrics.figures),
        flags_section(metrics),
        figures_section("Knowledge graph", metrics.graph or {}),
        figures_section("Reasoning chains", metrics.chains or {}),
        _costs_by_role(metrics.cost.method.by_role),
        _what_was_run(run.manifest),
        Section("Settings", ("key", "value", "source"), run.settings),
    ]
    # the scores are also headlines, and their alarm is a notice
    opened = [
        each.title != "Scores" and bool(each.alarm or each.title.startswith(("By ", "Judge")))
        for each in listed
    ]
    return [
        replace(each, is_folded=not is_open)
        for each, is_open in zip(listed, opened, strict=True)
        if each.rows
    ]


def title_with_settings(run: FinishedRun) -> str:
    """Return the title of a run with the settings of its command that describe the method and its retrieval.

    The command of a sweep's cell has what the sweep varies.
    """
    pairs = [word.partition("=") for word in run.manifest.command if "=" in word]
    settings = {
        key: shorten(value, _VALUE) for key, _, value in pairs if key.startswith(_DESCRIBING)
    }
    named = name_by_settings(settings)
    return SEPARATOR.join(filter(None, (run.title, named)))


def notices(run: FinishedRun) -> list[str]:
    """Return the warnings at the top: replies that are not the model's own, trained questions, failures."""
    models, metrics, warnings = run.manifest.models, run.metrics, []
    scripted = sorted(role for role, identity in models.items() if name_of(identity) == SCRIPTED)
    if scripted:
        roles = f" as {', '.join(scripted)}" if len(scripted) < len(models) else ""
        warnings.append(
            f"**Scripted replies: no model was called{roles}.** The scores are meaningless."
        )
    for model, calls in metrics.other_models.items():
        named = f"The run is named after {run.choices.get('model')}."
        warnings.append(f"**Another model answered {pluralize(calls, 'call')}: {model}.** {named}")
    for model, calls in metrics.other_judges.items():
        warnings.append(
            f"**Another model answered {pluralize(calls, 'call')} of the judge: {model}.**"
        )
    if metrics.imported:
        warnings.append(
            "**Replies are from an imported file.** They are as trustworthy as the file."
        )
    for key, count in (metrics.trained_questions or {}).items():
        of = f"{count:,} of {metrics.questions:,} questions"
        warnings.append(f"**{key} was trained on {of}.** The scores include memorized answers.")
    if metrics.failed:
        limit = {key: value for key, value, _ in run.settings}.get("max_failure_rate")
        beyond = limit is not None and metrics.failed > float(limit) * metrics.questions
        above = (
            f", more than max_failure_rate={limit} allows: the scores are not valid"
            if beyond
            else ""
        )
        counted = "" if metrics.failed == metrics.questions else " and count as wrong"
        counts = (
            f"{metrics.answered_text}: {metrics.failed:,} of {metrics.questions:,} questions failed"
        )
        warnings.append(f"**{counts}**{counted}{above}. Why: {_reasons(run)}")
    scores = (f"**Warning**: {text}." for text in find_warnings(run))
    return [*warnings, *scores]


def _reasons(run: FinishedRun) -> str:
    errors = Counter(
        prediction.error
        for prediction in run_predictions(run.folder)
        if prediction.error is not None
    )
    reasons = [
        f"{count:,} × {' '.join(error.split()):.{_LONGEST}}"
        for error, count in errors.most_common(_REASONS)
    ]
    more = len(errors) - _REASONS
    return "; ".join([*reasons, *([f"{more:,} other reasons"] if more > 0 else [])])


def figures_section(title: str, figures: Figures) -> Section:
    return Section(
        title,
        (),
        {name.replace("_", " "): None if value == "" else value for name, value in figures.items()},
    )


def judge_sections(judged: JudgeMetrics | None) -> list[Section]:
    """Return the judge's verdicts, models and costs, and its agreement with exact match, if there is a judge."""
    if judged is None:
        return []
    rows: dict[str, Value] = {
        "accuracy": accuracy_text(judged),
        **{label.replace("_", " "): count for label, count in judged.verdicts.items()},
        "unscored": judged.unscored,
        "exact matches (not sent to the judge)": judged.exact,
        **{f"model of {role}": label for role, label in judged.models.items()},
        **{f"prompt {template}": digest for template, digest in judged.prompts.items()},
        **dict(cost_rows(judged.cost)),
    }
    text = ("Answers without a verdict are unscored: they count neither as right nor as wrong.",)
    agreement = agreement_section(
        "Judge against exact match", ("judge", "EM"), judged.agreement_with_em
    )
    return [Section(f"Judge: {judged.judge}", (), rows, text), *_panel_sections(judged), agreement]


def _panel_sections(judged: JudgeMetrics) -> list[Section]:
    """Return the accuracy by each member of a panel, and the agreement of each two."""
    members = [(name, accuracy) for name, accuracy in (judged.members or {}).items()]
    pairs = [
        (name, each.n, each.percent, kappa_text(each))
        for name, each in (judged.pairs or {}).items()
    ]
    listed = [
        Section("Members of the panel", ("judge", "accuracy"), members),
        Section("Agreement in the panel", ("judges", "answers", "percent", "kappa"), pairs),
    ]
    return [section for section in listed if section.rows]


def kappa_text(agreement: LabelAgreement) -> str:
    """Return Cohen's kappa with its 95 % interval."""
    ends = kappa_interval(agreement)
    if agreement.kappa is None or ends is None:
        return "not defined"
    kappa, low, high = (score_text(each, digits=3) for each in (agreement.kappa, *ends))
    return f"{kappa} [{low}, {high}]"


def agreement_section(title: str, names: tuple[str, str], agreement: LabelAgreement) -> Section:
    """Return the confusion table, with percent and kappa as text."""
    text = (
        f"{cell_text(agreement.percent)} % of {agreement.n:,} verdicts agree, Cohen's kappa {kappa_text(agreement)}. "
        f"{agreement.left_out:,} without a verdict on both sides are excluded."
    )
    header = (names[0], *(f"{names[1]} {label}" for label in agreement.confusion))
    return Section(
        title,
        header,
        [(label, *counts.values()) for label, counts in agreement.confusion.items()],
        (text,),
    )


def compare_verifications(run: FinishedRun) -> Iterator[Section]:
    """Yield the agreement with each other verification of the same data below outputs/, over the questions of both.

    Damaged and unfinished runs are skipped, and those with another dataset.perturb=.
    """
    if not run.metrics.score("noise").n:
        return
    own = read_labels(run.folder, run.manifest.dataset.sha256)
    for entry in list_runs():
        if entry.parts[:2] != (run.choices["dataset"], run.choices["method"]) or not entry.ended:
            continue
        with suppress(DataError):
            if entry.folder.resolve() == run.folder.resolve() or _perturbation(
                entry.folder
            ) != _perturbation(run.folder):
                continue
            labels = read_labels(entry.folder, run.manifest.dataset.sha256)
            shared = agreement_of([*own.values()], [labels.get(id_) for id_ in own])
            if shared.n:
                yield agreement_section(
                    f"Agreement with {'/'.join(entry.parts[1:])}", ("here", "there"), shared
                )


class _Verified(Artifact):
    dataset: Identity


def _perturbation(folder: Path) -> Json:
    return read(_Verified, folder / IDENTITY).dataset.get("perturb")


def breakdown_sections(summary: ScoreSummary, judged: JudgeMetrics | None) -> list[Section]:
    """Return the scores by profile, by hops and by type."""
    by_hops = _add_verdicts(summary.by_hops, judged.by_hops if judged else None)
    by_type = _add_verdicts(summary.by_type, judged.by_type if judged else None)
    return [
        _means_section("Scores by scoring profile", "profile", summary.profiles.items()),
        _means_section("By hops", "hops", by_hops.items()),
        _means_section("By type", "type", by_type.items()),
    ]


def _add_verdicts(
    groups: Mapping[str, Estimates], right: Mapping[str, Estimates] | None
) -> Mapping[str, Estimates]:
    """Return the scores of each group with the accuracy by the judge. A single group is none."""
    if len(groups) < 2 or not right:
        return groups if len(groups) > 1 else {}
    return {
        group: {**means, JUDGE: right.get(group, {}).get(JUDGE)} for group, means in groups.items()
    }


def _means_section(
    title: str, name: str, groups: Collection[tuple[str, Estimates]], alarm: str = ""
) -> Section:
    """Return the means of each group."""
    rows = [
        (group, *(score_text(mean) if isinstance(mean, float) else mean for mean in means.values()))
        for group, means in groups
    ]
    keys = [key for _, means in groups for key in means]
    return Section(
        title,
        (name, *map(_label_mean, dict.fromkeys(keys))),
        rows,
        alarm=alarm,
    )


def _label_mean(key: str) -> str:
    """Return the header of a mean: the label of a score, or a budget of passages. Removed metrics keep their key."""
    if key.isdigit():
        return f"@{key}"
    others = {"n": "questions", JUDGE: JUDGE_ACCURACY}
    return METRICS[key].title if key in METRICS else others.get(key, key)


def scores_section(
    summary: ScoreSummary, judged: JudgeMetrics | None = None, notes: Sequence[str] = ()
) -> Section:
    text = f"Scored by the {summary.profile_text}, in percent, with 95 % intervals in brackets."
    failed = "Failed questions count as wrong."
    if summary.answered:
        failed += f" The second value, or a single one, is of the {summary.answered_text} only."
    rows = list(summary_rows(summary, judged))
    directions = explain_direction(name for name, _ in rows)
    return Section("Scores", (), rows, (text, failed, *directions, *notes))


def scores_with_intervals(run: FinishedRun) -> Section:
    scores = {
        metric.title: show_score(run.metrics, name)
        for name, metric in METRICS.items()
        if metric.listed
    }
    if retrieval := run.metrics.retrieval:
        scores |= {f"recall @{budget}": retrieval.recall[budget] for budget in retrieval.budgets}
    rows = [
        (label, score_text(score.mean), score.interval, score.n)
        for label, score in scores.items()
        if score.mean is not None
    ]
    note = f" ({run.simulation_note})" if run.simulation_note else ""
    title = f"Scores by the {run.metrics.profile_text}, in percent{note}"
    return Section(title, ("score", "mean", "95 % interval", "questions"), rows)


def _count_retrieval_errors(counts: FoundAndRight | None) -> Section:
    """Return the numbers of questions by retrieval and answer."""
    rows = []
    if counts:
        rows = [
            ("all gold passages used", counts.found_right, counts.found_wrong),
            ("some missed", counts.missed_right, counts.missed_wrong),
        ]
    return Section("Retrieval and reader errors", ("questions", "right (EM)", "wrong"), rows)


def _recalls(retrieval: Retrieval | None) -> Section:
    """Return the recall by budget, over all questions and by group."""
    groups, alarm = list[tuple[str, Means]](), ""
    if retrieval is not None:
        alarm = retrieval.alarm or ""
        for name, recalls in (
            ("all", retrieval.recall),
            ("all, by page", retrieval.page_recall or {}),
        ):
            if recalls:
                by_budget = {budget: recalls[budget].mean for budget in retrieval.budgets}
                groups.append((name, {"n": retrieval.n, **by_budget}))
        for by_group, unit in ((retrieval.by_hops, " hops"), (retrieval.by_type, "")):
            shown_keys = ("n", *retrieval.budgets)
            groups += [
                (f"{name}{unit}", {key: means[key] for key in shown_keys})
                for name, means in (by_group.items() if len(by_group) > 1 else ())
            ]
    section = _means_section("Recall of gold passages", "group", groups, alarm)
    return (
        replace(section, text=(f"Order of passages: {NO_ORDER}.",))
        if _has_no_order(retrieval)
        else section
    )


def _has_no_order(retrieval: Retrieval | None) -> bool:
    """Return whether there is a recall of passages of several searches, which have no common order."""
    return retrieval is not None and retrieval.n > 0 and not retrieval.ranked


def _costs_by_role(roles: Mapping[str, RoleCost]) -> Section:
    header = ("role", "calls", "prompt tokens", "cached tokens", "output tokens", "seconds", "USD")
    rows: list[tuple[Value, ...]] = []
    for role, cost in roles.items():
        usd = None if cost.usd is None else f"{cost.usd:,.4f}"
        rows.append(
            (
                role,
                cost.calls,
                cost.prompt_tokens,
                cost.cached_tokens,
                cost.output_tokens,
                cost.seconds,
                usd,
            )
        )
    return Section("Cost by role", header, rows, ("Computed as if no reply had been cached.",))


def _what_was_run(manifest: Manifest) -> Section:
    values = manifest.json() | {"command": " ".join(manifest.command)}
    del values["packages"], values["prompts"]
    values["dataset"].pop("sampled", None)
    rows = [
        (key.replace("_", " "), str(value))
        for key, value in flatten(values).items()
        if value is not None
    ]
    return Section("Command, versions and data", (), rows)


def summary_rows(summary: ScoreSummary, judged: JudgeMetrics | None = None) -> Rows:
    """Yield labels and values of the scores and, if it is of a run, of its retrieval, its judge and its costs."""
    metrics = summary if isinstance(summary, Metrics) else None
    if metrics and metrics.trained_questions:
        counts = (
            f"{count:,} of these questions ({key})"
            for key, count in metrics.trained_questions.items()
        )
        yield "TRAINED ON", ", ".join(counts)
    yield from _score_rows(summary, metrics.judge if metrics else judged)
    if metrics and metrics.retrieval:
        yield from _retrieval_rows(metrics.retrieval, has_failed=metrics.failed > 0)
    if summary.context_tokens is not None:
        yield "context tokens", f"{summary.context_tokens:,.0f} per question"
    if metrics:
        yield from _cost_and_time_rows(metrics)
    if metrics and metrics.imported:
        kinds = "to model calls, searches and token counts, also for triples and the judge"
        yield "imported replies", f"{metrics.imported:,} {kinds}"
    if summary.flags:
        yield "flags", ", ".join(f"{flag} {count}" for flag, count in summary.flags.items())


@dataclass(frozen=True)
class Headline:
    """A figure at the top of a report. `note`: its interval or unit. `is_bad`: it is highlighted."""

    label: str
    value: str
    note: str = ""
    is_bad: bool = False


def headlines(metrics: Metrics) -> list[Headline]:
    """Return the tested scores, the judge's accuracy, questions, cost and time."""
    scores = {
        metric.title: metrics.score(name) for name, metric in METRICS.items() if metric.tested
    }
    if metrics.judge:
        scores[JUDGE_ACCURACY] = metrics.judge.accuracy
    lines = [
        Headline(
            label, score_text(score.mean), f"{score_text(score.low)} to {score_text(score.high)}"
        )
        for label, score in scores.items()
        if score.mean is not None
    ]
    cost, of = metrics.cost.method, f"of {metrics.questions:,}"
    lines.append(Headline("answered", f"{metrics.answered_questions:,}", of))
    lines.append(
        Headline(
            "failed", f"{metrics.failed:,}", of if metrics.failed else "", bool(metrics.failed)
        )
    )
    if cost.usd is not None:
        lines.append(
            Headline("cost", f"{cost.usd:,.2f}" if cost.usd >= 1 else f"{cost.usd:.4f}", "USD")
        )
    elif cost.calls:
        lines.append(
            Headline(
                "tokens", f"{cost.prompt_tokens + cost.output_tokens:,}", f"{cost.calls:,} calls"
            )
        )
    new = metrics.cost.new_replies
    # a run of stored replies took no time of a model
    if metrics.seconds is not None and (new or not cost.calls):
        lines.append(
            Headline(
                "time",
                duration(metrics.seconds),
                "" if new + (cost.failed or 0) == cost.calls else f"{new:,} new calls",
            )
        )
    return lines


def cost_rows(cost: Costs | None, *, has_failed: bool = False) -> Rows:
    """Yield the calls, tokens, seconds and price, if there were calls. has_failed: some questions have no answer."""
    if cost is None or not cost.method.calls:
        return
    method, new = cost.method, cost.paid
    failed = f", {method.failed:,} failed" if method.failed else ""
    # without an answer there is no cost of one
    per = f"{method.calls_per_question} per {'answered ' * has_failed}question, "
    each = "" if method.calls_per_question is None else per
    yield (
        "model calls",
        f"{method.calls:,} ({each}{cost.new_replies:,} new{failed})",
    )
    reasoning = f", {method.reasoning_tokens:,} for reasoning" if method.reasoning_tokens else ""
    yield (
        "tokens",
        f"{method.prompt_tokens:,} prompt, {method.output_tokens:,} generated{reasoning}",
    )
    yield "model seconds", f"{method.seconds:,.1f} ({new.seconds:,.1f} of new calls)"
    if method.usd is not None:
        yield "cost", f"{method.usd:,.4f} USD ({new.usd:,.4f} USD of new calls)"


def accuracy_text(judged: JudgeMetrics) -> str:
    """Return the accuracy, with the failed questions and the answers that have no verdict."""
    accuracy, counted = (
        (str(judged.accuracy), " counted as wrong") if judged.accuracy.n else ("unscored", "")
    )
    notes = [f"{pluralize(judged.failed, 'failed question')}{counted}"] if judged.failed else []
    if judged.unscored:
        notes.append(f"{pluralize(judged.unscored, 'answer')} without a verdict")
    return f"{accuracy}  ({', '.join(notes)})" if notes else accuracy


def _score_rows(summary: ScoreSummary, judged: JudgeMetrics | None) -> Rows:
    wrong = " and count as wrong" if 0 < summary.failed < summary.questions else ""
    questions = summary.answered_text or f"{summary.questions:,}"
    counts = f"{summary.failed} failed{wrong}, {summary.answerless} empty answers"
    yield "questions", f"{questions} ({counts})"
    for name, metric in METRICS.items():
        if metric.listed and (score := show_score(summary, name)).mean is not None:
            only = (summary.answered or {}).get(name)
            mark = (
                f" ({summary.missing_golds})" if summary.missing_golds and metric.of_golds else ""
            )
            yield (
                f"{metric.title}{mark}",
                _with_counts(score, only) if only else str(score),
            )
    if judged:
        yield f"{JUDGE_ACCURACY} ({judged.judge})", accuracy_text(judged)
    if (wording := summary.wording) and wording.words is not None:
        yield (
            "answers",
            f"{score_text(wording.words)} words on average, {score_text(wording.abstained)} % abstained",
        )


def _with_counts(score: Estimate, answered: Estimate) -> str:
    """Return a score with its number of questions, and the same of the answered ones if they are not the same."""
    if score.n == answered.n:
        return f"{score}  of {score.n:,}"
    return f"{score}  of {score.n:,}, {answered} of {answered.n:,}"


def _cost_and_time_rows(metrics: Metrics) -> Rows:
    yield from cost_rows(metrics.cost, has_failed=bool(metrics.failed))
    if (each := metrics.question_seconds) is not None:
        yield (
            "latency per question",
            f"{seconds_text(each['p50'])} (median), {seconds_text(each['p95'])} (95th percentile)",
        )
    if metrics.throughput and (rates := metrics.throughput.tokens_per_second)["prompt"] is not None:
        yield (
            "tokens per second",
            f"{rates['prompt']:,.1f} prompt, {rates['output']:,.1f} generated",
        )
    if flagged := metrics.cost.method.flags:
        flags = (
            f"{flag} {use.calls:,} ({score_text(100 * use.share)} %)"
            for flag, use in flagged.items()
        )
        yield "flags of model calls", ", ".join(flags)
    extraction = metrics.cost.extraction_paid
    if extraction and extraction.calls:
        dollars = "" if extraction.usd is None else f", {extraction.usd:,.4f} USD"
        yield (
            "triple extraction",
            f"{extraction.calls:,} calls, {extraction.seconds:,.1f} s{dollars}",
        )
    if metrics.seconds is not None:
        yield "this run took", f"{metrics.seconds:,.1f} s"


def _retrieval_rows(retrieval: Retrieval, *, has_failed: bool) -> Rows:
    """Yield the means of the questions that did not fail, with their number if some failed."""
    of = f"  of {retrieval.n:,}" if has_failed else ""
    yield "passages", f"{score_text(retrieval.passages_per_question)} per question"
    if retrieval.n:
        yield "recall", _by_budget(retrieval, retrieval.recall) + of
        if retrieval.page_recall:
            yield "recall of pages", _by_budget(retrieval, retrieval.page_recall) + of
        shares = (
            f"@{budget} {score_text(retrieval.all_gold[budget])}" for budget in retrieval.budgets
        )
        yield "all gold found", "  ".join(shares) + of
        if retrieval.leaf_recall is not None:
            yield "recall with leaves", score_text(retrieval.leaf_recall)
        if _has_no_order(retrieval):
            yield "order of passages", NO_ORDER
    if retrieval.without_entities is not None:
        yield "without known entities", pluralize(retrieval.without_entities, "question")
    if retrieval.mrr is not None:
        yield "reciprocal rank", f"{score_text(retrieval.mrr)}{of}"
    if retrieval.without_passages:
        yield "without passages", pluralize(retrieval.without_passages, "question")


def _by_budget(retrieval: Retrieval, recall: Mapping[str, Estimate]) -> str:
    return "  ".join(f"@{budget} {score_text(recall[budget].mean)}" for budget in retrieval.budgets)
