"""`kgqa evaluate` and `kgqa compare`: score saved answers again, calibrate a judge, compare runs."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from kgqa.artifacts.evaluation import Evaluation
from kgqa.artifacts.run import UPPER_BOUNDS, find_run, read_method
from kgqa.artifacts.sweep import (
    find_missing,
    find_places,
    find_repeats,
    find_rows,
    list_cell_commands,
    name_baseline,
    refuse_repeated,
    warn_of_changed,
)
from kgqa.cli.commands import CALIBRATION_KEYS, QUESTION_KEYS
from kgqa.cli.terminal import Terminal
from kgqa.config.building import check_value
from kgqa.config.overrides import override_values, parse_override
from kgqa.errors import ConfigError
from kgqa.experiment.calibration import sample_sheet
from kgqa.experiment.compare import (
    LETTERS,
    MAX_RUNS,
    check_suffix,
    compare_answers,
    label_runs,
    list_runs,
    name_by_differences,
)
from kgqa.experiment.composing import compose_evaluation
from kgqa.experiment.evaluate import (
    AnsweredQuestions,
    EvaluationRequest,
    calibrate_judge,
    check_has_judge,
    open_places,
    open_predictions,
)
from kgqa.experiment.evaluate import evaluate as evaluate_answers
from kgqa.experiment.explain import explain as explain_run
from kgqa.experiment.judging import explain_lost_verdicts
from kgqa.experiment.plan import Points, Probability, plan_comparison
from kgqa.experiment.significance import check_alpha, read_metrics
from kgqa.report.columns import warn_of_missing
from kgqa.report.evaluation import evaluation_sections, evaluations_section
from kgqa.report.warnings import warn_of_new_metrics
from kgqa.scoring.comparison import ALPHA, DIFFERENCE, HOLM, POWER, check_correction
from kgqa.util.fs import replace_file
from kgqa.util.validators import Natural

# of kgqa compare that kgqa explain has too. It has one baseline
EXPLAIN_KEYS = ("scoring", "seed")
# flipped questions per pair, without --all
FLIPS = 10


def evaluate(args: Namespace, terminal: Terminal) -> int:
    """Score runs, sweeps, or predictions of other programs. Return 2 if a judge gave no verdict, or a metric failed."""
    if args.calibrate:
        _calibrate(args, terminal)
        return 0
    _check_evaluate(args)
    values = override_values(args.overrides)
    own = [override for override in args.overrides if parse_override(override).group != "labels"]
    experiment = compose_evaluation(own)
    places = list[Path]()
    if args.predictions:
        answered = open_predictions(
            list(map(Path, args.positionals)), experiment, subset=args.subset
        )
    else:
        places = [find_run(name, sweeps=True) for name in args.positionals]
        answered = open_places(places, experiment.settings.scoring)
    labels = Path(values["labels"]) if "labels" in values else None
    if args.sheet:
        assert labels is not None
        sheet = sample_sheet(
            {one.name: one.scored for one in answered}, args.sheet, experiment.settings.seed
        )
        terminal.line(
            f"Fill the column correct with 1 or 0. The judge then uses the file: labels={labels}"
        )
        terminal.result(replace_file(labels, sheet))
        return 0
    evaluated = evaluate_answers(
        EvaluationRequest(experiment, labels, args.checks), answered, terminal
    )
    for each in evaluated:
        source = f"{each.evaluation.source}: " if len(evaluated) > 1 else ""
        terminal.lines(
            (f"warning: {source}{text}" for text in each.evaluation.warnings), alarm=True
        )
    if len(evaluated) > 1:
        # a folder is too long for a cell of a table
        names = {} if args.predictions else _list_names(answered, terminal)
        groups: dict[tuple[str, ...], list[Evaluation]] = {}
        for each in evaluated:
            source = names.get(each.evaluation.source, each.evaluation.source)
            group = groups.setdefault(each.question_ids, [])
            group.append(each.evaluation.replace(source=source))
        bounds = {
            names[run.name]
            for run in answered
            if run.name in names and read_method(Path(run.name)) in UPPER_BOUNDS
        }
        terminal.sections("", evaluations_section(list(groups.values()), bounds))
    else:
        terminal.sections(
            evaluated[0].evaluation.source, evaluation_sections(evaluated[0].evaluation)
        )
    terminal.lines(f"evaluation: {each.file}" for each in evaluated if each.file)
    terminal.warn(warn_of_new_metrics(places))
    judgings = (each.evaluation.judge for each in evaluated)
    failures = [text for judged in judgings if judged and (text := explain_lost_verdicts(judged))]
    terminal.lines((f"kgqa: {text}" for text in dict.fromkeys(failures)), alarm=True)
    has_failed = failures or any(each.evaluation.scores.failed_metrics for each in evaluated)
    return 2 if has_failed else 0


def _list_names(answered: Sequence[AnsweredQuestions], terminal: Terminal) -> dict[str, str]:
    """Show the letter and the name of each run as `kgqa compare` does, and return the labels by folder."""
    runs = {letter: [run] for letter, run in zip(LETTERS, answered, strict=False)}
    names = name_by_differences(runs)
    terminal.lines(list_runs(runs, names))
    return {runs[letter][0].name: label for letter, label in label_runs(names).items()}


def _check_evaluate(args: Namespace) -> None:
    """Raise ConfigError for arguments that do not go together."""
    keys = {parse_override(override).group: override for override in args.overrides}
    needs_predictions = {key: keys[key] for key in QUESTION_KEYS if key in keys}
    needs_predictions |= {"subset": "--subset"} if args.subset else {}
    if needs_predictions and not args.predictions:
        words = [*args.positionals, *args.overrides, *(["--subset"] if args.subset else [])]
        is_file = Path(args.positionals[0]).is_file()
        remedy = shlex.join(["kgqa", "evaluate", "--predictions", *words])
        raise ConfigError(
            f"{next(iter(needs_predictions.values()))}: works only with --predictions. "
            + (f"Write: {remedy}" if is_file else "A run has its own questions, so remove it")
        )
    if "other" in keys:
        raise ConfigError(f"{keys['other']}: only with --calibrate")
    if args.sheet:
        _check_sheet(override_values(args.overrides).get("labels"))
    elif wrong := keys.get("labels", "--checks" if args.checks else ""):
        check_has_judge(wrong, keys)


def _check_sheet(labels: str | None) -> None:
    if labels is None:
        raise ConfigError("--sheet: where is it written? Add labels=FILE.csv")
    if Path(labels).exists():
        raise ConfigError(
            f"labels={labels}: this file exists, and --sheet would replace it. Name another file"
        )


def _calibrate(args: Namespace, terminal: Terminal) -> None:
    values = override_values(args.overrides)
    for key, value in values.items():
        if key not in CALIBRATION_KEYS:
            raise ConfigError(f"{key}={value}: works only without --calibrate")
    if len(args.positionals) > 1:
        raise ConfigError("--calibrate: name one run")
    labels, other = (Path(values[key]) if key in values else None for key in CALIBRATION_KEYS)
    run = find_run(args.positionals[0])
    judge, sections, file = calibrate_judge(run, labels, other)
    terminal.sections(f"{run}\njudge: {judge}", sections)
    terminal.line(f"calibration: {file}")


def plan(args: Namespace, terminal: Terminal) -> None:
    """Show how many questions a comparison needs."""
    values = override_values(args.overrides)
    seed = check_value("seed", values.get("seed", "0"), Natural)
    difference = check_value("difference", values.get("difference", DIFFERENCE), Points)
    power = check_value("power", values.get("power", POWER), Probability)
    places = find_places(args.positionals)
    terminal.warn([*warn_of_missing(find_missing(places)), *warn_of_changed(places)])
    planned = plan_comparison(
        [*find_rows(args.positionals).values()],
        difference,
        power,
        values.get("scoring"),
        seed=seed,
        alpha=check_alpha(values.get("alpha", ALPHA)),
        baseline=name_baseline(values.get("baseline"), places),
        metrics=read_metrics(values.get("metrics", "")),
        commands=list_cell_commands(args.positionals),
    )
    terminal.sections(planned.heading, planned.sections)
    if planned.command:
        # a result of the plan, also in a pipe
        terminal.line(f"next: {planned.command}", folds=False)
    else:
        # with the same baseline and metrics, it corrects for the tests of the plan
        keys = [each for each in args.overrides if parse_override(each).group != "power"]
        terminal.suggest("compare", *args.positionals, *keys)


def explain(args: Namespace, terminal: Terminal) -> None:
    """Show the causes of wrong answers."""
    values = override_values(args.overrides)
    seed = check_value("seed", values.get("seed", "0"), Natural)
    name, *others = args.positionals
    if others and "baseline" in values:
        raise ConfigError(f"baseline={values['baseline']}: {others[0]} is the baseline. Name one")
    named = others[0] if others else values.get("baseline")
    run, baseline = find_repeats(name), find_repeats(named) if named else []
    refuse_repeated([*baseline, *run])
    explanation = explain_run(run, baseline, values.get("scoring"), seed=seed)
    terminal.sections(explanation.heading, explanation.sections)
    terminal.line(explanation.write(run[0]))


def compare(args: Namespace, terminal: Terminal) -> None:
    """Compare runs on the same questions."""
    values = override_values(args.overrides)
    seed = check_value("seed", values.get("seed", "0"), Natural)
    difference = check_value("difference", values.get("difference", DIFFERENCE), Points)
    alpha = check_alpha(values.get("alpha", ALPHA))
    correction = check_correction(values.get("correction", HOLM))
    places = find_places(args.positionals)
    missing = find_missing(places)
    terminal.warn([*warn_of_missing(missing), *warn_of_changed(places)])
    rows, flips = find_rows(args.positionals), None if args.all else FLIPS
    if len(rows) > MAX_RUNS:
        raise ConfigError(f"{len(rows)} runs: compare at most {MAX_RUNS} at once")
    if args.out:
        check_suffix(args.out)
    profile = values.get("scoring")
    comparison = compare_answers(
        rows,
        profile,
        seed=seed,
        difference=difference,
        alpha=alpha,
        correction=correction,
        baseline=name_baseline(values.get("baseline"), places),
        metrics=read_metrics(values.get("metrics", "")),
        in_all=args.common,
        flips=flips,
        missing=missing,
    )
    terminal.sections(comparison.heading, comparison.sections)
    if args.out:
        terminal.line(comparison.write(args.out))
    if explained := comparison.choose_explained():
        # the rules and the seed that give the same p
        keys = [each for each in args.overrides if parse_override(each).group in EXPLAIN_KEYS]
        terminal.suggest("explain", *explained, *keys)
