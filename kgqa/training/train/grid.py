"""Several trainings, of which the best is chosen (`kgqa train -m`), and the estimated cost of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kgqa.artifacts.trained import Trained, prefer
from kgqa.config.composing import expand_grid, parse_axes
from kgqa.config.overrides import override_group
from kgqa.errors import ConfigError, DataError, KgqaError
from kgqa.runtime.display import Display
from kgqa.training.train.examples import prepare_examples
from kgqa.training.train.request import ExampleSplit, TrainRequest
from kgqa.training.train.run import train
from kgqa.training.trainers.process import TextExample
from kgqa.util.redaction import redact
from kgqa.util.text import duration

# keys that change the held-out loss itself, so that losses cannot be compared
COMPARABLE_ONLY = (
    "base", "collect", "eval_fraction", "seed", "max_length", "truncation", "loss_on", "max_input", "max_output",
    "max_question", "max_follow_up", "max_passage",
)  # fmt: skip
CHARACTERS = 4  # per token
FLOPS = 6  # per parameter and token: forward, backward and, instead of the base's gradients, activations again
# FLOPs per second on one H100: 24 % of its peak in bfloat16. Measured with LoRA on a model of 7.4 billion parameters,
# 16 examples per device and activation checkpointing: 5,338 tokens per second (docs/dev/LOG.md).
H100_SPEED = 0.24 * 989e12
PLANNED = ("examples", "steps", "tokens", "time on one H100")


@dataclass(frozen=True)
class TrainCell:
    """One of several trainings. `values`: those that differ, as KEY=VALUE.

    loss: on the held-out examples after training. None: not trained, or failed with `error`.
    """

    values: str
    request: TrainRequest
    examples: ExampleSplit
    loss: float | None = None
    error: str | None = None

    @property
    def folder(self) -> Path:
        return self.request.folder(self.examples)


def training_grid(recipe: str, overrides: Sequence[str], display: Display) -> list[TrainCell]:
    """Return a training for each combination of values. The last key varies fastest.

    Raises:
        ConfigError: there is nothing to choose from, or held-out losses cannot be compared over a key.
    """
    others = [word for word in overrides if override_group(word) != "train"]
    axes = parse_axes([word for word in overrides if override_group(word) == "train"])
    swept = [axis.key for axis in axes if axis.swept]
    if not swept:
        raise ConfigError("no values to choose from: set several values for a key, e.g. train.learning_rate=1e-5,5e-5")
    for key in swept:
        if key.removeprefix("train.") in COMPARABLE_ONLY:
            raise ConfigError(f"{key}: held-out losses cannot be compared over it. Train one value at a time")
    splits: dict[object, ExampleSplit] = {}
    cells = []
    for values, words in expand_grid(axes):
        request = TrainRequest.of(recipe, [*words, *others])
        if request.training.examples not in splits:
            splits[request.training.examples] = prepare_examples(request, display)
        cells.append(TrainCell(values, request, splits[request.training.examples]))
        if not cells[-1].examples.held_out:
            raise ConfigError("train.eval_fraction=0: no held-out examples to choose by. Set a fraction")
    return cells


def train_grid(cells: Sequence[TrainCell], display: Display) -> list[TrainCell]:
    """Train each cell, and return them with their outcomes, the lowest held-out loss first.

    A failed training does not stop the others. Afterwards the name of the trainings means the first one.

    Raises:
        DataError: no training has a held-out loss.
    """
    trained = [_train(cell, display) for cell in cells]
    trained.sort(key=lambda cell: float("inf") if cell.loss is None else cell.loss)
    if trained[0].loss is None:
        raise DataError(f"none of the {len(cells)} trainings has a held-out loss, the first: {trained[0].error}")
    prefer(trained[0].folder)
    return trained


def _train(cell: TrainCell, display: Display) -> TrainCell:
    display.line(f"training with {cell.values}")
    try:
        loss = Trained.read(train(cell.request, cell.examples, display)).losses.held_out_after
    except KgqaError as failure:
        error = " ".join(redact(failure).split())
        display.line(error, alarm=True)
        return replace(cell, error=error)
    return replace(cell, loss=None if loss is None else float(loss))


def estimate_seconds(request: TrainRequest, tokens: float) -> float | None:
    """Return the time on one H100 for the tokens of all epochs. float32 runs at half the speed, as TF32."""
    if not (parameters := request.base.parameters):
        return None
    return tokens * FLOPS * parameters / H100_SPEED * (2 if request.training.precision == "float32" else 1)


def plan_training(cell: TrainCell) -> tuple[str, ...]:
    """Return the values of `PLANNED`, estimated without loading a model. Too long examples do not count."""
    training = cell.request.training
    texts = [
        (each.prompt, each.completion)
        if isinstance(each, TextExample)
        else (each.anchor, each.positive, *each.negatives)
        for each in cell.examples.train
    ]
    lengths = [1 + sum(map(len, each)) // CHARACTERS for each in texts]
    fitting = [min(n, training.longest) for n in lengths if n <= training.longest or not training.skips_long]
    tokens = sum(fitting) * training.passes(len(fitting))
    seconds = estimate_seconds(cell.request, tokens)
    time = "unknown" if seconds is None else f"about {duration(seconds)}"
    return f"{len(fitting):,} of {len(texts):,}", f"{training.steps(len(fitting)):,}", f"about {tokens:,.0f}", time
