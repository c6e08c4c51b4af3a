"""The command line. A person's mistake ends in one line and exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from kgqa.commands import tree
from kgqa.commands.parsing import HelpWanted, parse
from kgqa.errors import EngineError, UsageError, notes


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code."""
    # read by libgomp when it loads: without it a busy neighbour makes llama.cpp and torch many times slower
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(arguments)
    except UsageError as error:
        print(f"kgqa: {_one_line(str(error))}", file=sys.stderr)
        _print_notes(error)
        return 2
    except EngineError as error:
        print(f"kgqa: {_one_line(str(error))}", file=sys.stderr)
        print("kgqa: everything answered so far is saved; the same command goes on from there", file=sys.stderr)
        _print_notes(error)
        return 3
    except KeyboardInterrupt as error:
        print("\nkgqa: interrupted; the same command goes on from here", file=sys.stderr)
        _print_notes(error)
        sys.stdout.flush()
        # worker threads of an engine may still hold native code; everything is on disk, so leave at once
        os._exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as error:  # a path that the system refuses: too long, not permitted
        if error.filename is None:
            raise
        print(f"kgqa: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2


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
        print(wanted.parser.help_text(arguments), end="", file=sys.stderr if wanted.code else sys.stdout)
        return wanted.code
    code: int = given.run(given)
    return code


def _print_notes(error: BaseException) -> None:
    """What long work that ended so has kept, and the command that goes on with it."""
    for line in notes(error):
        print(f"kgqa: {_one_line(line)}", file=sys.stderr)


def _one_line(message: str) -> str:
    return " ".join(message.split())


if __name__ == "__main__":
    sys.exit(main())
