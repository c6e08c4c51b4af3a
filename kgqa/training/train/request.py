"""Parse the command line of `kgqa train`: a recipe of conf/train with its values, its base model and its examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from kgqa.artifacts.run import Setting
from kgqa.config import building
from kgqa.config.composing import compose
from kgqa.config.files import Config, check_choice, find_sources, flatten, groups, load_node
from kgqa.config.overrides import format_value, override_group, override_key, parse_role
from kgqa.engines.weights import Model, convert_weights, is_gguf
from kgqa.errors import ConfigError, EngineDied, nearest
from kgqa.experiment.dry_run import CHARACTERS_PER_TOKEN
from kgqa.runtime.folder import run_name
from kgqa.training.trainers.base import TextTrainer, Trainer
from kgqa.training.trainers.process import PairExample, TextExample
from kgqa.types import Json
from kgqa.util import hub
from kgqa.util.fs import jsonl_text, text_digest, training_folder

T = TypeVar("T")
COLLECT_GROUPS = ("collect", "method")  # groups of overrides that choose what is collected; checked there


@dataclass(frozen=True)
class Base:
    """The model to train. `model`: None for an encoder; `encoder`: its folder or its name on the hub."""

    name: str  # as chosen
    model: Model | None
    encoder: str
    node: Mapping[str, Json] = field(default_factory=dict)  # of the model, for an engine that renders

    @classmethod
    def of(cls, choice: str, *, is_encoder: bool) -> Base:
        """Build from PRESET[:PATH] of conf/model, or for an encoder from a choice of conf/ranker, folder or hub name.

        Raises:
            ConfigError: there is no such preset, or an encoder's preset names no weights.
        """
        if is_encoder:
            encoder = load_node("ranker", choice).get("model") if choice in groups()["ranker"] else choice
            if not isinstance(encoder, str):
                raise ConfigError(f"train.base={choice}: its file in conf/ranker names no model. Name a folder")
            return cls(choice, None, encoder)
        preset, path, adapter, engine = parse_role(choice)
        if engine or adapter:
            raise ConfigError(f"train.base={choice}: name PRESET or PRESET:PATH, without adapter and engine")
        if preset not in groups()["model"]:
            raise ConfigError(f"train.base={choice}: no such model. {nearest(preset, groups()['model'])}")
        settings = {**load_node("model", preset), **({"path": path, "sha256": None} if path else {})}
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
        return bool(self.model.at_hand()) if self.model else hub.find_encoder(self.encoder) is not None

    def digest(self) -> str:
        """Return the digest of the weights. Raises ConfigError or DataError like `Model.locate`."""
        return self.model.digest() if self.model else hub.identify_weights(self.encoder)

    def folder(self, report: Callable[[str], None]) -> Path:
        """Return the weights as a transformers folder. A .gguf file is converted once, in its own process.

        Raises:
            ConfigError: the weights are missing. The message says how to get them.
            DataError: they are damaged, or cannot be converted.
        """
        if self.model is None:
            return hub.fetch_encoder(self.encoder)
        weights = self.model.locate()
        if not is_gguf(weights):
            return weights
        report(f"{weights.name}: converting to a transformers folder (once, about a minute)")
        return run_apart(convert_weights, weights)


def run_apart(function: Callable[..., T], *values: Path) -> T:
    """Call a function in its own process, since torch stays out of this one. Raises EngineDied: it crashed."""
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
            return other.submit(function, *values).result()
    except BrokenProcessPool as error:
        raise EngineDied(f"{values[0]}: the process that reads it crashed, perhaps out of memory") from error


@dataclass(frozen=True)
class ExampleSplit:
    """Examples to train on and to evaluate with, and where they are from as far as it is known."""

    train: tuple[TextExample | PairExample, ...]
    held_out: tuple[TextExample | PairExample, ...]
    collected: Path | None = None  # the folder of `kgqa collect`
    made_of: tuple[str, ...] = ()  # datasets
    templates: Mapping[str, str] = field(default_factory=dict)
    text_hashes: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, str]:
        """Return the contents of the two files that a trainer reads."""
        train, held_out = (jsonl_text(map(_line, examples)) for examples in (self.train, self.held_out))
        return train, held_out

    @property
    def sha256(self) -> str:
        return text_digest("\n".join(self.texts))

    @property
    def questions(self) -> list[str]:
        return sorted({example.question for example in self.train})


def _line(example: TextExample | PairExample) -> dict[str, Json]:
    if isinstance(example, TextExample):
        return {"id": example.id, "prompt": example.prompt, "completion": example.completion}
    return asdict(example)


@dataclass(frozen=True)
class TrainRequest:
    """`recipe`: the choice of conf/train."""

    recipe: str
    overrides: tuple[str, ...]
    config: Config
    training: Trainer
    base: Base

    @classmethod
    def of(cls, recipe: str, overrides: Sequence[str]) -> TrainRequest:
        """Compose a request. Raises ConfigError: there is no such recipe, or a key or value is wrong."""
        check_choice(f"train={recipe}")
        own = [word for word in overrides if override_group(word) not in COLLECT_GROUPS]
        # the first of `dataset=A,B`, which chooses what is collected
        own = [word.partition(",")[0] if override_key(word) == "dataset" else word for word in own]
        config = compose([f"train={recipe}", *own])
        training = building.build_part(config["train"], "train", Trainer)
        request = cls(
            recipe, tuple(overrides), config, training, Base.of(training.base, is_encoder=training.learns_pairs)
        )
        request._check()
        return request

    @property
    def kind(self) -> str:
        return type(self.training).__name__

    @property
    def name(self) -> str:
        """Return the name of the trained model."""
        return self.training.name or self.recipe

    @property
    def path(self) -> Path | None:
        """Return the file or folder of examples, if the request names one."""
        named = self.training.examples
        return Path(named).expanduser() if isinstance(named, str) else None

    @property
    def count(self) -> int | None:
        """Return the requested number of examples. None: all."""
        count = self.training.examples
        return count if isinstance(count, int) else None

    def _check(self) -> None:
        self.training.accumulation(self.training.processes)
        named = f"train.examples={self.training.examples}"
        if any(part in ("", ".", "..") for part in self.name.split("/")):
            raise ConfigError(f"train.name={self.name}: must be the name of a folder, or several separated by slashes")
        if self.count is not None and self.count < 1:
            raise ConfigError(f"{named}: must be at least 1")
        if self.path is None:
            return
        if not self.path.exists():
            raise ConfigError(
                f"{named}: no such file or folder. Set a number, a folder of kgqa collect, or a file of rendered texts"
            )
        if unused := [word for word in self.overrides if override_group(word) in COLLECT_GROUPS]:
            raise ConfigError(
                f"{unused[0]}: chooses what is collected, but {named} is collected already. Remove one of them"
            )

    def folder(self, examples: ExampleSplit) -> Path:
        """Return the folder, named by everything that can change the weights."""
        recipe = {key: value for key, value in asdict(self.training).items() if key not in self.training.not_identity}
        identity = {"kind": self.kind, "recipe": recipe, "base": self.base.digest(), "examples": examples.sha256}
        return training_folder() / self.name / run_name(identity)

    def plan(self, examples: ExampleSplit) -> tuple[str, str, str]:
        """Return the number of examples, steps and tokens, estimated without loading a model.

        Examples that are too long do not count.
        """
        training = self.training
        texts = [
            (each.prompt, each.completion)
            if isinstance(each, TextExample)
            else (each.anchor, each.positive, *each.negatives)
            for each in examples.train
        ]
        lengths = [1 + sum(map(len, each)) // CHARACTERS_PER_TOKEN for each in texts]
        skips_long = isinstance(training, TextTrainer) and not training.truncation
        fitting = [min(n, training.longest) for n in lengths if n <= training.longest or not skips_long]
        tokens = sum(fitting) * training.passes(len(fitting))
        return f"{len(fitting):,} of {len(texts):,}", f"{training.steps(len(fitting)):,}", f"about {tokens:,.0f}"

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Return every value with its source."""
        named, flat = find_sources(self.config), flatten({"train": self.config["train"]})
        return tuple(
            (key, format_value(value), named.get(key, ""))
            for key, value in flat.items()
            if not key.endswith("_target_")
        )
