"""`kgqa show`: a run's questions, or how one question got its answer."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from kgqa.artifacts.metrics import METRICS, Metrics
from kgqa.artifacts.run import FinishedRun, find_run
from kgqa.artifacts.trace import Notes, TracedCall, TracedQuestion, read_trace
from kgqa.artifacts.verdicts import UNSCORED, Judgements
from kgqa.cli.terminal import Cells, Terminal, styled
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.report.graph_lines import traversal_lines
from kgqa.report.questions import QuestionRow, load_reported_questions, order_ids
from kgqa.scoring.questions import score_question
from kgqa.types import Json
from kgqa.util.text import pluralize

QUESTIONS_SHOWN = 50
STYLES = {"right": "green", "wrong": "yellow", "failed": "red", "": ""}  # by outcome


def show(args: Namespace, terminal: Terminal) -> int:
    """Show the questions of a run, or one of them."""
    name, *question = args.places
    for option in ("wrong", "failed", "limit") if question else ("calls",):
        if getattr(args, option):
            hint = f"leave {question[0]} out" if question else f"name one: kgqa show RUN QUESTION --{option}"
            raise ConfigError(f"--{option}: is about {'a run' if question else 'one question'}; {hint}")
    folder = find_run(name)
    if question:
        _QuestionPage(terminal, with_calls=args.calls).show(folder, question[0])
    elif (folder / METRICS).is_file():
        _show_questions(folder, args, terminal)
    else:
        raise ConfigError(f"{folder}: not finished, so it has no scores yet; run its command again, or name a question")
    return 0


def _show_questions(folder: Path, args: Namespace, terminal: Terminal) -> None:
    """Show questions in the order of the dataset."""
    run = FinishedRun.read(folder)
    by_id = {reported.row.question_id: reported.row for reported in load_reported_questions(run)}
    questions = [by_id[question_id] for question_id in order_ids(run, by_id)]
    outcomes = [_outcome(row) for row in questions]
    wanted = {outcome for outcome in ("wrong", "failed") if getattr(args, outcome)} or set(STYLES)
    chosen = [row for row, outcome in zip(questions, outcomes, strict=True) if outcome in wanted]
    shown = chosen[: args.limit or QUESTIONS_SHOWN]
    rows: list[Cells] = [
        [
            row.question_id,
            styled(_outcome(row), STYLES[_outcome(row)]),
            "" if row.f1 is None else f"{row.f1:.1f}",
            row.verdict or "",
            f"failed: {row.error}" if row.error else row.answer or "",
            row.gold[0],
            row.question,
        ]
        for row in shown
    ]
    if rows:
        judge = "judge" if any(row.verdict for row in shown) else ""
        terminal.table(("question", "", "F1", judge, "answer", "gold", "text"), rows, fixed=1)
    counts = ", ".join(f"{outcomes.count(each):,} {each}" for each in STYLES if each and each in outcomes)
    summary = pluralize(len(questions), "question")
    terminal.line(f"{summary}: {counts} (by exact match)" if counts else summary)
    if len(shown) < len(chosen):
        terminal.line(f"{len(shown):,} of {len(chosen):,} shown; all: --limit {len(chosen)}")


def _outcome(row: QuestionRow) -> str:
    """Return the outcome, or "" if the run has no answers, as with `retrieve_only`."""
    if row.error:
        return "failed"
    return "" if row.em is None else "right" if row.is_right else "wrong"


class _QuestionPage:
    """Everything that led to the answer of one question."""

    def __init__(self, terminal: Terminal, *, with_calls: bool) -> None:
        self.line, self.lines, self.title = terminal.line, terminal.lines, terminal.heading
        self._with_calls = with_calls

    def show(self, folder: Path, question_id: str) -> None:
        """Show one question's passages, triples, chains, calls and answer.

        Raises:
            DataError: not a run's folder, no such question in it, or no walk to draw.
        """
        ids, judgements = [], Judgements(folder)
        for traced in read_trace(folder):
            ids.append(traced.question.id)
            if ids[-1] == question_id:
                break
        else:
            hint = nearest(question_id, islice(ids, 2000))
            raise DataError(f"{folder}: no question {question_id} in this run; {hint}")
        notes = Notes.of(traced)
        self.title(f"{question_id}  {traced.question.text}")
        self._show_passages(traced)
        self._show_triples(traced)
        self._show_notes(traced, notes)
        self.title("calls")
        for call in traced.calls:
            self._show_call(call)
        self._show_answer(traced, Metrics.read(folder).profile if (folder / METRICS).is_file() else None)
        if judgement := judgements.of(traced.prediction):
            self.line(f"judge:  {judgement.shown} ({judgement.judge})")
            for vote in judgement.votes:
                replies = vote.error or " | ".join(repr(reply) for reply in vote.replies)
                self.line(f"        {vote.verdict or UNSCORED}: {replies}")
        if not self._with_calls:
            self.line("every prompt, result, passage and triple: --calls")

    def _show_passages(self, traced: TracedQuestion) -> None:
        ranks = {passage_id: rank for rank, passage_id in enumerate(traced.prediction.evidence or (), start=1)}
        self.title("passages (* gold, #n used as evidence)")
        for passage in traced.question.passages:
            mark = "*" if passage.id in traced.question.support else " "
            rank = f"#{ranks[passage.id]}" if passage.id in ranks else ""
            text = f": {passage.text}" if self._with_calls or mark == "*" or rank else ""
            self.line(f"{mark} {passage.id} {rank:3} {passage.title}{text}")

    def _show_triples(self, traced: TracedQuestion) -> None:
        extracted = [call for call in traced.calls if call.kind == "triples"]
        if not extracted:
            return
        self.title("triples")
        if not self._with_calls:
            self.line(f"{sum(len(call.items or ()) for call in extracted):,}, of {len(extracted):,} passages")
            return
        titles = _titles(traced)
        for call in extracted:
            passage_id: str = call.request["passage_id"]
            self.line(titles.get(passage_id, passage_id))
            self.lines(f"    <{'; '.join(triple)}>" for triple in call.items or ())

    def _show_notes(self, traced: TracedQuestion, notes: Notes) -> None:
        titles = _titles(traced)
        if notes.chains:
            self.title("chains (log-probability, best first)")
        for chain in notes.chains:
            self.line(f"{chain.score:8.3f} {'ended' if chain.ended else 'open '}")
            for *parts, passage_id in chain.triples:
                self.line(f"         <{'; '.join(parts)}>   from {titles.get(passage_id, passage_id)}")
        if notes.traversal:
            self.title("traversal (* gold)")
            self.lines(traversal_lines(traced, notes.traversal))
        if notes.thoughts:
            self.title("thoughts")
            self.lines(notes.thoughts)

    def _show_answer(self, traced: TracedQuestion, profile: str | None) -> None:
        question, prediction = traced.question, traced.prediction
        self.title("answer")
        self.line(f"answer: {prediction.answer!r}" if prediction.error is None else f"failed: {prediction.error}")
        self.line(f"gold:   {' | '.join(question.answers)}")
        if profile and prediction.scored_answer is not None and question.answers:
            scored = score_question(question, prediction, profile)
            self.line(f"scores: EM {100 * scored.em:.1f} · F1 {100 * scored.f1:.1f} ({profile} profile)")
        self.line(f"flags:  {prediction.flags or 'none'} · context tokens: {prediction.context_tokens}")

    def _show_call(self, call: TracedCall) -> None:
        request, items = call.request, call.items or ()
        head, lines = call.kind, list[str]()
        match call.kind:
            case "generate" | "choose":
                head += f" {call.template} ({call.role})"
                if self._with_calls:
                    lines += [f"[{role}]\n{content}" for role, content in request["prompt"]["messages"]]
                    if prefill := request["prompt"]["prefill"]:
                        lines.append(f"[assistant, prefilled]\n{prefill}")
                lines.append(f"→ {_format_reply(call)}")
            case "rank":
                head += f" {len(request['texts'])} texts"
                best = sorted(zip(items, request["texts"], strict=True), reverse=True) if items else []
                best = best[: 5 if self._with_calls else 1]
                lines += [f"query: {request['query']}", *(f"{score:8.4f}  {text[:150]}" for score, text in best)]
            case "search":
                head += _format_scope(request)
                lines.append(f"query: {request['query']}")
                if self._with_calls:
                    lines += [f"{n:4} {passage['id']} {passage['title']}" for n, passage in enumerate(items, start=1)]
                else:
                    lines.append(f"→ {len(items)} passages: {'; '.join(passage['title'] for passage in items)}")
            case "neighbours":
                head += f" of {request['passage_id']}: {len(items)}"
            case "count_tokens" if self._with_calls:
                lines.append(f"→ {call.reply}")
            case _:
                return
        position = ".".join(map(str, call.path))
        self.line(f"── {position} {head}{' (cached)' if call.cached else ''}", style="cyan")
        self.lines(lines)


def _titles(traced: TracedQuestion) -> dict[str, str]:
    return {passage.id: passage.title for passage in traced.question.passages}


def _format_scope(request: Mapping[str, Json]) -> str:
    if request["titles"]:
        return f" in {', '.join(request['titles'])}"
    return " in the question's own passages" if request["pool"] is not None else ""


def _format_reply(call: TracedCall) -> str:
    reply, usage = call.reply, call.usage
    if usage is None:
        return call.error or ""
    flags = "".join(f", {flag}" for flag in reply["flags"])
    if call.kind == "generate":
        reasoning = f", {usage.reasoning_tokens} in thought" if usage.reasoning_tokens else ""
        tokens = f"{usage.prompt_tokens} + {usage.output_tokens} tokens{reasoning}"
        text = f"thought {reply['thought']!r}, then {call.text!r}" if "thought" in reply else repr(call.text)
        return f"{text} ({reply['finish']}, {tokens}{flags})"
    best = sorted(zip(reply["logprobs"], call.request["options"], strict=True), reverse=True)[:8]
    mass = "" if reply["mass"] is None else f"  (all options together: {reply['mass']:.3f})"
    return "  ".join(f"{label} {logprob:.3f}" for logprob, label in best) + mass + flags
