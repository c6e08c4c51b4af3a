"""Collect requests in waves for the Batch API of a vendor, which answers within a day for half the price.

A file remembers which requests are in which batch. After a kill the same requests find their batch again, so no request
is paid twice, and no reply is lost. The vendors keep results for about a month.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from kgqa.artifacts.schema import Artifact, Number, validate
from kgqa.errors import EngineError
from kgqa.types import Json
from kgqa.util.fs import ensure_dir, lock_file
from kgqa.util.jsonio import decode_json, encode_json
from kgqa.util.waiting import add_wait, remove_wait

# seconds without a new request, after which a wave is complete: rankings between calls can take that long
WAIT = 30.0
# seconds between two looks at a batch
POLL = 15.0
# requests of one batch; the vendors accept 50,000 and more
MOST_REQUESTS = 10_000
# seconds for which the vendors keep results
RESULTS_LAST = 28 * 86_400


@dataclass(frozen=True)
class Outcome:
    """The answer to a request of a batch: a status of HTTP and the content, as without a batch."""

    status: int
    content: Json


class BatchFailed(EngineError):
    """The vendor has rejected a batch as a whole, and has processed none of its requests."""


class BatchApi(Protocol):
    """The Batch API of a vendor."""

    async def submit(self, wave: str, requests: Mapping[str, Json]) -> str:
        """Submit requests by their ids. Return the id of the batch."""
        ...

    async def find(self, wave: str, ids: frozenset[str], since: float) -> str | None:
        """Return the id of a batch that was submitted after a time, if kgqa was killed before it could note the id."""
        ...

    async def fetch(self, batch: str) -> Mapping[str, Outcome] | None:
        """Return the outcomes of a batch by the ids of requests, or None while it is in progress.

        Raises:
            BatchFailed: there are no outcomes, and there will be none.
        """
        ...


@dataclass
class Wave:
    """Requests that are or were one batch. batch: "" until the vendor has confirmed it."""

    name: str
    ids: frozenset[str]
    since: float
    batch: str = ""


class _Event(Artifact):
    """A line of the notes: the requests of a new wave, the id of its batch, or the requests that failed."""

    wave: str
    ids: tuple[str, ...] = ()
    since: Number = 0
    batch: str = ""
    failed: tuple[str, ...] = ()


@dataclass
class BatchNotes:
    """The file that remembers batches: one line per event. Other processes can append to it, too."""

    file: Path

    def read(self) -> dict[str, Wave]:
        """Return the wave of each request whose results can still be fetched."""
        waves, failed = dict[str, Wave](), set[tuple[str, str]]()
        for event in self._read_events():
            name = event.wave
            if event.ids:
                waves[name] = Wave(name, frozenset(event.ids), event.since)
            elif name in waves:
                waves[name].batch = event.batch or waves[name].batch
                failed |= {(name, failed_id) for failed_id in event.failed}
        recent = [wave for wave in waves.values() if wave.since > time.time() - RESULTS_LAST]
        return {
            each: wave for wave in recent for each in wave.ids if (wave.name, each) not in failed
        }

    def add(self, wave: Wave, **event: Json) -> None:
        """Append an event of a wave, on the disk before it returns."""
        ensure_dir(self.file.parent)
        with self.file.open("a+b") as file:
            # a kill can have cut the last line
            is_cut = file.tell() > 0 and _read_last_byte(file) != b"\n"
            line = encode_json({"wave": wave.name, **event}) + b"\n"
            file.write(b"\n" + line if is_cut else line)
            file.flush()
            os.fsync(file.fileno())

    @asynccontextmanager
    async def lock(self) -> AsyncIterator[None]:
        """Keep other processes from submitting the same requests, from reading the file to noting a batch."""
        with ExitStack() as held:
            lock = lock_file(self.file.with_suffix(".lock"))
            await asyncio.to_thread(held.enter_context, lock)
            yield

    def _read_events(self) -> list[_Event]:
        if not self.file.is_file():
            return []
        lines = self.file.read_bytes().splitlines()
        return [event for line in lines if (event := _read_event(line))]


@dataclass
class BatchQueue:
    """Sends requests in waves, and hands each its outcome. It belongs to one event loop."""

    api: BatchApi
    notes: BatchNotes
    # seconds without a new request, after which a wave is complete
    wait: float = WAIT
    _pending: dict[str, Json] = field(default_factory=dict)
    _futures: dict[str, asyncio.Future[Outcome]] = field(default_factory=dict)
    _timer: asyncio.TimerHandle | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _open: dict[str, int] = field(default_factory=dict)

    async def send(self, request: Json, salt: str = "") -> Outcome:
        """Return the outcome of a request. salt: separates equal requests that need different replies."""
        name = hashlib.sha256(encode_json([request, salt])).hexdigest()[:48]
        loop = asyncio.get_running_loop()
        if name not in self._futures:
            self._futures[name] = loop.create_future()
            self._pending[name] = request
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later(self.wait, self._flush)
        if len(self._pending) >= MOST_REQUESTS:
            self._flush()
        return await asyncio.shield(self._futures[name])

    def close(self) -> None:
        """Stop waiting. The batches continue at the vendor, and the next run fetches them."""
        for task in self._tasks:
            task.cancel()
        remove_wait(self.describe)

    def describe(self) -> str:
        """Return why the calls wait."""
        count = sum(self._open.values())
        return f"{count:,} calls wait for {', '.join(self._open)}" if count else ""

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        requests, self._pending = self._pending, {}
        task = asyncio.ensure_future(self._serve(requests))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, requests: dict[str, Json]) -> None:
        """Fetch what is in batches of earlier runs, and submit the rest as a new one."""
        try:
            async with self.notes.lock():
                waves = await self._find_waves(requests)
                old = frozenset[str]().union(*(ids for _, ids in waves))
                new = {name: request for name, request in requests.items() if name not in old}
                try:
                    if new:
                        waves.append((await self._submit(new), frozenset(new)))
                except Exception as error:  # noqa: BLE001 - only these requests fail with it
                    for name in new:
                        self._settle(name, error)
            await asyncio.gather(*(self._finish(wave, ids) for wave, ids in waves))
        except Exception as error:  # noqa: BLE001 - each request of the wave fails with it
            for name in requests:
                self._settle(name, error)

    async def _find_waves(self, requests: Mapping[str, Json]) -> list[tuple[Wave, frozenset[str]]]:
        """Return the earlier batches that contain some of the requests, each with the ids of these."""
        notes = self.notes.read()
        waves = {notes[name].name: notes[name] for name in requests if name in notes}
        for wave in waves.values():
            if not wave.batch and (batch := await self.api.find(wave.name, wave.ids, wave.since)):
                wave.batch = batch
                self.notes.add(wave, batch=batch)
        return [
            (wave, frozenset(name for name in requests if notes.get(name) is wave))
            for wave in waves.values()
            if wave.batch
        ]

    async def _finish(self, wave: Wave, ids: frozenset[str]) -> None:
        """Wait for a batch. If it fails, only its own requests fail."""
        try:
            await self._wait(wave, ids)
        except Exception as error:  # noqa: BLE001 - each request of the batch fails with it
            for name in ids:
                self._settle(name, error)

    async def _submit(self, requests: dict[str, Json]) -> Wave:
        now, ids = time.time(), frozenset(requests)
        name = hashlib.sha256(encode_json([now, *sorted(ids)])).hexdigest()[:32]
        wave = Wave(name, ids, now)
        # before the request: a kill after it finds the batch again
        self.notes.add(wave, ids=sorted(ids), since=now)
        wave.batch = await self.api.submit(name, requests)
        self.notes.add(wave, batch=wave.batch)
        return wave

    async def _wait(self, wave: Wave, ids: frozenset[str]) -> None:
        """Wait for a batch, and hand over the outcomes of these requests."""
        label = f"batch {wave.batch}"
        self._open[label] = len(ids)
        add_wait(self.describe)
        try:
            while (outcomes := await self.api.fetch(wave.batch)) is None:
                await asyncio.sleep(POLL)
        except BatchFailed:
            # the next run submits them again
            self.notes.add(wave, failed=sorted(ids))
            raise
        finally:
            self._open.pop(label)
            remove_wait(self.describe)
        failed = sorted(
            name for name in ids if name not in outcomes or outcomes[name].status >= 400
        )
        if failed:
            # the next run submits them again
            self.notes.add(wave, failed=failed)
        for name in ids:
            missing = EngineError(
                f"{label} ended without an answer to this call. Run the command again"
            )
            self._settle(name, outcomes.get(name, missing))

    def _settle(self, name: str, outcome: Outcome | Exception) -> None:
        future = self._futures.pop(name, None)
        if future is None or future.done():
            return
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


def _read_last_byte(file: BinaryIO) -> bytes:
    file.seek(-1, os.SEEK_END)
    return file.read(1)


def _read_event(line: bytes) -> _Event | None:
    """Return an event, or None for a line that a kill has cut or that is damaged otherwise."""
    try:
        return validate(_Event, decode_json(line))
    except ValueError:
        return None
