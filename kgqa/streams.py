"""Standard output and error as they may be found: closed, on a full disk, with nobody behind the pipe.

What is printed where nobody reads it is dropped, and the work goes on: `kgqa run … | head` ends with everything done. A
disk that refuses what is printed is told as any other that is full.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TextIO

from kgqa.errors import StorageError

Refused = Callable[[OSError], None]

FULL = "make room or send it elsewhere, then run the same command again"


def settle() -> None:
    """Have both streams behave so from now on; those that somebody else put there stay as they are."""
    for number in (0, 1, 2):  # a file that is opened must not get a stream's number: others print into it
        if not _is_open(number):
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    sys.stdout = _settled(sys.stdout, 1, _refuse)
    sys.stderr = _settled(sys.stderr, 2, lambda _: None)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _settled(stream: TextIO | None, number: int, refused: Refused) -> TextIO:
    if stream is None:  # as Python has it where it was closed
        return io.TextIOWrapper(io.BufferedWriter(_Output(number, refused)), "utf-8")
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    raw = getattr(stream.buffer, "raw", stream.buffer)  # there is no buffer where PYTHONUNBUFFERED is set
    if type(raw) is not io.FileIO or raw.fileno() != number:
        return stream
    output = _Output(number, refused)
    return io.TextIOWrapper(
        output if raw is stream.buffer else io.BufferedWriter(output),
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _refuse(error: OSError) -> NoReturn:
    raise StorageError(f"standard output: {os.strerror(error.errno or errno.EIO)}; {FULL}") from error


class _Output(io.FileIO):
    """Once it cannot be written, all that follows is dropped: `refused` says so, but where nobody is there to read."""

    def __init__(self, number: int, refused: Refused) -> None:
        super().__init__(number, "w", closefd=False)
        self._refused = refused
        self._terminal = self.isatty()

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except OSError as error:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            hung_up = error.errno == errno.EIO and self._terminal
            if error.errno != errno.EPIPE and not hung_up:
                self._refused(error)
            return len(content)
