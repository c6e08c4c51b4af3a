"""A run's questions in a table, or one question with everything that led to its answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from kgqa.errors import DataError, nearest
from kgqa.report.traversal import traversal_lines, traversal_svg
from kgqa.report.verdicts import UNSCORED, Judgements
from kgqa.runtime.folder import read_trace
from kgqa.storage import replace_file
from kgqa.terminal.console import Terminal
from kgqa.types import Json

Traced = Mapping[str, Json]


def show_questions(folder: Path, terminal: Terminal) -> None:
    """A run's questions. Raises DataError: not a run's folder."""
    table = Table("question", "text", "answer", "gold", "judge", "calls")
    for traced in _judged(folder):
        question = traced["question"]
        answer = f"failed: {traced['error']}" if traced["error"] else traced["answer"]
        verdict = traced["judgement"]["verdict"] if traced["judgement"] else ""
        cells = (question["id"], question["text"], answer, question["answers"][0], verdict, str(len(traced["calls"])))
        table.add_row(*(escape(cell) for cell in cells))
    terminal.console.print(table)


def show_question(folder: Path, question_id: str, picture: Path | None, terminal: Terminal) -> None:
    """One question's passages, triples, chains, calls and answer.

    `picture`: where its traversal of a passage graph is drawn, as SVG.

    Raises:
        DataError: not a run's folder, no such question in it, or nothing to draw.
    """
    ids = []
    for traced in _judged(folder):
        ids.append(traced["question"]["id"])
        if ids[-1] == question_id:
            _question(traced, terminal)
            if picture:
                terminal.line(str(_drawn(traced, picture)))
            return
    raise DataError(f"{folder}: no question {question_id} in this run; {nearest(question_id, islice(ids, 2000))}")


def _judged(folder: Path) -> Iterator[Traced]:
    """Each question with the judge's line as `judgement`, None without one."""
    judgements = Judgements(folder)
    yield from ({**traced, "judgement": judgements.of(traced)} for traced in read_trace(folder))


def _question(traced: Traced, terminal: Terminal) -> None:
    question = traced["question"]
    used = {passage_id: place for place, passage_id in enumerate(traced["evidence"], start=1)}
    titles = {passage["id"]: passage["title"] for passage in question["passages"]}
    say = _Page(terminal)
    say.title(f"{question['id']}  {question['text']}")
    say.title("passages (* gold, #n used as evidence)")
    for passage in question["passages"]:
        mark = "*" if passage["id"] in question["support"] else " "
        place = f"#{used[passage['id']]}" if passage["id"] in used else ""
        say.line(f"{mark} {passage['id']} {place:3} {passage['title']}: {passage['text']}")
    extracted = [call for call in traced["calls"] if call["call"] == "triples"]
    if extracted:
        say.title("triples")
    for call in extracted:
        say.line(titles.get(call["passage_id"], call["passage_id"]))
        say.lines(f"    <{'; '.join(triple)}>" for triple in call["reply"])
    _chains(traced["notes"].get("chains", ()), titles, say)
    if traced["notes"].get("traversal"):
        say.title("traversal (* gold)")
        say.lines(traversal_lines(traced))
    if traced["notes"].get("thoughts"):
        say.title("thoughts")
        say.lines(traced["notes"]["thoughts"])
    say.title("calls")
    for call in traced["calls"]:
        _call(call, say)
    say.title("answer")
    say.line(f"answer: {traced['answer']!r}" if traced["error"] is None else f"failed: {traced['error']}")
    say.line(f"gold:   {' | '.join(question['answers'])}")
    say.line(f"flags:  {traced.get('flags') or 'none'} · context tokens: {traced.get('context_tokens')}")
    if traced["judgement"]:
        _judgement(traced["judgement"], say)


def _drawn(traced: Traced, picture: Path) -> Path:
    if not traced["notes"].get("traversal"):
        raise DataError(f"question {traced['question']['id']}: no traversal in its trace; method=kgp makes one")
    return replace_file(picture, traversal_svg(traced))


def _judgement(line: Mapping[str, Json], say: _Page) -> None:
    say.line(f"judge:  {line['verdict']} ({line['judge']})")
    for vote in line["votes"]:
        replies = vote["error"] or " | ".join(repr(reply) for reply in vote["replies"])
        say.line(f"        {vote['verdict'] or UNSCORED}: {replies}")


def _chains(chains: Sequence[Mapping[str, Json]], titles: Mapping[str, str], say: _Page) -> None:
    if not chains:
        return
    say.title("chains (log-probability, best first)")
    for chain in chains:
        say.line(f"{chain['score']:8.3f} {'ended' if chain['ended'] else 'open '}")
        for *parts, passage_id in chain["triples"]:
            say.line(f"         <{'; '.join(parts)}>   from {titles.get(passage_id, passage_id)}")


def _call(call: Mapping[str, Any], say: _Page) -> None:
    place = ".".join(str(step) for step in call["path"])
    kept = " (cached)" if call["cached"] else ""
    match call["call"]:
        case "generate" | "choose":
            say.rule(f"{place} {call['call']} {call['prompt']['template']} ({call['role']}){kept}")
            for role, content in call["prompt"]["messages"]:
                say.line(f"[{role}]\n{content}")
            if call["prompt"]["prefill"]:
                say.line(f"[assistant, prefilled]\n{call['prompt']['prefill']}")
            say.line(f"→ {_reply(call)}")
        case "rank":
            best = sorted(zip(call["reply"], call["texts"], strict=True), reverse=True)[:5] if _is_list(call) else []
            say.rule(f"{place} rank {len(call['texts'])} texts{kept}")
            say.line(f"query: {call['query']}")
            say.lines(f"{score:8.4f}  {text[:150]}" for score, text in best)
        case "search":
            say.rule(f"{place} search{_scope(call)}{kept}")
            say.line(f"query: {call['query']}")
            found = call["reply"] if _is_list(call) else []
            say.lines(f"{number:4} {passage['id']} {passage['title']}" for number, passage in enumerate(found, start=1))
        case "neighbours":
            count = len(call["reply"]) if _is_list(call) else 0
            say.rule(f"{place} neighbours of {call['passage_id']}: {count}{kept}")
        case "count_tokens":
            say.rule(f"{place} count_tokens{kept}")
            say.line(f"→ {call['reply']}")


def _scope(call: Mapping[str, Any]) -> str:
    if call["titles"]:
        return f" in {', '.join(call['titles'])}"
    return " in the question's own passages" if call["pool"] is not None else ""


def _reply(call: Mapping[str, Any]) -> str:
    reply = call["reply"]
    if "error" in reply:
        return f"{reply['error']}: {reply['message']}"
    flags = "".join(f", {flag}" for flag in reply["flags"])
    if call["call"] == "generate":
        return f"{reply['text']!r} ({reply['finish']}, {reply['usage'][0]} + {reply['usage'][2]} tokens{flags})"
    best = sorted(zip(reply["logprobs"], call["options"], strict=True), reverse=True)[:8]
    shown = "  ".join(f"{label} {logprob:.3f}" for logprob, label in best)
    mass = "" if reply["mass"] is None else f"  (all options together: {reply['mass']:.3f})"
    return f"{shown}{mass}{flags}"


def _is_list(call: Mapping[str, Any]) -> bool:
    return isinstance(call["reply"], list)


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
