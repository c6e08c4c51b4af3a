"""The passage graphs of a run's collections: found, built by the run itself, or ahead by `kgqa graph build`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from kgqa.errors import ConfigError, nearest
from kgqa.experiment.config.composing import groups
from kgqa.methods.steps.structure import ordinary
from kgqa.report.progress import stage
from kgqa.retrieval.graphs.store import Built, GraphStore, averages
from kgqa.storage import outputs
from kgqa.types import Json, Passage, Question

if TYPE_CHECKING:
    from kgqa.experiment.session.session import Session

LARGEST = 50_000  # passages of a corpus that is linked as a whole: all are held in memory
# of the paper's Table 3: documents, questions, passages, edges, words a passage, density
PAPER: dict[str, tuple[float, ...]] = {
    "hotpotqa": (12, 500, 715.22, 70420.68, 37.55, 0.23),
    "iirc": (12, 477, 1120.55, 143136.17, 37.24, 0.20),
    "2wiki": (12, 500, 294.19, 19235.15, 37.24, 0.27),
    "musique": (12, 500, 748.04, 97931.28, 38.56, 0.29),
}


class PassageGraphs:
    """The graphs of one session's questions under its `graph`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._corpus: tuple[Passage, ...] | None = None
        self.store = GraphStore(outputs() / "graphs", session.name("graph"), session.passage_graph, self.corpus)

    def corpus(self) -> tuple[Passage, ...]:
        """The ordinary passages of the data set's corpus; read when a call has no pool.

        Raises:
            ConfigError: there are too many to link.
        """
        if self._corpus is None:
            some = tuple(islice(self._session.dataset.passages(), LARGEST + 1))
            if len(some) > LARGEST:
                raise ConfigError(f"the corpus has more than {LARGEST:,} passages; choose method.scope=own")
            self._corpus = ordinary(some)
        return self._corpus

    def build(self, questions: Sequence[Question]) -> int:
        """Build the graphs that are missing for these questions; gives how many were."""
        missing = [pool for pool in self.pools(questions) if not self.store.has(pool)]
        if missing:
            with stage("passage graphs", len(missing), self._session.console) as shown:
                for pool in missing:
                    self.store.build(pool)
                    shown.finished(failed=False)
        return len(missing)

    def pools(self, questions: Sequence[Question]) -> list[tuple[Passage, ...]]:
        """The distinct collections that the method walks through, in the questions' order."""
        if getattr(self._session.method, "scope", "own") == "corpus":
            return [self.corpus()]
        pools = (ordinary(question.passages) for question in questions)
        return list({tuple(passage.id for passage in pool): pool for pool in pools if pool}.values())

    def graphs(self, questions: Sequence[Question]) -> Iterator[Built]:
        return (self.store.open(pool) for pool in self.pools(questions))

    def statistics(self, questions: Sequence[Question]) -> dict[str, Json]:
        return {"folder": str(self.store.folder), **averages(list(self.graphs(questions)))}


def build_graphs(overrides: Sequence[str]) -> int:
    """`kgqa graph build`: link the collections of a dataset's questions ahead of a run."""
    return _statistics(overrides, build=True)


def graph_statistics(overrides: Sequence[str]) -> int:
    """`kgqa graph stats`: the figures of the paper's Table 3 over the collections whose graphs are built."""
    return _statistics(overrides, build=False)


def _statistics(overrides: Sequence[str], *, build: bool) -> int:
    from kgqa.experiment.session.session import Session

    with Session(overrides) as session:
        if not session.config["choices"]["graph"]:
            raise ConfigError(f"kgqa graph needs a graph=; {nearest('', groups()['graph'])}")
        collections = PassageGraphs(session)
        if build:
            built = collections.build(session.questions)
            session.console.print(f"{built} built, the others were there", highlight=False)
        missing = [pool for pool in collections.pools(session.questions) if not collections.store.has(pool)]
        if missing:
            own = " ".join(overrides)
            raise ConfigError(f"{len(missing)} collections are not linked yet; run: kgqa graph build {own}".rstrip())
        _show(session, collections.statistics(session.questions))
    return 0


def _show(session: Session, figures: dict[str, Any]) -> None:
    from rich.table import Table

    name = session.name("dataset")
    paper = PAPER.get(name)
    title = f"dataset={name} graph={session.name('graph')}, {len(session.questions)} questions: means of a collection"
    table = Table("", "here", *(["KGP, Table 3 (TAGME)"] if paper else []), title=title, title_justify="left")
    published = dict(zip(("documents", "", "passages", "edges", "passage_words", "density"), paper or (), strict=False))
    for key, value in figures.items():
        if key == "folder":
            continue
        shown = "–" if value is None else f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"
        beside = [f"{published[key]:,}" if key in published else ""] if paper else []
        table.add_row(key.replace("_", " "), shown, *beside)
    session.console.print(table)
    session.console.print(str(figures["folder"]), highlight=False, soft_wrap=True)
