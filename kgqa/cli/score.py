"""`kgqa evaluate` and `kgqa compare`: score saved answers again, calibrate a judge, compare runs."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Annotated

from kgqa.artifacts.run import find_run
from kgqa.artifacts.sweep import find_runs
from kgqa.cli.commands import CALIBRATION_KEYS, QUESTION_KEYS
from kgqa.cli.terminal import Terminal
from kgqa.config.building import check_value
from kgqa.config.overrides import override_values, parse_override
from kgqa.errors import ConfigError
from kgqa.experiment.compare import DIFFERENCE, compare_answers
from kgqa.experiment.evaluate import calibrate_judge, evaluate_predictions, evaluate_run
from kgqa.report.evaluation import evaluation_sections
from kgqa.util.validators import Natural, Validator

MAX_RUNS = 26  # named A to Z
Points = Annotated[float, Validator("must be above 0 and up to 100 points", lambda points: 0 < points <= 100)]
FLIPS = 10  # flipped questions per pair, without --all


def evaluate(args: Namespace, terminal: Terminal) -> None:
    """Score a run, or predictions of another program."""
    if args.calibrate:
        _calibrate(args, terminal)
        return
    for override in args.overrides:
        group = parse_override(override).group
        if group in CALIBRATION_KEYS:
            raise ConfigError(f"{override}: only with --calibrate")
        if group in QUESTION_KEYS and not args.predictions:
            raise ConfigError(f"{override}: works only with --predictions")
    if args.subset and not args.predictions:
        raise ConfigError("--subset: works only with --predictions")
    if args.predictions:
        evaluation, file = evaluate_predictions(Path(args.positionals[0]), args.overrides, terminal, subset=args.subset)
    else:
        evaluation, file = evaluate_run(find_run(args.positionals[0]), args.overrides, terminal)
    terminal.sections(evaluation.source, evaluation_sections(evaluation))
    if file:
        terminal.line(f"evaluation: {file}")


def _calibrate(args: Namespace, terminal: Terminal) -> None:
    values = override_values(args.overrides)
    for key, value in values.items():
        if key not in CALIBRATION_KEYS:
            raise ConfigError(f"{key}={value}: works only without --calibrate")
    human, other = (Path(values[key]) if key in values else None for key in CALIBRATION_KEYS)
    run = find_run(args.positionals[0])
    judge, sections, file = calibrate_judge(run, human, other)
    terminal.sections(f"{run}\njudge: {judge}", sections)
    terminal.line(f"calibration: {file}")


def compare(args: Namespace, terminal: Terminal) -> None:
    """Compare runs on the same questions."""
    values = override_values(args.overrides)
    seed = check_value("seed", values.get("seed", "0"), Natural)
    difference = check_value("difference", values.get("difference", f"{DIFFERENCE:g}"), Points)
    runs, flips = find_runs(args.positionals), None if args.all else FLIPS
    if len(runs) > MAX_RUNS:
        raise ConfigError(f"{len(runs)} runs: compare at most {MAX_RUNS} at once")
    profile = values.get("scoring")
    comparison = compare_answers(runs, profile, seed=seed, difference=difference, in_all=args.common, flips=flips)
    terminal.sections(comparison.heading, comparison.sections)
