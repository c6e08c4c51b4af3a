"""Select the questions of an experiment: read the dataset, and apply `ids`, `sample`, `limit` and the other keys."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kgqa.config import building as parts
from kgqa.config.files import Config
from kgqa.config.run_keys import DATASET_KEYS, RunSettings
from kgqa.datasets.sampling import alternate, sample_as_trace
from kgqa.errors import ConfigError, nearest
from kgqa.protocols import Dataset
from kgqa.types import Json, Question
from kgqa.util.digests import ids_digest, text_digest

if TYPE_CHECKING:
    from kgqa.datasets.collections import Collections
    from kgqa.datasets.in_memory import InMemoryDataset
    from kgqa.datasets.perturbing import Perturbation

# the name of questions in memory
GIVEN = "given"


@dataclass(frozen=True)
class QuestionSelection:
    """The questions of a configuration. Each value is made at its first use and kept.

    given: questions in memory instead of the dataset's.
    """

    config: Config
    settings: RunSettings
    given: InMemoryDataset | None = None

    @property
    def name(self) -> str:
        """Return the name of the dataset."""
        return str(self.config["choices"]["dataset"]) if self.given is None else GIVEN

    @cached_property
    def whole(self) -> Dataset:
        """Return the dataset as its files give it."""
        return parts.dataset(self.config["dataset"]) if self.given is None else self.given

    @property
    def missing_golds(self) -> str:
        """Return what the gold answers of the dataset lack, such as "without aliases", or ""."""
        return getattr(self.whole, "missing_golds", "")

    @property
    def corpus(self) -> Dataset | Collections:
        """Return what is searched: the dataset, or the collections of its questions."""
        return self.collection or self.whole

    def all_questions(self) -> Iterator[Question]:
        """Yield the questions of the file without collections, only its verified ones if these were chosen."""
        questions = self.whole.questions()
        return (each for each in questions if self.verified is None or each.id in self.verified)

    @cached_property
    def collection(self) -> Collections | None:
        """Return the questions with their collections, if such were chosen."""
        node = self.config.get("collection")
        if node is None:
            return None
        from kgqa.datasets.collections import Collections

        return parts.build_part(node, "collection", Collections, dataset=self.whole)

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
            raise ConfigError(
                f"dataset.verified={json.dumps(folder)}: expected the folder of a run, or null"
            )
        from kgqa.datasets.verified import valid_ids

        return valid_ids(Path(folder), self.sha256)

    @cached_property
    def perturbation(self) -> Perturbation | None:
        """Return the change of passages that `dataset.perturb` sets. Raises ConfigError: there is none of this name."""
        value = None if self.given else self.config["dataset"].get("perturb")
        if value is None:
            return None
        from kgqa.datasets.perturbing import Perturbation

        return Perturbation.of(value)

    def identity(self) -> dict[str, Json]:
        """Return what of the dataset can change an answer. `ids`, `sample` and `limit` cannot."""
        node = self.config["dataset"]
        identity = parts.changing_settings(
            {key: node[key] for key in node if key not in DATASET_KEYS}, "dataset"
        )
        if self.perturbation is not None:
            identity["perturb"] = node["perturb"]
        if self.verified is not None:
            identity["verified"] = ids_digest(sorted(self.verified))
        return {**identity, "sha256": self.sha256}

    @cached_property
    def sha256(self) -> str:
        """Return the sha256 of the files that shape the questions, as they were at the first use."""
        return self.whole.sha256

    @cached_property
    def questions(self) -> Sequence[Question]:
        """Return the questions of `ids`, `sample`, `limit` and `shard`, in file order. The complete file is read."""
        every = questions = list(self.all_questions())
        if self.settings.ids is not None:
            ids = {question.id for question in questions}
            for wanted in self.settings.ids:
                if wanted not in ids:
                    hint = nearest(wanted, ids) if len(ids) < 100 else "The data file has its ids."
                    among = "in" if self.verified is None else "among the verified questions of"
                    raise ConfigError(
                        f"ids={wanted}: no such question {among} dataset={self.name}. {hint}"
                    )
            questions = [question for question in questions if question.id in self.settings.ids]
        questions = self._take_shard(self._sample(questions)[: self.settings.limit])
        if self.perturbation is not None:
            questions = self.perturbation.apply(questions, every, self.settings.seed)
        return list(self.collection.collect(questions)) if self.collection else questions

    @property
    def ids(self) -> list[str]:
        return [question.id for question in self.questions]

    def _take_shard(self, questions: list[Question]) -> list[Question]:
        """Return every n-th question for `shard=K/N`, so that parts of a sorted file take about the same time."""
        if self.settings.shard is None:
            return questions
        number, count = map(int, self.settings.shard.split("/"))
        if number > count or count > len(questions):
            raise ConfigError(
                f"shard={self.settings.shard}: there are {len(questions):,} questions and {count:,} parts. Use parts 1 "
                "to N, and at most as many parts as questions"
            )
        return questions[number - 1 :: count]

    def _sample(self, questions: list[Question]) -> list[Question]:
        """Return `sample` of the questions in file order. Whether an id is sampled depends on it and the seed only.

        With `sample_by`, it also depends on the other questions. A larger sample contains a smaller one either way.
        `sample=trace_paper` returns the questions of TRACE's development set.
        """
        count, attribute = self.settings.sample, self.settings.sample_by
        if attribute is not None and not isinstance(count, int):
            raise ConfigError(f"sample_by={attribute}: works only with a number. Add sample=N")
        if count is None:
            return questions
        if isinstance(count, str):
            return sample_as_trace(questions, self.name)
        if count > len(questions):
            raise ConfigError(
                f"sample={count}: only {len(questions):,} questions. Remove sample= to use all"
            )
        order = sorted(
            questions, key=lambda each: (text_digest(f"{self.settings.seed} {each.id}"), each.id)
        )
        if attribute is not None:
            if not any(getattr(question, attribute) for question in questions):
                raise ConfigError(
                    f"sample_by={attribute}: the questions of dataset={self.name} have no {attribute}. "
                    "Remove sample_by="
                )
            order = alternate(order, attribute)
        ids = {question.id for question in order[:count]}
        return [question for question in questions if question.id in ids]
