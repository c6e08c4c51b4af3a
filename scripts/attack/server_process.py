"""The faulty server in a process of its own: processes that fork must have no threads."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, NoReturn

from scripts.attack import faulty_server
from scripts.attack.faulty_server import FaultyServer


@dataclass(frozen=True)
class Counts:
    """Of requests: how many came; how many got a good answer, and how many of these had got one before."""

    asked: int
    answered: int
    repeated: int


class ServerProcess:
    """`changing`: another reply each time that the same is asked, as of hosted models."""

    def __init__(self, *, changing: bool = False) -> None:
        self._ours, theirs = multiprocessing.Pipe()
        self._pid = os.fork()
        if self._pid == 0:
            self._ours.close()
            _serve(theirs, changing)
        theirs.close()
        self.url: str = self._ours.recv()

    def behave(self, fault: str, when: str) -> None:
        """From the next request on; counts begin again."""
        self._asked("behave", fault, when)

    def counts(self) -> Counts:
        return Counts(*self._asked("counts"))

    def _asked(self, *words: str) -> Any:
        self._ours.send(words)
        return self._ours.recv()

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ours.close()
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _serve(orders: Connection, changing: bool) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulty_server.reply = _triples(changing)
    server = FaultyServer()
    orders.send(server.url)
    while True:
        try:
            what, *words = orders.recv()
        except EOFError:
            os._exit(0)
        if what == "behave":
            server.fault, server.when = words
            server.asked.clear()
            server.answered.clear()
            orders.send(None)
        else:
            answered = dict(server.answered)
            repeated = sum(count - 1 for count in answered.values() if count > 1)
            orders.send((sum(server.asked.values()), sum(answered.values()), repeated))


def _triples(changing: bool) -> Any:
    """Its replies as triples, so that methods which walk along them ask on."""
    plain, numbers = faulty_server.reply, itertools.count(1)

    def reply(asked: faulty_server.Body, *, chat: bool) -> faulty_server.Body:
        answer = plain(asked, chat=chat)
        first = answer["choices"][0]
        holder, key = (first["message"], "content") if chat else (first, "text")
        words = [*holder[key].split(), "the", "same"][:3]
        holder[key] = f"<{'; '.join(words)}{next(numbers) if changing else ''}>"
        return answer

    return reply
