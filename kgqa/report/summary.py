"""The rows a run ends with, as its report and a terminal show them."""

from __future__ import annotations

from collections.abc import Mapping

from kgqa.artifacts.metrics import (
    Cost,
    EngineUse,
    Estimate,
    JudgeMetrics,
    Metrics,
    Retrieval,
    RoleCost,
    ScoreSummary,
    Throughput,
    Wording,
)
from kgqa.util.text import pluralize

SCORES = {
    "em": "EM",
    "f1": "F1",
    "containment": "containment",
    "struct_em": "EM of structural questions",
    "support_recall": "support recall",
    "support_precision": "support precision",
    "support_error_rate": "support error rate",
}


def summary_rows(metrics: Metrics) -> list[tuple[str, str]]:
    """Label and value, as terminal and Markdown report show them."""
    rows = score_rows(metrics, metrics.judge)
    if metrics.trained_questions:
        rows.insert(0, ("TRAINED ON", describe_trained(metrics.trained_questions)))
    rows += _retrieval(metrics.retrieval)
    rows += _context(metrics)
    method, paid = metrics.cost.method, metrics.cost.paid
    if method.calls:
        calls = f"{method.calls:,} ({method.calls_per_question} per question), {paid.calls:,} paid"
        rows.append(("model calls", calls))
        rows.append(("tokens", tokens_text(method)))
        rows.append(("model seconds", f"{method.seconds:,.1f}, {paid.seconds:,.1f} paid"))
    if (each := metrics.question_seconds) is not None:
        rows.append(("model seconds of a question", f"{each.p50:,.1f} median, {each.p95:,.1f} at the 95th percentile"))
    rows += _throughput(metrics.throughput)
    if method.usd is not None:
        rows.append(("cost", f"{method.usd:,.4f} USD, {paid.usd:,.4f} USD paid"))
    if method.flags:
        shown = (f"{flag} {use.calls:,} ({100 * use.share:.1f} %)" for flag, use in method.flags.items())
        rows.append(("flags of model calls", ", ".join(shown)))
    rows += _extraction(metrics.cost.extraction_paid)
    if metrics.seconds is not None:
        rows.append(("this run took", f"{metrics.seconds:,.1f} s"))
    return rows + _flags(metrics.flags)


def describe_trained(trained_questions: Mapping[str, int]) -> str:
    """Return how many of the questions were trained on, by the key of what was."""
    return ", ".join(f"{count:,} of these questions ({key})" for key, count in trained_questions.items())


def tokens_text(cost: RoleCost) -> str:
    thought = f", {cost.reasoning_tokens:,} of them in thought" if cost.reasoning_tokens else ""
    return f"{cost.prompt_tokens:,} prompt, {cost.output_tokens:,} generated{thought}"


def answer_rows(summary: ScoreSummary, judged: JudgeMetrics | None) -> list[tuple[str, str]]:
    """Return what there is to say of answers alone, whoever gave them."""
    return [*score_rows(summary, judged), *_context(summary), *_flags(summary.flags)]


def score_rows(summary: ScoreSummary, judged: JudgeMetrics | None) -> list[tuple[str, str]]:
    """Return how many questions, the scores that are defined, and the judge's if there was one."""
    wrong = " and count as wrong" if 0 < summary.failed < summary.questions else ""
    rows = [("questions", f"{summary.questions} ({summary.failed} failed{wrong}, {summary.answerless} empty answers)")]
    named = summary.scores.named()
    for name, label in SCORES.items():
        if (score := named.get(name)) and score.mean is not None:
            rows.append((label, interval_text(score)))
    if judged:
        rows.append((f"accuracy by {judged.judge}", accuracy_text(judged)))
    return rows + _wording(summary.wording)


def accuracy_text(judged: JudgeMetrics) -> str:
    unscored = f", {judged.unscored} unscored" if judged.unscored else ""
    shown = interval_text(judged.accuracy) if judged.accuracy.n else "unscored"
    return f"{shown}  ({judged.failed} failed counted as wrong{unscored})"


def interval_text(score: Estimate) -> str:
    return f"{score.mean:.1f}  [{score.low:.1f}, {score.high:.1f}]"


def _wording(wording: Wording | None) -> list[tuple[str, str]]:
    if wording is None or wording.words is None:
        return []
    return [("answers", f"{wording.words:.1f} words on average, {wording.abstained:.1f} % say that there is none")]


def _context(summary: ScoreSummary) -> list[tuple[str, str]]:
    tokens = summary.context_tokens
    return [] if tokens is None else [("context tokens", f"{tokens:,.0f} per question")]


def _flags(flags: Mapping[str, int]) -> list[tuple[str, str]]:
    return [("flags", ", ".join(f"{flag} {count}" for flag, count in flags.items()))] if flags else []


def _extraction(paid: Cost | None) -> list[tuple[str, str]]:
    if paid is None or not paid.calls:
        return []
    dollars = "" if paid.usd is None else f", {paid.usd:,.4f} USD"
    return [("triple extraction", f"{paid.calls:,} calls, {paid.seconds:,.1f} s{dollars}")]


def _retrieval(retrieval: Retrieval | None) -> list[tuple[str, str]]:
    """Recall within each budget, and what goes with it; nothing where the method retrieves nothing."""
    if retrieval is None:
        return []
    rows = [("passages", f"{retrieval.passages_per_question:.1f} per question")]
    if retrieval.n:
        rates = (f"@{budget} {share:.1f}" for budget, share in retrieval.all_gold.items())
        rows.append(("recall", _by_budget(retrieval.recall)))
        if retrieval.page_recall:
            rows.append(("recall of pages", _by_budget(retrieval.page_recall)))
        rows.append(("all gold found", "  ".join(rates)))
    if retrieval.mrr is not None:
        rows.append(("reciprocal rank", f"{retrieval.mrr:.1f}"))
    if retrieval.without_passages:
        rows.append(
            (
                "without passages",
                pluralize(retrieval.without_passages, "question"),
            )
        )
    return rows


def _by_budget(recall: Mapping[str, Estimate]) -> str:
    return "  ".join(f"@{budget} {score.mean:.1f}" for budget, score in recall.items())


def _limit(use: EngineUse) -> str:
    """Return whose limit the engine's time was: its own while its places were taken, else the run's, which asked no
    more.
    """
    return "" if use.full_share is None else f", full {100 * use.full_share:.0f} % of the time"


def _throughput(throughput: Throughput | None) -> list[tuple[str, str]]:
    """Return how well the engines were used while the method ran; nothing where every reply came from the cache."""
    if throughput is None or throughput.tokens_per_second.prompt is None:
        return []
    engines = [
        f"{use.engine} busy {100 * use.busy_share:.0f} % of the time, "
        f"with {use.mean_calls:.1f} of {use.capacity} calls on average{_limit(use)}"
        for use in throughput.engines
    ]
    rates = throughput.tokens_per_second
    rate = f"{rates.prompt:,.1f} prompt, {rates.output:,.1f} generated"
    return [("tokens per second", rate), ("engines", "; ".join(engines))]
