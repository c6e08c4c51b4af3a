"""Keep working when standard output or error is closed, full or a pipe that nobody reads."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any, TextIO

from kgqa.errors import StorageError


def protect_streams() -> None:
    """Drop what cannot be written to stdout and stderr: `kgqa run … | head` still finishes the run.

    A full disk behind stdout raises a StorageError at the next write. Replaced streams are left alone.
    """
    for number in (0, 1, 2):
        if not _is_open(number):
            os.open(os.devnull, os.O_RDWR)  # takes the free number, which a file would get otherwise
    sys.stdout = _protect(sys.stdout, 1)
    sys.stderr = _protect(sys.stderr, 2)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _protect(stream: TextIO | None, number: int) -> TextIO:
    if stream is None:  # closed
        return io.TextIOWrapper(io.BufferedWriter(_Output(number)), "utf-8")
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    raw = getattr(stream.buffer, "raw", stream.buffer)  # PYTHONUNBUFFERED leaves out the buffer
    if type(raw) is not io.FileIO or raw.fileno() != number:
        return stream
    output = _Output(number)
    return io.TextIOWrapper(
        output if raw is stream.buffer else io.BufferedWriter(output),
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class _Output(io.FileIO):
    """A standard stream that discards everything after the first failed write."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self._is_terminal = self.isatty()

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except OSError as error:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            has_hung_up = error.errno == errno.EPIPE or (error.errno == errno.EIO and self._is_terminal)
            if self.fileno() == 1 and not has_hung_up:
                reason = os.strerror(error.errno or errno.EIO)
                raise StorageError(
                    f"standard output: {reason}; make room or send it elsewhere, then run the same command again"
                ) from error
            return len(content)
