"""`kgqa tune`: values chosen on dev questions."""

from __future__ import annotations

from argparse import Namespace

from kgqa.cli.dry_run import show_estimates
from kgqa.cli.terminal import Terminal
from kgqa.extras.tuning.tuning import Tuning
from kgqa.report.section import FILES


def tune(args: Namespace, terminal: Terminal) -> int:
    """Choose values on dev questions and measure the choice on others."""
    tuning = Tuning.of(args.overrides)
    if tuning.dry_run:
        return show_estimates(tuning.on_dev, terminal)
    tuned = tuning.run(terminal)
    terminal.sections(f"{tuning.label} chosen on dev, measured on test", tuned.sections())
    terminal.line(f"report of the dev cells: {tuned.folder / FILES['html']}")
    terminal.result(tuned.file)
    return 0 if tuned.is_complete else 2
