"""Replies made up for a dry run."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from math import log
from typing import Any

from kgqa.cache.in_flight import find_reply
from kgqa.cache.key import cache_key
from kgqa.cache.requests import Done, Request, ServiceReply
from kgqa.cache.store import CallCache
from kgqa.calls import Call, Choose, CountTokens, Generate, ModelCall, Neighbours, Rank, Search, Triples
from kgqa.prompting import render_dry_run_reply
from kgqa.runtime.services import Service
from kgqa.types import Choice, Completion, Json, Passage, Question, Triple, Usage

PASSAGE = "text like this " * 30  # 450 characters, the mean of MuSiQue's and 2Wiki's paragraphs
CHARACTERS_PER_TOKEN = 4  # of English under today's vocabularies, roughly
TRIPLES_PER_PASSAGE = 8  # TRACE, Table 5: 79.04 triples in 10 passages


class Imagined(Service):
    """Answers every call at once: from the call cache, else with a reply that makes the program ask the most.

    Choices are even over all options but the first, which stops; texts conclude nothing, and where they decide how far
    a method goes the template has them ask for more (block `imagined`); a passage not extracted yet has eight triples.
    Where there is no index yet, a search gives the question's own passages, then made-up ones. All passages of a pool
    are neighbours. A call made before is `cached` if it is certain to be the same: no reply of its program was
    imagined.
    """

    def __init__(
        self,
        done: Done,
        cache: CallCache,
        identify: Callable[[Call[Any]], Json],
        look_up: Callable[[Request], object],
        made: set[str],
    ) -> None:
        """look_up: gives replies of what is found or computed, not asked, None to others. made: keys of calls that
        will have been made."""
        self._done, self._cache, self._identify, self._look_up, self._made = done, cache, identify, look_up, made
        self.imagining: set[int] = set()  # programs that have had an imagined reply
        self._numbers = count(1)

    def submit(self, request: Request) -> None:
        call = request.call
        found = self._look_up(request) if isinstance(call, Triples | Neighbours | CountTokens) else None
        if found is not None:
            self._done.put(ServiceReply(request.ticket, found, cached=False))
            return
        key, program = cache_key(self._identify(call), call), request.order[0]
        kept = find_reply(self._cache, key, call)
        again = program not in self.imagining and key in self._made
        if kept is not None:
            reply = kept
        else:
            if program not in self.imagining:
                self._made.add(key)
            reply = self._look_up(request) if isinstance(call, Search) else _imagine(call, next(self._numbers))
            self.imagining.add(program)
        self._done.put(ServiceReply(request.ticket, reply, cached=kept is not None or again))


def _imagine(call: Call[Any], number: int) -> object:
    match call:
        case Generate():
            usage = Usage(prompt_tokens=_tokens(call), output_tokens=call.max_tokens)
            return Completion(render_dry_run_reply(call.prompt.name, number), usage=usage)
        case Choose():
            others = len(call.options) - 1 or 1
            never_the_first = (-99.0, *(-log(others),) * (len(call.options) - 1))  # the first is to stop
            return Choice(never_the_first, usage=Usage(prompt_tokens=_tokens(call), output_tokens=1))
        case CountTokens():
            return len(call.text) // CHARACTERS_PER_TOKEN
        case Rank():
            return tuple(-float(position) for position in range(len(call.texts)))
    raise TypeError(f"cannot imagine a reply to {type(call).__name__}")


def imagine_passages(call: Search, question: Question) -> tuple[Passage, ...]:
    """Return passages of the pool, or the question's own and then placeholders if there is no pool."""
    if call.pool is not None:
        return call.pool[: call.k]
    made_up = (Passage.of(f"Passage {number}", PASSAGE) for number in range(call.k))
    return (*question.passages, *made_up)[: call.k]


def imagine_triples(passage: Passage) -> tuple[Triple, ...]:
    numbers = range(TRIPLES_PER_PASSAGE)
    return tuple(Triple(passage.title, f"relation {n}", passage.text[:40], passage.id) for n in numbers)


def others(call: Neighbours) -> tuple[Passage, ...]:
    """Return all of the pool but the passage itself."""
    pool = call.pool or (Passage.of("Neighbour", PASSAGE),)
    return tuple(passage for passage in pool if passage.id != call.passage.id)


def _tokens(call: ModelCall) -> int:
    written = sum(len(message.content) for message in call.prompt.messages) + len(call.prompt.prefill)
    return written // CHARACTERS_PER_TOKEN
