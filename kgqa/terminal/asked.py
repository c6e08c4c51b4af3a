"""What `kgqa ask` shows: the way while it is gone, then the answer with the sentences it rests on."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from kgqa.counting import counted
from kgqa.experiment.run.events import (
    Answered,
    Chosen,
    Event,
    Failed,
    Found,
    Ready,
    Said,
    Searched,
    Stopped,
    Walked,
    Wrote,
)
from kgqa.runtime.display import Display

LONGEST = 120  # letters of a reply that is told
BEGINNING = 60  # letters of a passage where it is listed
PROMPT = "? "
QUIT = (":quit", ":q")
Line = tuple[str, bool]  # and whether it is an alarm


def show(event: Event, display: Display) -> None:
    for text, alarm in lines(event):
        display.line(text, alarm=alarm)


def lines(event: Event) -> Iterator[Line]:
    """What is told of an event; nothing of those that a display tells better, as bars."""
    match event:
        case Ready():
            yield from ((f"left out: {reason}", True) for reason in event.left_out.values())
            yield f"documents: {counted(event.files, 'file')}, {event.passages:,} passages to search", False
        case Found():
            yield f"passages: {len(event.passages)} of {event.of:,}", False
            yield from ((f"  {each.where}  {_short(each.text, BEGINNING)}", False) for each in event.passages)
        case Chosen() | Wrote() | Searched() | Walked():
            yield _step_line(event), False
        case Answered():
            yield from _answer_lines(event)
        case Said():
            yield event.text, event.alarm
        case Failed():
            yield f"failed: {event.reason}", True
        case Stopped():
            yield "stopped; what was extracted and answered so far is kept", False


def _step_line(event: Chosen | Wrote | Searched | Walked) -> str:
    match event:
        case Chosen():
            return f"hop {event.hop}: {event.options[0].text}  {100 * event.options[0].probability:.0f} %"
        case Wrote():
            return f"{event.prompt}: {_short(event.text)}"
        case Searched():
            titles = ", ".join(dict.fromkeys(passage.title for passage in event.passages))
            return f"search: {_short(event.query)} → {len(event.passages)} passages of {titles}"
        case Walked():
            chosen = ", ".join(each.where for each in event.chosen) or "nowhere"
            return f"walk: {event.start.where} → {chosen}, of {counted(event.neighbours, 'neighbour')}"


def _answer_lines(event: Answered) -> Iterator[Line]:
    """The answer, and for each step the quoted sentence and its place."""
    if event.error is not None:
        yield f"failed: {event.error}", True
        return
    yield f"answer: {event.answer or 'none'}  ({event.seconds:.0f} s)", False
    for number, step in enumerate(event.steps, start=1):
        if step.triple:
            yield f"  {number}. <{'; '.join(step.triple)}>", False
        quotation = f"“{' '.join(step.sentence.split())}”"
        yield f"{'     ' if step.triple else f'  {number}. '}{quotation} {step.where}", False
    if not event.steps:
        yield "  it rests on no passage of the documents: check it", True
    elif not event.said_by_a_sentence:
        yield "  none of these sentences says it in these words: check it", True


def questions_asked() -> Iterator[str]:
    """A line each, from a person at a prompt or from a pipe, until :quit or the end; Ctrl-C begins a line anew."""
    while True:
        try:
            line = input(PROMPT) if sys.stdin.isatty() else sys.stdin.readline()
        except EOFError:
            return
        except KeyboardInterrupt:
            sys.stdout.write("\n")
            continue
        if (not line and not sys.stdin.isatty()) or line.strip() in QUIT:
            return
        if question := line.strip():
            yield question


def _short(text: str, longest: int = LONGEST) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
