"""`kgqa ask`: questions put to somebody's own documents, one after the other, with models and index kept."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kgqa.artefacts.trace import TracedQuestion
from kgqa.calls import Search
from kgqa.datasets.documents import KINDS, Documents
from kgqa.datasets.given import PutToDocuments
from kgqa.errors import ConfigError, DataError
from kgqa.experiment.config import parts
from kgqa.experiment.config.overrides import override_group, override_key, override_values, spelt
from kgqa.experiment.machine.availability import with_engines
from kgqa.experiment.machine.local_model import best_here, said
from kgqa.experiment.prepare.indexes import corpus_index
from kgqa.experiment.run.asking import Heard, answer_given
from kgqa.experiment.run.checking import check
from kgqa.experiment.session.engines import Pool
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.session import Session
from kgqa.report.asked import Asked, asked_page
from kgqa.report.steps import steps_of
from kgqa.runtime.display import Display
from kgqa.storage import digest, outputs, replace_with_parts
from kgqa.types import Passage, Question

PASSAGE_SIZE = 500  # characters: a paragraph, as TRACE's passages are; conf/dataset/folder.yaml has KGP's 250
OF_RUNS = (
    "collection", "judge", "tracker", "limit", "sample", "ids", "name", "dry_run", "profile", "fail_above",
)  # fmt: skip
OF_DOCUMENTS = ("dataset.kinds", "dataset.passage_size", "dataset.family")
SLUG = 40  # letters of a question in its page's name
BEGINNING = 60  # letters of a passage where it is listed


@dataclass(frozen=True)
class Told:
    """An answered question. `seconds`: from the question to the answer."""

    asked: Asked
    passages: tuple[Passage, ...]  # that the question came with; of a method that searches for itself none
    page: Path
    seconds: float


@dataclass(frozen=True)
class Asker:
    """One configuration and one collection of documents, to which questions are put one by one; models stay loaded.

    A method that searches for itself does so in all of them. One that reads what its question comes with is given the
    `most` passages that the retriever finds best, so that triples are extracted of these alone.
    """

    experiment: Experiment  # of no questions
    documents: Documents
    most: int
    display: Display
    pool: Pool = field(default_factory=Pool)

    @classmethod
    def of(cls, places: Sequence[Path], overrides: Sequence[str], most: int, display: Display) -> Asker:
        """Compose, choose a model if none is named, and read the documents.

        Raises:
            UsageError: something is wrong with a key, a value or a place, or no document can be read.
        """
        for override in overrides:
            _refuse_of_runs(override)
        words = [*_defaults(overrides), *overrides]
        if preset := best_here(words):
            words.append(f"model={preset.name}")
            display.line(said(preset))
        experiment = Experiment.of(with_engines(words))
        dataset = experiment.config["dataset"]
        parts.dataset(dataset)  # its keys are checked by what they are made for
        documents = Documents(tuple(places), tuple(dataset["kinds"]), dataset["passage_size"])
        asker = cls(experiment, documents, most, display)
        asker._check()
        return asker

    def ask(self, question: str, heard: Heard) -> Told:
        """Answer it and write its page.

        Raises:
            UsageError: nothing was found, or the page cannot be written.
            EngineError: a model went away, or more than 5 % of the passages have no triples.
        """
        started = time.monotonic()
        passages = self._passages(question)
        with self._session(question, passages) as session:
            (traced,) = answer_given(session, self.display, heard)
        seconds = time.monotonic() - started
        asked = Asked(traced, steps_of(traced, self.documents), self._about(traced, seconds))
        return Told(asked, passages, self._written(question, asked), seconds)

    def close(self) -> None:
        self.pool.close()

    def tell_left_out(self) -> None:
        """Say which files could not be read, if any."""
        if unreadable := self.documents.unreadable:
            names = ", ".join(file.name for file in unreadable)
            of = len(self.documents.files)
            self.display.line(f"left out: {len(unreadable)} of {of} files could not be read: {names}", alarm=True)

    def _check(self) -> None:
        """Whatever would keep any question from its answer is said now."""
        if not self.experiment.asks_models:
            name = self.experiment.name("method")
            raise ConfigError(f"method={name}: answers nothing; choose another, e.g. method=trace")
        files, passages = self.documents.files, tuple(self.documents.passages())
        for reason in self.documents.unreadable.values():
            self.display.line(f"left out: {reason}", alarm=True)
        read = len(files) - len(self.documents.unreadable)
        self.display.line(f"documents: {read} {'file' if read == 1 else 'files'}, {len(passages):,} passages to search")
        with self._session("", passages[:1]) as session:
            check(session)

    def _passages(self, question: str) -> tuple[Passage, ...]:
        """Those the question comes with; all where the method chooses among them, none where it searches."""
        uses = self.experiment.method.uses
        if "search" in uses:
            with self._session(question, ()) as session, corpus_index(session, self.display):
                return ()
        if uses & {"pool", "graph"}:
            return self.documents.collection
        found = every = tuple(self.documents.passages())
        if len(every) > self.most:
            with self._session(question, ()) as session, corpus_index(session, self.display) as index:
                (found,) = index.search([Search(question, self.most)])
        if not found:
            raise DataError(f"{question!r}: not a word of it stands in these documents; ask in their words")
        self.display.line(f"passages: {len(found)} of {len(every):,}")
        for passage in found:
            self.display.line(f"  {self.documents.where(passage)}  {_beginning(passage.text)}")
        return found

    def _session(self, question: str, passages: tuple[Passage, ...]) -> Session:
        asked = Question("asked", question, (), passages)
        return Session(replace(self.experiment, given=PutToDocuments((asked,), self.documents)), self.pool)

    def _about(self, traced: TracedQuestion, seconds: float) -> list[tuple[str, str]]:
        experiment, documents = self.experiment, self.documents
        named = [(group, experiment.choices.get(group, "")) for group in ("method", "model", "engine", "retriever")]
        read = [str(file) for file in documents.files.values() if file not in documents.unreadable]
        asked = [call for call in traced.calls if call.usage]
        return [
            *((group, name) for group, name in named if name),
            ("settings", " ".join(experiment.overrides)),
            ("documents", ", ".join(read)),
            *(("left out", reason) for reason in documents.unreadable.values()),
            ("seconds", f"{seconds:.1f}"),
            ("calls of models", f"{len(asked):,}, {sum(call.cached for call in asked):,} answered before"),
        ]

    def _written(self, question: str, asked: Asked) -> Path:
        """The page: `out=`, else a place named after the question; asked again the same way it is replaced."""
        if out := self.experiment.settings.out:
            return replace_with_parts(Path(out), asked_page(asked))
        name = "-".join(re.findall(r"[a-z0-9]+", question.lower()))[:SLUG].strip("-") or "question"
        asked_how = digest([question, list(self.experiment.overrides), self.documents.identity()], 8)
        return replace_with_parts(outputs() / "asked" / f"{name}-{asked_how}.html", asked_page(asked))


def _defaults(overrides: Sequence[str]) -> list[str]:
    """What holds unless a person says otherwise; of TRACE the values of experiment=ask, for an answer in minutes."""
    named = override_values(overrides)
    words = ["dataset=folder", spelt("dataset.kinds", list(KINDS)), f"dataset.passage_size={PASSAGE_SIZE}"]
    if named.get("method", "trace") == "trace" and "experiment" not in named:
        words.append("experiment=ask")
    return [*words, "kg.head=any"]  # a file's name is seldom what its passages are about


def _refuse_of_runs(override: str) -> None:
    key = override_key(override)
    if override_group(override) in OF_RUNS or (override_group(override) == "dataset" and key not in OF_DOCUMENTS):
        raise ConfigError(f"{override}: is of runs over questions with known answers; kgqa ask takes no {key}=")


def _beginning(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= BEGINNING else f"{line[: BEGINNING - 1]}…"
