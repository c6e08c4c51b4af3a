"""Where each question lies in a trace, so that one is read without the others: every question is a frame of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kgqa.artefacts.form import AGAIN
from kgqa.artefacts.trace import TRACE, TracedQuestion, question_of_line, traced_of_line
from kgqa.errors import DataError
from kgqa.types import Question

_BLOCK = 1 << 18  # bytes read at a time
_FIRST = "no such file, so nothing is known of its questions"


def placed_questions(folder: Path) -> Iterator[tuple[int, Question]]:
    """The questions of a finished run in the order they ended, each with the place of its frame, in bytes.

    Raises:
        DataError: there is no trace, or it is damaged.
    """
    file = folder / TRACE
    for at, line in _frames(file):
        yield at, question_of_line(line, f"{file} at byte {at:,}")


def question_at(folder: Path, at: int) -> TracedQuestion:
    """The one whose frame begins there, with its calls. Raises DataError as above, and where none begins there."""
    file = folder / TRACE
    for _, line in _frames(file, at):
        return traced_of_line(line, f"{file} at byte {at:,}")
    raise DataError(f"{file} at byte {at:,}: no question; {AGAIN}")


def _frames(file: Path, start: int = 0) -> Iterator[tuple[int, str]]:
    """Each frame's place and text. A last one cut short is left out."""
    import zstandard

    decompressor = zstandard.ZstdDecompressor()
    at = start
    try:
        with file.open("rb") as source:
            source.seek(start)
            unread = b""
            while unread := unread or source.read(_BLOCK):
                frame, parts = decompressor.decompressobj(), list[bytes]()
                while not frame.eof:
                    if not (unread := unread or source.read(_BLOCK)):
                        return
                    parts.append(frame.decompress(unread))
                    unread = frame.unused_data
                yield at, b"".join(parts).decode("utf-8")
                at = source.tell() - len(unread)
    except FileNotFoundError:
        raise DataError(f"{file}: {_FIRST}; {AGAIN}") from None
    except (zstandard.ZstdError, OSError, ValueError) as error:
        raise DataError(f"{file} at byte {at:,}: damaged trace ({error}); {AGAIN}") from error
