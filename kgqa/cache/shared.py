"""Share replies between machines: each process appends its own to a file of a shared folder, and reads all others.

<KGQA_REPLIES>/<machine>-<process>-<random>.jsonl    one row of the call cache per line

The call cache itself is on a local disk, because its transactions are slow on a network disk. Files that only one
process appends to need no locks there. The last line of a killed process can be torn, and is skipped.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from kgqa.util.fs import ensure_dir, explain_storage_errors, open_file
from kgqa.util.jsonio import JsonError, decode_stored, iterate_lines

# key, value, checksum, engine, model and time, as in the table of calls
Row = tuple[Any, ...]
COLUMNS = 6


class SharedReplies:
    """The files of a folder. Use it under the lock of the call cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
        self._own = folder / name

    def append(self, rows: Iterable[Row]) -> None:
        """Append rows to the own file. They survive the end of this process."""
        with explain_storage_errors(self._own):
            ensure_dir(self.folder)
            with self._own.open("a", encoding="ascii") as file:
                file.writelines(f"{json.dumps(row)}\n" for row in rows)

    def read(self) -> Iterator[Row]:
        """Yield the rows of all other files."""
        for path in sorted(self.folder.glob("*.jsonl")):
            if path != self._own:
                yield from _read_file(path)


def _read_file(path: Path) -> Iterator[Row]:
    """Yield the rows of a file. Lines that a kill has cut are skipped, and the rest after a line without end."""
    with explain_storage_errors(path), open_file(path) as file, suppress(JsonError):
        for line in iterate_lines(file):
            try:
                row = decode_stored(line)
            except JsonError:
                continue
            if isinstance(row, list) and len(row) == COLUMNS:
                yield tuple(row)
