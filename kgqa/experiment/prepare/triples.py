"""The offline half of a run: triples of every passage, extracted once and kept."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

from kgqa.calls import Program
from kgqa.errors import DataError
from kgqa.experiment.session.runner import Runner
from kgqa.experiment.session.session import Session
from kgqa.kg.extraction import ROLE
from kgqa.kg.graph import graph_statistics, too_many_failed
from kgqa.kg.parsing import Extraction
from kgqa.kg.store import TripleStore, store_folder
from kgqa.prompting import template_hash
from kgqa.runtime.costs import Ledger
from kgqa.runtime.display import Display
from kgqa.types import Json, Passage, Question
from kgqa.util.fs import outputs, text_digest
from kgqa.util.redaction import describe_error


class TripleBuilder:
    """The triples of one dataset under one extractor: addressed by template, demonstrations, model and decoding."""

    def __init__(self, session: Session) -> None:
        self.extractor = session.experiment.extractor
        self._session = session
        dataset, model = session.experiment.name("dataset"), session.experiment.name("model")
        self._command = f"kgqa kg build dataset={dataset} model={model}"
        built_with = self._build_settings()
        self.store = TripleStore(store_folder(outputs() / "kg", dataset, built_with), built_with)

    def _build_settings(self) -> dict[str, Json]:
        node, elsewhere = self._session.experiment.config["kg"], ("_target_", "few_shot", "require_existing")
        ranks = "demonstrations_ranker" in self.extractor.uses
        return {
            "template": template_hash(self.extractor.template),
            "demonstrations": text_digest(repr(self.extractor.few_shot), 16),
            "decoding": {key: value for key, value in node.items() if key not in elsewhere},
            "engine": dict(self._session.engines(ROLE).identity()),
            "ranker": dict(self._session.ranker("demonstrations_ranker").identity()) if ranks else None,
        }

    def extract(self, questions: Sequence[Question], display: Display) -> Ledger:
        """Extract what is missing for these questions' passages, and give what it cost.

        Raises:
            DataError: triples are missing and `kg.require_existing` forbids to extract them.
            EngineError: more than 5 % of the passages failed.
        """
        lacking = sum(1 for _ in self.store.missing(distinct_passages(questions)))
        if not lacking:
            return Ledger()
        if self._session.experiment.settings.require_existing:
            count = sum(1 for _ in distinct_passages(questions))
            raise DataError(
                f"kg.require_existing=true: no triples for {lacking} of {count} passages in {self.store.folder}; "
                f"run: {self._command}"
            )
        failed: list[Extraction] = []
        missing = self.store.missing(distinct_passages(questions))
        with self._session.runner() as runner, display.stage("triples", lacking, runner.ledger) as stage:
            for extraction in self.extractions(runner, missing, stage.record):
                if extraction.error is None:
                    self.store.add(extraction)
                else:
                    failed.append(extraction)
                stage.finish(failed=extraction.error is not None)
        if error := too_many_failed(failed, lacking):
            raise error
        self.store.add_all(failed)
        return runner.ledger

    def extractions(
        self, runner: Runner, passages: Iterable[Passage], recorded: Callable[[], None] = lambda: None
    ) -> Generator[Extraction, None, None]:
        """Yield each passage's extraction as it is finished; one that failed has its error and no completion.

        Passages are taken as there is room for them.
        """
        titles: dict[str, str] = {}  # of those under way

        def programs() -> Iterator[tuple[str, Program[Extraction]]]:
            for passage in passages:
                titles[passage.id] = passage.title
                yield passage.id, self.extractor.extract(passage)

        for ended in runner.run(programs(), recorded):
            title = titles.pop(ended.key)
            if isinstance(ended.result, Exception):
                error = describe_error(ended.result)
                yield Extraction(ended.key, title, "", error=error)
            else:
                yield ended.result

    def statistics(self, questions: Sequence[Question]) -> dict[str, Json]:
        """Return table 5's figures over these questions, and what the parser had to skip."""
        graphs = ([t for p in question.passages for t in self.store.triples(p)] for question in questions)
        means = graph_statistics(graphs)
        passages = distinct_passages(questions)
        return {
            "folder": str(self.store.folder),
            "entities_per_question": means.entities,
            "triples_per_question": means.triples,
            "density_percent": means.density,
            **self.store.counts(passages),
        }


def distinct_passages(questions: Iterable[Question]) -> Iterator[Passage]:
    """Yield each once, one after another: of ten thousand questions they are too many for a list."""
    seen = set[str]()
    for question in questions:
        for passage in question.passages:
            if passage.id not in seen:
                seen.add(passage.id)
                yield passage
