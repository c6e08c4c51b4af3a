"""What an answered call means to somebody who waits for an answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kgqa.calls import Choose, Generate, Neighbours, Rank, Search, Triples
from kgqa.experiment.run.events import Chosen, Event, Extracted, Option, Searched, Shown, Tell, Walked, Wrote
from kgqa.methods.kgp import Kgp, best_of
from kgqa.methods.steps.knowtrace_replies import read_facts
from kgqa.protocols import Method
from kgqa.runtime.scheduler import CallRecord
from kgqa.types import Choice, Completion, Passage, Triple

COMPLETES = "knowtrace/complete"  # the prompt whose replies are triples of the passages it has
OPTIONS = 5  # told of a choice
ASIDE = 8  # neighbours told of a step that were not chosen


class Way:
    """Tells each of a method's calls that leads somewhere, as it is answered."""

    def __init__(self, method: Method, shown: Callable[[Passage], Shown], tell: Tell) -> None:
        self._branching = method.branching if isinstance(method, Kgp) else None
        self._shown, self._tell = shown, tell
        self._hops: dict[int, int] = {}  # by the method's await: what runs side by side is one step of all
        self._around: dict[tuple[int, ...], tuple[Passage, Sequence[Passage]]] = {}  # by program: where a walk stands

    def __call__(self, record: CallRecord) -> None:
        if event := self._event(record):
            self._tell(event)
        if isinstance(event, Wrote) and event.prompt == COMPLETES:
            self._tell(Extracted("", read_facts(event.text).facts))

    def _event(self, record: CallRecord) -> Event | None:
        call, reply, program = record.call, record.reply, record.path[:-1]
        if isinstance(reply, Exception):
            return None
        match call:
            case Triples():
                return extracted(call.passage.id, reply)
            case Choose() if isinstance(reply, Choice):
                return Chosen(self._hop(record), likeliest(call, reply))
            case Generate() if isinstance(reply, Completion):
                return Wrote(call.prompt.name, reply.text)
            case Search():
                return Searched(call.query, tuple(map(self._shown, reply)))
            case Neighbours():
                self._around[program] = (call.passage, reply)
            case Rank() if self._branching is not None and program in self._around:
                return self._walked(record, *self._around.pop(program))
        return None

    def _walked(self, record: CallRecord, start: Passage, around: Sequence[Passage]) -> Walked:
        """A method ranks those of the neighbours that are not on its path."""
        assert isinstance(record.call, Rank)
        by_wording = {passage.wording: passage for passage in around}
        candidates = [by_wording[text] for text in record.call.texts]
        best = tuple(map(self._shown, best_of(candidates, record.reply, (self._branching or 0) + ASIDE)))
        chosen, aside = best[: self._branching], best[self._branching :]
        return Walked(self._hop(record), self._shown(start), record.call.query, len(candidates), chosen, aside)

    def _hop(self, record: CallRecord) -> int:
        return self._hops.setdefault(record.path[0], len(self._hops) + 1)


def extracted(passage_id: str, triples: Sequence[Triple]) -> Extracted:
    return Extracted(passage_id, tuple((each.head, each.relation, each.tail) for each in triples))


def likeliest(call: Choose, reply: Choice) -> tuple[Option, ...]:
    """Options as the prompt has them, each in a line of its own behind its label; the label where it has none."""
    lines = call.prompt.messages[-1].content.splitlines()[::-1]

    def text(label: str) -> str:
        return next((line for line in lines if line.startswith(f"{label}. ")), label).removeprefix(f"{label}. ")

    best = sorted(zip(call.options, reply.logprobs, strict=True), key=lambda pair: -pair[1])[:OPTIONS]
    return tuple(Option(text(label), math.exp(logprob)) for label, logprob in best)
