"""The command line. A person's mistake ends in one line and exit code 2."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Sequence
from contextlib import suppress

from kgqa.commands import tree
from kgqa.commands.parsing import HelpWanted, parse, repeated
from kgqa.errors import EngineError, UsageError, notes
from kgqa.inert import inert, one_line, spell_out
from kgqa.redaction import without_secrets


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code."""
    # read by libgomp when it loads: without it a busy neighbour makes llama.cpp and torch many times slower
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    arguments = list(sys.argv[1:] if argv is None else argv)
    spell_out()
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except UsageError as error:
        _say(str(error))
        _print_notes(error)
        return 2
    except EngineError as error:
        _say(str(error))
        print("kgqa: everything answered so far is saved; the same command goes on from there", file=sys.stderr)
        _print_notes(error)
        return 3
    except KeyboardInterrupt as error:
        print("\nkgqa: interrupted; the same command goes on from here", file=sys.stderr)
        _print_notes(error)
        sys.stdout.flush()
        # worker threads of an engine may still hold native code; everything is on disk, so leave at once
        os._exit(130)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - the last guard; what panics in Rust is no Exception
        return _otherwise(error, arguments)
    return code


def _otherwise(error: BaseException, arguments: Sequence[str]) -> int:
    if isinstance(error, BrokenPipeError) and _nobody_listens():
        return 0
    if isinstance(error, OSError) and error.filename is not None:  # a path that is refused: too long, not permitted
        _say(f"{os.fsdecode(error.filename)}: {error.strerror}; name another place, or mend this one")
        return 2
    from kgqa.unforeseen import told

    _say(told(error, arguments))
    return 1


def _nobody_listens() -> bool:
    """Whether a program that reads our output has gone; what is left of it is then dropped."""
    gone = False
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # of a stream that is no file
            polled = select.poll()
            polled.register(stream.fileno(), 0)  # errors and hang-ups are always told
            if polled.poll(0):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
                gone = True
    return gone


def _say(message: str) -> None:
    print(f"kgqa: {one_line(without_secrets(message))}", file=sys.stderr)


def _run(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] == "help":
        arguments = [*arguments[1:], "--help"]
    if arguments[0] == "--version":
        from importlib.metadata import version

        print(f"kgqa {version('kgqa')}")
        return 0
    try:
        given = parse(tree(), arguments)
    except HelpWanted as wanted:
        # on the screen either way; only what was asked for is the command's output
        print(inert(wanted.parser.help_text(arguments)), end="", file=sys.stderr if wanted.code else sys.stdout)
        return wanted.code
    for line in repeated(given.overrides):
        _say(line)
    code: int = given.run(given)
    return code


def _print_notes(error: BaseException) -> None:
    """What long work that ended so has kept, and the command that goes on with it."""
    for line in notes(error):
        _say(line)


if __name__ == "__main__":
    sys.exit(main())
