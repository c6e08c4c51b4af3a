"""Questions that are put from the browser: by a `kgqa ask --chat --events` of its own, whose events are handed on.

A process and not a thread: a model keeps a core and the interpreter busy for minutes while pages are to be answered, a
question is stopped by the signal that stops it in a terminal, what an engine breaks is not the viewer, and there is one
way in which questions are asked. It stays while the settings stay, so that models and documents are read once; it ends
with the viewer, at the latest when its input does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kgqa.errors import ConfigError, DataError
from kgqa.inert import one_line
from kgqa.json_values import decoded
from kgqa.report.packing import compact_json
from kgqa.terminal.asked import QUIT
from kgqa.types import Json

LONGEST = 2000  # characters of a question
LINE = 1 << 27  # bytes of an event
PATIENCE = 20.0  # seconds in which a question that is cancelled has to end
QUIET = 15.0  # seconds after which a line without meaning keeps a stream
LOOK = 1.0  # seconds between two looks whether the server ends
ENDS = ("answered", "failed", "stopped")
STOPPED: dict[str, Json] = {"event": "stopped"}


@dataclass(frozen=True, slots=True)
class Settings:
    """documents: a folder. words: key=value of `kgqa ask`."""

    documents: Path
    words: tuple[str, ...]


@dataclass(eq=False)
class _Child:
    process: Process
    settings: Settings
    complaints: deque[str] = field(default_factory=lambda: deque(maxlen=50))  # its last lines of stderr
    ready: str | None = None  # its first event

    def say(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{line}\n".encode())

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()

    def trouble(self) -> str:
        """Why it ended, in its own words."""
        own = [line.removeprefix("kgqa: ") for line in self.complaints if line.startswith("kgqa: ")]
        return own[0] if own else f"kgqa ask ended with code {self.process.returncode}"


class Asking:
    """One question at a time. Of the event loop's thread alone."""

    def __init__(self) -> None:
        self._closed = False
        self._child: _Child | None = None
        self._listening: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._number, self._events = 0, list[str]()  # of the question that was put last
        self._asked: dict[str, Json] = {}
        self._busy = self._cancelled = False

    @property
    def busy(self) -> bool:
        return self._busy

    async def put(self, question: str, settings: Settings, shown: dict[str, Json]) -> None:
        """shown: what the page says of the settings.

        Raises:
            ConfigError: there is a question that is not answered yet, or this is none.
        """
        text = one_line(question)
        if self._busy:
            raise ConfigError("a question is being answered; wait for its answer, or cancel it")
        if not text or len(text) > LONGEST or text in QUIT:
            raise ConfigError(f"question {text!r:.40}: a question has 1 to {LONGEST:,} characters")
        self._busy, self._cancelled = True, False
        self._number, self._events, self._asked = self._number + 1, [], {**shown, "question": text}
        child = self._child
        if child is None or child.settings != settings or child.process.returncode is not None:
            self._drop()
            child = self._child = await self._started(settings)
        elif child.ready:
            self._take(child, child.ready)
        child.say(text)
        self._tell()

    def cancel(self) -> None:
        """The question ends as Ctrl-C ends it; what does not end so in time is killed."""
        child = self._child
        if not self._busy or child is None:
            return
        self._cancelled = True
        with suppress(ProcessLookupError):
            child.process.send_signal(signal.SIGINT)
        number = self._number
        asyncio.get_running_loop().call_later(
            PATIENCE, lambda: child.kill() if self._busy and self._number == number else None
        )

    def close(self) -> None:
        """With the server: streams end, and so does a question that is being answered."""
        self._closed = True
        self._drop()
        self._tell()

    async def events(self, seen: str) -> AsyncIterator[str]:
        """Server-sent: `asked` with each question's beginning, then its events. seen: the id of the last one known."""
        from anyio import move_on_after

        number, told = _place(seen)
        quiet = 0.0
        while not self._closed:
            news = self._news
            if number != self._number:
                number, told = self._number, 0
                yield f"id: {number}.0\nevent: asked\ndata: {compact_json(self._asked)}\n\n"
            for line in self._events[told:]:
                told, quiet = told + 1, 0.0
                yield f"id: {number}.{told}\nevent: told\ndata: {line}\n\n"
            with move_on_after(LOOK) as waited:
                await news.wait()
            quiet = quiet + LOOK if waited.cancelled_caught else 0.0
            if quiet >= QUIET:
                quiet = 0.0
                yield ": still here\n\n"

    async def _started(self, settings: Settings) -> _Child:
        place = Path(os.curdir, settings.documents)  # its name may begin as an option does
        command = [sys.executable, "-m", "kgqa", "ask", "--chat", "--events", str(place), *settings.words]
        found_here = {"", os.getcwd()} & set(sys.path)  # as this process finds its modules
        safe = {} if found_here else {"PYTHONSAFEPATH": "1"}
        try:
            process = await asyncio.create_subprocess_exec(
                *command, env={**os.environ, **safe}, limit=LINE, stdin=PIPE, stdout=PIPE, stderr=PIPE,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._busy = False
            raise DataError(f"kgqa ask cannot be started: {error.strerror}; try again") from None
        child = _Child(process, settings)
        for listening in (self._listen(child), self._complaints(child)):
            task = asyncio.create_task(listening)
            self._listening.add(task)
            task.add_done_callback(self._listening.discard)
        return child

    async def _listen(self, child: _Child) -> None:
        assert child.process.stdout
        async for line in child.process.stdout:
            if (text := line.decode(errors="replace").strip()) and child is self._child:
                self._take(child, text)
        await child.process.wait()
        await asyncio.sleep(0)  # its last words may be on their way
        if child is self._child:
            self._child = None
            if self._busy:
                self._end(STOPPED if self._cancelled else {"event": "failed", "reason": child.trouble()})

    async def _complaints(self, child: _Child) -> None:
        assert child.process.stderr
        async for line in child.process.stderr:
            child.complaints.append(line.decode(errors="replace").rstrip())

    def _take(self, child: _Child, line: str) -> None:
        try:
            event = decoded(line)["event"]
        except (ValueError, KeyError, TypeError):
            return  # what a library prints
        if event == "ready":
            child.ready = line
        if self._busy:
            self._events.append(line)
            self._busy = event not in ENDS
            self._tell()

    def _end(self, event: dict[str, Json]) -> None:
        self._events.append(compact_json(event))
        self._busy = False
        self._tell()

    def _drop(self) -> None:
        if self._child:
            self._child.kill()
            self._child = None

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def _place(seen: str) -> tuple[int, int]:
    """A question's number and how many of its events; of anything else none."""
    number, _, told = seen.partition(".")
    return (int(number), int(told)) if number.isdecimal() and told.isdecimal() else (0, 0)
