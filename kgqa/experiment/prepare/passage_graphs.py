"""The passage graphs of a run's collections. The run builds them, or `kgqa kg link` ahead of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import islice

from kgqa.errors import ConfigError
from kgqa.experiment.experiment import Experiment
from kgqa.methods.steps.structure import text_passages
from kgqa.retrieval.graphs.links import GraphStore, PassageGraph, average_figures
from kgqa.runtime.costs import Ledger
from kgqa.runtime.display import Display
from kgqa.types import Json, Passage, Question
from kgqa.util.places import outputs

# passages of a corpus that is linked as one graph: all are in memory
LARGEST = 50_000


class PassageGraphs:
    """The graphs of an experiment's questions under its `graph`, which `linker` builds."""

    def __init__(self, experiment: Experiment, linker: PassageGraph) -> None:
        self._experiment = experiment
        self.store = GraphStore(
            outputs() / "graphs", experiment.name("graph"), linker, lambda: self.corpus
        )

    @cached_property
    def corpus(self) -> tuple[Passage, ...]:
        """Return all passages of the dataset's corpus. Raises ConfigError if there are too many to link."""
        some = tuple(islice(self._experiment.data.corpus.passages(), LARGEST + 1))
        if len(some) > LARGEST:
            raise ConfigError(
                f"the corpus has more than {LARGEST:,} passages. Choose method.scope=own"
            )
        return text_passages(some)

    def build(self, questions: Sequence[Question], display: Display) -> int:
        """Build the missing graphs of these questions, and return their number."""
        missing = self.missing(questions)
        if missing:
            with display.stage("passage graphs", len(missing), Ledger()) as stage:
                for pool in missing:
                    self.store.build(pool)
                    stage.finish(failed=False)
        return len(missing)

    def missing(self, questions: Sequence[Question]) -> list[tuple[Passage, ...]]:
        """Return the collections that have no graph yet."""
        return [pool for pool in self._pools(questions) if not self.store.has(pool)]

    def statistics(self, questions: Sequence[Question]) -> dict[str, Json]:
        graphs = [self.store.open(pool) for pool in self._pools(questions)]
        return {"folder": str(self.store.folder), **average_figures(graphs)}

    def _pools(self, questions: Sequence[Question]) -> list[tuple[Passage, ...]]:
        """Return the distinct collections that the method uses, in the questions' order."""
        if getattr(self._experiment.method, "scope", "own") == "corpus":
            return [self.corpus]
        pools = (text_passages(question.passages) for question in questions)
        return list(
            {tuple(passage.id for passage in pool): pool for pool in pools if pool}.values()
        )
