"""The rows of a run's summary in its report and in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kgqa.artifacts.metrics import (
    Costs,
    Estimate,
    JudgeMetrics,
    Metrics,
    Retrieval,
    ScoreSummary,
)
from kgqa.scoring.questions import METRICS
from kgqa.util.text import duration, pluralize

Rows = Iterator[tuple[str, str]]


def summary_rows(metrics: Metrics) -> list[tuple[str, str]]:
    """Return labels and values of the scores and costs."""
    rows = [*_scores(metrics, metrics.judge), *_retrieval(metrics.retrieval), *_context(metrics)]
    if trained := metrics.trained_questions:
        counts = (f"{count:,} of these questions ({key})" for key, count in trained.items())
        rows.insert(0, ("TRAINED ON", ", ".join(counts)))
    return [*rows, *_costs(metrics), *_flags(metrics.flags)]


@dataclass(frozen=True)
class Headline:
    """A figure at the top of a report. `note`: its interval or unit. `is_bad`: it is highlighted."""

    label: str
    value: str
    note: str = ""
    is_bad: bool = False


def headlines(metrics: Metrics) -> list[Headline]:
    """Return EM, F1, the judge's accuracy, questions, cost and time."""
    scores = {METRICS[name].label: metrics.score(name) for name in ("em", "f1")}
    if metrics.judge:
        scores["judge"] = metrics.judge.accuracy
    shown = [
        Headline(label, f"{score.mean:.1f}", f"{score.low:.1f} to {score.high:.1f}")
        for label, score in scores.items()
        if score.mean is not None
    ]
    cost, of = metrics.cost.method, f"of {metrics.questions:,}"
    shown.append(Headline("answered", f"{metrics.questions - metrics.failed:,}", of))
    shown.append(Headline("failed", f"{metrics.failed:,}", of if metrics.failed else "", bool(metrics.failed)))
    if cost.usd is not None:
        shown.append(Headline("cost", f"{cost.usd:,.2f}" if cost.usd >= 1 else f"{cost.usd:.4f}", "USD"))
    elif cost.calls:
        shown.append(Headline("tokens", f"{cost.prompt_tokens + cost.output_tokens:,}", f"{cost.calls:,} calls"))
    if metrics.seconds is not None:
        new = metrics.cost.paid.calls
        shown.append(Headline("time", duration(metrics.seconds), "" if new == cost.calls else f"{new:,} new calls"))
    return shown


def answer_rows(summary: ScoreSummary, judged: JudgeMetrics | None) -> list[tuple[str, str]]:
    """Return the rows of a set of answers."""
    return [*_scores(summary, judged), *_context(summary), *_flags(summary.flags)]


def failed_note(summary: ScoreSummary) -> str:
    """Return a sentence on how failed questions count."""
    note = "Failed questions count as wrong."
    return f"{note} The second value is of the {summary.answered_text} only." if summary.answered else note


def cost_rows(cost: Costs | None) -> Rows:
    """Yield the calls, tokens, seconds and price, if there were calls."""
    if cost is None or not cost.method.calls:
        return
    method, paid = cost.method, cost.paid
    yield "model calls", f"{method.calls:,} ({method.calls_per_question} per question), {paid.calls:,} new"
    reasoning = f", {method.reasoning_tokens:,} for reasoning" if method.reasoning_tokens else ""
    yield "tokens", f"{method.prompt_tokens:,} prompt, {method.output_tokens:,} generated{reasoning}"
    yield "model seconds", f"{method.seconds:,.1f}, {paid.seconds:,.1f} new"
    if method.usd is not None:
        yield "cost", f"{method.usd:,.4f} USD, {paid.usd:,.4f} USD new"


def accuracy_text(judged: JudgeMetrics) -> str:
    unscored = f", {judged.unscored} unscored" if judged.unscored else ""
    shown = interval_text(judged.accuracy) if judged.accuracy.n else "unscored"
    return f"{shown}  ({judged.failed} failed counted as wrong{unscored})"


def interval_text(score: Estimate) -> str:
    return "–" if score.mean is None else f"{score.mean:.1f}  [{score.low:.1f}, {score.high:.1f}]"


def _scores(summary: ScoreSummary, judged: JudgeMetrics | None) -> Rows:
    wrong = " and count as wrong" if 0 < summary.failed < summary.questions else ""
    answered = f"{summary.answered_text}: " if summary.failed else ""
    counts = f"{summary.failed} failed{wrong}, {summary.answerless} empty answers"
    yield "questions", f"{answered}{summary.questions} ({counts})"
    for name, metric in METRICS.items():
        if metric.listed and (score := summary.score(name)).mean is not None:
            only = (summary.answered or {}).get(name)
            yield (
                metric.label,
                interval_text(score) + (f"  of all, {interval_text(only)} of {only.n:,}" if only else ""),
            )
    if judged:
        yield f"accuracy by {judged.judge}", accuracy_text(judged)
    if (wording := summary.wording) and wording.words is not None:
        yield "answers", f"{wording.words:.1f} words on average, {wording.abstained:.1f} % abstained"


def _context(summary: ScoreSummary) -> Rows:
    if summary.context_tokens is not None:
        yield "context tokens", f"{summary.context_tokens:,.0f} per question"


def _costs(metrics: Metrics) -> Rows:
    yield from cost_rows(metrics.cost)
    if (each := metrics.question_seconds) is not None:
        yield "latency per question", f"{each['p50']:,.1f} median, {each['p95']:,.1f} at the 95th percentile"
    if metrics.throughput and (rates := metrics.throughput.tokens_per_second)["prompt"] is not None:
        yield "tokens per second", f"{rates['prompt']:,.1f} prompt, {rates['output']:,.1f} generated"
    if flagged := metrics.cost.method.flags:
        flags = (f"{flag} {use.calls:,} ({100 * use.share:.1f} %)" for flag, use in flagged.items())
        yield "flags of model calls", ", ".join(flags)
    extraction = metrics.cost.extraction_paid
    if extraction and extraction.calls:
        dollars = "" if extraction.usd is None else f", {extraction.usd:,.4f} USD"
        yield "triple extraction", f"{extraction.calls:,} calls, {extraction.seconds:,.1f} s{dollars}"
    if metrics.seconds is not None:
        yield "this run took", f"{metrics.seconds:,.1f} s"


def _flags(flags: Mapping[str, int]) -> Rows:
    if flags:
        yield "flags", ", ".join(f"{flag} {count}" for flag, count in flags.items())


def _retrieval(retrieval: Retrieval | None) -> Rows:
    if retrieval is None:
        return
    yield "passages", f"{retrieval.passages_per_question:.1f} per question"
    if retrieval.n:
        yield "recall", _by_budget(retrieval.recall)
        if retrieval.page_recall:
            yield "recall of pages", _by_budget(retrieval.page_recall)
        yield "all gold found", "  ".join(f"@{budget} {share:.1f}" for budget, share in retrieval.all_gold.items())
    if retrieval.mrr is not None:
        yield "reciprocal rank", f"{retrieval.mrr:.1f}"
    if retrieval.without_passages:
        yield "without passages", pluralize(retrieval.without_passages, "question")


def _by_budget(recall: Mapping[str, Estimate]) -> str:
    return "  ".join(f"@{budget} {score.mean:.1f}" for budget, score in recall.items())
