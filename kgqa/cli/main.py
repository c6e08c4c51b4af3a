"""Run the command line. A usage error is one line and exit code 2."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from kgqa.cli import tree
from kgqa.cli.parsing import HelpWanted, find_repeated, parse
from kgqa.errors import EngineError, KgqaError, StorageError, UsageError, notes
from kgqa.util.redaction import redact
from kgqa.util.stdio import protect_streams
from kgqa.util.terminal_text import escape_control, escape_unencodable, one_line

YOUNG = 50_000  # objects more than there were, before Python looks for circles among them


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    # read by libgomp when it loads: without it a busy neighbour makes llama.cpp and torch many times slower
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    # imports and a configuration are a hundred thousand objects that stay: at Python's 700, looking through them again
    # and again is a seventh of the start
    gc.set_threshold(YOUNG)
    arguments = list(sys.argv[1:] if argv is None else argv)
    protect_streams()
    escape_unencodable()
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except UsageError as error:
        code = _report(error, 2)
    except EngineError as error:
        code = _report(error, 3, "kgqa: everything answered so far is saved; the same command goes on from there")
    except KeyboardInterrupt as error:
        print("\nkgqa: interrupted; the same command goes on from here", file=sys.stderr)
        _print_notes(error)
        _flush()
        # worker threads of an engine may still hold native code; everything is on disk, so leave at once
        os._exit(130)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - the last guard; what panics in Rust is no Exception
        code = _report_unexpected(error, arguments)
    _flush()
    return code


def _report(error: KgqaError, code: int, further: str = "") -> int:
    """Print an error and the notes of unfinished work."""
    _say(str(error))
    if further:
        print(escape_control(further), file=sys.stderr)
    _print_notes(error)
    return code


def _flush() -> None:
    """Flush output after an error; the interpreter would exit with code 120 if it could not."""
    with suppress(StorageError):
        sys.stdout.flush()


def _report_unexpected(error: BaseException, arguments: Sequence[str]) -> int:
    """Report an unexpected error."""
    if isinstance(error, OSError) and error.filename is not None:  # a path that is refused: too long, not permitted
        _say(f"{os.fsdecode(error.filename)}: {error.strerror}; name another place, or mend this one")
        return 2
    from kgqa.util.crash_report import write_crash_report

    _say(write_crash_report(error, arguments))
    return 1


def _say(message: str) -> None:
    print(f"kgqa: {one_line(redact(message))}", file=sys.stderr)


def _run(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] == "help":
        arguments = [*arguments[1:], "--help"]
    if arguments[0] == "--version":
        from importlib.metadata import version

        print(f"kgqa {version('kgqa')}")
        return 0
    if arguments[0] in ("--completion", "--complete"):
        from kgqa.cli.completion import print_candidates, print_script

        value = " ".join(arguments[1:])
        return print_script(value) if arguments[0] == "--completion" else print_candidates(tree(), value)
    try:
        given = parse(tree(), arguments)
    except HelpWanted as wanted:
        # on the screen either way; only what was asked for is the command's output
        print(
            escape_control(wanted.parser.help_text(arguments)), end="", file=sys.stderr if wanted.code else sys.stdout
        )
        return wanted.code
    code: int = given.run(given)
    for line in find_repeated(given.overrides):  # of what is refused one line tells alone
        _say(line)
    return code


def _print_notes(error: BaseException) -> None:
    """Print what unfinished work has saved, and the command that continues it."""
    for line in notes(error):
        _say(line)


if __name__ == "__main__":
    sys.exit(main())
