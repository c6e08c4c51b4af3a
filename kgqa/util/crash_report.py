"""Save the traceback of an unexpected error in a file that users can attach to a bug report."""

from __future__ import annotations

import platform
import shlex
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from kgqa.util.fs import create_private, home
from kgqa.util.redaction import redact

_MAX_MESSAGE = 200  # characters


def write_crash_report(error: BaseException, arguments: Sequence[str]) -> str:
    """Write the traceback to a file that only its owner can read, without secrets, and return the line to show."""
    message = " ".join(redact(f"{type(error).__name__}: {error}").split()).removesuffix(":")[:_MAX_MESSAGE]
    report = redact(
        f"kgqa {version('kgqa')}, Python {platform.python_version()}, {platform.platform()}\n"
        f"{shlex.join(['kgqa', *arguments])}\n\n{''.join(traceback.format_exception(error))}"
    )
    for folder in (home() / "errors", Path(tempfile.gettempdir())):
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            file = create_private(folder / f"kgqa-{datetime.now():%Y%m%d-%H%M%S-%f}.txt")
            file.chmod(0o600)
            file.write_text(report, encoding="utf-8", errors="backslashreplace")
            return f"unexpected error ({message}); please report it with {file}"
    return f"unexpected error ({message}); its traceback could not be written to a file"
