"""Build the method, questions and judge of a configuration, without opening or printing anything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kgqa.config import factories as parts
from kgqa.config.composing import compose
from kgqa.config.files import Config, groups
from kgqa.config.overrides import override_group
from kgqa.config.settings import RunSettings
from kgqa.errors import ConfigError, nearest
from kgqa.experiment.session.method_code import program_hash
from kgqa.judge import ROLE
from kgqa.protocols import Dataset, Method
from kgqa.types import Question
from kgqa.util.fs import text_digest

if TYPE_CHECKING:
    from kgqa.datasets.collections import Collected
    from kgqa.datasets.in_memory import Given
    from kgqa.judge.judges import AnyJudge
    from kgqa.kg.extraction import TripleExtractor
    from kgqa.kg.imported import ImportedTriples
    from kgqa.kg.verification import Verification


@dataclass(frozen=True)
class Experiment:
    """The values of one configuration; each is made when first asked for, and stays: questions, too."""

    overrides: tuple[str, ...]
    config: Config
    settings: RunSettings
    given: Given | None = None

    @classmethod
    def of(cls, overrides: Sequence[str], config: Config | None = None, given: Given | None = None) -> Experiment:
        """Return `config`: what `compose` gave for these overrides earlier, which then holds even if conf/ has changed.

        given: questions in place of the dataset's.
        """
        composed = compose(overrides) if config is None else config
        return cls(tuple(overrides), composed, RunSettings.of(composed), given)

    def with_models_of(self, config: Config) -> Experiment:
        """Return the same with the models of another configuration, unless the overrides name models themselves."""
        if {"model", "engine"} & {override_group(override) for override in self.overrides}:
            return self
        return replace(self, config={**self.config, "model": config["model"], "engine": config["engine"]})

    @cached_property
    def method(self) -> Method:
        """Raise ConfigError naming what is wrong with it, or the role that lacks a model of its own."""
        method = parts.method(self.config["method"])
        for role, cause in getattr(method, "separate_roles", {}).items():
            if self.config["roles"].get(role) is None:
                raise ConfigError(f"{cause} wants a model of its own: give roles.{role}=PRESET[@ENGINE]")
        return method

    @cached_property
    def triples(self) -> TripleExtractor | ImportedTriples:
        """Return the triples for a method that asks for them: what extracts them, or where they are."""
        return parts.triples({key: value for key, value in self.config["kg"].items() if key != "require_existing"})

    @property
    def extractor(self) -> TripleExtractor:
        """Raise ConfigError: the triples were made by others, so that nothing extracts them."""
        from kgqa.kg.imported import ImportedTriples

        if isinstance(self.triples, ImportedTriples):
            raise ConfigError(
                f"kg={self.name('kg')}: nothing is extracted, the triples are in a file; choose another kg="
            )
        return self.triples

    @cached_property
    def code(self) -> dict[str, str]:
        """Return the hash of the programs that make the answers: the method's, and the extractor's where it asks for
        triples.
        """
        programs: dict[str, object] = {"method": self.method}
        if "triples" in self.method.uses:
            from kgqa.kg.imported import ImportedTriples

            imported = isinstance(self.triples, ImportedTriples)  # the identity has their file's hash
            programs["kg"] = ImportedTriples(None) if imported else self.triples
        return {name: program_hash(program) for name, program in programs.items()}

    @cached_property
    def whole(self) -> Dataset:
        """Return the dataset as its files give it."""
        return parts.dataset(self.config["dataset"]) if self.given is None else self.given

    @cached_property
    def source(self) -> Dataset:
        """Return the same with its verified questions alone, if these were chosen."""
        return self._of_verified(self.whole)

    @cached_property
    def verified(self) -> frozenset[str] | None:
        """Return the ids that `dataset.verified` leaves; None: all.

        Raises:
            ConfigError: it is no folder's name.
            DataError: it cannot be used for this dataset.
        """
        folder = None if self.given else self.config["dataset"].get("verified")
        if folder is None:
            return None
        if not isinstance(folder, str):
            raise ConfigError(f"dataset.verified={json.dumps(folder)}: expected a folder of kgqa data verify, or null")
        from kgqa.datasets.verified import valid_ids

        return valid_ids(Path(folder), self.data_sha256)

    @cached_property
    def collection(self) -> Collected | None:
        """Return its questions with their collections, if such were chosen."""
        node = self.config.get("collection")
        return None if node is None else parts.collection(node, self.whole)

    @property
    def dataset(self) -> Dataset:
        """Return what is searched and answered."""
        return self.source if self.collection is None else self._of_verified(self.collection)

    def _of_verified(self, questions: Dataset) -> Dataset:
        if self.verified is None:
            return questions
        from kgqa.datasets.verified import VerifiedDataset

        return VerifiedDataset(questions, self.verified)

    @cached_property
    def data_sha256(self) -> str:
        """Return the data sha256 of the files that shape the questions, as they lay on disk when this was first
        asked.
        """
        return self.whole.sha256

    @cached_property
    def questions(self) -> Sequence[Question]:
        """Return the questions of `ids`, `sample` and `limit`, in file order. The complete file is read and checked."""
        questions = list(self.source.questions())
        if self.settings.ids is not None:
            known = {question.id for question in questions}
            for wanted in self.settings.ids:
                if wanted not in known:
                    hint = nearest(wanted, known) if len(known) < 100 else "see the data file for its ids"
                    among = "in" if self.verified is None else "among the verified ones of"
                    raise ConfigError(f"ids={wanted}: no such question {among} dataset={self.name('dataset')}; {hint}")
            questions = [question for question in questions if question.id in self.settings.ids]
        questions = self._sample(questions)[: self.settings.limit]
        return list(self.collection.collect(questions)) if self.collection else questions

    @property
    def question_ids(self) -> Sequence[str]:
        """Return the ids of `questions`."""
        return [question.id for question in self.questions]

    def _sample(self, questions: list[Question]) -> list[Question]:
        """Return `sample` of the questions in file order. Whether an id is sampled depends on it and the seed only."""
        count = self.settings.sample
        if count is None:
            return questions
        if count > len(questions):
            raise ConfigError(f"sample={count}: only {len(questions):,} questions to draw from; leave it out for all")
        order = sorted((text_digest(f"{self.settings.seed} {question.id}"), question.id) for question in questions)
        ids = {id_ for _, id_ in order[:count]}
        return [question for question in questions if question.id in ids]

    @cached_property
    def judge(self) -> AnyJudge | None:
        """Raise ConfigError naming what is wrong with it."""
        node = self.config.get(ROLE)
        return None if node is None else parts.judge(node)

    @cached_property
    def verification(self) -> Verification:
        """Return the verification for `kgqa data verify`. Raises ConfigError naming what is wrong with it."""
        node = self.config.get("verify")
        if node is None:
            raise ConfigError(f"verify=null: choose how to verify; {nearest('', groups()['verify'])}")
        return parts.verification(node)

    @property
    def verifies(self) -> bool:
        """Return whether its questions are verified, and not answered."""
        return self.config.get("verify") is not None

    @property
    def asks_models(self) -> bool:
        return bool(self.method.uses & {"model", "triples"})

    @property
    def searches(self) -> bool:
        return bool(self.method.uses & {"search", "pool"})

    @cached_property
    def choices(self) -> dict[str, str]:
        """Return what was chosen in each group that a run, or a verification, makes use of."""
        if self.verifies:
            asked = ("model", "engine") if self.verification.list is None else ()
            return {group: self.name(group) for group in ("dataset", *asked, "verify")}
        uses = self.method.uses
        used = {
            "model": self.asks_models,
            "engine": self.asks_models,
            "kg": "triples" in uses,
            "retriever": self.searches,
            "graph": "graph" in uses,
            "ranker": "ranker" in uses,
            "demonstrations_ranker": "demonstrations_ranker" in uses
            or ("triples" in uses and "demonstrations_ranker" in self.triples.uses),
            "reranker": "reranker" in uses,
        }
        return {group: name for group, name in self.config["choices"].items() if name and used.get(group, True)}

    @property
    def profile(self) -> str:
        return str(self.settings.profile or self.config["dataset"]["profile"])

    def name(self, group: str) -> str:
        """Return what was chosen in a group, e.g. the dataset's name."""
        if group == "dataset" and self.given is not None:
            return "given"
        return str(self.config["choices"][group])
