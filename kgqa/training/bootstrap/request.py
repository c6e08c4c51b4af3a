"""Parse the command line of `kgqa bootstrap`, and build the arguments of its runs, collections and trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kgqa.artifacts.bootstrap import STAGE
from kgqa.config.building import build
from kgqa.config.files import Config, load_node
from kgqa.config.overrides import format_override, override_group, override_key, parse_override
from kgqa.errors import ConfigError
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.identity import run_identity
from kgqa.experiment.session.session import Session
from kgqa.runtime.artifact_dir import ArtifactDir
from kgqa.training.train.request import TrainRequest
from kgqa.types import Json
from kgqa.util.fs import ids_digest, outputs
from kgqa.util.validators import Count

Filter = Literal["backtracing", "none"]
FILTER = "bootstrap.filter"
NOT_IDENTITY = ("rounds", "fewest")  # more rounds go on in the same folder
ALONE = ("name", "out", "allow_trained_questions")  # keys that cannot be the same for all runs


@dataclass(frozen=True)
class Bootstrapping:
    """Fields as in conf/bootstrap/knowtrace.yaml, which cites the source of each value."""

    rounds: Count
    filter: tuple[Filter, ...]
    split: str | None
    sample: Count | None
    limit: Count | None
    ids: tuple[str, ...] | None
    fewest: Count
    collect: str
    train: Mapping[str, str]

    @property
    def learnt_from(self) -> list[str]:
        """Return the words that choose its questions."""
        chosen = [format_override(key, getattr(self, key)) for key in ("sample", "limit", "ids")]
        return [*([format_override("dataset.split", self.split)] if self.split else []), *chosen]


@dataclass(frozen=True)
class BootstrapRequest:
    """`words`: of every run; `of_collect`, `of_train`: of every collection and training."""

    settings: Bootstrapping
    config: Config
    words: tuple[str, ...]
    of_collect: tuple[str, ...]
    of_train: tuple[str, ...]

    @classmethod
    def of(cls, overrides: Sequence[str]) -> BootstrapRequest:
        """Raise ConfigError: a key or value that is wrong, or that is set by the bootstrapping itself."""
        chosen = [_list_rounds(word) for word in overrides]
        if not any(override_key(word) == STAGE for word in chosen):
            chosen = [f"{STAGE}=knowtrace", *chosen]
        if not any(override_key(word) == "method" for word in chosen):
            chosen = ["method=knowtrace", *chosen]
        for word in chosen:
            key = override_key(word)
            if key in ALONE or key in ("train.name", "collect.filter", "collect.role"):
                raise ConfigError(f"{word}: is not for kgqa bootstrap, which gives each run and training its own")
        config = Experiment.of([word for word in chosen if override_group(word) not in ("collect", "train")]).config
        settings: Bootstrapping = build(config[STAGE], STAGE)
        own = [word for word in chosen if override_group(word) not in ("collect", "train", STAGE)]
        words = [word for word in own if override_key(word) != "dry_run"]
        parts = ([word for word in chosen if override_group(word) == group] for group in ("collect", "train"))
        return cls(settings, config, tuple(words), *map(tuple, parts))

    @property
    def name(self) -> str:
        """Of what is trained: knowtrace-hotpotqa."""
        chosen = self.config["choices"]
        return f"{chosen['method']}-{chosen['dataset']}"

    def trained_name(self, filter: Filter, number: int, role: str) -> str:  # noqa: A002 - the key's name
        """Return knowtrace-hotpotqa/round1/explorer; of Non-Backtracing knowtrace-vanilla-hotpotqa/…"""
        chosen = self.config["choices"]
        name = self.name if filter == "backtracing" else f"{chosen['method']}-vanilla-{chosen['dataset']}"
        return f"{name}/round{number}/{role}"

    def evaluating(self, adapters: Mapping[str, str]) -> list[str]:
        """Return the words of a run on the questions that are evaluated on."""
        return [*self.words, *(f"roles.{role}=+{name}" for role, name in adapters.items())]

    def learning(self, adapters: Mapping[str, str]) -> list[str]:
        """Return the learning of one on those that are learnt from, which its adapters were trained on, too
        (Algorithm 2).
        """
        return [*self.evaluating(adapters), *self.settings.learnt_from, "allow_trained_questions=true"]

    def collecting(self, filter: Filter, role: str) -> list[str]:  # noqa: A002 - the key's name
        return [*self.of_collect, f"collect.filter={filter}", f"collect.role={role}"]

    def training(self, role: str, name: str) -> TrainRequest:
        """Raise ConfigError: as `TrainRequest.of`, or a folder of examples is named."""
        own = [f"train.base={self._base}", *self.of_train, f"train.name={name}"]
        request = TrainRequest.of(self.settings.train[role], own)
        if request.path is not None:
            raise ConfigError(f"train.examples={request.training.examples}: they come of each round; give a number")
        return request

    @property
    def _base(self) -> str:
        """Return the run's own model, as a preset and where its weights are."""
        preset, path = self.config["choices"]["model"], self.config["model"].get("path")
        return preset if path == load_node("model", preset).get("path") else f"{preset}:{path}"

    def folder(self) -> ArtifactDir:
        """Return named by all that can change a round.

        Raises:
            ConfigError: the questions that are learnt from are evaluated on, too.
        """
        asked = [self._ask(words) for words in (self.evaluating({}), self.learning({}))]
        evaluated, learnt = ({*ids} for _, ids in asked)
        if both := len(evaluated & learnt):
            raise ConfigError(
                f"{both:,} of {len(evaluated):,} questions are evaluated on and learnt from: give another "
                "bootstrap.split=, or other bootstrap.ids= than ids="
            )
        trainings = {role: self.training(role, "any") for role in self.settings.train}
        identity: dict[str, Json] = {
            "runs": [{"run": run, "questions": ids_digest(ids)} for run, ids in asked],
            "bootstrap": {key: value for key, value in self.config[STAGE].items() if key not in NOT_IDENTITY},
            "collect": [*self.of_collect],
            "train": {role: [*map(list, each.settings)] for role, each in trainings.items()},
        }
        return ArtifactDir.for_identity(STAGE, outputs() / STAGE / self.name, identity)

    def _ask(self, words: Sequence[str]) -> tuple[Mapping[str, Json], list[str]]:
        """Return a run's identity and its questions. Raises ConfigError: also where the data set lacks what is learnt
        from.
        """
        try:
            with Session(Experiment.of(words)) as session:
                return run_identity(session), [question.id for question in session.experiment.questions]
        except ConfigError as error:
            if not str(error).startswith(f"dataset.split={self.settings.split}: no such split"):
                raise
            raise ConfigError(
                f"{STAGE}.{str(error).removeprefix('dataset.')}; or give bootstrap.split=null, and with ids= and "
                "bootstrap.ids= which of its questions are evaluated on and which are learnt from"
            ) from error


def _list_rounds(word: str) -> str:
    """Return `bootstrap.filter=backtracing,none` as Hydra writes a list."""
    value = parse_override(word).value
    return f"{FILTER}=[{value}]" if word.startswith(f"{FILTER}=") and not value.startswith("[") else word
