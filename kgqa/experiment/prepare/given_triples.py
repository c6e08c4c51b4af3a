"""Triples of a run that others made: nothing is extracted, and what the file lacks is counted and told."""

from __future__ import annotations

from collections.abc import Sequence

from kgqa.errors import DataError
from kgqa.experiment.prepare.triples import TripleBuilder, distinct_passages
from kgqa.experiment.session.session import Session
from kgqa.kg.graph import graph_statistics
from kgqa.kg.imported import ImportedFile, ImportedTriples
from kgqa.runtime.costs import Ledger
from kgqa.runtime.display import Display
from kgqa.types import Json, Question


class GivenTriples:
    """Imported triples, with the interface of `TripleBuilder`."""

    def __init__(self, session: Session, chosen: ImportedTriples) -> None:
        self.store = ImportedFile(chosen.path)
        self._session = session

    def extract(self, questions: Sequence[Question], display: Display) -> Ledger:
        """Report how many passages the file has not. They have no triples then.

        Raises:
            DataError: it has none of them; or `kg.require_existing` forbids to go on without some.
        """
        count = sum(1 for _ in distinct_passages(questions))
        lacking = self.store.missing(distinct_passages(questions))
        if not lacking:
            return Ledger()
        said = f"{len(lacking):,} of {count:,} passages are not in {self.store.file}"
        first = f"the first {lacking[0].title or lacking[0].text[:40]!r}"
        if len(lacking) == count:
            raise DataError(
                f"kg=imported: {said}, {first}; is it of dataset={self._session.experiment.name('dataset')}?"
            )
        if self._session.experiment.settings.require_existing:
            raise DataError(
                f"kg.require_existing=true: {said}, {first}; import the triples of all passages, or set it to false"
            )
        display.line(f"{said}, {first}: they have no triples", alarm=True)
        return Ledger()

    def statistics(self, questions: Sequence[Question]) -> dict[str, Json]:
        """Return the figures of `TripleBuilder.statistics`, with passages missing from the file instead of skipped
        lines.
        """
        means = graph_statistics(
            [t for p in question.passages for t in self.store.triples(p)] for question in questions
        )
        return {
            "folder": str(self.store.file),
            "entities_per_question": means.entities,
            "triples_per_question": means.triples,
            "density_percent": means.density,
            **self.store.counts(distinct_passages(questions)),
        }


def triples_of(session: Session) -> TripleBuilder | GivenTriples:
    """Return where a run's triples come from, as `kg=` says."""
    chosen = session.experiment.triples
    return GivenTriples(session, chosen) if isinstance(chosen, ImportedTriples) else TripleBuilder(session)
