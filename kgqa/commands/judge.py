"""`kgqa judge`: how far a judge can be believed."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from kgqa.commands.parsing import RUN, Parser
from kgqa.errors import ConfigError

NAME = "judge"
SUMMARY = "calibrate a judge: against EM, another judge, people"
OWN = ("human", "other")
OF_SECOND_JUDGE = ("judge", "model", "engine", "roles", "seed", "width")


def arguments(parser: Parser) -> None:
    calibrate = parser.command("calibrate", "agreement of a judged run's verdicts: percent, kappa, confusion")
    calibrate.takes_places("RUN", f"{RUN}; it was judged")
    calibrate.takes_keys(
        "human=FILE.csv with question_id, correct; other=RUN|JUDGE; then judge.model=… of that judge",
        own=(*OWN, *OF_SECOND_JUDGE), only=True,
    )  # fmt: skip
    parser.examples = calibrate.examples = ("kgqa judge calibrate last human=labels.csv other=kgp",)


def run(given: Namespace) -> int:
    from kgqa.artefacts.runs import find_run
    from kgqa.experiment.config.overrides import override_group
    from kgqa.experiment.evaluate.calibration import calibrate_judge
    from kgqa.runtime.display import log_lines
    from kgqa.terminal.console import Terminal
    from kgqa.terminal.sections import show_sections

    own = {key: value for key, _, value in (override.partition("=") for override in given.overrides) if key in OWN}
    others = [override for override in given.overrides if override_group(override) not in OWN]
    if others and "other" not in own:
        raise ConfigError(f"{others[0]}: goes with other=JUDGE, the judge it is a key of")
    human = Path(own["human"]) if "human" in own else None
    terminal = Terminal(width=120)
    with log_lines(terminal):
        calibration = calibrate_judge(find_run(given.places[0]), human, own.get("other"), others, terminal)
    show_sections(f"{calibration.run}\njudge: {calibration.judge}", calibration.sections(), terminal)
    terminal.line(f"calibration: {calibration.write()}")
    return 0
