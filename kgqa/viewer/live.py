"""What happens in the folder, as server-sent events: who is at work, and which rows of the table changed."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable

from kgqa.errors import UsageError
from kgqa.report.packing import compact_json
from kgqa.runtime.at_work import Claimed
from kgqa.types import Json
from kgqa.viewer.folder import Folder

PERIOD = 1.0  # seconds between two looks
QUIET = 15.0  # seconds after which a line without meaning keeps the connection


async def events(folder: Folder, stopping: Callable[[], bool]) -> AsyncIterator[str]:
    """`work`: all claims, whenever one says something new. `rows`: rows that changed, and keys that are gone.

    The first look tells all that is at work, and no rows: the table has them. stopping: ends the stream.
    """
    from anyio import sleep, to_thread

    watch = Watch(folder)
    last = time.monotonic()
    while not stopping():
        told = await to_thread.run_sync(watch.look)
        if not told and time.monotonic() - last > QUIET:
            told = [": still here\n\n"]
        for event in told:
            last = time.monotonic()
            yield event
        await sleep(PERIOD)


class Watch:
    """Looks at a folder again and again."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._work: str | None = None
        self._seen: dict[str, object] | None = None

    def look(self) -> list[str]:
        """The events since the last look."""
        claims = self._folder.claims()
        told = []
        work = compact_json([claim_json(claim) for claim in claims])
        if work != self._work:
            self._work = work
            told.append(_event("work", work))
        working = {claim.claim.folder for claim in claims if claim.state == "working"}
        listed = self._folder.listed()
        seen = {each.key: (each.stamp, each.kept.ended, str(each.kept.folder) in working) for each in listed}
        if self._seen is not None and seen != self._seen:
            before = self._seen
            changed = [each for each in listed if seen[each.key] != before.get(each.key)]
            gone: list[Json] = sorted(before.keys() - seen.keys())
            try:
                told.append(_event("rows", compact_json({"rows": self._folder.rows(changed), "gone": gone})))
            except UsageError as error:
                told.append(_event("trouble", json.dumps(str(error))))
        self._seen = dict(seen)
        return told


def claim_json(claimed: Claimed) -> dict[str, Json]:
    """What `kgqa status --json` says of it, with its state in words."""
    return {**claimed.json(), "told": claimed.told()}


def _event(name: str, told: str) -> str:
    return f"event: {name}\ndata: {told}\n\n"
