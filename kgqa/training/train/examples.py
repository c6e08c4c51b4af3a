"""The texts of a training: collected examples as inference renders them, or a file, split by question.

A file of texts has one JSON object per line: {"prompt", "completion"} as the model sees them, or {"anchor", "positive",
"negatives"}. Optional keys are "id", "question" (examples of one question are held out together), "label" and "hop".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from kgqa.artifacts.examples import EXAMPLES, STAGE, Collected, Example, Positive, id_hash, read_examples
from kgqa.artifacts.manifest import StageManifest
from kgqa.artifacts.schema import check_json
from kgqa.calls import Generate
from kgqa.config import building
from kgqa.config.composing import compose
from kgqa.config.overrides import override_group
from kgqa.errors import ConfigError, DataError
from kgqa.runtime.display import Display
from kgqa.training.collect.collecting import Collecting
from kgqa.training.train.request import ExampleSplit, TrainRequest
from kgqa.training.trainers.process import PairExample, TextExample
from kgqa.util.fs import text_digest
from kgqa.util.jsonio import stream_records

NOT_COLLECT = ("train", "tracker", "experiment", "dry_run", "hydra")  # groups of overrides that do not choose examples
AnyExample = TextExample | PairExample


def prepare_examples(request: TrainRequest, display: Display, folder: Path | None = None) -> ExampleSplit:
    """Return the examples of a training. Collect them first if the request names none.

    folder: of `kgqa collect`, instead of what the request names.

    Raises:
        ConfigError: there are no examples, and none can be made here.
        DataError: they cannot be read. The message names the line.
    """
    path = folder or request.path or _collect(request, display)
    if path.is_dir():
        return _load_folder(request, path)
    training = request.training
    texts = read_example_file(path, pairs=training.learns_pairs)
    return split_examples(texts, training.eval_fraction, request.count, training.seed)


def read_example_file(file: Path, *, pairs: bool) -> Iterator[AnyExample]:
    """Read the lines of a file of rendered texts. Raises DataError naming the line."""
    ids: set[str] = set()
    kind: type[AnyExample] = PairExample if pairs else TextExample
    for location, line in stream_records(file):
        example = check_json(kind, line, location, "Correct the line.")
        if isinstance(example, PairExample):
            first, second = example.anchor, example.positive
        else:
            first, second = example.prompt, example.completion
        if not second.strip():
            raise DataError(f"{location}: {'positive' if pairs else 'completion'} is empty. Remove the line")
        name = example.id or text_digest(f"{first}\n{second}", 16)
        if name in ids:
            raise DataError(f"{location}: id={name!r:.60} occurs twice. Use a different id for each line")
        ids.add(name)
        yield replace(example, id=name, question=example.question or text_digest(first, 16))


def split_examples(examples: Iterable[AnyExample], eval_fraction: float, count: int | None, seed: int) -> ExampleSplit:
    """Hold out some questions with all their examples, and train on the first `count` of the others."""
    ordered = shuffle(examples, seed)
    questions = {example.question for example in ordered}
    out = frozenset(sample_questions(questions, eval_fraction, len(questions), seed))
    return divide(ordered, out, out, count)


def shuffle(examples: Iterable[AnyExample], seed: int) -> list[AnyExample]:
    """Return the examples in an order that depends only on the seed and their ids."""
    return sorted(examples, key=lambda example: text_digest(f"{seed} {example.id}"))


def sample_questions(questions: Iterable[str], wanted: float, total: int, seed: int) -> list[str]:
    """Sample a fraction of `total`, or from 1 on that number of questions. Return all if there are fewer."""
    ordered = sorted(questions, key=lambda name: text_digest(f"{seed} {name}"))
    return ordered[: max(1, round(wanted * total)) if 0 < wanted < 1 else int(wanted)]


def divide(
    examples: Sequence[AnyExample], held_out: frozenset[str], evaluated: frozenset[str], count: int | None
) -> ExampleSplit:
    """Split by question. `evaluated`: the held-out questions with examples that are evaluated.

    Raises:
        ConfigError: more examples are requested than there are.
        DataError: none is left for training.
    """
    train = [example for example in examples if example.question not in held_out]
    if count is not None and count > len(train):
        raise ConfigError(f"train.examples={count}: only {len(train):,} examples are not held out")
    if not train:
        raise DataError(
            f"all {len(held_out):,} questions of the examples are held out, so none is left for training. "
            "Lower train.eval_fraction, or use more examples"
        )
    return ExampleSplit(tuple(train[:count]), tuple(example for example in examples if example.question in evaluated))


def _collect(request: TrainRequest, display: Display) -> Path:
    """Collect what the overrides choose, unless it is collected already."""
    if request.training.collect is None:
        raise ConfigError("train.examples: name a folder of kgqa collect, or a file of rendered texts")
    overrides = [word for word in request.overrides if override_group(word) not in NOT_COLLECT]
    recipe, *words = [*request.training.collect.split(), *overrides]
    collecting = Collecting.of(recipe, words)
    command = " ".join(["kgqa collect", recipe, *words])
    if collecting.finished is None and request.config["dry_run"]:
        raise ConfigError(f"train={request.recipe}: no examples yet, and a dry run collects none: {command}")
    display.line(f"examples: {collecting.stage.path}, as by {command}")
    collecting.collect(display, ["collect", recipe, *words])
    return collecting.stage.path


def _load_folder(request: TrainRequest, folder: Path) -> ExampleSplit:
    """Load a folder of `kgqa collect`. What it holds out stays held out."""
    manifest = StageManifest.read(folder, STAGE)
    collected, training = manifest.read_outcome(Collected, folder), request.training
    examples = list(read_examples(manifest.file(folder, EXAMPLES)))
    pairs = any(isinstance(example, Positive) for example in examples)
    if pairs != training.learns_pairs:
        kind = "pairs of texts, for an encoder" if pairs else "prompts with their targets"
        raise ConfigError(f"train={request.recipe}: {folder} has {kind}. Choose another recipe or other examples")
    render = renderer(request)
    texts = shuffle((render_example(example, render) for example in examples), training.seed)
    evaluated = sample_questions(collected.held_out, training.eval_fraction, collected.questions, training.seed)
    split = divide(texts, frozenset(collected.held_out), frozenset(evaluated), request.count)
    ids = {id_hash(*name.split("/", 1)) for name in split.questions}
    return replace(
        split,
        collected=folder,
        made_of=tuple(collected.datasets),
        templates=collected.templates,
        text_hashes=tuple(sorted({text for id_, text in collected.question_hashes.items() if id_ in ids})),
    )


def renderer(request: TrainRequest) -> Callable[[Example], str]:
    """Return the rendering of engine=transformers. A dry run without the weights joins the bare messages."""
    if request.training.learns_pairs or (request.config["dry_run"] and not request.base.is_here):
        return lambda example: "\n\n".join(message.content for message in example.prompt.messages)
    engine = building.engine(compose(["engine=transformers"])["engine"], request.base.node)
    return lambda example: engine.render(Generate(example.prompt, 1, role=example.role))


def render_example(example: Example | Positive, render: Callable[[Example], str]) -> AnyExample:
    """Return prompt and target as the model sees them, or a pair.

    If the prompt ends in the middle of a line, a space separates the two: models write one there, and readers strip it.
    """
    question = f"{example.origin.dataset}/{example.question}"
    if isinstance(example, Positive):
        word, _, number = example.label.partition(" ")
        hop = int(number) if word == "hop" and number.isdigit() else None
        return PairExample(example.anchor, example.positive, example.negatives, example.id, question, hop)
    prompt = render(example)
    continues = example.prompt.form == "completion" or example.prompt.prefill
    space = " " if continues and not prompt[-1:].isspace() and not prompt.endswith(">") else ""
    return TextExample(prompt, space + example.target, example.id, question, example.label)
