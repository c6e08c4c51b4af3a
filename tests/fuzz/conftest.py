"""Run kgqa on generated input: whatever comes in, it succeeds, or it prints one clear message and exits with code 2."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, settings

from kgqa.cli.main import main

# derandomized: the same examples in every run; KGQA_FUZZ=1000 tries more of them, other ones each time
EXAMPLES = int(os.environ.get("KGQA_FUZZ", "0"))
FUZZ = settings(
    derandomize=not EXAMPLES,
    max_examples=EXAMPLES or 12,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
FAST = ("engine=scripted", "ranker=lexical", "demonstrations_ranker=lexical")


@dataclass
class Result:
    """The exit code and the printed text of one command."""

    code: int
    out: str
    err: str


def run_kgqa(folder: Path, *arguments: str) -> Result:
    """Run one command in `folder`, within this process."""
    out, err = io.StringIO(), io.StringIO()
    before = Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(arguments)
    finally:
        os.chdir(before)
    return Result(code, out.getvalue(), err.getvalue())


def check_message(result: Result) -> None:
    """Check that a command succeeded, or failed with code 2 and a message instead of a traceback."""
    assert result.code in (0, 2), result
    text = result.out + result.err
    assert "Traceback" not in text, text
    if result.code == 2:
        assert result.err.strip(), "an error without a message"


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield an empty folder for one example: hypothesis repeats the test within one `tmp_path`."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)
