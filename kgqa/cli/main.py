"""Run the command line. A usage error is one line and exit code 2."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from kgqa.cli.commands import find_command, help_of
from kgqa.errors import EngineError, SeveralRunsError, StorageError, UsageError, notes
from kgqa.util.redaction import redact
from kgqa.util.text import escape_control, one_line, protect_streams, shorten

# imports and a configuration are many objects that stay: Python's 700 slows down the start
GC_THRESHOLD = 50_000
# characters of a message, which can contain a value of a file
LONGEST = 5_000
# of them at the end, where the reason and the remedy are
END = 200


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    # read by libgomp when it loads: without it a busy neighbor makes llama.cpp and torch many times slower
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    gc.set_threshold(GC_THRESHOLD)
    arguments = list(sys.argv[1:] if argv is None else argv)
    protect_streams()
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except SeveralRunsError as error:
        from kgqa.cli.suggestions import suggest_command

        code = _report(2, str(error), *suggest_command(error, arguments))
    except UsageError as error:
        code = _report(2, str(error), *notes(error))
    except EngineError as error:
        code = _report(3, str(error), *notes(error))
    except KeyboardInterrupt as error:
        _report(130, "interrupted. Run the same command again to continue", *notes(error))
        _flush()
        # worker threads of an engine may still run native code. Everything is on disk, so leave at once
        os._exit(130)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - the last guard; a panic in Rust is no Exception
        code = _report_unexpected(error, arguments)
    _flush()
    return code


def _run(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] == "--version":
        from importlib.metadata import version

        print(f"kgqa {version('kgqa')}")
        return 0
    if arguments and arguments[0] == "help":
        arguments = [*arguments[1:], "--help"]
    command, words = find_command(arguments)
    if "--help" in words or "-h" in words or not arguments:
        print(escape_control(help_of(command, words)), end="")
        return 0
    if command.shows_help(words):
        if command.function:
            _report(2, f"{command.program}: {command.missing('key=value')}")
        print(escape_control(help_of(command)), end="", file=sys.stderr)
        return 2
    args = command.parse(words)

    from kgqa.cli.terminal import Terminal
    from kgqa.config.files import find_misspelled_groups
    from kgqa.config.overrides import find_repeated, override_key
    from kgqa.runtime.display import log_lines
    from kgqa.util.variables import find_misspelled

    writes_data = any(getattr(args, option, False) for option in ("json", "stdio", "cfg"))
    terminal = Terminal(sys.stderr if writes_data else sys.stdout)
    terminal.warn(find_misspelled(os.environ))
    # kgqa doctor lists them
    if command.name != "doctor":
        terminal.warn(
            f"{folder}: kgqa reads no folder of this name. Did you mean {target}?"
            for folder, target in find_misspelled_groups().items()
        )
    for override in find_repeated(args.overrides):
        key = override_key(override)
        terminal.line(f"warning: {key}= is set more than once. The last one counts: {override}")
    with log_lines(terminal), terminal.showing_work():
        return command.run(args, terminal)


def _report(code: int, *messages: str) -> int:
    """Print messages to stderr, one line each, and return the exit code."""
    for message in messages:
        line = f"kgqa: {shorten(one_line(redact(message)), LONGEST, END)}"
        if sys.stderr.isatty():
            from kgqa.cli.terminal import print_error

            print_error(line)
        else:
            # rich takes time to import
            print(line, file=sys.stderr)
    return code


def _flush() -> None:
    """Flush output after an error. The interpreter would exit with code 120 if it could not."""
    with suppress(StorageError):
        sys.stdout.flush()


def _report_unexpected(error: BaseException, arguments: Sequence[str]) -> int:
    # a path that is too long or not permitted
    if isinstance(error, OSError) and error.filename is not None:
        path = os.fsdecode(error.filename)
        return _report(2, f"{path}: {error.strerror}. Use another path, or fix this one")
    from kgqa.util.redaction import write_crash_report

    return _report(1, write_crash_report(error, arguments))


if __name__ == "__main__":
    sys.exit(main())
