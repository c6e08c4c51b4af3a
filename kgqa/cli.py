"""The command line. Help needs no heavy import; a person's mistake ends in one line and exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

HELP = """kgqa: multi-hop question answering with knowledge-graph-grounded RAG, as experiments you can trust

  kgqa run [key=value …]        answer a dataset's questions with a method and score them
  kgqa show RUN [QUESTION]      one run's questions; one question's passages, triples, chains, prompts, answer
  kgqa kg build [key=value …]   extract the triples of a dataset's passages ahead of a run
  kgqa kg stats [key=value …]   entities, triples and density per question (TRACE, Table 5)
  kgqa data prepare [dataset=NAME]  which files a dataset needs and where they go
  kgqa run --help               every key, and the names each group knows
  kgqa --version

  kgqa run method=trace dataset=demo limit=3
"""

RUN_HELP = """kgqa run [key=value …]: answer a dataset's questions with a method and score them

Groups, as group=name:
{groups}
Keys:
{keys}
Keys of a group are set as group.key=value, e.g. method.beam=3 or dataset.path=FILE; `--cfg` prints them all
with the values this command line gives. Running the same command again goes on where the last run stopped.
Exit codes: 0 done, 2 something to mend in the command or its files, 3 an engine died, 130 interrupted.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code."""
    # read by libgomp when it loads: without it a busy neighbour makes llama.cpp and torch many times slower
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    arguments = list(sys.argv[1:] if argv is None else argv)
    commands: dict[str, Callable[[list[str]], int]] = {
        "run": _run,
        "show": _show,
        "kg": _kg,
        "data": _data,
    }
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if arguments[0] == "--version":
        from importlib.metadata import version

        print(f"kgqa {version('kgqa')}")
        return 0
    return _guarded(commands, arguments)


def _guarded(commands: dict[str, Callable[[list[str]], int]], arguments: list[str]) -> int:
    from kgqa.errors import ConfigError, EngineError, UsageError, nearest

    name, *rest = arguments
    try:
        if name not in commands:
            raise ConfigError(f"{name}: unknown command; {nearest(name, commands)}")
        return commands[name](rest)
    except UsageError as error:
        print(f"kgqa: {_one_line(str(error))}", file=sys.stderr)
        return 2
    except EngineError as error:
        print(f"kgqa: {_one_line(str(error))}", file=sys.stderr)
        print("kgqa: everything answered so far is saved; the same command goes on from there", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("\nkgqa: interrupted; the same command goes on from here", file=sys.stderr)
        sys.stdout.flush()
        # worker threads of an engine may still hold native code; everything is on disk, so leave at once
        os._exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        return 0


def _run(arguments: list[str]) -> int:
    if any(argument in ("-h", "--help") for argument in arguments):
        print(RUN_HELP.format(groups=_group_lines(), keys=_key_lines()), end="")
        return 0
    from kgqa.experiment.run import print_configuration, run

    if "--cfg" in arguments:
        print_configuration([argument for argument in arguments if argument not in ("--cfg", "job")])
        return 0
    return run(arguments)


def _show(arguments: list[str]) -> int:
    from pathlib import Path

    from kgqa.errors import ConfigError
    from kgqa.report.show import show

    if not 1 <= len(arguments) <= 2:
        raise ConfigError("kgqa show RUN [QUESTION]: give the folder a run printed, and at most one question id")
    show(Path(arguments[0]), *arguments[1:])
    return 0


def _kg(arguments: list[str]) -> int:
    from kgqa.errors import ConfigError
    from kgqa.experiment.graphs import build_triples, print_statistics

    actions: dict[str, Callable[[Sequence[str]], int]] = {"build": build_triples, "stats": print_statistics}
    if not arguments or arguments[0] not in actions:
        raise ConfigError("kgqa kg build|stats [key=value …]: e.g. kgqa kg build dataset=demo limit=3")
    return actions[arguments[0]](arguments[1:])


def _data(arguments: list[str]) -> int:
    from kgqa.errors import ConfigError
    from kgqa.experiment.data import describe

    if not arguments or arguments[0] != "prepare" or len(arguments) > 2:
        raise ConfigError("kgqa data prepare [dataset=NAME]: e.g. kgqa data prepare dataset=musique")
    return describe(*arguments[1:])


def _group_lines() -> str:
    from kgqa.experiment.configuration import groups

    return "".join(f"  {group:<11} {', '.join(names)}\n" for group, names in groups().items())


def _key_lines() -> str:
    """The comments of conf/config.yaml, key by key."""
    from kgqa.experiment.configuration import conf_folder

    text = (conf_folder() / "config.yaml").read_text(encoding="utf-8").split("\n\n", 1)[1]
    return "".join(f"  {line}\n" for line in text.strip().splitlines())


def _one_line(message: str) -> str:
    return " ".join(message.split())


if __name__ == "__main__":
    sys.exit(main())
