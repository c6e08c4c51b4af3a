"""`kgqa show`: a run's questions, or how one question got its answer."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from kgqa.artifacts.metrics import METRICS, Metrics
from kgqa.artifacts.run import IDENTITY, FinishedRun, find_run
from kgqa.artifacts.trace import Notes, TracedCall, TracedQuestion, find_question
from kgqa.artifacts.verdicts import UNSCORED, Judgements
from kgqa.cli.tables import Cells, style_text
from kgqa.cli.terminal import Terminal
from kgqa.errors import ConfigError
from kgqa.report.questions import QuestionRow, RunQuestions
from kgqa.scoring.questions import score_question
from kgqa.util.text import pluralize, score_text, shorten

QUESTIONS_SHOWN = 50
NOTE_TITLES = {"demonstrations": "few-shot examples in the prompt"}
MAX_NOTE = 300  # characters of a note
# of an answer or a reply, without --calls
MAX_TEXT = 2_000
STYLES = {"right": "green", "wrong": "yellow", "failed": "red", "": ""}  # by outcome


def show(args: Namespace, terminal: Terminal) -> None:
    """Show the questions of a run, or one of them."""
    name, *question = args.positionals
    folder = find_run(name)
    if question:
        _show_question(folder, question[0], terminal, with_calls=args.calls)
    elif (folder / METRICS).is_file():
        _show_questions(folder, args, terminal)
    elif not (folder / IDENTITY).is_file():
        raise ConfigError(f"{folder}: not the folder of a run. List runs: kgqa runs")
    else:
        raise ConfigError(
            f"{folder}: not finished, so it has no scores yet. Run its command again, or name a question"
        )


def _show_questions(folder: Path, args: Namespace, terminal: Terminal) -> None:
    """Show questions in the order of the dataset."""
    questions = list(RunQuestions(FinishedRun.read(folder)).rows.values())
    outcomes = [_outcome(row) for row in questions]
    wanted = {outcome for outcome in ("wrong", "failed") if getattr(args, outcome)} or set(STYLES)
    matches = [row for row, outcome in zip(questions, outcomes, strict=True) if outcome in wanted]
    page = matches[: args.limit or QUESTIONS_SHOWN]
    rows: list[Cells] = [
        [
            row["question_id"],
            style_text(_outcome(row), STYLES[_outcome(row)]),
            row["f1"],
            row["verdict"],
            shorten(f"failed: {row['error']}" if row["error"] else row["answer"] or "", MAX_NOTE),
            shorten(row["gold"][0], MAX_NOTE),
            shorten(row["question"], MAX_NOTE),
        ]
        for row in page
    ]
    terminal.line(f"run: {folder}", style="bold")
    if rows:
        judge = "judge" if any(row["verdict"] for row in page) else ""
        header = ("question", "", "F1", judge, "answer", "gold", "text")
        terminal.table(header, rows, stack=header.index("text"))
    terminal.line(_count_outcomes(outcomes))
    if len(page) < len(matches):
        terminal.line(f"{len(page):,} of {len(matches):,} shown. All: --limit {len(matches)}")
    if page:
        example = next((row for row in page if _outcome(row) == "wrong"), page[0])
        terminal.suggest("show", folder, example["question_id"])


def _count_outcomes(outcomes: Sequence[str]) -> str:
    """Return the numbers of questions by outcome. A failed question has no answer to match."""
    counts = {each: f"{outcomes.count(each):,} {each}" for each in STYLES if each in outcomes}
    matched = ", ".join(counts[each] for each in ("right", "wrong") if each in counts)
    parts = [f"{matched} by exact match"] if matched else []
    parts += [counts["failed"]] if "failed" in counts else []
    summary = pluralize(len(outcomes), "question")
    return f"{summary}: {', '.join(parts)}" if parts else summary


def _outcome(row: QuestionRow) -> str:
    """Return the outcome, or "" if the run has no answers, as with `retrieve_only`."""
    if row["error"]:
        return "failed"
    return "" if row["em"] is None else "right" if row["em"] == 100 else "wrong"


def _show_question(folder: Path, question_id: str, terminal: Terminal, *, with_calls: bool) -> None:
    """Show one question's passages, chains, calls and answer."""
    traced = find_question(folder, question_id)
    terminal.line(f"run: {folder}", style="bold")
    terminal.heading(f"{question_id}  {traced.question.text}")
    _show_evidence(traced, terminal, with_calls=with_calls)
    titles = {passage.id: passage.title for passage in traced.passages.values()}
    terminal.heading("calls")
    for call in traced.calls:
        if with_calls or call.kind != "count_tokens":
            head = f"── {'.'.join(map(str, call.path))} {call.kind}{_describe_call(call, titles)}"
            terminal.line(f"{head}{' (cached)' if call.cached else ''}", style="cyan")
            terminal.lines(_call_lines(call, with_calls=with_calls), folds=False)
    metrics = Metrics.read(folder) if (folder / METRICS).is_file() else None
    # a method without answers, such as retrieve_only, has no EM
    profile = metrics.profile if metrics and metrics.score("em").n else None
    _show_answer(traced, profile, terminal, most=sys.maxsize if with_calls else MAX_TEXT)
    if judgement := Judgements(folder).of(traced.prediction):
        terminal.line(f"judge:  {judgement.shown} ({judgement.judge})")
        for vote in judgement.votes:
            replies = vote.error or " | ".join(repr(reply) for reply in vote.replies)
            terminal.line(f"        {vote.verdict or UNSCORED}: {replies}")
    if not with_calls:
        terminal.line("every prompt, result, passage, triple and token count: --calls")


def _show_evidence(traced: TracedQuestion, terminal: Terminal, *, with_calls: bool) -> None:
    """Show passages, chains and reasoning."""
    notes, question, prediction = Notes.of(traced), traced.question, traced.prediction
    passages = [*traced.passages.values()]
    titles = {passage.id: passage.title for passage in passages}
    terminal.heading("passages (* gold, #n used as evidence)")
    ranks = {
        passage_id: f"#{rank}" for rank, passage_id in enumerate(prediction.evidence or (), start=1)
    }
    for passage in passages:
        mark, rank = "*" if passage.id in question.support else " ", ranks.get(passage.id, "")
        text = f": {passage.text}" if with_calls or mark == "*" or rank else ""
        terminal.line(f"{mark} {passage.id} {rank:3} {passage.title}{text}")
    if notes.chains:
        terminal.heading("chains (log-probability, best first)")
    for chain in notes.chains:
        terminal.line(f"{chain.score:8.3f} {'ended' if chain.ended else 'open '}")
        for *parts, passage_id in chain.triples:
            terminal.line(
                f"         <{'; '.join(parts)}>   from {titles.get(passage_id, passage_id)}"
            )
    if notes.thoughts:
        terminal.heading("thoughts")
        terminal.lines(notes.thoughts)
    others = {name: value for name, value in traced.notes.items() if name not in Notes.model_fields}
    if others:
        terminal.heading("notes")
    for name, value in others.items():
        text = json.dumps(value, ensure_ascii=False)
        terminal.line(
            f"{NOTE_TITLES.get(name, name)}: {text if with_calls or len(text) <= MAX_NOTE else f'{text[:MAX_NOTE]}…'}"
        )


def _show_answer(
    traced: TracedQuestion, profile: str | None, terminal: Terminal, *, most: int
) -> None:
    question, prediction = traced.question, traced.prediction
    terminal.heading("answer")
    terminal.line(
        f"answer: {shorten(repr(prediction.answer), most)}"
        if prediction.error is None
        else f"failed: {prediction.error}"
    )
    terminal.line(f"gold:   {' | '.join(question.answers)}")
    if profile and prediction.scored_answer is not None and question.answers:
        scored = score_question(question, prediction, profile)
        terminal.line(
            f"scores: EM {score_text(100 * scored.em)} · F1 {score_text(100 * scored.f1)} ({profile} profile)"
        )
    terminal.line(
        f"flags:  {prediction.flags or 'none'} · context tokens: {prediction.context_tokens}"
    )


def _describe_call(call: TracedCall, titles: Mapping[str, str]) -> str:
    """Return the template and role of a model's call, or the passage and the number of results of another call."""
    if call.template:
        return f" {call.template} ({call.role})"
    passage = call.request.get("passage_id")
    about = "" if passage is None else f" of {titles.get(passage, passage)}"
    return about if call.items is None else f"{about}: {pluralize(len(call.items), 'result')}"


def _call_lines(call: TracedCall, *, with_calls: bool) -> list[str]:
    """Return the prompt or query, and the reply. Without calls, only the reply and the first result."""
    request, lines = call.request, list[str]()
    if call.template and with_calls:
        lines += [_format_message(*message) for message in request["prompt"]["messages"]]
        lines += [
            f"[assistant, prefilled]\n{prefill}"
            for prefill in [request["prompt"]["prefill"]]
            if prefill
        ]
    if "query" in request:
        lines.append(f"query: {request['query']}")
    if call.error or call.items is None:
        reply = _format_reply(call)
        return [*lines, f"→ {reply if with_calls else shorten(reply, MAX_TEXT)}"]
    items = call.items
    if call.kind == "rank":
        ranked = sorted(zip(items, request["texts"], strict=True), reverse=True)
        texts = [f"{score:8.4f}  {text[:150]}" for score, text in ranked[:5]]
    elif call.kind in ("triples", "facts"):
        texts = [f"<{'; '.join(triple)}>" for triple in items]
    else:
        texts = [
            item if isinstance(item, str) else f"{item['id']} {item['title']}" for item in items
        ]
    if with_calls or len(texts) < 2:
        return [*lines, *texts]
    return [*lines, texts[0], f"… ({len(items) - 1:,} more)"]


def _format_message(role: str, content: str, further: list[list[str]] | str = "") -> str:
    """Return a message of a prompt, with the tool calls of an assistant."""
    calls = further if isinstance(further, list) else []
    return "\n".join(
        [f"[{role}]", content, *(f"calls {name} {arguments}" for _, name, arguments in calls)]
    )


def _format_reply(call: TracedCall) -> str:
    """Return a text with its tokens, the best options of a choice, or an error."""
    reply, usage = call.reply, call.usage
    if usage is None:
        return call.error or str(reply)
    flags = "".join(f", {flag}" for flag in reply["flags"])
    if call.kind == "generate":
        reasoning = (
            f", {usage.reasoning_tokens} of them reasoning" if usage.reasoning_tokens else ""
        )
        tokens = f"{usage.prompt_tokens} + {usage.output_tokens} tokens{reasoning}"
        text = (
            f"reasoning {reply['thought']!r}, then {call.text!r}"
            if "thought" in reply
            else repr(call.text)
        )
        calls = "".join(
            f", calls {name} {arguments}" for _, name, arguments in reply.get("tool_calls", ())
        )
        return f"{text}{calls} ({reply['finish']}, {tokens}{flags})"
    best = sorted(zip(reply["logprobs"], call.request["options"], strict=True), reverse=True)[:8]
    return "  ".join(f"{label} {logprob:.3f}" for logprob, label in best) + flags
