"""The command line. Help needs no heavy import; a person's mistake ends in one line and exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

HELP = """kgqa: multi-hop question answering with knowledge-graph-grounded RAG, as experiments you can trust

  kgqa run [key=value …]        answer a dataset's questions with a method and score them
  kgqa run -m key=a,b …         a sweep: one run for every combination of values; see kgqa run --help
  kgqa tune key=a,b … tune.metric=f1 tune.dev=100  choose the values on dev questions, then measure on others
  kgqa show RUN [QUESTION]      one run's questions; one question's passages, triples, chains, prompts, answer
  kgqa show RUN QUESTION --svg FILE  and a picture of its walk through the passage graph (KGP)
  kgqa report RUN [--format html|md|csv|latex]  a run's tables, questions and traces as one file (--out FILE)
  kgqa report RUN --against RUN  the same beside another run's answers; the questions that flipped are a filter
  kgqa export RUN --out DIR [--format jsonl|parquet|datasets]  a run's predictions and calls for other programs
  kgqa evaluate RUN [key=value …]  score a run again: every profile, by hops and type; judge=three_way asks a judge
  kgqa evaluate --predictions FILE dataset=NAME  score predictions of others (HotpotQA, 2Wiki, MuSiQue or JSONL)
  kgqa compare RUN RUN …        who wins where on the same questions, with paired tests; the questions that flipped
  kgqa judge calibrate RUN      the judge's agreement with exact match, another judge (other=) and people (human=)
  kgqa kg build [key=value …]   extract the triples of a dataset's passages ahead of a run; of the whole corpus with
                                --corpus, by several models at once with --ray --workers N
  kgqa kg stats [key=value …]   entities, triples and density per question (TRACE, Table 5)
  kgqa graph build graph=NAME [key=value …]  link the passages of each question ahead of a run (KGP)
  kgqa graph stats graph=NAME [key=value …]  passages, edges, density and build time (KGP, Table 3)
  kgqa graph quality graph=NAME [key=value …]  SF-EM and precision over densities (KGP, Figs. 5, 9)
  kgqa kgp export-instructions [key=value …]  training texts for KGP's agent, as JSON lines
  kgqa reproduce --list         the papers' results tables and figures, by id; docs/REPRODUCE.md
  kgqa reproduce ID [key=value …]  run one again, the published values beside ours: limit=, model=, only=ROW
  kgqa index build [key=value …]  index a dataset's corpus ahead of a run; a run builds a small one itself
  kgqa index check [key=value …]  every file against its hash, and whether passages are found again
  kgqa data list                every data set and corpus: source, licence, size, checksum, what is here
  kgqa data prepare dataset=NAME  fetch a data set or corpus, check and unpack it
  kgqa data check [key=value …]   read a dataset's files through; counts, hashes and what is odd
  kgqa models                   the model presets: size, licence, and whether they can run here
  kgqa doctor [NAME …]          what is installed, reachable and on disk, and what to do about each gap
  kgqa run --help               every key, and the names each group knows
  kgqa --version

  kgqa run method=trace dataset=demo limit=3
"""

RUN_HELP = """kgqa run [key=value …]: answer a dataset's questions with a method and score them
kgqa run -m [key=a,b …]: one run for every combination of values, as a sweep (docs/SWEEPS.md):
  -m, --multirun  comma lists, choice(…), range(…) and glob(…) are swept; models stay loaded, finished cells are skipped
  sweep.name=     its folder in outputs/sweeps; else a hash of its cells
  budget=         what the sweep may pay for, e.g. 2.50usd or 500000tokens
  hydra/launcher= basic, joblib, submitit_local, submitit_slurm, ray; hydra.launcher.KEY=… its settings
  hydra/sweeper=  basic (every combination) or optuna (see docs/SWEEPS.md)

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
        "tune": _tune,
        "show": _show,
        "report": _report,
        "export": _export,
        "evaluate": _evaluate,
        "compare": _compare,
        "judge": _judge,
        "kg": _kg,
        "graph": _graph,
        "kgp": _kgp,
        "reproduce": _reproduce,
        "index": _index,
        "data": _data,
        "models": _models,
        "doctor": _doctor,
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
    except OSError as error:  # a path that the system refuses: too long, not permitted
        if error.filename is None:
            raise
        print(f"kgqa: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2


def _run(arguments: list[str]) -> int:
    if any(argument in ("-h", "--help") for argument in arguments):
        print(RUN_HELP.format(groups=_group_lines(), keys=_key_lines()), end="")
        return 0
    from kgqa.entry import print_configuration, run

    if "--cfg" in arguments:
        print_configuration([argument for argument in arguments if argument not in ("--cfg", "job")])
        return 0
    if "-m" in arguments or "--multirun" in arguments:
        from kgqa.experiment.sweep.grid import sweep

        return sweep(arguments)
    return run(arguments)


def _tune(arguments: list[str]) -> int:
    from kgqa.experiment.sweep.tuning import tune

    return tune(arguments)


def _show(arguments: list[str]) -> int:
    from pathlib import Path

    from kgqa.errors import ConfigError
    from kgqa.terminal.question import show

    picture = None
    if "--svg" in arguments[:-1]:
        at = arguments.index("--svg")
        picture = Path(arguments[at + 1])
        arguments = arguments[:at] + arguments[at + 2 :]
    if not 1 <= len(arguments) <= 2 or "--svg" in arguments or (picture and len(arguments) == 1):
        raise ConfigError("kgqa show RUN [QUESTION [--svg FILE]]: give the folder a run printed, and at most one id")
    show(Path(arguments[0]), arguments[1] if len(arguments) == 2 else None, picture)
    return 0


def _report(arguments: list[str]) -> int:
    from kgqa.report.writing import report

    return report(arguments)


def _export(arguments: list[str]) -> int:
    from kgqa.report.exporting import export

    return export(arguments)


def _evaluate(arguments: list[str]) -> int:
    from kgqa.experiment.evaluate.evaluation import evaluate

    return evaluate(arguments)


def _compare(arguments: list[str]) -> int:
    from kgqa.experiment.evaluate.comparison import compare_runs

    return compare_runs(arguments)


def _judge(arguments: list[str]) -> int:
    from kgqa.errors import ConfigError
    from kgqa.experiment.evaluate.calibration import USAGE, calibrate

    if arguments[:1] != ["calibrate"]:
        raise ConfigError(f"kgqa judge {' '.join(arguments)}: expected {USAGE}")
    return calibrate(arguments[1:])


def _kg(arguments: list[str]) -> int:
    from kgqa.entry import build_triples, print_statistics
    from kgqa.errors import ConfigError

    actions: dict[str, Callable[[Sequence[str]], int]] = {"build": build_triples, "stats": print_statistics}
    if not arguments or arguments[0] not in actions:
        raise ConfigError("kgqa kg build|stats [key=value …]: e.g. kgqa kg build dataset=demo limit=3")
    return actions[arguments[0]](arguments[1:])


def _graph(arguments: list[str]) -> int:
    from kgqa.entry import build_graphs, graph_statistics, measure_quality
    from kgqa.errors import ConfigError

    actions: dict[str, Callable[[Sequence[str]], int]] = {
        "build": build_graphs,
        "stats": graph_statistics,
        "quality": measure_quality,
    }
    if not arguments or arguments[0] not in actions:
        raise ConfigError("kgqa graph build|stats|quality graph=NAME [key=value …]: e.g. kgqa graph build graph=tfidf")
    return actions[arguments[0]](arguments[1:])


def _kgp(arguments: list[str]) -> int:
    from kgqa.entry import export_instructions
    from kgqa.errors import ConfigError

    if arguments[:1] != ["export-instructions"]:
        raise ConfigError("kgqa kgp export-instructions [key=value …]: e.g. with dataset=hotpotqa --out=FILE")
    return export_instructions(arguments[1:])


def _reproduce(arguments: list[str]) -> int:
    from kgqa.experiment.reproduce.running import reproduce

    return reproduce(arguments)


def _index(arguments: list[str]) -> int:
    from kgqa.entry import build_index, check_index
    from kgqa.errors import ConfigError

    actions: dict[str, Callable[[Sequence[str]], int]] = {"build": build_index, "check": check_index}
    if not arguments or arguments[0] not in actions:
        raise ConfigError("kgqa index build|check [key=value …]: e.g. kgqa index build dataset=demo retriever=bm25")
    return actions[arguments[0]](arguments[1:])


def _data(arguments: list[str]) -> int:
    from kgqa.errors import ConfigError
    from kgqa.experiment.data import check, prepare, show_sources

    actions: dict[str, Callable[[Sequence[str]], int]] = {"list": show_sources, "prepare": prepare, "check": check}
    if not arguments or arguments[0] not in actions:
        raise ConfigError("kgqa data list|prepare|check: e.g. kgqa data prepare dataset=musique")
    return actions[arguments[0]](arguments[1:])


def _models(arguments: list[str]) -> int:
    from kgqa.experiment.machine.presets import show_presets

    return show_presets(arguments)


def _doctor(arguments: list[str]) -> int:
    from kgqa.experiment.machine.doctor import examine

    return examine(arguments)


def _group_lines() -> str:
    from kgqa.experiment.config.composing import groups

    return "".join(f"  {group:<11} {', '.join(names)}\n" for group, names in groups().items())


def _key_lines() -> str:
    """The comments of conf/config.yaml, key by key."""
    from kgqa.experiment.config.composing import conf_folder

    text = (conf_folder() / "config.yaml").read_text(encoding="utf-8").split("\n\n", 1)[1]
    return "".join(f"  {line}\n" for line in text.strip().splitlines())


def _one_line(message: str) -> str:
    return " ".join(message.split())


if __name__ == "__main__":
    sys.exit(main())
