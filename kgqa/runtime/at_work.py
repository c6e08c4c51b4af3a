"""Claims: who works on what, kept while a process works and left behind where it is killed.

Beside each claim lies a lock that its process holds, and that the system lets go of when the process dies. So a claim
is told from one that a killed process left, whatever other process has got its number.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kgqa.artefacts.claim import SUFFIX, Claim, claims_folder
from kgqa.artefacts.runs import kept_runs, kept_sweeps
from kgqa.errors import DataError, StorageError
from kgqa.storage import begun, in_use, json_text, locked, made, outputs
from kgqa.types import Json

State = Literal["working", "dead", "silent"]
SILENT = 60.0  # seconds without a sign of life after which work on another machine is called silent


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claim as it was found. silent: of another machine, whose locks may not be seen here, and long not renewed."""

    file: Path
    claim: Claim
    state: State

    def told(self) -> str:
        """In words: what is waited for, or since when nothing was heard."""
        claim = self.claim
        if self.state == "working":
            return f"waits: {claim.waits_for}" if claim.waits_for else "working"
        if self.state == "dead":
            return "dead"
        return f"on {claim.host}, silent for {time.time() - claim.updated:,.0f} s"

    def json(self) -> dict[str, Json]:
        return {**self.claim.json(), "state": self.state}


@contextmanager
def claiming(claim: Claim) -> Iterator[Path]:
    """Where the claim lies for as long as the block runs. A disk that refuses it costs `kgqa status` alone."""
    file = claims_folder() / f"{claim.host}-{claim.pid}-{time.monotonic_ns()}{SUFFIX}"
    with ExitStack() as held:
        with suppress(StorageError):
            _forget_dead(claim.folder)
            held.callback(_remove, file)
            held.enter_context(locked(_beside(file, ".lock")))
            keep_claim(file, claim)
        yield file


def keep_claim(file: Path, claim: Claim) -> None:
    """Not `replace_file`, which waits for the disk: this comes every two seconds, and may get lost."""
    fresh = _beside(file, ".new")
    with suppress(OSError):
        made(file.parent)
        begun(fresh).write_text(json_text(claim.json()), encoding="utf-8", errors="backslashreplace")
        fresh.replace(file)


def found_claims(root: Path | None = None) -> list[Claimed]:
    """All below `outputs/`, or another folder in its place, the one that began first first."""
    found = []
    with suppress(OSError):
        for file in claims_folder(root).glob(f"*{SUFFIX}"):
            with suppress(DataError):  # it ended meanwhile, or is damaged: nothing can be said of it
                claim = Claim.read(file)
                found.append(Claimed(file, claim, _state(file, claim)))
    return sorted(found, key=lambda claimed: (claimed.claim.started, str(claimed.file)))


def unclaimed(found: Sequence[Claimed]) -> list[Path]:
    """Runs, sweeps and indexes that a process holds locked without a claim: of another version of kgqa."""
    claimed = {claimed.claim.folder for claimed in found}
    places = [kept.folder for kept in (*kept_runs(), *kept_sweeps()) if not kept.ended]
    places += [lock.parent for lock in outputs().glob("index/*/*/*/.lock")]
    return [folder for folder in places if str(folder) not in claimed and in_use(folder / ".lock")]


def forget(claimed: Claimed) -> None:
    """Remove a claim; only one whose process is no more."""
    _remove(claimed.file)


def _state(file: Path, claim: Claim) -> State:
    if in_use(_beside(file, ".lock")):
        return "working"
    if claim.host == socket.gethostname():
        return "dead"
    return "silent" if time.time() - claim.updated > SILENT else "working"


def _forget_dead(folder: str) -> None:
    """What a killed process left of the same work: now this one goes on with it."""
    for claimed in found_claims():
        if claimed.claim.folder == folder and claimed.state == "dead":
            forget(claimed)


def _beside(file: Path, suffix: str) -> Path:
    return file.with_suffix(suffix)


def _remove(file: Path) -> None:
    for each in (file, *(_beside(file, suffix) for suffix in (".lock", ".new"))):
        with suppress(OSError):
            os.unlink(each)
