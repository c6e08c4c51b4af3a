"""`kgqa tune`: hyperparameters chosen on dev questions, measured on others."""

from __future__ import annotations

from argparse import Namespace

from kgqa.cli.parsing import Parser

NAME = "tune"
SUMMARY = "choose values on dev questions, measure the choice on others"
OWN = (
    *(f"tune.{key}" for key in ("metric", "dev", "test", "dev_ids", "dev_path", "dev_split", "seed", "sets", "name")),
    "budget",
)
NOTES = """Keys of its own (docs/SWEEPS.md):
  tune.metric=    em, f1, support_recall, support_precision, support_f1, judge or recall@K
  tune.dev=N      dev questions, chosen by tune.seed=0; or which: tune.dev_ids=FILE, tune.dev_path=FILE,
                  tune.dev_split=train
  tune.test=N     other questions that the choice is measured on; without it all others
  tune.sets=1,2   demonstration sets, a test run with each
  tune.name=      its folder in outputs/sweeps; else a hash of its cells
  budget=         what it may pay for, e.g. 2.50usd or 500000tokens"""


def arguments(parser: Parser) -> None:
    parser.takes_keys("as for kgqa run -m; at least one key has several values", OWN)
    parser.notes = NOTES
    parser.examples = (
        "kgqa tune method=ircot dataset=musique method.passages_per_step=2,4,6,8 tune.metric=f1 tune.dev=100",
    )


def run(given: Namespace) -> int:
    from kgqa.cli.terminal.console import Terminal
    from kgqa.cli.terminal.estimates import show_estimates
    from kgqa.cli.terminal.sections import show_sections
    from kgqa.report.tuning import tuning_sections
    from kgqa.sweeps.tuning import Candidates, TuneRequest, run_tuning

    request, terminal = TuneRequest.of(given.overrides), Terminal()
    candidates = Candidates.of(request)
    if candidates.dry_run:
        return show_estimates(candidates.on_dev, terminal, request.budget)
    tuned = run_tuning(candidates, request, terminal)
    show_sections(f"{request.tuning.metric} chosen on dev, measured on test", tuning_sections(tuned.record), terminal)
    terminal.result(tuned.file)
    return 0 if tuned.whole else 2
