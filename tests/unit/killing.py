"""Kill a process's writes at a chosen point, as a power cut or kill -9 does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from kgqa.runtime.folder import RunFolder
from kgqa.util import fs


class Killed(BaseException):
    """No code of the program may catch a kill."""


@contextmanager
def killed_at(write: int, *, after: bool) -> Iterator[None]:
    """Kill at the write of this number, before or after it is on the disk. Later writes do nothing.

    Creating, renaming, removing and appending count as writes.
    """
    left = write

    def deadly(real: Any) -> Any:
        def counted(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left >= 0:
                return real(*arguments, **named)
            if left == -1 and after:
                with suppress(OSError):
                    real(*arguments, **named)
            if left == -1:
                raise Killed
            return None

        return counted

    with ExitStack() as patched:
        patched.enter_context(patch.object(fs, "_to_disk", lambda _: None))
        for owner, name in ((Path, "replace"), (Path, "unlink"), (RunFolder, "record")):
            patched.enter_context(patch.object(owner, name, deadly(getattr(owner, name))))
        with suppress(Killed):
            yield


def contents(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}
