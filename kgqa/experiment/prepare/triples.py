"""The triples of a run's passages: extracted once and stored, or imported from a file."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice

from kgqa.calls import Program
from kgqa.datasets import corpus
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.session import Runner, Session
from kgqa.identity.component import identity_of
from kgqa.identity.program_code import user_code
from kgqa.kg.exchange import ImportedTriples, StoredTriples
from kgqa.kg.extraction import ROLE
from kgqa.kg.graph import graph_statistics, too_many_failed
from kgqa.kg.store import Extraction, TripleStore, store_folder
from kgqa.prompting import template_hash
from kgqa.runtime.costs import Ledger
from kgqa.runtime.display import Display
from kgqa.runtime.monitor import monitor_work
from kgqa.types import Json, Passage, Question
from kgqa.util.fs import outputs, text_digest
from kgqa.util.redaction import describe_error

Passages = Callable[[], Iterable[Passage]]  # distinct ones; read again at each call, so that none stays in memory
STORED_TOGETHER = 64  # extractions of a commit; those of a kill come from the call cache


class TripleBuilder:
    """Extracts the triples of a dataset. Their folder depends on template, few-shot examples, model and decoding."""

    def __init__(self, session: Session) -> None:
        experiment = session.experiment
        self.session, self.extractor = session, experiment.extractor
        built_with = self._build_settings()
        self.store = TripleStore(store_folder(outputs() / "kg", experiment.name("dataset"), built_with), built_with)

    def _build_settings(self) -> dict[str, Json]:
        node, elsewhere = self.session.experiment.config["kg"], ("_target_", "few_shot", "require_existing")
        ranks = "demonstrations_ranker" in self.extractor.uses
        return {
            "template": "+".join(map(template_hash, self.extractor.templates)),
            "demonstrations": text_digest(repr(self.extractor.few_shot), 16),
            "decoding": {key: value for key, value in node.items() if key not in elsewhere},
            "engine": identity_of(self.session.engines(ROLE)),
            "ranker": identity_of(self.session.ranker("demonstrations_ranker")) if ranks else None,
            **({"code": code} if (code := user_code(type(self.extractor).__module__)) else {}),
        }

    def extract(self, passages: Passages, display: Display) -> Ledger:
        """Extract the missing passages, and return the cost.

        Raises:
            DataError: triples are missing and `kg.require_existing` forbids to extract them.
            EngineError: more than 5 % of the passages failed. The others are stored.
        """
        count = sum(1 for _ in self.store.missing(passages()))
        if not count:
            return Ledger()
        experiment = self.session.experiment
        if experiment.settings.require_existing:
            command = f"kgqa kg build dataset={experiment.name('dataset')} model={experiment.name('model')}"
            raise DataError(
                f"kg.require_existing=true: no triples for {count} of {sum(1 for _ in passages())} passages in "
                f"{self.store.folder}. Run: {command}"
            )
        failed, pending = list[Extraction](), list[Extraction]()
        with self.session.runner() as runner, display.stage("passages", count, runner.ledger) as stage:
            for extraction in self.extractions(runner, self.store.missing(passages())):
                (pending if extraction.error is None else failed).append(extraction)
                stage.finish(failed=extraction.error is not None)
                if len(pending) == STORED_TOGETHER:
                    self.store.add(pending)
                    pending.clear()
        self.store.add(pending)
        if error := too_many_failed(failed, count):
            raise error
        self.store.add(failed)
        return runner.ledger

    def extractions(self, runner: Runner, passages: Iterable[Passage]) -> Generator[Extraction, None, None]:
        """Yield each passage's extraction as it finishes. A failed one has its error and no completion."""
        titles: dict[str, str] = {}  # of those in work

        def programs() -> Iterator[tuple[str, Program[Extraction]]]:
            for passage in passages:
                titles[passage.id] = passage.title
                yield passage.id, self.extractor.extract(passage)

        for ended in runner.run(programs()):
            title = titles.pop(ended.key)
            if isinstance(ended.result, Exception):
                yield Extraction(ended.key, title, "", error=describe_error(ended.result))
            else:
                yield ended.result


def _check_imported(session: Session, triples: ImportedTriples, passages: Passages, display: Display) -> None:
    """Report how many passages are not in the file of triples. They have no triples.

    Raises:
        DataError: none of them is; or some are not, and `kg.require_existing` forbids this.
    """
    missing = triples.missing(passages())
    if not missing:
        return
    experiment, count = session.experiment, sum(1 for _ in passages())
    first = f"the first {missing[0].title or missing[0].text[:40]!r}"
    line = f"{len(missing):,} of {count:,} passages are not in {triples.file}, {first}"
    if len(missing) == count:
        raise DataError(f"kg=imported: {line}. Was it made for dataset={experiment.name('dataset')}?")
    if experiment.settings.require_existing:
        raise DataError(f"kg.require_existing=true: {line}. Import the triples of all passages, or set it to false")
    display.line(f"{line}: they have no triples", alarm=True)


def triples_of(session: Session) -> StoredTriples:
    """Return the triples of a run, as `kg=` says."""
    return session.experiment.triple_file or TripleBuilder(session).store


def extract_missing(session: Session, questions: Sequence[Question], display: Display) -> tuple[StoredTriples, Ledger]:
    """Return the triples of the questions' passages, and the cost of extracting the missing ones."""

    def passages() -> Iterator[Passage]:
        return distinct_passages(questions)

    if imported := session.experiment.triple_file:
        _check_imported(session, imported, passages, display)
        return imported, Ledger()
    builder = TripleBuilder(session)
    return builder.store, builder.extract(passages, display)


def triple_statistics(triples: StoredTriples, questions: Sequence[Question]) -> dict[str, Json]:
    """Return the figures of TRACE's Table 5, and what the parser skipped."""
    graphs = ([each for passage in question.passages for each in triples.triples(passage)] for question in questions)
    return {"folder": triples.place, **graph_statistics(graphs), **triples.counts(distinct_passages(questions))}


def distinct_passages(questions: Iterable[Question]) -> Iterator[Passage]:
    """Yield each passage once. Those of ten thousand questions are too many for a list."""
    return corpus.distinct(passage for question in questions for passage in question.passages)


def corpus_passages(session: Session) -> Iterator[Passage]:
    """Return the passages of the corpus, `limit` of them."""
    settings = session.experiment.settings
    if settings.ids is not None or settings.sample is not None:
        raise ConfigError("ids, sample: these select questions, not passages of --corpus. Set limit=N for N passages")
    return islice(session.experiment.corpus.passages(), settings.limit)


def build_corpus(session: Session, display: Display) -> dict[str, Json]:
    """Extract the passages of the corpus that have no triples yet, and return the figures of all."""
    builder = TripleBuilder(session)

    def passages() -> Iterator[Passage]:
        return corpus_passages(session)

    with monitor_work(display, "kg build", builder.store.folder) as shown:
        builder.extract(passages, shown)
    counts = builder.store.counts(passages())
    return {"folder": builder.store.place, "triples_per_passage": counts["triples"] / counts["passages"], **counts}
