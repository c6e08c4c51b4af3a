"""The values of one configuration: its method, questions and judge, and the settings that define its run.

Nothing is opened or printed here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kgqa.artifacts.predictions import question_ids
from kgqa.artifacts.run import AS_READER, SCRIPTED, SCRIPTED_TARGET
from kgqa.config import building as parts
from kgqa.config.building import changing_settings
from kgqa.config.composing import compose
from kgqa.config.files import Config, groups
from kgqa.config.overrides import parse_role
from kgqa.config.run_keys import RunSettings
from kgqa.config.settings import read_settings
from kgqa.datasets.base import FileDataset
from kgqa.datasets.sampling import sample_as_trace
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.experiment.engines import Engines, Pool, RoleNodes, role_nodes
from kgqa.identity.component import corpus_identity_of, identity_of
from kgqa.identity.program_code import program_hash, user_code
from kgqa.judge import ROLE
from kgqa.protocols import Dataset, Method, Ranker, Retriever
from kgqa.runtime.folder import run_name
from kgqa.system.defaults import complete
from kgqa.types import Json, JsonObject, Question
from kgqa.util.fs import ids_digest, outputs, text_digest

if TYPE_CHECKING:
    from kgqa.datasets.collections import Collections
    from kgqa.datasets.in_memory import InMemoryDataset
    from kgqa.datasets.perturbing import Perturbation
    from kgqa.judge.judges import AnyJudge
    from kgqa.kg.exchange import ImportedTriples
    from kgqa.kg.extraction import Extractor
    from kgqa.retrieval.graphs.links import PassageGraph

DEMONSTRATIONS_RANKER = "demonstrations_ranker"
GIVEN = "given"  # the name of questions in memory
RANKERS = ("ranker", DEMONSTRATIONS_RANKER, "reranker")  # groups


@dataclass(frozen=True)
class Experiment:
    """The values of one configuration. Each is made at its first use and kept.

    given: questions in memory instead of the dataset's. function: what method=function runs. remarks: what was chosen
    where the overrides choose nothing.
    """

    overrides: tuple[str, ...]
    config: Config
    settings: RunSettings
    given: InMemoryDataset | None = None
    remarks: tuple[str, ...] = ()
    function: object = None

    @classmethod
    def of(
        cls,
        overrides: Sequence[str],
        config: Config | None = None,
        given: InMemoryDataset | None = None,
        function: object = None,
    ) -> Experiment:
        """Compose an experiment, and choose the model if the overrides do not.

        A `config` that was composed earlier holds even if conf/ has changed.
        """
        remarks: tuple[str, ...] = ()
        if config is None:
            config, remarks = complete(compose(overrides), overrides)
        if function is not None:
            name = config["method"]["function"].rpartition(":")[2]
            config = {**config, "choices": {**config["choices"], "method": name}}
        if given is not None:
            config = {**config, "choices": {**config["choices"], "dataset": GIVEN}}
        return cls(tuple(overrides), config, read_settings(config), given, remarks, function)

    def name(self, group: str) -> str:
        """Return the chosen name of a group, e.g. the dataset's name."""
        if group == "dataset" and self.given is not None:
            return GIVEN
        return str(self.config["choices"][group])

    @property
    def profile(self) -> str:
        return str(self.settings.scoring or self.config["dataset"]["profile"])

    @cached_property
    def method(self) -> Method:
        """Build the method. Raises ConfigError if a value is wrong or a role lacks its own model."""
        method = parts.method(self.config["method"])
        if self.function is not None:
            method = cast(Any, method).bind(self.function)
        for role, cause in getattr(method, "separate_roles", {}).items():
            if self.config["roles"].get(role) is None:
                raise ConfigError(f"{cause} requires its own model: set roles.{role}=PRESET[@ENGINE]")
        return method

    @property
    def has_answers(self) -> bool:
        """Return whether the method answers questions. Otherwise it only retrieves or checks questions."""
        return bool(getattr(self.method, "answers_questions", self._calls_models))

    @property
    def asks_models(self) -> bool:
        """Return whether the method, or the retriever that it searches with, calls a model."""
        return self._calls_models or (self.searches and "model" in getattr(self.retriever, "uses", ()))

    @property
    def _calls_models(self) -> bool:
        return bool(self.method.uses & {"model", "triples"})

    @cached_property
    def role_nodes(self) -> RoleNodes:
        """Return the models of the method's roles, none if it calls no model."""
        return role_nodes(self.config) if self.asks_models else {}

    @property
    def searches(self) -> bool:
        return bool(self.method.uses & {"search", "pool"})

    @cached_property
    def retriever(self) -> Retriever:
        return parts.build_part(self.chosen("retriever"), "retriever", Retriever)

    @cached_property
    def linker(self) -> PassageGraph:
        """Build the links of passages, chosen by `graph=`."""
        from kgqa.retrieval.graphs.links import PassageGraph

        return parts.build_part(self.chosen("graph"), "graph", PassageGraph)

    def chosen(self, group: str) -> Config:
        """Return a group's node. Raises ConfigError if there is none."""
        if (node := self.config.get(group)) is None:
            raise ConfigError(f"{group}=null: method={self.name('method')} needs one. {nearest('', groups()[group])}")
        return dict(node)

    @cached_property
    def triples(self) -> Extractor | ImportedTriples:
        """Build what extracts triples, or what reads them from a file."""
        from kgqa.kg.exchange import ImportedTriples
        from kgqa.kg.extraction import Extractor

        part = parts.build(self._kg, "kg")
        return part if isinstance(part, ImportedTriples) else parts.check_part(part, self._kg, "kg", Extractor)

    @property
    def _kg(self) -> dict[str, Json]:
        return {key: value for key, value in self.config["kg"].items() if key != "require_existing"}

    @property
    def triple_file(self) -> ImportedTriples | None:
        """Return what reads triples from a file. None: they are extracted."""
        from kgqa.kg.exchange import ImportedTriples

        return self.triples if isinstance(self.triples, ImportedTriples) else None

    @property
    def extractor(self) -> Extractor:
        """Return what extracts triples. Raises ConfigError if they are imported."""
        if self.triple_file:
            name = self.name("kg")
            raise ConfigError(f"kg={name}: the triples are imported from a file. Choose another kg= to extract them")
        return cast("Extractor", self.triples)

    @cached_property
    def judge(self) -> AnyJudge | None:
        node = self.config.get(ROLE)
        if node is None:
            return None
        from kgqa.judge.judges import AnyJudge

        return parts.build_part(node, ROLE, AnyJudge)

    @cached_property
    def choices(self) -> dict[str, str]:
        """Return the chosen name of each group that the run uses."""
        uses = self.method.uses
        used = {
            "model": self.asks_models,
            "engine": self.asks_models,
            "kg": "triples" in uses,
            "retriever": self.searches,
            **{group: group in uses for group in ("graph", *RANKERS)},
        }
        if "triples" in uses and DEMONSTRATIONS_RANKER in self.triples.uses:
            used[DEMONSTRATIONS_RANKER] = True
        return {group: name for group, name in self.config["choices"].items() if name and used.get(group, True)}

    @cached_property
    def whole(self) -> Dataset:
        """Return the dataset as its files give it."""
        return parts.dataset(self.config["dataset"]) if self.given is None else self.given

    @property
    def missing_golds(self) -> str:
        """Return what the gold answers of the dataset lack, such as "without aliases", or ""."""
        return self.whole.missing_golds if isinstance(self.whole, FileDataset) else ""

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
            raise ConfigError(f"dataset.verified={json.dumps(folder)}: expected the folder of a run, or null")
        from kgqa.datasets.verified import valid_ids

        return valid_ids(Path(folder), self.data_sha256)

    @cached_property
    def perturbation(self) -> Perturbation | None:
        """Return the change of the passages that `dataset.perturb` sets.

        Raises ConfigError: there is no such change, or the method searches a corpus, which would not change.
        """
        value = None if self.given else self.config["dataset"].get("perturb")
        if value is None:
            return None
        from kgqa.datasets.perturbing import Perturbation

        perturbation = Perturbation.of(value)
        if "search" in self.method.uses or self.config.get("collection") is not None:
            raise ConfigError(
                f"dataset.perturb={value}: it changes the passages that come with a question, and "
                f"method={self.name('method')} searches a corpus. Choose a method that reads its question's passages"
            )
        return perturbation

    @cached_property
    def data_sha256(self) -> str:
        """Return the sha256 of the files that shape the questions, as they were at the first use."""
        return self.whole.sha256

    @cached_property
    def questions(self) -> Sequence[Question]:
        """Return the questions of `ids`, `sample` and `limit`, in file order. The complete file is read and checked."""
        every = questions = list(self.all_questions())
        if self.settings.ids is not None:
            known = {question.id for question in questions}
            for wanted in self.settings.ids:
                if wanted not in known:
                    hint = nearest(wanted, known) if len(known) < 100 else "The data file has its ids."
                    among = "in" if self.verified is None else "among the verified questions of"
                    raise ConfigError(f"ids={wanted}: no such question {among} dataset={self.name('dataset')}. {hint}")
            questions = [question for question in questions if question.id in self.settings.ids]
        questions = self._sample(questions)[: self.settings.limit]
        if self.perturbation is not None:
            questions = self.perturbation.apply(questions, every, self.settings.seed)
        return list(self.collection.collect(questions)) if self.collection else questions

    @property
    def question_ids(self) -> list[str]:
        return [question.id for question in self.questions]

    def _sample(self, questions: list[Question]) -> list[Question]:
        """Return `sample` of the questions in file order. Whether an id is sampled depends on it and the seed only.

        `sample=trace_paper` returns the questions of TRACE's development set.
        """
        count = self.settings.sample
        if count is None:
            return questions
        if isinstance(count, str):
            return sample_as_trace(questions, self.name("dataset"))
        if count > len(questions):
            raise ConfigError(f"sample={count}: only {len(questions):,} questions. Remove sample= to use all")
        order = sorted((text_digest(f"{self.settings.seed} {question.id}"), question.id) for question in questions)
        ids = {id_ for _, id_ in order[:count]}
        return [question for question in questions if question.id in ids]

    @cached_property
    def code(self) -> dict[str, str]:
        """Return the hash of the method's program, and of the extractor's if the method uses triples."""
        programs: dict[str, object] = {"method": self.method}
        if "triples" in self.method.uses:
            # the identity has the hash of an imported file, so its path does not count
            programs["kg"] = replace(self.triple_file, path=None) if self.triple_file else self.triples
        hashes = {name: program_hash(program) for name, program in programs.items()}
        if dataset := user_code(type(self.whole).__module__):
            hashes["dataset"] = dataset
        return hashes

    @cached_property
    def identity(self) -> dict[str, Json]:
        """Return every setting that can change an answer, and the hashes of code and data.

        A setting that cannot is declared so in its field, see `NotIdentity`.
        """
        config, uses = self.config, self.method.uses
        answering = self.answering  # first: it reports missing weights, and the rest takes longer
        dataset = changing_settings(config["dataset"], "dataset")
        dataset.pop("verified", None)
        dataset.pop("perturb", None)
        if self.perturbation is not None:
            dataset["perturb"] = self.config["dataset"]["perturb"]
        if self.verified is not None:
            dataset["verified"] = ids_digest(sorted(self.verified))
        kg: dict[str, Json] | None = None
        if "triples" in uses:
            kg = {"imported": self.triple_file.sha256} if self.triple_file else self._kg
        components = {
            **{group: self._ranker(group) for group in RANKERS if group in self.choices},
            "collection": self.collection,
            "graph": self.linker if "graph" in uses else None,
            "retriever": self.retriever if self.searches else None,
        }
        return {
            **self.settings.identity(),
            "method": {**changing_settings(config["method"], "method"), **self._method_files()},
            "code": self.code,
            "dataset": {**dataset, "sha256": self.data_sha256},
            "corpus": corpus_identity_of(self.corpus) if "search" in uses else None,
            "roles": self._role_identity() if self.asks_models else {},
            "answering": answering,
            "kg": kg,
            **{name: identity_of(part) for name, part in components.items() if part is not None},
        }

    def _method_files(self) -> JsonObject:
        """Return the hashes of files that the method reads or starts."""
        loads = getattr(self.method, "loads", None)
        return {} if loads is None else cast(JsonObject, loads())

    @cached_property
    def answering(self) -> dict[str, Json]:
        """Return what each role's engine says of itself: the hash of its weights, the served model, rules."""
        with closing(Pool()) as pool:
            return Engines(self.role_nodes, pool).identities()

    def _ranker(self, group: str) -> Ranker:
        return parts.build_part(self.chosen(group), group, Ranker)

    def _role_identity(self) -> dict[str, Json]:
        """Return the choice of each role except the judge's, with an adapter's digest instead of its name."""
        choices = {role: choice for role, choice in self.config["roles"].items() if role != ROLE}
        roles = {role: choice for role, choice in choices.items() if choice is not None or role not in AS_READER}
        for role, binding in self.role_nodes.items():
            if binding.adapter is not None:
                preset, _, _, engine = parse_role(str(roles[role]))
                roles[role] = f"{preset}+{binding.adapter.digest()}@{engine}"
        return roles

    @cached_property
    def folder(self) -> Path:
        """Return the folder of the run: `output_dir=`, or one named after its data, its method and its identity.

        Fewer questions never replace more. If the folder has answers to other questions too, a run of some questions
        gets a folder next to it, named after their number and ids.

        Raises ConfigError if the user chose the folder, so that no other can be taken.
        """
        settings = self.settings
        folder = Path(settings.output_dir) if settings.output_dir is not None else self._default_folder()
        if settings.output_dir is not None or settings.run_name is not None:
            self.refuse_to_replace(folder)
        elif self._count_replaced(folder):
            ids = self.question_ids
            return folder.with_name(f"{folder.name}-{len(ids)}-{ids_digest(ids)[:4]}")
        return folder

    def refuse_to_replace(self, folder: Path) -> None:
        """Raise ConfigError if a folder has answers to questions that this run does not answer."""
        if replaced := self._count_replaced(folder):
            raise ConfigError(
                f"{folder}: {replaced:,} questions are answered in this folder. A run of {len(self.question_ids):,} "
                "would replace them. Set another output_dir= or run_name=, or run all questions"
            )

    def _count_replaced(self, folder: Path) -> int:
        """Return the number of answers in a folder if some are to other questions than those of this run, else 0."""
        if self.settings.limit is None and self.settings.ids is None:
            return 0
        try:
            answered = set(question_ids(folder))
        except DataError:  # no finished run, or a damaged one
            return 0
        return 0 if answered <= set(self.question_ids) else len(answered)

    def _default_folder(self) -> Path:
        names = [self.name(group) for group in ("dataset", "method", "model" if self.asks_models else "retriever")]
        if self.asks_models and self.config["engine"]["_target_"] == SCRIPTED_TARGET:
            names[-1] = SCRIPTED  # no model answers, so none is credited
        if self.settings.run_name is not None:
            return outputs().joinpath(*names, self.settings.run_name)
        # so that a run's scores stay as earlier reports have them
        scoring = "" if self.profile == self.config["dataset"]["profile"] else f"-{self.profile}"
        return outputs().joinpath(*names, f"{run_name(self.identity)}{scoring}")
