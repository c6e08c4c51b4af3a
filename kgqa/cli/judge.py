"""`kgqa evaluate --calibrate`: measure how far a judge agrees with others."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from kgqa.errors import ConfigError

OWN = ("human", "other")


def calibrate(given: Namespace) -> int:
    from kgqa.artifacts.runs import find_run
    from kgqa.cli.terminal.console import Terminal
    from kgqa.cli.terminal.sections import show_sections
    from kgqa.config.overrides import override_group, override_values
    from kgqa.experiment.evaluate.calibration import calibrate_judge
    from kgqa.runtime.display import log_lines

    own = {key: value for key, value in override_values(given.overrides).items() if key in OWN}
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
