"""The table a run ends with."""

from __future__ import annotations

from collections.abc import Mapping

from kgqa.types import Json

SCORES = {
    "em": "EM",
    "f1": "F1",
    "struct_em": "EM of structural questions",
    "support_recall": "support recall",
    "support_precision": "support precision",
    "support_error_rate": "support error rate",
}


NAMED = ("method", "dataset", "retriever", "reranker", "model", "engine")  # in a report's title


def summary_rows(metrics: Mapping[str, Json]) -> list[tuple[str, str]]:
    """Label and value, as terminal and Markdown report show them."""
    rows = score_rows(metrics)
    rows += _retrieval(metrics.get("retrieval"))
    if metrics["context_tokens"] is not None:
        rows.append(("context tokens", f"{metrics['context_tokens']:,.0f} per question"))
    method, paid = metrics["cost"]["method"], metrics["cost"]["paid"]
    if method["calls"]:
        calls = f"{method['calls']:,} ({method['calls_per_question']} per question), {paid['calls']:,} paid"
        rows.append(("model calls", calls))
        rows.append(("tokens", f"{method['prompt_tokens']:,} prompt, {method['output_tokens']:,} generated"))
        rows.append(("model seconds", f"{method['seconds']:,.1f}, {paid['seconds']:,.1f} paid"))
    rows += _throughput(metrics["throughput"])
    if method["usd"] is not None:
        rows.append(("cost", f"{method['usd']:,.4f} USD, {paid['usd']:,.4f} USD paid"))
    if method["flags"]:
        shown = (f"{flag} {seen['calls']:,} ({100 * seen['share']:.1f} %)" for flag, seen in method["flags"].items())
        rows.append(("flags of model calls", ", ".join(shown)))
    if metrics["cost"].get("extraction_paid", {}).get("calls"):
        extraction = metrics["cost"]["extraction_paid"]
        dollars = "" if extraction["usd"] is None else f", {extraction['usd']:,.4f} USD"
        rows.append(("triple extraction", f"{extraction['calls']:,} calls, {extraction['seconds']:,.1f} s{dollars}"))
    if "seconds" in metrics:
        rows.append(("this run took", f"{metrics['seconds']:,.1f} s"))
    if metrics["flags"]:
        rows.append(("flags", ", ".join(f"{flag} {count}" for flag, count in sorted(metrics["flags"].items()))))
    return rows


def score_rows(metrics: Mapping[str, Json]) -> list[tuple[str, str]]:
    """How many questions, the scores that are defined, and the judge's if there was one."""
    rows = [
        ("questions", f"{metrics['questions']} ({metrics['failed']} failed, {metrics['answerless']} empty answers)")
    ]
    for name, label in SCORES.items():
        if (score := metrics["scores"].get(name)) and score["mean"] is not None:
            rows.append((label, interval_text(score)))
    if judged := metrics.get("judge"):
        rows.append((f"accuracy by {judged['judge']}", accuracy_text(judged)))
    return rows


def accuracy_text(judged: Mapping[str, Json]) -> str:
    unscored = f", {judged['unscored']} unscored" if judged["unscored"] else ""
    shown = interval_text(judged["accuracy"]) if judged["accuracy"]["n"] else "unscored"
    return f"{shown}  ({judged['failed']} failed counted as wrong{unscored})"


def interval_text(score: Mapping[str, Json]) -> str:
    return f"{score['mean']:.1f}  [{score['low']:.1f}, {score['high']:.1f}]"


def _retrieval(measured: Mapping[str, Json] | None) -> list[tuple[str, str]]:
    """Recall within each budget, and what goes with it; nothing where the method retrieves nothing."""
    if measured is None:
        return []
    rows = [("passages", f"{measured['passages_per_question']:.1f} per question")]
    if measured["n"]:
        recalls = (f"@{budget} {score['mean']:.1f}" for budget, score in measured["recall"].items())
        rates = (f"@{budget} {share:.1f}" for budget, share in measured["all_gold"].items())
        rows += [("recall", "  ".join(recalls)), ("all gold found", "  ".join(rates))]
    if measured["mrr"] is not None:
        rows.append(("reciprocal rank", f"{measured['mrr']:.1f}"))
    if measured["without_passages"]:
        rows.append(("without passages", f"{measured['without_passages']:,} questions"))
    return rows


def _throughput(measured: Mapping[str, Json]) -> list[tuple[str, str]]:
    """How well the engines were used while the method ran; nothing where every reply came from the cache."""
    rates = measured["tokens_per_second"]
    if rates["prompt"] is None:
        return []
    engines = [
        f"{use['engine']} busy {100 * use['busy_share']:.0f} % of the time, "
        f"with {use['mean_calls']:.1f} of {use['capacity']} calls on average"
        for use in measured["engines"]
    ]
    rate = f"{rates['prompt']:,.1f} prompt, {rates['output']:,.1f} generated"
    return [("tokens per second", rate), ("engines", "; ".join(engines))]
