"""The offline half of a run: triples of every passage, extracted once and kept."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kgqa.calls import Program
from kgqa.errors import DataError, EngineError
from kgqa.experiment.config.building import build
from kgqa.experiment.session.runner import Workbench
from kgqa.kg.extraction import ROLE, TripleExtractor
from kgqa.kg.parsing import Extraction
from kgqa.kg.statistics import graph_statistics
from kgqa.kg.store import TripleStore, store_folder
from kgqa.prompting import template_hash
from kgqa.report.progress import stage
from kgqa.runtime.costs import Ledger
from kgqa.runtime.scheduler import Record
from kgqa.storage import outputs, text_digest
from kgqa.types import Json, Passage, Question

if TYPE_CHECKING:
    from rich.console import Console

TEMPLATE = "trace/extract"
MAX_FAILED = 0.05  # more failed passages than this, and the graph is no basis for an experiment


class Graph:
    """The triples of one dataset under one extractor: addressed by template, demonstrations, model and decoding."""

    def __init__(self, config: Mapping[str, Any], bench: Workbench) -> None:
        node = {key: value for key, value in config["kg"].items() if key != "offline"}
        self.extractor: TripleExtractor = build(node, "kg")
        self._offline = bool(config["kg"]["offline"])
        self._bench = bench
        self._seed = config["seed"]
        self._width = config["width"]
        self._command = f"kgqa kg build dataset={config['choices']['dataset']} model={config['choices']['model']}"
        built_with = self._built_with(node)
        self.store = TripleStore(store_folder(outputs() / "kg", config["choices"]["dataset"], built_with), built_with)

    def _built_with(self, node: Mapping[str, Any]) -> dict[str, Json]:
        adaptive = self.extractor.demonstrations == "adaptive"
        return {
            "template": template_hash(TEMPLATE),
            "demonstrations": text_digest(repr(self.extractor.demonstrations_from), 16),
            "decoding": {key: value for key, value in node.items() if key not in ("_target_", "demonstrations_from")},
            "engine": dict(self._bench.engines(ROLE).identity()),
            "ranker": dict(self._bench.rankers("ranker").identity()) if adaptive else None,
        }

    def extract(self, questions: Sequence[Question], console: Console) -> Ledger:
        """Extract what is missing for these questions' passages, and give what it cost.

        Raises:
            DataError: triples are missing and `kg.offline` forbids to extract them.
            EngineError: more than 5 % of the passages failed.
        """
        passages = distinct_passages(questions)
        missing = self.store.missing(passages)
        if not missing:
            return Ledger()
        if self._offline:
            raise DataError(
                f"kg.offline=true: no triples for {len(missing)} of {len(passages)} passages in {self.store.folder}; "
                f"run: {self._command}"
            )
        failed: list[Extraction] = []
        with stage("triples", len(missing), console) as shown:
            for extraction in self.extractions(missing, shown.record):
                if extraction.error is None:
                    self.store.add(extraction)
                else:
                    failed.append(extraction)
                shown.finished(failed=extraction.error is not None)
        if error := too_many_failed(failed, len(missing)):
            raise error
        self.store.add_all(failed)
        return shown.ledger

    def extractions(
        self, passages: Iterable[Passage], on_record: Callable[[Record], None]
    ) -> Generator[Extraction, None, None]:
        """Each passage's extraction as it is finished; one that failed has its error and no completion.

        Passages are taken as there is room for them.
        """
        titles: dict[str, str] = {}  # of those under way

        def programs() -> Iterator[tuple[str, Program[Extraction]]]:
            for passage in passages:
                titles[passage.id] = passage.title
                yield passage.id, self.extractor.extract(passage)

        for each in self._bench.run(programs(), on_record, width=self._width, seed=self._seed):
            title = titles.pop(each.key)
            if isinstance(each.result, Exception):
                error = f"{type(each.result).__name__}: {each.result}"
                yield Extraction(each.key, title, "", error=error)
            else:
                yield each.result

    def statistics(self, questions: Sequence[Question]) -> dict[str, Json]:
        """Table 5's figures over these questions, and what the parser had to skip."""
        graphs = [[t for p in question.passages for t in self.store.triples(p)] for question in questions]
        means = graph_statistics(graphs)
        passages = distinct_passages(questions)
        return {
            "folder": str(self.store.folder),
            "entities_per_question": means.entities,
            "triples_per_question": means.triples,
            "density_percent": means.density,
            **self.store.counts(passages),
        }


def too_many_failed(failed: Sequence[Extraction], attempted: int) -> EngineError | None:
    """A few passages may fail: they count as empty and are reported. Above 5 % there is an error to raise."""
    if len(failed) <= MAX_FAILED * attempted:
        return None
    return EngineError(
        f"extraction failed for {len(failed)} of {attempted} passages, first {failed[0].title!r}: {failed[0].error}; "
        "what worked is kept, the same command tries the others again"
    )


def distinct_passages(questions: Sequence[Question]) -> list[Passage]:
    return list({passage.id: passage for question in questions for passage in question.passages}.values())


def extract_and_show(overrides: Sequence[str]) -> int:
    """What is missing of the questions' passages, then the figures of all of it."""
    from kgqa.experiment.session.session import Session

    with Session(overrides) as session:
        graph = session.graph()
        graph.extract(session.questions, session.console)
        graph.store.arrange()
        _write_statistics(graph, session.questions, session.console)
    return 0


def _write_statistics(graph: Graph, questions: Sequence[Question], console: Console) -> None:
    statistics = graph.statistics(questions)
    show_figures(("per question (TRACE, Table 5)", "mean"), statistics, console, f"{len(questions)} questions")
    graph.store.write_statistics({"questions": len(questions), **statistics})


def show_figures(
    columns: tuple[str, str], figures: Mapping[str, Json], console: Console, title: str | None = None
) -> None:
    """A table, and the folder that the figures are about as the last line."""
    from rich.table import Table

    table = Table(*columns, title=title, title_justify="left")
    for key, value in figures.items():
        if key != "folder":
            table.add_row(key.replace("_", " "), f"{value:,.2f}" if isinstance(value, float) else f"{value:,}")
    console.print(table)
    console.print(figures["folder"], highlight=False, soft_wrap=True)
