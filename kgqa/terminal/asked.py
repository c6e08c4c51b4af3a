"""What `kgqa ask` shows: the way while it is gone, then the answer with the sentences it rests on."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator

from kgqa.calls import Choose, Generate, Search
from kgqa.experiment.run.own_documents import Told
from kgqa.runtime.display import Display
from kgqa.runtime.scheduler import CallRecord
from kgqa.types import Choice, Completion

LONGEST = 120  # letters of a reply that is told
PROMPT = "? "
QUIT = (":quit", ":q")


class Way:
    """Tells each step of a method on a display as it is answered; choices of one step of all chains have one number."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._hops: dict[int, int] = {}  # by the method's await

    def __call__(self, record: CallRecord) -> None:
        call, reply = record.call, record.reply
        if isinstance(call, Choose) and isinstance(reply, Choice):
            hop = self._hops.setdefault(record.path[0], len(self._hops) + 1)
            self._display.line(f"hop {hop}: {chosen(call, reply)}")
        elif isinstance(call, Generate) and isinstance(reply, Completion):
            self._display.line(f"{call.prompt.name}: {_short(reply.text)}")
        elif isinstance(call, Search) and not isinstance(reply, Exception):
            titles = ", ".join(dict.fromkeys(passage.title for passage in reply))
            self._display.line(f"search: {_short(call.query)} → {len(reply)} passages of {titles}")


def chosen(call: Choose, reply: Choice) -> str:
    """The likeliest option as the prompt has it, in a line of its own behind its label, and its probability."""
    logprob, label = max(zip(reply.logprobs, call.options, strict=True), key=lambda pair: pair[0])
    lines = reversed(call.prompt.messages[-1].content.splitlines())
    option = next((line for line in lines if line.startswith(f"{label}. ")), label)
    return f"{option.removeprefix(f'{label}. ')}  {100 * math.exp(logprob):.0f} %"


def show_answer(told: Told, display: Display) -> None:
    """The answer, and for each step the quoted sentence and its place."""
    asked = told.asked
    prediction = asked.traced.prediction
    if prediction.error is not None:
        display.line(f"failed: {prediction.error}", alarm=True)
        return
    display.line(f"answer: {prediction.answer or 'none'}  ({told.seconds:.0f} s)")
    for number, step in enumerate(asked.steps, start=1):
        if step.triple:
            display.line(f"  {number}. <{'; '.join(step.triple)}>")
        quotation = f"“{' '.join(step.sentence.split())}”"
        display.line(f"{'     ' if step.triple else f'  {number}. '}{quotation} {step.where or step.passage.title}")
    if not asked.steps:
        display.line("  it rests on no passage of the documents: check it", alarm=True)
    elif not asked.says_so:
        display.line("  none of these sentences says it in these words: check it", alarm=True)


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


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
