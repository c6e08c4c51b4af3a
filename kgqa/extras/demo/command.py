"""`kgqa demo`: run or replay the demo, and show its answers."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from kgqa.artifacts.trace import leading_chain
from kgqa.cli.terminal import Terminal
from kgqa.errors import ConfigError
from kgqa.extras.demo.running import DemoResult, demo_experiments, replay_demo, run_demo
from kgqa.util.text import pluralize


def demo(args: Namespace, terminal: Terminal) -> int:
    """Run three methods on a few questions, or replay a recording."""
    if args.recorded:
        _replay(args.overrides, terminal)
        return 0
    experiments = demo_experiments(args.overrides)
    model, count = experiments[0].name("model"), len(experiments[0].data.questions)
    terminal.line(
        f"{len(experiments)} methods, the same {count} questions, {model}. The first time takes minutes"
    )
    try:
        results = list(run_demo(experiments, terminal))
    except ConfigError as error:
        raise ConfigError(
            f"{error}\nTo see the demo without a model: kgqa demo --recorded"
        ) from error
    show_demo(results, terminal)
    failures = [f"kgqa: {each.method}: {each.failure}" for each in results if each.failure]
    terminal.lines(
        (f"{line}. Run the same command again to retry failed questions" for line in failures),
        alarm=True,
    )
    _show_report(results[-1], terminal)
    return 2 if failures else 0


def _replay(overrides: Sequence[str], terminal: Terminal) -> None:
    if overrides:
        raise ConfigError(
            f"{overrides[0]}: the recorded demo has no keys. Remove the key or --recorded"
        )
    recording, results = replay_demo()
    minutes = sum(each.seconds + each.triple_seconds for each in results) / 60
    remark = f", {recording.remark}" if recording.remark else ""
    terminal.line(
        f"RECORDED on {recording.made} by kgqa {recording.kgqa} ({recording.commit[:8]}) on {recording.cores} cores "
        f"({recording.platform}{remark}), where its model took {minutes:.1f} minutes."
    )
    terminal.line(
        "This makes no model calls: all replies are from the recording. On your machine: kgqa demo"
    )
    show_demo(results, terminal)
    _show_report(results[-1], terminal)


def _show_report(result: DemoResult, terminal: Terminal) -> None:
    question = result.questions[0].question.id
    terminal.line(f"report: {result.folder / 'report.html'}")
    terminal.line(f"Open it: kgqa report --open {result.folder}")
    terminal.line(f"Every call of a question: kgqa show {result.folder} {question}")


def show_demo(results: Sequence[DemoResult], terminal: Terminal) -> None:
    """Show scores in percent, the answers of each method, and a note about the number of questions."""
    rows = []
    for each in results:
        triples = f" + {each.triple_seconds:.0f} for triples" if each.triple_seconds else ""
        rows.append((each.method, each.em, each.f1, f"{each.seconds:.0f}{triples}"))
    terminal.line("")
    terminal.table(("method", "EM", "F1", "model seconds"), rows)
    count = len(results[0].questions)
    width = max(len(each.method) for each in results)
    for position, traced in enumerate(results[0].questions):
        terminal.heading(traced.question.text)
        terminal.line(f"  {'gold':{width}}  {' | '.join(traced.question.answers)}")
        for each in results:
            _show_answer(each, position, width, terminal)
    verb = "shows" if count == 1 else "show"
    terminal.line(
        f"\n{pluralize(count, 'question')} {verb} how answers are found, not how good a method is: "
        f"one more correct answer is {100 / count:.0f} points of EM."
    )


def _show_answer(result: DemoResult, position: int, width: int, terminal: Terminal) -> None:
    """Show a method's answer to a question and the chain that led to it."""
    traced, margin = result.questions[position], " " * (width + 4)
    prediction, is_right = traced.prediction, result.scored[position].em == 1
    text = f"failed: {prediction.error}" if prediction.error else prediction.answer or "(nothing)"
    mark, style = ("   (right)", "green") if is_right else ("", None)
    terminal.line(f"  {result.method:{width}}  {text}{mark}", style=style)
    for head, relation, tail, _ in leading_chain(traced):
        terminal.line(f"{margin}{head} — {relation} → {tail}")
    if "chains" in traced.notes:
        titles = ", ".join(traced.prediction.evidence_titles) or "none"
        passages = len(traced.question.passages)
        terminal.line(f"{margin}passages of its chains: {titles} (of {passages})", style="dim")
