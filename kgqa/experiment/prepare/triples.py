"""The triples of a run's passages: extracted with cached calls, or imported from a file.

A run makes the calls of all its passages before the first question, as `kgqa kg build` does. Then each `Triples` of a
question repeats those of its passage, and the call cache answers them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice

from kgqa.cache.stored import StoredCalls
from kgqa.calls import Program, Triples, gather
from kgqa.config.overrides import override_key
from kgqa.config.run_keys import REQUIRE_EXISTING
from kgqa.datasets.passages import distinct_passages
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.session import Inputs, Runner, Session
from kgqa.kg.exchange import ImportedTriples, ReadPassages
from kgqa.kg.extraction import ExtractedTriples, Extraction, Extractor, parse_triples
from kgqa.kg.graph import GraphSize, graph_statistics, too_many_failed
from kgqa.runtime.costs import Ledger
from kgqa.runtime.display import Display
from kgqa.types import Json, Passage, Question
from kgqa.util.redaction import describe_error

# distinct ones; read again at each call, so that none stays in memory
Passages = Callable[[], Iterable[Passage]]
SUMS = ("passages", "failed", "empty", "triples", "malformed", "prompt_tokens", "output_tokens")
READ_TOGETHER = 1_000  # passages in memory


def run_extractions(
    runner: Runner, extractor: Extractor, passages: Iterable[Passage]
) -> Generator[tuple[Passage, Extraction | Exception], None, None]:
    """Yield each passage with its extraction, or with what ended it, as they finish."""
    opened: dict[str, Passage] = {}

    def programs() -> Iterator[tuple[str, Program[Extraction]]]:
        for passage in passages:
            opened[passage.id] = passage
            yield passage.id, extractor.extract(passage)

    for ended in runner.run(programs()):
        yield opened.pop(ended.key), ended.result


def request_triples(
    session: Session, passages: Passages, display: Display, cache: StoredCalls | None = None
) -> tuple[ExtractedTriples, Ledger]:
    """Make the calls that extract all passages, and return their answers and their cost.

    cache: has all replies. None: new calls are made.
    """
    triples = ExtractedTriples(session.experiment.extractor)
    sums, flags = Counter(dict.fromkeys(SUMS, 0)), Counter[str]()
    count = sum(1 for _ in passages())
    with (
        session.runner(cache=cache) as runner,
        display.stage("passages", count, runner.ledger) as stage,
    ):
        for passage, extraction in run_extractions(runner, triples.extractor, passages()):
            sums["passages"] += 1
            if isinstance(extraction, Exception):
                triples.failed[passage.id] = f"{passage.title!r}: {describe_error(extraction)}"
                sums.update(failed=1, empty=1)
            else:
                parsed = parse_triples(extraction.completion, passage)
                sums.update(
                    empty=not parsed.triples,
                    triples=len(parsed.triples),
                    malformed=parsed.malformed,
                    prompt_tokens=extraction.prompt_tokens,
                    output_tokens=extraction.output_tokens,
                )
                flags.update(extraction.flags)
            stage.finish(failed=isinstance(extraction, Exception))
    triples.figures = {**sums, **dict(sorted(flags.items()))}
    return triples, runner.ledger


def extract_all(
    session: Session, passages: Passages, display: Display, *, new_calls: bool = True
) -> tuple[ExtractedTriples, Ledger]:
    """Make the calls that extract all passages, and return their answers and their cost.

    Raises:
        DataError: a passage has no triples, and `new_calls` does not allow to extract them.
        EngineError: more than 5 % of the passages failed. The replies of the others are in the call cache.
    """
    if new_calls:
        triples, ledger = request_triples(session, passages, display)
        if error := too_many_failed(list(triples.failed.values()), triples.figures["passages"]):
            raise error
        return triples, ledger
    with closing(StoredCalls(session.cache.path.parent)) as stored:
        triples, ledger = request_triples(session, passages, display, stored)
    if triples.failed:
        count = f"{len(triples.failed):,} of {triples.figures['passages']:,} passages"
        raise _explain_missing(session, f"{count}, first {next(iter(triples.failed.values()))}")
    return triples, ledger


def _explain_missing(session: Session, passages: str) -> DataError:
    """Return the error of passages without triples, with the command that extracts them."""
    overrides = [
        each for each in session.experiment.overrides if override_key(each) != REQUIRE_EXISTING
    ]
    key = f"{REQUIRE_EXISTING}=true: " if session.experiment.settings.require_existing else ""
    command = " ".join(["kgqa kg build", *overrides])
    return DataError(f"{key}no triples in {session.cache.path} for {passages}. Run: {command}")


def _check_imported(
    session: Session, triples: ImportedTriples, passages: Passages, display: Display
) -> None:
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
        raise DataError(
            f"kg=imported: {line}. Was it made for dataset={experiment.name('dataset')}?"
        )
    if experiment.settings.require_existing:
        raise DataError(
            f"kg.require_existing=true: {line}. Import the triples of all passages, or set it to false"
        )
    display.line(f"{line}: they have no triples", alarm=True)


def prepare_triples(
    session: Session, questions: Sequence[Question], display: Display, *, new_calls: bool
) -> tuple[ExtractedTriples | ImportedTriples, Ledger]:
    """Return what answers `Triples`, and the cost of the new calls for it. Raises as `extract_all`."""

    def passages() -> Iterator[Passage]:
        return distinct_passages(questions)

    if imported := session.experiment.triple_file:
        _check_imported(session, imported, passages, display)
        return imported, Ledger()
    return extract_all(session, passages, display, new_calls=new_calls)


def describe_triples(
    triples: ExtractedTriples | ImportedTriples,
    graphs: Sequence[GraphSize],
    questions: Sequence[Question],
) -> dict[str, Json]:
    """Return the figures of TRACE's Table 5, and what the parser skipped or the file lacks."""
    figures: dict[str, Json] = dict(graph_statistics(graphs))
    if isinstance(triples, ImportedTriples):
        return {
            "imported": str(triples.file),
            **figures,
            **triples.counts(distinct_passages(questions)),
        }
    return {**figures, **triples.figures}


def measure_graphs(
    session: Session, triples: ExtractedTriples | ImportedTriples
) -> list[GraphSize]:
    """Return the size of each question's graph, from existing triples."""

    async def read_graph(question: Question) -> GraphSize:
        every = await gather(*(Triples(passage) for passage in question.passages))
        return GraphSize.of(triple for some in every for triple in some)

    questions = session.experiment.data.questions
    with session.runner(Inputs(triples=triples)) as runner:
        ended = list(runner.run((question.id, read_graph(question)) for question in questions))
    return [each.result for each in ended if isinstance(each.result, GraphSize)]


def read_triples(session: Session, passages: Iterable[Passage]) -> ReadPassages:
    """Yield the passages in order with their existing triples. No model is called.

    Raises:
        DataError: a passage has none.
    """
    if imported := session.experiment.triple_file:
        yield from ((passage, imported.triples(passage)) for passage in passages)
        return
    rest = iter(passages)
    with (
        closing(StoredCalls(session.cache.path.parent)) as stored,
        session.runner(cache=stored) as runner,
    ):
        while some := list(islice(rest, READ_TOGETHER)):
            extracted = {
                passage.id: extraction
                for passage, extraction in run_extractions(
                    runner, session.experiment.extractor, some
                )
            }
            for passage in some:
                extraction = extracted[passage.id]
                if isinstance(extraction, Exception):
                    raise _explain_missing(
                        session, f"{passage.title!r}: {describe_error(extraction)}"
                    )
                yield passage, parse_triples(extraction.completion, passage).triples


def corpus_passages(session: Session) -> Iterator[Passage]:
    """Return the passages of the corpus, `limit` of them."""
    settings = session.experiment.settings
    if settings.ids is not None or settings.sample is not None:
        raise ConfigError(
            "ids, sample: these select questions, not passages of --corpus. Set limit=N for N passages"
        )
    return islice(session.experiment.data.corpus.passages(), settings.limit)
