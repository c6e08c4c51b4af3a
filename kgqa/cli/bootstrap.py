"""`kgqa bootstrap`: KnowTrace's rounds of learning from its own right answers (§3.3)."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from kgqa.cli.parsing import Parser

NAME = "bootstrap"
SUMMARY = "train a method on its own right answers, round by round, and evaluate each round"


def arguments(parser: Parser) -> None:
    parser.takes_keys(
        "as for kgqa run, of the questions that are evaluated on; bootstrap.KEY=VALUE, see below; train.KEY=VALUE, "
        "collect.KEY=VALUE of each round"
    )
    parser.explain = explain
    parser.examples = (
        "kgqa bootstrap dataset=hotpotqa model=llama3_8b_instruct engine=vllm bootstrap.rounds=4 dry_run=true",
        "kgqa bootstrap dataset=2wiki bootstrap.filter=backtracing,none bootstrap.sample=1000 train.epochs=1",
    )


def explain(words: Sequence[str]) -> str:
    from kgqa.cli.configuration import explain_choices

    named = [word for word in words if word.startswith("bootstrap=")] or ["bootstrap=knowtrace"]
    return f"""{explain_choices(named)}

  train.base=       what is trained; else the run's own model=
  dry_run=true      calls, tokens and hours of each round; nothing is asked or trained

A round answers the questions to learn from with the adapters of the round before, collects what was of use for right
answers, trains an adapter for each role on the base model and evaluates them. Interrupted anywhere, the same command
goes on, and nothing is paid twice. See docs/TRAINING.md.
Exit codes: 0 done, 2 something to mend, 3 an engine or trainer died, 130 interrupted."""


def run(given: Namespace) -> int:
    """Train round by round and print the folder last."""
    from kgqa.cli.terminal.console import Terminal
    from kgqa.cli.terminal.sections import show_sections
    from kgqa.report.bootstrap import rounds_sections
    from kgqa.runtime.display import log_lines
    from kgqa.training.bootstrap.planning import plan_sections
    from kgqa.training.bootstrap.request import BootstrapRequest
    from kgqa.training.bootstrap.rounds import Bootstrap

    terminal = Terminal(width=120)
    with log_lines(terminal):
        request = BootstrapRequest.of(given.overrides)
        bootstrap = Bootstrap(request, request.folder(), terminal)
        if request.config["dry_run"]:
            show_sections(bootstrap.title, plan_sections(request, bootstrap.stage.path), terminal)
            terminal.line("nothing is asked or trained: dry_run=true")
            return 0
        rounds = bootstrap.run([NAME, *given.overrides])
    show_sections(rounds.title, rounds_sections(rounds), terminal)
    terminal.line(f"report: {bootstrap.stage.path / 'report.html'}")
    terminal.result(bootstrap.stage.path)
    return 0
