"""What no command may do, whatever was done to it: told from its exit code, what it printed and what it left."""

from __future__ import annotations

import base64
import gzip
import json
import re
import urllib.parse
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import zstandard

from scripts.attack.processes import Ended

# planted in OPENAI_API_KEY of every command; its characters are those that JSON, HTML and addresses spell differently
KEY = "sk-SECRET/9f8e+7d6c&5b4a=3b2a1c0d"
HEART = KEY[3:-4]  # what a redaction that is off by some characters would leave

FINE, TOLD, DIED, INTERRUPTED, TERMINATED = 0, 2, 3, 130, 143  # README, "Errors"
TRACEBACK = re.compile(
    r"Traceback \(most recent call last\)|thread '.*' panicked at|Fatal Python error|kgqa did not foresee"
)
# C0 but for tab and line feed, DEL, C1, and what turns the direction of writing
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
LARGEST = 64 << 20  # bytes of a compressed file that are looked through


class Harm(Enum):
    """The columns of the table, in their order."""

    TRACEBACK = "tracebacks"
    EXIT = "wrong exit codes"
    SILENT = "silent changes"
    CALLS = "lost or repeated calls"
    KEY = "keys found"
    HANG = "hangs"
    CONTROL = "control characters"


@dataclass(frozen=True)
class Finding:
    harm: Harm
    what: str


def of_command(ended: Ended, allowed: tuple[int, ...]) -> Iterator[Finding]:
    """Of one command: `allowed` are the exit codes that it may end with."""
    said = f"{ended.out}\n{ended.err}"
    if found := TRACEBACK.search(said):
        yield Finding(Harm.TRACEBACK, _around(said, found.start(), 4000))
    elif ended.code is None:
        yield Finding(Harm.HANG, f"no end after {ended.seconds:.0f} s")
    elif ended.code not in allowed:
        yield Finding(Harm.EXIT, f"exit code {ended.code}: {ended.err[-300:]!r}")
    elif ended.code in (TOLD, DIED) and not said.strip():
        yield Finding(Harm.EXIT, f"exit code {ended.code} without a word")
    if found := CONTROL.search(said):
        yield Finding(Harm.CONTROL, repr(_around(said, found.start(), 80)))


def keys_in(folder: Path, since: float) -> Iterator[Finding]:
    """The planted key, in any spelling, in what was written below `folder` from the time `since` on."""
    for file in sorted(folder.rglob("*")):
        if SPELLINGS.search(file.name.encode("utf-8", "surrogateescape")):
            yield Finding(Harm.KEY, f"in the name {file.name!r}")
        if file.is_symlink() or not file.is_file() or file.stat().st_mtime < since:
            continue
        if found := SPELLINGS.search(_plain(file)):
            yield Finding(Harm.KEY, f"{file.relative_to(folder)}: {found[0]!r}")


def _plain(file: Path) -> bytes:
    """A file's bytes; compressed ones are unpacked behind them, as far as they can be."""
    raw = file.read_bytes()
    try:
        if file.suffix == ".zst":
            with zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as stream:
                return raw + stream.read(LARGEST)
        if raw[:2] == b"\x1f\x8b":
            with gzip.open(file) as unpacked:
                return raw + unpacked.read(LARGEST)
    except (OSError, EOFError, zlib.error, zstandard.ZstdError):
        pass
    return raw


def _spellings(secret: str) -> Iterator[bytes]:
    yield secret.encode()
    yield secret.replace("/", "\\/").encode()
    yield json.dumps(secret).strip('"').replace("&", "\\u0026").encode()
    yield "".join(f"\\u{ord(character):04x}" for character in secret).encode()
    yield urllib.parse.quote(secret, safe="").encode()
    yield urllib.parse.quote(secret).encode()
    yield secret.replace("&", "&amp;").replace("=", "&#61;").encode()
    yield secret.replace("&", "&amp;").encode()
    yield secret.encode().hex().encode()
    yield secret.encode("utf-16-le")
    for shift in range(3):  # base64 of a text that holds it somewhere
        coded = base64.b64encode(b"x" * shift + secret.encode())[4:-4]
        yield from (coded, coded.translate(bytes.maketrans(b"+/", b"-_")))


def _pattern() -> re.Pattern[bytes]:
    return re.compile(b"|".join(sorted({re.escape(spelling) for spelling in _spellings(HEART)})), re.IGNORECASE)


SPELLINGS = _pattern()


def _around(text: str, place: int, width: int) -> str:
    return text[max(place - 40, 0) : place + width]
