"""Build what a configuration names: its method, retriever, triples and judge. Nothing is opened or printed here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, cast

from kgqa.config import building as parts
from kgqa.config.files import Config, groups
from kgqa.config.run_keys import RunSettings
from kgqa.errors import ConfigError, nearest
from kgqa.experiment.devices import GpuPlan, GpuPlanner, find_devices
from kgqa.experiment.engines import ModelChooser, RoleNodes, judge_nodes, role_nodes
from kgqa.experiment.selection import QuestionSelection
from kgqa.judge import ROLE
from kgqa.protocols import Method, Retriever
from kgqa.types import Json

if TYPE_CHECKING:
    from kgqa.datasets.in_memory import InMemoryDataset
    from kgqa.judge.judges import AnyJudge
    from kgqa.kg.exchange import ImportedTriples
    from kgqa.kg.extraction import Extractor
    from kgqa.retrieval.graphs.links import PassageGraph

DEMONSTRATIONS_RANKER = "demonstrations_ranker"
RANKERS = ("ranker", DEMONSTRATIONS_RANKER, "reranker")  # groups


@dataclass(frozen=True)
class Experiment:
    """The values of one configuration. Each is made at its first use and kept.

    Args:
        choose: finds the model of a role's choice.
        plan: places the models on GPUs.
        given: questions in memory instead of the dataset's.
        function: what method=function runs.
        remarks: what was chosen where the overrides choose nothing.
        sweep_groups: the groups that this experiment or another cell of its sweep uses.
    """

    overrides: tuple[str, ...]
    config: Config
    settings: RunSettings
    choose: ModelChooser
    plan: GpuPlanner
    given: InMemoryDataset | None = None
    remarks: tuple[str, ...] = ()
    function: object = None
    sweep_groups: frozenset[str] = frozenset()

    def name(self, group: str) -> str:
        """Return the chosen name of a group, e.g. the dataset's name."""
        return self.data.name if group == "dataset" else str(self.config["choices"][group])

    @cached_property
    def data(self) -> QuestionSelection:
        """Return the questions, and what is searched."""
        return QuestionSelection(self.config, self.settings, self.given)

    @property
    def profile(self) -> str:
        return str(self.settings.scoring or self.config["dataset"]["profile"])

    @cached_property
    def method(self) -> Method:
        """Build the method. Raises ConfigError if a value is wrong or a role lacks its own model."""
        method = parts.method(self.config["method"], self.function)
        for role, cause in getattr(method, "separate_roles", {}).items():
            if self.config["roles"].get(role) is None:
                raise ConfigError(
                    f"{cause} requires its own model: set roles.{role}=PRESET[@ENGINE]"
                )
        return method

    @property
    def has_answers(self) -> bool:
        """Return whether the method answers questions. Otherwise it only retrieves or checks questions."""
        return bool(getattr(self.method, "answers_questions", self._calls_models))

    @property
    def asks_models(self) -> bool:
        """Return whether the method, or the retriever that it searches with, calls a model."""
        return self._calls_models or (
            self.searches and "model" in getattr(self.retriever, "uses", ())
        )

    @property
    def _calls_models(self) -> bool:
        return bool(self.method.uses & {"model", "triples"})

    @cached_property
    def gpu_plan(self) -> GpuPlan:
        """Return the models of all roles, with their GPUs if there are any."""
        roles = role_nodes(self.config, self.choose) if self.asks_models else {}
        if find_devices(self.settings) is None:
            return GpuPlan(roles, {})
        judges = judge_nodes(self.config, self.judge, self.choose) if self.judge else {}
        groups = [
            *(["retriever"] if self.searches else []),
            *(group for group in RANKERS if group in self.method.uses),
        ]
        nodes = [node for group in groups if (node := self.config.get(group))]
        return self.plan(
            self.settings, roles, judges, nodes, str(self.config["dataset"].get("corpus") or "")
        )

    @property
    def role_nodes(self) -> RoleNodes:
        """Return the models of the method's roles, none if it calls no model."""
        return self.gpu_plan.roles

    @cached_property
    def judge_nodes(self) -> RoleNodes:
        """Return the models of the judge's roles, none without a judge."""
        if self.gpu_plan.judges or not self.judge:
            return self.gpu_plan.judges
        return judge_nodes(self.config, self.judge, self.choose)

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
            raise ConfigError(
                f"{group}=null: method={self.name('method')} needs one. {nearest('', groups()[group])}"
            )
        # without models there is no plan, and it would need the retriever
        is_placed = self._calls_models and group in ("retriever", *RANKERS)
        return self.gpu_plan.place_search(node) if is_placed else dict(node)

    @cached_property
    def triples(self) -> Extractor | ImportedTriples:
        """Build what extracts triples, or what reads them from a file."""
        from kgqa.kg.exchange import ImportedTriples
        from kgqa.kg.extraction import Extractor

        part = parts.build(self.kg, "kg")
        return (
            part
            if isinstance(part, ImportedTriples)
            else parts.check_part(part, self.kg, "kg", Extractor)
        )

    @property
    def kg(self) -> dict[str, Json]:
        """Return the node of `kg=` without the key that belongs to the run."""
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
            raise ConfigError(
                f"kg={name}: the triples are imported from a file. Choose another kg= to extract them"
            )
        return cast("Extractor", self.triples)

    @cached_property
    def judge(self) -> AnyJudge | None:
        node = self.config.get(ROLE)
        if node is None:
            return None
        from kgqa.judge.judges import AnyJudge, check_labels

        judge = parts.build_part(node, ROLE, AnyJudge)
        parts.check_coroutine(judge, "judge")
        check_labels(judge)
        return judge

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
        return {
            group: name
            for group, name in self.config["choices"].items()
            if name and used.get(group, True)
        }
