"""The triples of a whole corpus: its passages on disk, cut into shards that any process can extract, then merged.

The folder of a build lies inside the store's and holds the passages that have no triples yet and one file for each
shard that is finished. A shard is what is lost by a kill, apart from the calls, which the call cache keeps.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from kgqa.artifacts.schema import read
from kgqa.errors import ConfigError
from kgqa.experiment.prepare.triples import TripleBuilder
from kgqa.experiment.session.session import Session
from kgqa.kg.graph import too_many_failed
from kgqa.kg.parsing import Extraction
from kgqa.kg.store import TripleStore, extraction_line, read_extractions
from kgqa.retrieval.passages import StoredPassages, store
from kgqa.runtime.display import Display
from kgqa.runtime.monitor import monitor_work
from kgqa.types import Json, Passage
from kgqa.util.fs import (
    AGAIN,
    create_private,
    digest,
    ensure_dir,
    explain_storage_errors,
    has_content,
    lock_file,
    replace_atomically,
    replace_file,
)

AFRESH = "remove its folder and run the same command again, which begins afresh with the triples of the call cache"
MOST_SHARDS = 64  # of a small corpus: enough for workers to end at about the same time
SMALLEST, LARGEST = 16, 2_000  # passages of a shard: a batch; a few minutes on a GPU, many times what it takes at once


@dataclass(frozen=True)
class _Corpus:
    """The manifest of a corpus that is saved next to its passages."""

    passages: int


@dataclass(frozen=True)
class CorpusBuild:
    """The passages of a corpus that are still to be extracted."""

    folder: Path

    @property
    def prepared(self) -> bool:
        return has_content(self._manifest)

    def prepare(self, passages: Iterable[Passage], display: Display) -> None:
        """Write down the passages to extract, which are distinct; nothing if there are none."""
        some = iter(passages)
        first = next(some, None)
        if first is None:
            return
        shutil.rmtree(self.folder / "shards", ignore_errors=True)  # of a build that was killed as it was removed
        with explain_storage_errors(self.folder), display.counting("passages") as advance:
            count = store(chain([first], some), self.folder, lambda number: advance("storing", number, None)).count
            ensure_dir(self.folder / "shards")
            # last: without it some are not there
            replace_file(self._manifest, json.dumps({"passages": count}) + "\n", AGAIN)

    def shards(self) -> list[range]:
        """Return all of them, as places of their passages. They depend on the number of passages alone."""
        count = read(_Corpus, self._manifest, remedy=AFRESH).passages
        size = min(LARGEST, max(SMALLEST, -(-count // MOST_SHARDS)))
        return [range(start, min(start + size, count)) for start in range(0, count, size)]

    def unfinished(self) -> list[range]:
        return [shard for shard in self.shards() if not self._file(shard).exists()]

    def left(self) -> int:
        """Return passages of the shards that are not finished."""
        return sum(map(len, self.unfinished()))

    def passages(self, shard: range) -> list[Passage]:
        with closing(StoredPassages(self.folder)) as stored:
            return stored[shard.start : shard.stop]

    def keep(self, shard: range, extractions: Iterable[Extraction]) -> None:
        """Write a shard; it is there as a whole or not at all."""
        with replace_atomically(self._file(shard)) as fresh, fresh.open("wb") as lines:
            lines.writelines(map(extraction_line, extractions))

    def begin_attempt(self, shard: range) -> int:
        """Count an attempt, the first is 1; on disk, since its process may be killed."""
        with (
            explain_storage_errors(self.folder),
            create_private(self._file(shard).with_suffix(".attempts")).open("ab") as attempts,
        ):
            attempts.write(b".")
            return attempts.tell()

    def forget_attempts(self) -> None:
        for file in (self.folder / "shards").glob("*.attempts"):
            file.unlink()

    def merge(self, kept: TripleStore) -> None:
        """Move every shard into the store, put that in order, and remove this build.

        Raises:
            EngineError: more than 5 % of the passages failed; the others are kept, the next build tries these again.
        """
        shards, failed = self.shards(), []
        for shard in shards:
            extractions = list(read_extractions(self._file(shard)))
            kept.add_all(extraction for extraction in extractions if extraction.error is None)
            failed += [extraction for extraction in extractions if extraction.error is not None]
        error = too_many_failed(failed, sum(map(len, shards)))
        if error is None:
            kept.add_all(failed)
        self._manifest.unlink()  # first: what a kill leaves of the others is no build
        shutil.rmtree(self.folder)
        if error is not None:
            raise error

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Lock the folder, so that no other process builds in it meanwhile; a folder that holds nothing does not
        stay.
        """
        with lock_file(self.folder / ".lock", self._refuse):
            yield
            if not self.prepared:
                shutil.rmtree(self.folder, ignore_errors=True)

    def _refuse(self) -> None:
        raise ConfigError(f"{self.folder}: another kgqa process is building this corpus; wait for it")

    @property
    def _manifest(self) -> Path:
        return self.folder / "manifest.json"

    def _file(self, shard: range) -> Path:
        return self.folder / "shards" / f"{shard.start:09}.jsonl"


Extract = Callable[[Session, TripleBuilder, CorpusBuild, Display], None]  # the shards of a build that are not finished


def build_corpus(session: Session, extract: Extract, display: Display) -> dict[str, Json]:
    """Store, extract, merge, going on where an earlier command stopped; gives what there is then."""
    settings = session.experiment.settings
    if settings.ids is not None or settings.sample is not None:
        raise ConfigError("ids, sample: these are of questions, and --corpus asks for none; limit=N takes N passages")
    builder = TripleBuilder(session)
    build = CorpusBuild(_folder(session, builder.store))
    with monitor_work(display, "kg build", builder.store.folder) as display, build.claimed():
        if not build.prepared:
            build.prepare(builder.store.missing(_corpus(session)), display)
        if build.prepared:
            extract(session, builder, build, display)
            build.merge(builder.store)
    counts = builder.store.counts(_corpus(session))
    figures = {"folder": str(builder.store.folder), "triples_per_passage": counts["triples"] / counts["passages"]}
    builder.store.write_statistics(figures | counts)
    return figures | counts


def extract_here(session: Session, builder: TripleBuilder, build: CorpusBuild, display: Display) -> None:
    """One shard after the other in this process."""
    with session.runner() as runner, display.stage("triples", build.left(), runner.ledger) as stage:

        def told(extractions: Iterable[Extraction]) -> Iterator[Extraction]:
            for extraction in extractions:
                stage.finish(failed=extraction.error is not None)
                yield extraction

        for shard in build.unfinished():
            build.keep(shard, told(builder.extractions(runner, build.passages(shard), stage.record)))


def _corpus(session: Session) -> Iterator[Passage]:
    return islice(session.experiment.dataset.passages(), session.experiment.settings.limit)


def _folder(session: Session, kept: TripleStore) -> Path:
    """Return another limit is another build, so that neither finds the other's passages."""
    experiment = session.experiment
    return kept.folder / f"build-{digest([experiment.dataset.corpus_identity(), experiment.settings.limit], 8)}"
