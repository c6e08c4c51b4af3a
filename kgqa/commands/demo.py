"""`kgqa demo`: a first look, asked of a model here or replayed from calls that ship with kgqa."""

from __future__ import annotations

from argparse import Namespace

from kgqa.commands.parsing import Parser
from kgqa.errors import ConfigError

NAME = "demo"
SUMMARY = "a first look: TRACE beside two simple methods on a few questions, with the chains it found"
NOTES = """It runs method=no_context, method=all_documents and experiment=demo (TRACE, small enough for a laptop) on the
first questions of dataset=demo, texts about a country that does not exist, so that no model knows the answers. Running
it again goes on where it stopped, and shows what is finished at once. Keys are those of kgqa run, for all three; those
of method, kg and rankers are for TRACE alone."""


def arguments(parser: Parser) -> None:
    parser.takes_keys("as for kgqa run, e.g. limit=5 or model=smollm2_135m")
    parser.starts_bare = True
    parser.add_argument(
        "--recorded", action="store_true", help="ask nothing: replay the calls that ship with kgqa, without any model"
    )
    parser.notes = NOTES
    parser.examples = ("kgqa demo", "kgqa demo model=smollm2_135m", "kgqa demo --recorded")


def run(given: Namespace) -> int:
    return recorded(given) if given.recorded else asked(given)


def recorded(given: Namespace) -> int:
    from kgqa.experiment.run.showing import show_recorded
    from kgqa.terminal.console import Terminal
    from kgqa.terminal.demo import show_demo

    if given.overrides:
        raise ConfigError(f"{given.overrides[0]}: the recorded demo is as it was recorded; leave --recorded out")
    terminal = Terminal(width=120)
    recording, shown = show_recorded()
    minutes = sum(each.seconds + each.triple_seconds for each in shown) / 60
    remark = f", {recording.remark}" if recording.remark else ""
    terminal.line(
        f"RECORDED on {recording.made} by kgqa {recording.kgqa} ({recording.commit[:8]}) on {recording.cores} cores "
        f"({recording.platform}{remark}), where its model took {minutes:.1f} minutes."
    )
    terminal.line("Nothing is asked now: every reply is the model's of then. On your machine: kgqa demo")
    show_demo(shown, terminal)
    return 0


def asked(given: Namespace) -> int:
    from kgqa.commands.run import tell_where_ctrl_c_is_off
    from kgqa.experiment.run.showing import show_runs, shown_experiments
    from kgqa.runtime.display import log_lines
    from kgqa.terminal.console import Terminal
    from kgqa.terminal.demo import show_demo

    tell_where_ctrl_c_is_off()
    terminal, experiments = Terminal(width=120), shown_experiments(given.overrides)
    model, count = experiments[0].name("model"), len(experiments[0].questions)
    terminal.line(f"{len(experiments)} methods, the same {count} questions, {model}: minutes, the first time")
    try:
        with log_lines(terminal):
            shown = list(show_runs(experiments, terminal))
    except ConfigError as error:
        raise ConfigError(f"{error}\nor see it without a model: kgqa demo --recorded") from error
    show_demo(shown, terminal)
    for each in shown:
        if each.failure:
            terminal.line(f"kgqa: {each.method}: {each.failure}; the same command asks what failed again", alarm=True)
    terminal.line(f"report: {shown[-1].folder}/report.html; every call of a question: kgqa show {shown[-1].folder} ID")
    return 2 if any(each.failure for each in shown) else 0
