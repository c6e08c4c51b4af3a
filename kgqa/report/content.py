"""Build the sections of a run's report, independent of the format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kgqa.artifacts.manifest import Identity, Manifest
from kgqa.artifacts.metrics import (
    Agreement,
    Chains,
    EmF1,
    Estimate,
    Figures,
    FoundAndRight,
    Group,
    JudgeMetrics,
    Metrics,
    Retrieval,
    RoleCost,
    ScoreSummary,
)
from kgqa.artifacts.run import FinishedRun, Setting
from kgqa.artifacts.schema import Number, as_json
from kgqa.report.summary import SCORES, accuracy_text, summary_rows, tokens_text
from kgqa.types import Json


@dataclass(frozen=True, slots=True)
class Section:
    """`header` is empty for a table of a name and a figure a row; a section without rows is text alone."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    text: tuple[str, ...] = ()
    alarm: str = ""  # what is likely wrong with these figures


def sections(run: FinishedRun) -> list[Section]:
    """Return the sections in order of interest; what the run has no figures for is left out."""
    metrics = run.metrics
    method, extraction = metrics.cost.method, metrics.cost.extraction_paid
    listed = [
        replace(_scores(metrics), alarm=run.simulation_note),
        *judge_sections(metrics.judge),
        *breakdown_sections(metrics),
        _format_found_and_right(metrics.found_and_right),
        _retrieval(metrics.retrieval),
        _figures("On the way, per question", metrics.figures),
        _figures("Knowledge graph", metrics.graph or {}),
        _figures("Reasoning chains", _chain_figures(metrics.chains)),
        _costs(method.by_role),
        _flags({**(extraction.by_role if extraction else {}), **method.by_role}),
        _what_was_run(run.manifest),
        Section("Settings", ("key", "value", "source"), run.settings),
    ]
    return [section for section in listed if section.rows]


def estimates(run: FinishedRun) -> list[tuple[str, Estimate]]:
    """Return the scores that are defined for this run by their labels, then recall within each budget of passages."""
    named = run.metrics.scores.named()
    scores = [(label, named[name]) for name, label in SCORES.items() if name in named]
    recalls = run.metrics.retrieval.recall if run.metrics.retrieval else {}
    scores += [(f"recall @{budget}", score) for budget, score in recalls.items()]
    return [(label, score) for label, score in scores if score.mean is not None]


def list_used_settings(
    config: Mapping[str, Json],
    choices: Mapping[str, str],
    sources: Mapping[str, str],
    text: Callable[[Json], str],
) -> list[Setting]:
    """Of the groups this run makes use of, and the share of failed questions that it may have.

    `text`: a value as a command line takes it, so that KEY=VALUE can be pasted back.
    """
    rankers = ("ranker", "demonstrations_ranker", "reranker")
    groups = ("method", "kg", "retriever", *rankers, "engine", "model", "dataset", "collection")
    used = [s for group in groups if group in choices for s in _values(group, config[group], sources)]
    alone = [(key, config[key], sources.get(key, "")) for key in ("max_failure_rate",) if key in config]
    return [(key, text(value), source) for key, value, source in (*used, *alone)]


def figure(value: str | Number | None) -> str:
    match value:
        case None:
            return "–"
        case float():
            return f"{value:,.2f}"
        case int():
            return f"{value:,}"
    return str(value)


def _scores(metrics: Metrics) -> Section:
    text = (
        f"Scored by the {metrics.profile} profile, in percent; brackets: 95 % bootstrap intervals.",
        "Failed questions count as wrong.",
    )
    return Section("Scores", (), summary_rows(metrics), text)


def judge_sections(judged: JudgeMetrics | None) -> list[Section]:
    """Return what the judge found, who it was and what it cost, and how it agrees with exact match; nothing without
    one.
    """
    if judged is None:
        return []
    cost, paid = judged.cost.method, judged.cost.paid
    rows = [
        ("accuracy", accuracy_text(judged)),
        *((label.replace("_", " "), figure(count)) for label, count in judged.verdicts.items()),
        ("unscored", figure(judged.unscored)),
        ("exact matches not sent", figure(judged.exact)),
        *((f"model of {role}", label) for role, label in judged.models.items()),
        *((f"prompt {template}", digest) for template, digest in judged.prompts.items()),
        ("calls", f"{cost.calls:,}, {paid.calls:,} paid"),
        ("tokens", tokens_text(cost)),
        ("USD", _dollars(cost.usd)),
    ]
    warnings = tuple(f"**Warning**: {warning}." for warning in judged.warnings)
    text = (*warnings, "An answer without a verdict is unscored: neither right nor wrong.")
    shown = Section(f"Judge: {judged.judge}", (), rows, text)
    return [shown, agreement_section("Judge against exact match", ("judge", "EM"), judged.agreement_with_em)]


def agreement_section(title: str, names: tuple[str, str], agreement: Agreement) -> Section:
    """Return percent and kappa as text, the confusion table below; no rows where nothing could be compared."""
    kappa = "not defined" if agreement.kappa is None else f"{agreement.kappa:.3f}"
    text = (
        f"{figure(agreement.percent)} % of {agreement.n:,} verdicts agree, Cohen's kappa {kappa}; "
        f"{agreement.left_out:,} without a verdict on both sides left out."
    )
    header = (names[0], *(f"{names[1]} {label}" for label in agreement.confusion))
    rows = [(mine, *(figure(count) for count in counts.values())) for mine, counts in agreement.confusion.items()]
    return Section(title, header, rows, (text,))


def breakdown_sections(summary: ScoreSummary) -> list[Section]:
    """Return all scoring profiles side by side, then by hops and by type."""
    return [
        _profiles(summary.profiles),
        _breakdown("hops", summary.by_hops),
        _breakdown("type", summary.by_type),
    ]


def _format_found_and_right(counts: FoundAndRight | None) -> Section:
    """Return whether wrong answers are the retriever's or the reader's."""
    title = "All gold passages used, and right"
    if counts is None:
        return Section(title, (), ())
    rows = [
        ("all gold passages used", figure(counts.found_right), figure(counts.found_wrong)),
        ("some missed", figure(counts.missed_right), figure(counts.missed_wrong)),
    ]
    return Section(title, ("questions", "right (EM)", "wrong"), rows)


def _profiles(profiles: Mapping[str, EmF1]) -> Section:
    rows = [(profile, figure(score.em), figure(score.f1)) for profile, score in profiles.items()]
    return Section("EM and F1 by scoring profile", ("profile", "EM", "F1"), rows)


def _breakdown(name: str, groups: Mapping[str, Group]) -> Section:
    rows = [(group, str(scores.n), figure(scores.em), figure(scores.f1)) for group, scores in groups.items()]
    return Section(f"By {name}", (name, "questions", "EM", "F1"), rows if len(rows) > 1 else ())


def _retrieval(retrieval: Retrieval | None) -> Section:
    """Recall within each budget of passages, over all questions and by group; nothing without retrieval."""
    title = "Recall of gold passages"
    if retrieval is None:
        return Section(title, (), ())
    budgets = list(retrieval.recall)
    measured = {"all": retrieval.recall, "all, by page": retrieval.page_recall or {}}
    rows = [
        (name, figure(retrieval.n), *(figure(score.mean) for score in recalls.values()))
        for name, recalls in measured.items()
        if recalls
    ]
    for groups in (retrieval.by_hops, retrieval.by_type):
        rows += [
            (group, figure(recalls["n"]), *(figure(recalls[budget]) for budget in budgets))
            for group, recalls in groups.items()
            if len(groups) > 1
        ]
    header = ("group", "questions", *(f"@{budget}" for budget in budgets))
    return Section(title, header, rows, alarm=retrieval.alarm or "")


def _figures(title: str, figures: Figures) -> Section:
    return Section(title, (), [(name.replace("_", " "), figure(value)) for name, value in figures.items()])


def _chain_figures(chains: Chains | None) -> Figures:
    return as_json(chains) if chains else {}


def _costs(roles: Mapping[str, RoleCost]) -> Section:
    rows = [
        (
            role,
            *map(figure, (cost.calls, cost.prompt_tokens, cost.cached_tokens, cost.output_tokens, cost.seconds)),
            _dollars(cost.usd),
        )
        for role, cost in roles.items()
    ]
    header = ("role", "calls", "prompt tokens", "cached tokens", "output tokens", "seconds", "USD")
    thought = ", ".join(f"{role} {cost.reasoning_tokens:,}" for role, cost in roles.items() if cost.reasoning_tokens)
    text = (
        "As if nothing had been cached; a cached reply keeps the cost of the call that made it.",
        *([f"Output tokens spent on thinking: {thought}."] if thought else []),
    )
    return Section("Cost by role", header, rows, text)


def _dollars(usd: float | None) -> str:
    return "–" if usd is None else f"{usd:,.4f}"


def _flags(roles: Mapping[str, RoleCost]) -> Section:
    """Return what the engines could not do as asked; a flagged reply may rest on less than the method assumes."""
    rows = [
        (role, flag, figure(flagged.calls), f"{100 * flagged.share:.1f} %")
        for role, cost in roles.items()
        for flag, flagged in cost.flags.items()
    ]
    return Section("Flags of model calls", ("role", "flag", "calls", "share"), rows)


def _what_was_run(manifest: Manifest) -> Section:
    code, dataset = manifest.kgqa, manifest.dataset
    commit = f", commit {code.commit}" + (" with changes" if code.dirty else "") if code.commit is not None else ""
    rows = [
        ("command", " ".join(manifest.command)),
        ("kgqa", f"{code.version}{commit}"),
        ("questions", f"{dataset.questions:,} of {dataset.file}, sha256 {dataset.sha256}"),
        ("machine", f"{manifest.platform}, {manifest.cores} cores, Python {manifest.python}"),
    ]
    rows += [("documents", dataset.documents)] if dataset.documents is not None else []
    rows += [("demonstrations", manifest.demonstrations)] if manifest.demonstrations is not None else []
    rows += [(f"model of {role}", _describe(identity)) for role, identity in manifest.models.items()]
    rankers = {
        "ranker": manifest.ranker,
        "ranker of demonstrations": manifest.demonstrations_ranker,
        "reranker": manifest.reranker,
    }
    parts = {**rankers, "index": manifest.index}
    rows += [(part, _describe(identity)) for part, identity in parts.items() if identity]
    return Section("What was run", (), rows)


def _describe(identity: Identity) -> str:
    return ", ".join(f"{key}={value}" for key, value in identity.items() if value not in (None, [], {}))


def _values(key: str, value: Json, sources: Mapping[str, str]) -> Iterator[tuple[str, Json, str]]:
    if not isinstance(value, Mapping):
        yield key, value, sources.get(key, sources.get(key.rpartition(".")[0], ""))
        return
    for name, inner in value.items():
        if name != "_target_":
            yield from _values(f"{key}.{name}", inner, sources)
