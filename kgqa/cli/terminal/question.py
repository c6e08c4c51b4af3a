"""One question with everything that led to its answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

from kgqa.artifacts.metrics import METRICS, Metrics
from kgqa.artifacts.trace import TracedCall, TracedQuestion, read_trace
from kgqa.artifacts.trace_notes import Chain, Notes
from kgqa.artifacts.verdicts import UNSCORED, Judgement, Judgements
from kgqa.cli.terminal.console import Terminal
from kgqa.errors import DataError, nearest
from kgqa.report.traversal import traversal_lines, traversal_svg
from kgqa.scoring.questions import score_question
from kgqa.types import Json
from kgqa.util.fs import replace_file

Depth = Literal["brief", "calls", "full"]  # how much of it is shown


def show_question(folder: Path, question_id: str, picture: Path | None, depth: Depth, terminal: Terminal) -> None:
    """Show one question's passages, triples, chains, calls and answer.

    Raises:
        DataError: not a run's folder, no such question in it, or nothing to draw.
    """
    ids, judgements = [], Judgements(folder)
    for traced in read_trace(folder):
        ids.append(traced.question.id)
        if ids[-1] == question_id:
            _question(traced, depth, _Page(terminal))
            _answer(traced, judgements.of(traced.prediction), _profile(folder), _Page(terminal))
            if depth == "brief":
                terminal.line("prompts and all that was found: --calls; every passage and triple, too: --full")
            if picture:
                terminal.line(str(_draw(traced, picture)))
            return
    raise DataError(f"{folder}: no question {question_id} in this run; {nearest(question_id, islice(ids, 2000))}")


def _profile(folder: Path) -> str | None:
    """Return the scoring rules of the run, or None if it is not finished."""
    return Metrics.read(folder).profile if (folder / METRICS).is_file() else None


def _question(traced: TracedQuestion, depth: Depth, say: _Page) -> None:
    question, notes = traced.question, Notes.of(traced)
    titles = {passage.id: passage.title for passage in question.passages}
    say.title(f"{question.id}  {question.text}")
    _passages(traced, depth, say)
    _triples([call for call in traced.calls if call.kind == "triples"], titles, depth, say)
    _chains(notes.chains, titles, say)
    if notes.traversal:
        say.title("traversal (* gold)")
        say.lines(traversal_lines(traced, notes.traversal))
    if notes.thoughts:
        say.title("thoughts")
        say.lines(notes.thoughts)
    say.title("calls")
    for call in traced.calls:
        _call(call, depth, say)


def _passages(traced: TracedQuestion, depth: Depth, say: _Page) -> None:
    """Show passages; `brief` shows only the titles of those without evidence."""
    question = traced.question
    used = {passage_id: place for place, passage_id in enumerate(traced.prediction.evidence or (), start=1)}
    say.title("passages (* gold, #n used as evidence)")
    for passage in question.passages:
        mark = "*" if passage.id in question.support else " "
        place = f"#{used[passage.id]}" if passage.id in used else ""
        text = f": {passage.text}" if depth == "full" or mark == "*" or place else ""
        say.line(f"{mark} {passage.id} {place:3} {passage.title}{text}")


def _triples(extracted: Sequence[TracedCall], titles: Mapping[str, str], depth: Depth, say: _Page) -> None:
    if not extracted:
        return
    say.title("triples")
    if depth != "full":
        say.line(f"{sum(len(call.items or ()) for call in extracted):,}, of {len(extracted):,} passages")
        return
    for call in extracted:
        passage_id: str = call.request["passage_id"]
        say.line(titles.get(passage_id, passage_id))
        say.lines(f"    <{'; '.join(triple)}>" for triple in call.items or ())


def _answer(traced: TracedQuestion, judgement: Judgement | None, profile: str | None, say: _Page) -> None:
    question, prediction = traced.question, traced.prediction
    say.title("answer")
    say.line(f"answer: {prediction.answer!r}" if prediction.error is None else f"failed: {prediction.error}")
    say.line(f"gold:   {' | '.join(question.answers)}")
    if profile and prediction.scored_answer is not None and question.answers:
        scored = score_question(question, prediction, profile)
        say.line(f"scores: EM {100 * scored.em:.1f} · F1 {100 * scored.f1:.1f} ({profile} profile)")
    say.line(f"flags:  {prediction.flags or 'none'} · context tokens: {prediction.context_tokens}")
    if judgement:
        _judgement(judgement, say)


def _draw(traced: TracedQuestion, picture: Path) -> Path:
    traversal = Notes.of(traced).traversal
    if traversal is None:
        raise DataError(f"question {traced.question.id}: no traversal in its trace; method=kgp makes one")
    return replace_file(picture, traversal_svg(traced, traversal))


def _judgement(judgement: Judgement, say: _Page) -> None:
    say.line(f"judge:  {judgement.shown} ({judgement.judge})")
    for vote in judgement.votes:
        replies = vote.error or " | ".join(repr(reply) for reply in vote.replies)
        say.line(f"        {vote.verdict or UNSCORED}: {replies}")


def _chains(chains: Sequence[Chain], titles: Mapping[str, str], say: _Page) -> None:
    if not chains:
        return
    say.title("chains (log-probability, best first)")
    for chain in chains:
        say.line(f"{chain.score:8.3f} {'ended' if chain.ended else 'open '}")
        for *parts, passage_id in chain.triples:
            say.line(f"         <{'; '.join(parts)}>   from {titles.get(passage_id, passage_id)}")


def _call(call: TracedCall, depth: Depth, say: _Page) -> None:
    """Show a call; `brief` leaves out its prompt and shortens results to one line."""
    place, request, brief = ".".join(map(str, call.path)), call.request, depth == "brief"
    kept = " (cached)" if call.cached else ""
    match call.kind:
        case "generate" | "choose":
            say.rule(f"{place} {call.kind} {call.template} ({call.role}){kept}")
            _prompt([] if brief else request["prompt"]["messages"], "" if brief else request["prompt"]["prefill"], say)
            say.line(f"→ {_reply(call)}")
        case "rank":
            texts = request["texts"]
            best = sorted(zip(call.items, texts, strict=True), reverse=True)[:5] if call.items is not None else []
            say.rule(f"{place} rank {len(texts)} texts{kept}")
            say.line(f"query: {request['query']}")
            say.lines(f"{score:8.4f}  {text[:150]}" for score, text in best[: 1 if brief else None])
        case "search":
            say.rule(f"{place} search{_scope(request)}{kept}")
            say.line(f"query: {request['query']}")
            found = call.items or ()
            if brief:
                say.line(f"→ {len(found)} passages: {'; '.join(passage['title'] for passage in found)}")
            else:
                numbered = enumerate(found, start=1)
                say.lines(f"{number:4} {passage['id']} {passage['title']}" for number, passage in numbered)
        case "neighbours":
            say.rule(f"{place} neighbours of {request['passage_id']}: {len(call.items or ())}{kept}")
        case "count_tokens" if not brief:
            say.rule(f"{place} count_tokens{kept}")
            say.line(f"→ {call.reply}")


def _prompt(messages: Sequence[Sequence[str]], prefill: str, say: _Page) -> None:
    for role, content in messages:
        say.line(f"[{role}]\n{content}")
    if prefill:
        say.line(f"[assistant, prefilled]\n{prefill}")


def _scope(request: Mapping[str, Json]) -> str:
    if request["titles"]:
        return f" in {', '.join(request['titles'])}"
    return " in the question's own passages" if request["pool"] is not None else ""


def _reply(call: TracedCall) -> str:
    reply, usage = call.reply, call.usage
    if usage is None:
        return call.error or ""
    flags = "".join(f", {flag}" for flag in reply["flags"])
    if call.kind == "generate":
        thought = f", {usage.reasoning_tokens} in thought" if usage.reasoning_tokens else ""
        tokens = f"{usage.prompt_tokens} + {usage.output_tokens} tokens{thought}"
        said = f"thought {reply['thought']!r}, then {call.text!r}" if "thought" in reply else repr(call.text)
        return f"{said} ({reply['finish']}, {tokens}{flags})"
    best = sorted(zip(reply["logprobs"], call.request["options"], strict=True), reverse=True)[:8]
    shown = "  ".join(f"{label} {logprob:.3f}" for logprob, label in best)
    mass = "" if reply["mass"] is None else f"  (all options together: {reply['mass']:.3f})"
    return f"{shown}{mass}{flags}"


class _Page:
    """One question's lines."""

    def __init__(self, terminal: Terminal) -> None:
        self.line = terminal.line

    def title(self, text: str) -> None:
        self.line(f"\n{text}", style="bold")

    def rule(self, text: str) -> None:
        self.line(f"── {text}", style="cyan")

    def lines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.line(text)
