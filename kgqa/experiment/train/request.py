"""What `kgqa train` is told: a recipe of conf/train with its values, and the base it stands on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kgqa.artefacts.run import Setting
from kgqa.errors import ConfigError
from kgqa.experiment.config import parts
from kgqa.experiment.config.composing import check_choice, compose
from kgqa.experiment.config.files import Config, flatten, groups
from kgqa.experiment.config.listing import sources
from kgqa.experiment.config.overrides import override_group, override_key, value_text
from kgqa.experiment.train.base import Base
from kgqa.experiment.train.examples import Parted
from kgqa.runtime.folder import run_name
from kgqa.storage import trained
from kgqa.training import BiEncoderTraining
from kgqa.training.schedule import Schedule
from kgqa.types import Json

# what changes neither the weights nor the figures: how it is run, and what they are called
NOT_IDENTITY = ("name", "base", "examples", "processes", "device", "save_minutes", "max_hours")
OF_EXAMPLES = ("collect", "method")  # words that say what is collected, and are checked there


@dataclass(frozen=True)
class TrainRequest:
    """`recipe`: the choice of conf/train."""

    recipe: str
    overrides: tuple[str, ...]
    config: Config
    training: Schedule
    base: Base

    @classmethod
    def of(cls, recipe: str, overrides: Sequence[str]) -> TrainRequest:
        """Raises ConfigError: no such recipe, or a key or value that is wrong; the nearest is named."""
        check_choice(f"train={recipe}", groups())
        own = [word for word in overrides if override_group(word) not in OF_EXAMPLES]
        config = compose([f"train={recipe}", *map(_of_one, own)])
        training = parts.training(config["train"])
        base = Base.of(training.base, encodes=isinstance(training, BiEncoderTraining))
        request = cls(recipe, tuple(overrides), config, training, base)
        request._check()
        return request

    @property
    def kind(self) -> str:
        return type(self.training).__name__

    @property
    def pairs(self) -> bool:
        """Whether its examples are pairs of texts, and not prompts with their completions."""
        return isinstance(self.training, BiEncoderTraining)

    @property
    def name(self) -> str:
        """Of what is trained."""
        return self.training.name or self.recipe

    @property
    def given(self) -> Path | None:
        """The file or folder of examples that was named."""
        named = self.training.examples
        return Path(named).expanduser() if isinstance(named, str) else None

    @property
    def count(self) -> int | None:
        """How many examples are wanted, of all that there are."""
        count = self.training.examples
        return count if isinstance(count, int) else None

    def _check(self) -> None:
        self.training.accumulated(self.training.processes)
        if any(part in ("", ".", "..") for part in self.name.split("/")):
            raise ConfigError(f"train.name={self.name}: must be a folder's name, or several with a slash between them")
        if self.count is not None and self.count < 1:
            raise ConfigError(f"train.examples={self.count}: must be at least 1")
        if self.given is not None and not self.given.exists():
            raise ConfigError(
                f"train.examples={self.training.examples}: no such file or folder; give a number, a folder of kgqa "
                "collect, or a file of rendered texts"
            )
        if self.given is not None and (idle := [o for o in self.overrides if override_group(o) in OF_EXAMPLES]):
            raise ConfigError(
                f"{idle[0]}: says what is collected, and train.examples={self.training.examples} is collected already; "
                "leave one of them out"
            )

    @property
    def values(self) -> dict[str, Json]:
        """Of the recipe, those that can change the weights."""
        return {key: value for key, value in asdict(self.training).items() if key not in NOT_IDENTITY}

    def identity(self, examples: Parted) -> Mapping[str, Json]:
        """All that can change the weights."""
        return {"kind": self.kind, "recipe": self.values, "base": self.base.digest(), "examples": examples.sha256}

    def folder(self, examples: Parted) -> Path:
        return trained() / self.name / run_name(self.identity(examples))

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Every value with its source."""
        said = sources(self.config)
        flat = flatten({"train": self.config["train"]})
        return tuple(
            (key, value_text(value), said.get(key, "")) for key, value in flat.items() if not key.endswith("_target_")
        )


def _of_one(override: str) -> str:
    """Of `dataset=A,B`, which says what is collected, the first: a training has no data set of its own."""
    return override.partition(",")[0] if override_key(override) == "dataset" else override
