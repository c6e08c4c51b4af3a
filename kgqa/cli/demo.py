"""`kgqa demo`: run three methods on a few questions, or replay a recording."""

from __future__ import annotations

from argparse import Namespace

from kgqa.cli.parsing import Parser
from kgqa.errors import ConfigError

NAME = "demo"
SUMMARY = "a first look: TRACE beside two simple methods on a few questions, with the chains it found"
NOTES = """It runs method=no_context, method=all_documents and experiment=demo (TRACE, small enough for a laptop) on the
first questions of dataset=demo. Its texts are about a country that does not exist, so that no model knows the answers.
Run it again to resume it, or to show its results. Keys are those of kgqa run, for all three methods. Keys of method, kg
and rankers are only for TRACE."""


def arguments(parser: Parser) -> None:
    parser.takes_keys("as for kgqa run, e.g. limit=5 or model=smollm2_135m")
    parser.starts_bare = True
    parser.add_argument("--recorded", action="store_true", help="replay the calls that ship with kgqa, without a model")
    parser.notes = NOTES
    parser.examples = ("kgqa demo", "kgqa demo model=smollm2_135m", "kgqa demo --recorded")


def run(given: Namespace) -> int:
    return _replay(given) if given.recorded else _run(given)


def _replay(given: Namespace) -> int:
    from kgqa.cli.terminal.console import Terminal
    from kgqa.cli.terminal.demo import show_demo
    from kgqa.experiment.run.demo import replay_demo

    if given.overrides:
        raise ConfigError(f"{given.overrides[0]}: the recorded demo has no keys; remove the key or --recorded")
    terminal = Terminal(width=120)
    recording, shown = replay_demo()
    minutes = sum(each.seconds + each.triple_seconds for each in shown) / 60
    remark = f", {recording.remark}" if recording.remark else ""
    terminal.line(
        f"RECORDED on {recording.made} by kgqa {recording.kgqa} ({recording.commit[:8]}) on {recording.cores} cores "
        f"({recording.platform}{remark}), where its model took {minutes:.1f} minutes."
    )
    terminal.line("This makes no model calls: all replies are from the recording. On your machine: kgqa demo")
    show_demo(shown, terminal)
    return 0


def _run(given: Namespace) -> int:
    from kgqa.cli.run import tell_where_ctrl_c_is_off
    from kgqa.cli.terminal.console import Terminal
    from kgqa.cli.terminal.demo import show_demo
    from kgqa.experiment.run.demo import demo_experiments, run_demo
    from kgqa.runtime.display import log_lines

    tell_where_ctrl_c_is_off()
    terminal, experiments = Terminal(width=120), demo_experiments(given.overrides)
    model, count = experiments[0].name("model"), len(experiments[0].questions)
    terminal.line(f"{len(experiments)} methods, the same {count} questions, {model}: minutes, the first time")
    try:
        with log_lines(terminal):
            shown = list(run_demo(experiments, terminal))
    except ConfigError as error:
        raise ConfigError(f"{error}\nor see it without a model: kgqa demo --recorded") from error
    show_demo(shown, terminal)
    for each in shown:
        if each.failure:
            terminal.line(
                f"kgqa: {each.method}: {each.failure}; run the same command again to retry failed questions", alarm=True
            )
    terminal.line(f"report: {shown[-1].folder}/report.html; every call of a question: kgqa show {shown[-1].folder} ID")
    return 2 if any(each.failure for each in shown) else 0
