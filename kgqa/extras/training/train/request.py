"""The command line of `kgqa train`: a recipe of conf/train with its values, its base model and its examples.

The examples are those of a folder of `kgqa collect`, rendered as at inference, or a file of texts. It has one JSON
object per line: {"prompt", "completion"} as the model sees them, or {"anchor", "positive", "negatives"}. Optional keys
are "id", "question" (examples of one question are held out together), "label" and "hop".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path

from kgqa.artifacts.examples import (
    EXAMPLES,
    CollectManifest,
    Positive,
    TrainingExample,
    id_hash,
    read_examples,
)
from kgqa.artifacts.run import Setting
from kgqa.artifacts.schema import check_json
from kgqa.calls import Generate
from kgqa.config import building
from kgqa.config.composing import compose
from kgqa.config.files import Config, config_file, flatten, groups
from kgqa.config.keys import find_sources, load_node
from kgqa.config.overrides import format_value, override_group, override_key, parse_role
from kgqa.engines.weights import Model, convert_weights, is_gguf
from kgqa.errors import ConfigError, DataError, EngineDied, nearest
from kgqa.experiment.dry_run import CHARACTERS_PER_TOKEN
from kgqa.extras.training.collect.collecting import Collecting
from kgqa.extras.training.trainers.base import TextTrainer, Trainer
from kgqa.extras.training.trainers.process import AnyExample, PairExample, TextExample
from kgqa.runtime.display import QUIET, Display
from kgqa.runtime.folder import run_name
from kgqa.types import Json
from kgqa.util import hub
from kgqa.util.digests import text_digest
from kgqa.util.fs import jsonl_text
from kgqa.util.jsonio import stream_records
from kgqa.util.places import training_folder

# groups of overrides that choose what is collected; checked there
COLLECT_GROUPS = ("collect", "method")
# groups that do not choose examples
NOT_COLLECT = ("train", "tracker", "experiment", "dry_run", "hydra")


@dataclass(frozen=True)
class Base:
    """The model to train. `model`: None for an encoder; `encoder`: its folder or its name on the hub."""

    name: str  # as chosen
    model: Model | None
    encoder: str
    # of the model, for an engine that renders
    node: Mapping[str, Json] = field(default_factory=dict)

    @classmethod
    def of(cls, choice: str, *, is_encoder: bool) -> Base:
        """Build from PRESET[:PATH] of conf/model, or for an encoder from a choice of conf/ranker, folder or hub name.

        Raises ConfigError: there is no such preset, or an encoder's preset names no weights.
        """
        if is_encoder:
            encoder = (
                load_node("ranker", choice).get("model") if choice in groups()["ranker"] else choice
            )
            if not isinstance(encoder, str):
                raise ConfigError(
                    f"train.base={choice}: its file in conf/ranker names no model. Name a folder"
                )
            return cls(choice, None, encoder)
        preset, path, adapter, engine = parse_role(choice)
        if engine or adapter:
            raise ConfigError(
                f"train.base={choice}: name PRESET or PRESET:PATH, without adapter and engine"
            )
        if preset not in groups()["model"]:
            raise ConfigError(
                f"train.base={choice}: no such model. {nearest(preset, groups()['model'])}"
            )
        settings = {
            **load_node("model", preset),
            **({"path": path, "sha256": None} if path else {}),
        }
        return cls(choice, building.model(settings), "", settings)

    @property
    def preset(self) -> str:
        return self.model.name if self.model else self.name

    @property
    def licence(self) -> str | None:
        return self.model.about.licence if self.model and self.model.about else None

    @property
    def is_here(self) -> bool:
        """Return whether the weights are on this machine."""
        return (
            bool(self.model.at_hand()) if self.model else hub.find_encoder(self.encoder) is not None
        )

    def digest(self) -> str:
        """Return the digest of the weights. Raises ConfigError or DataError like `Model.locate`."""
        return self.model.digest() if self.model else hub.identify_weights(self.encoder)

    def folder(self, report: Callable[[str], None]) -> Path:
        """Return the weights as a transformers folder. A .gguf file is converted once, in its own process.

        Raises:
            ConfigError: the weights are missing. The message says how to get them.
            DataError: they are damaged, or cannot be converted.
            EngineDied: the conversion crashed.
        """
        if self.model is None:
            return hub.fetch_encoder(self.encoder)
        weights = self.model.locate()
        if not is_gguf(weights):
            return weights
        report(f"{weights.name}: converting to a transformers folder (once, about a minute)")
        try:
            # torch stays out of this process
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
                return other.submit(convert_weights, weights).result()
        except BrokenProcessPool as error:
            raise EngineDied(
                f"{weights}: the process that reads it crashed, perhaps out of memory"
            ) from error


@dataclass(frozen=True)
class ExampleSplit:
    """Examples to train on and to evaluate with, and where they are from as far as it is known."""

    train: tuple[AnyExample, ...]
    held_out: tuple[AnyExample, ...]
    collected: Path | None = None  # the folder of `kgqa collect`
    made_of: tuple[str, ...] = ()  # datasets
    templates: Mapping[str, str] = field(default_factory=dict)
    text_hashes: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, str]:
        """Return the contents of the two files that a trainer reads."""
        train, held_out = (
            jsonl_text(map(_line, examples)) for examples in (self.train, self.held_out)
        )
        return train, held_out

    @property
    def sha256(self) -> str:
        return text_digest("\n".join(self.texts))

    @property
    def question_hashes(self) -> tuple[str, ...]:
        """Return the hashes of the questions to train on: of DATASET/ID as `id_hash`, of other names in a file."""
        questions = sorted({example.question for example in self.train})
        return tuple(
            id_hash(*name.split("/", 1)) if "/" in name else text_digest(name, 16)
            for name in questions
        )


def _line(example: AnyExample) -> dict[str, Json]:
    if isinstance(example, TextExample):
        return {"id": example.id, "prompt": example.prompt, "completion": example.completion}
    return asdict(example)


@dataclass(frozen=True)
class TrainRequest:
    """`recipe`: the choice of conf/train. `name`: of the trained model.

    path: the file or folder of examples, if one is named. count: the requested number of examples. None: all.
    """

    recipe: str
    name: str
    overrides: tuple[str, ...]
    config: Config
    training: Trainer
    base: Base
    path: Path | None
    count: int | None

    @classmethod
    def of(cls, recipe: str, overrides: Sequence[str]) -> TrainRequest:
        """Compose a request. Raises ConfigError: there is no such recipe, or a key or value is wrong."""
        # raises ConfigError for an unknown recipe
        config_file("train", recipe)
        own = [word for word in overrides if override_group(word) not in COLLECT_GROUPS]
        unused = [word for word in overrides if word not in own]
        # the first of `dataset=A,B`, which chooses what is collected
        own = [word.partition(",")[0] if override_key(word) == "dataset" else word for word in own]
        config = compose([f"train={recipe}", *own])
        training = building.build_part(config["train"], "train", Trainer)
        base, name = (
            Base.of(training.base, is_encoder=training.learns_pairs),
            training.name or recipe,
        )
        training.accumulation(training.processes)
        if any(part in ("", ".", "..") for part in name.split("/")):
            raise ConfigError(
                f"train.name={name}: must be the name of a folder, or several separated by slashes"
            )
        named = f"train.examples={training.examples}"
        count = training.examples if isinstance(training.examples, int) else None
        if count is not None and count < 1:
            raise ConfigError(f"{named}: must be at least 1")
        path = Path(training.examples).expanduser() if isinstance(training.examples, str) else None
        if path and not path.exists():
            raise ConfigError(
                f"{named}: no such file or folder. Set a number, a folder of kgqa collect, or a file of rendered texts"
            )
        if path and unused:
            raise ConfigError(
                f"{unused[0]}: chooses what is collected, but {named} is collected already. Remove one of them"
            )
        return cls(recipe, name, tuple(overrides), config, training, base, path, count)

    @property
    def kind(self) -> str:
        return type(self.training).__name__

    def folder(self, examples: ExampleSplit) -> Path:
        """Return the folder, named by everything that can change the weights."""
        recipe = {
            key: value
            for key, value in asdict(self.training).items()
            if key not in self.training.not_identity
        }
        identity = {
            "kind": self.kind,
            "recipe": recipe,
            "base": self.base.digest(),
            "examples": examples.sha256,
        }
        return training_folder() / self.name / run_name(identity)

    def plan(self, examples: ExampleSplit) -> tuple[str, str, str]:
        """Return the number of examples, steps and tokens, estimated without loading a model.

        Examples that are too long do not count.
        """
        training = self.training
        lengths = [1 + sum(map(len, each.texts)) // CHARACTERS_PER_TOKEN for each in examples.train]
        skips_long = isinstance(training, TextTrainer) and not training.truncation
        fitting = [
            min(n, training.longest) for n in lengths if n <= training.longest or not skips_long
        ]
        tokens = sum(fitting) * training.passes(len(fitting))
        return (
            f"{len(fitting):,} of {len(lengths):,}",
            f"{training.steps(len(fitting)):,}",
            f"about {tokens:,.0f}",
        )

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Return every value with its source."""
        named, flat = find_sources(self.config), flatten({"train": self.config["train"]})
        return tuple(
            (key, format_value(value), named.get(key, ""))
            for key, value in flat.items()
            if not key.endswith("_target_")
        )


def prepare_examples(
    request: TrainRequest, display: Display, folder: Path | None = None
) -> ExampleSplit:
    """Return the examples of a training. Collect them first if the request names none.

    folder: of `kgqa collect`, instead of what the request names.

    Raises:
        ConfigError: there are no examples, and none can be made here.
        DataError: they cannot be read. The message names the line.
    """
    path, training = folder or request.path or _collect(request, display), request.training
    if path.is_dir():
        return _load_folder(request, path)
    texts = read_example_file(path, pairs=training.learns_pairs)
    return split_examples(texts, training.eval_fraction, request.count, training.seed)


def read_example_file(file: Path, *, pairs: bool) -> Iterator[AnyExample]:
    """Read the lines of a file of rendered texts. Raises DataError naming the line."""
    ids: set[str] = set()
    kind: type[AnyExample] = PairExample if pairs else TextExample
    for location, line in stream_records(file):
        example = check_json(kind, line, location, "Correct the line.")
        first, second, *_ = example.texts
        if not second.strip():
            raise DataError(
                f"{location}: {'positive' if pairs else 'completion'} is empty. Remove the line"
            )
        name = example.id or text_digest(f"{first}\n{second}", 16)
        if name in ids:
            raise DataError(
                f"{location}: id={name!r:.60} occurs twice. Use a different id for each line"
            )
        ids.add(name)
        yield replace(example, id=name, question=example.question or text_digest(first, 16))


def split_examples(
    examples: Iterable[AnyExample],
    eval_fraction: float,
    count: int | None,
    seed: int,
    held_out: Collection[str] | None = None,
) -> ExampleSplit:
    """Hold out some questions with all their examples, and train on the first `count` of the others.

    The order depends only on the seed and the ids.

    eval_fraction: the fraction of all questions that are evaluated, or from 1 on their number.
    held_out: the questions that are not trained on, of which those are a sample. None: only those.

    Raises:
        ConfigError: more examples are requested than there are.
        DataError: none is left for training.
    """
    ordered = sorted(examples, key=lambda example: text_digest(f"{seed} {example.id}"))
    questions = {example.question for example in ordered}
    number = (
        max(1, round(eval_fraction * len(questions)))
        if 0 < eval_fraction < 1
        else int(eval_fraction)
    )
    candidates = questions if held_out is None else held_out
    evaluated = {*sorted(candidates, key=lambda name: text_digest(f"{seed} {name}"))[:number]}
    out = evaluated if held_out is None else {*held_out}
    train = [example for example in ordered if example.question not in out]
    if count is not None and count > len(train):
        raise ConfigError(f"train.examples={count}: only {len(train):,} examples are not held out")
    if not train:
        raise DataError(
            f"all {len(out):,} questions of the examples are held out, so none is left for training. "
            "Lower train.eval_fraction, or use more examples"
        )
    return ExampleSplit(
        tuple(train[:count]), tuple(example for example in ordered if example.question in evaluated)
    )


def _collect(request: TrainRequest, display: Display) -> Path:
    """Collect what the overrides choose, unless it is collected already."""
    if request.training.collect is None:
        raise ConfigError(
            "train.examples: name a folder of kgqa collect, or a file of rendered texts"
        )
    overrides = [word for word in request.overrides if override_group(word) not in NOT_COLLECT]
    recipe, *words = [*request.training.collect.split(), *overrides]
    collecting = Collecting.of(recipe, words)
    command = " ".join(["kgqa collect", recipe, *words])
    if collecting.finished is None and request.config["dry_run"]:
        raise ConfigError(
            f"train={request.recipe}: no examples yet, and a dry run collects none: {command}"
        )
    display.line(f"examples: {collecting.folder}, as by {command}")
    collecting.collect(display, ["collect", recipe, *words])
    return collecting.folder


def _load_folder(request: TrainRequest, folder: Path) -> ExampleSplit:
    """Load a folder of `kgqa collect`. What it holds out stays held out."""
    collected, training = CollectManifest.read(folder), request.training
    examples = list(read_examples(folder / EXAMPLES))
    pairs = any(isinstance(example, Positive) for example in examples)
    if pairs != training.learns_pairs:
        kind = "pairs of texts, for an encoder" if pairs else "prompts with their targets"
        raise ConfigError(
            f"train={request.recipe}: {folder} has {kind}. Choose another recipe or other examples"
        )
    render = renderer(request)
    texts = [render_example(example, render) for example in examples]
    split = split_examples(
        texts, training.eval_fraction, request.count, training.seed, collected.held_out
    )
    ids = split.question_hashes
    return replace(
        split,
        collected=folder,
        made_of=tuple(collected.datasets),
        templates=collected.templates,
        text_hashes=tuple(
            sorted({text for id_, text in collected.question_hashes.items() if id_ in ids})
        ),
    )


def renderer(request: TrainRequest) -> Callable[[TrainingExample], str]:
    """Return the rendering of engine=transformers. A dry run without the weights joins the bare messages."""
    if request.training.learns_pairs or (request.config["dry_run"] and not request.base.is_here):
        return lambda example: "\n\n".join(message.content for message in example.prompt.messages)
    engine = building.engine(compose(["engine=transformers"])["engine"], request.base.node)
    return lambda example: engine.render(Generate(example.prompt, 1, role=example.role))


def render_example(
    example: TrainingExample | Positive, render: Callable[[TrainingExample], str]
) -> AnyExample:
    """Return prompt and target as the model sees them, or a pair.

    If the prompt ends in the middle of a line, a space separates the two: models write one there, and readers strip it.
    """
    question = f"{example.origin.dataset}/{example.question}"
    if isinstance(example, Positive):
        word, _, number = example.label.partition(" ")
        hop = int(number) if word == "hop" and number.isdigit() else None
        return PairExample(
            example.anchor, example.positive, example.negatives, example.id, question, hop
        )
    prompt = render(example)
    continues = example.prompt.form == "completion" or example.prompt.prefill
    space = " " if continues and not prompt[-1:].isspace() and not prompt.endswith(">") else ""
    return TextExample(prompt, space + example.target, example.id, question, example.label)


def find_folder(recipe: str, overrides: Sequence[str]) -> Path:
    """Return the folder of the training with exactly these settings and examples."""
    request = TrainRequest.of(recipe, overrides)
    return request.folder(prepare_examples(request, QUIET))
