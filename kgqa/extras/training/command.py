"""`kgqa collect`, `train`, `bootstrap` and `models trained`: from examples to trained weights."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from kgqa.artifacts.examples import Positive, TrainingExample
from kgqa.artifacts.run import RunEntry, find_run
from kgqa.artifacts.trained import Trained, find_trained, list_trainings
from kgqa.cli.dry_run import show_plan, show_stages
from kgqa.cli.tables import Cells
from kgqa.cli.terminal import Terminal
from kgqa.errors import ConfigError, DataError
from kgqa.extras.training.bootstrap import Bootstrap
from kgqa.extras.training.collect.collecting import Collecting
from kgqa.extras.training.report import example_sections, rounds_section, training_sections
from kgqa.extras.training.train.export import export_gguf
from kgqa.extras.training.train.request import TrainRequest, prepare_examples
from kgqa.extras.training.train.run import train as run_training
from kgqa.sweeps.cells import freeze_cells
from kgqa.system.hardware import size_text


def collect(args: Namespace, terminal: Terminal) -> None:
    """Collect examples and print the folder last."""
    (name,) = args.positionals
    runs: list[str] = vars(args)["from"] or []
    collecting = Collecting.of(name, args.overrides, [find_run(run) for run in runs])
    is_dry = collecting.experiment.settings.dry_run
    if is_dry:
        collected, first, plan = collecting.plan()
        _show_example(first, terminal)
        if plan:
            count = sum(len(source.questions) for source in collecting.sources)
            show_plan(plan, count, terminal, with_prompts=args.prompts)
    else:
        words = [
            "collect",
            name,
            *args.overrides,
            *(word for run in runs for word in ("--from", run)),
        ]
        collected = collecting.collect(terminal, words)
    terminal.sections(f"collect {name}", example_sections(collected))
    if is_dry:
        terminal.line("dry_run=true: no file was written")
        return
    terminal.result(collecting.folder)


def _show_example(example: TrainingExample | Positive, terminal: Terminal) -> None:
    """Show the prompt and the target of an example."""
    if isinstance(example, Positive):
        parts = [("anchor", example.anchor), ("positive", example.positive)]
        parts += [
            (f"negative {number}", text) for number, text in enumerate(example.negatives, start=1)
        ]
    else:
        parts = [(message.role, message.content) for message in example.prompt.messages]
        parts += [("start of the reply", example.prompt.prefill)] if example.prompt.prefill else []
        parts += [("target", example.target)]
    for name, text in parts:
        terminal.heading(f"{example.id}: {name}")
        terminal.line(text, folds=False)


def train(args: Namespace, terminal: Terminal) -> None:
    """Train a recipe and print the folder last."""
    (recipe,) = args.positionals
    request = TrainRequest.of(recipe, args.overrides)
    examples = prepare_examples(request, terminal)
    if request.config["dry_run"]:
        terminal.table(("examples", "steps", "tokens"), [request.plan(examples)])
        terminal.line("dry_run=true: no model was trained")
        return
    folder = run_training(request, examples, terminal)
    _show_trained(folder, terminal)
    terminal.result(folder)


def _show_trained(folder: Path, terminal: Terminal) -> None:
    """Show the figures of one training. Its report has settings and versions."""
    trained = Trained.read(folder)
    sections = [
        section
        for section in training_sections(trained)
        if section.title not in ("Settings", "Versions")
    ]
    terminal.sections(f"{trained.name} on {trained.base}", sections)
    terminal.line(f"report: {folder / 'report.html'}")


def bootstrap(args: Namespace, terminal: Terminal) -> int:
    """Train round by round (KnowTrace, §3.3) and print the folder last."""
    bootstrapping = Bootstrap.of(args.overrides)
    folder = bootstrapping.folder
    if bootstrapping.config["dry_run"]:
        runs = {
            "answer training questions": bootstrapping.learning({}),
            "evaluate": bootstrapping.evaluating({}),
        }
        terminal.heading(f"{bootstrapping.title}: one of {bootstrapping.settings.rounds} rounds")
        code = show_stages(
            {stage: freeze_cells([(stage, words)]) for stage, words in runs.items()}, terminal
        )
        terminal.line("dry_run=true: no call was made and no model was trained")
        return code
    rounds = bootstrapping.run(terminal, ["bootstrap", *args.overrides])
    terminal.sections(rounds.title, [rounds_section(rounds)])
    return terminal.end(folder)


def trained(args: Namespace, terminal: Terminal) -> None:
    """List, show or export trained models."""
    name = args.positionals[0] if args.positionals else None
    if name is None:
        if args.gguf:
            raise ConfigError("kgqa models trained: name the model to export")
        _show_trainings(list_trainings(), terminal)
    elif args.gguf:
        terminal.result(export_gguf(name, args.out))
    else:
        folder = find_trained(name)
        _show_trained(folder, terminal)
        terminal.result(folder)


def _show_trainings(trainings: Sequence[RunEntry], terminal: Terminal) -> None:
    """Show the trainings. A damaged one is a note in its row, not the end of the list."""
    if not trainings:
        terminal.line("no trained models yet. See kgqa train --help")
        return
    rows = list[Cells]()
    for each in trainings:
        figures: Cells = (None, None, None)
        note = "" if each.ended else "not finished. Run its command again"
        try:
            figures = _figures(Trained.read(each.folder)) if each.ended else figures
        except DataError:
            note = "damaged. Train it again"
        rows.append((each.when, each.name, *figures, size_text(each.folder), note))
    terminal.table(("written", "name", "base", "examples", "held-out loss", "on disk", ""), rows)


def _figures(trained: Trained) -> Cells:
    before, after = trained.losses.held_out_before, trained.losses.held_out_after
    loss = None if before is None or after is None else f"{before:.3f} → {after:.3f}"
    return trained.base, trained.examples.count, loss
