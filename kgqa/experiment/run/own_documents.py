"""`kgqa ask`: questions put to somebody's own documents, one after the other, with models and index kept."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kgqa.artefacts.asked import KIND, Asked, asked_folder
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
from kgqa.experiment.run.events import Answered, Found, Put, Ready, Shown, Tell
from kgqa.experiment.run.way import Way, extracted
from kgqa.experiment.session.engines import Pool
from kgqa.experiment.session.experiment import Experiment
from kgqa.experiment.session.session import Session
from kgqa.kg.parsing import Extraction, parse_triples
from kgqa.report.asked import asked_page
from kgqa.report.steps import stands_in, steps_of
from kgqa.runtime.display import Display
from kgqa.storage import digest, json_text, replace_file, replace_with_parts
from kgqa.types import Passage, Question

PASSAGE_SIZE = 500  # characters: a paragraph, as TRACE's passages are; conf/dataset/folder.yaml has KGP's 250
OF_RUNS = (
    "collection", "judge", "tracker", "limit", "sample", "ids", "name", "dry_run", "profile", "fail_above",
)  # fmt: skip
OF_DOCUMENTS = ("dataset.kinds", "dataset.passage_size", "dataset.family")
SLUG = 40  # letters of a question in its page's name


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
    tell: Tell
    pool: Pool = field(default_factory=Pool)

    @classmethod
    def of(cls, places: Sequence[Path], overrides: Sequence[str], most: int, display: Display, tell: Tell) -> Asker:
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
        asker = cls(experiment, documents, most, display, tell)
        asker._check()
        return asker

    def ask(self, question: str) -> Answered:
        """Answer it, tell how, keep it and write its page.

        Raises:
            UsageError: nothing was found, or the page cannot be written.
            EngineError: a model went away, or more than 5 % of the passages have no triples.
        """
        started = time.monotonic()
        self.tell(Put(question))
        passages = self._passages(question)
        with self._session(question, passages) as session:
            (traced,) = answer_given(session, self.display, self._heard(passages))
        seconds = time.monotonic() - started
        steps = steps_of(traced, self.documents)
        says_so = stands_in(traced.prediction.answer or "", steps)
        asked = Asked(traced, steps, says_so, tuple(self._about(traced, seconds)))
        answered = self._answered(asked, passages, seconds)
        self.tell(answered)
        return answered

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
        read = len(files) - len(self.documents.unreadable)
        self.tell(Ready(read, len(passages), self._left_out(), **self._named()))
        with self._session("", passages[:1]) as session:
            check(session)

    def _passages(self, question: str) -> tuple[Passage, ...]:
        """Those the question comes with; all where the method chooses among them, none where it searches."""
        if "search" in self.experiment.method.uses:
            with self._session(question, ()) as session, corpus_index(session, self.display):
                return ()
        if self._chooses:
            return self.documents.collection
        found = every = tuple(self.documents.passages())
        if len(every) > self.most:
            with self._session(question, ()) as session, corpus_index(session, self.display) as index:
                (found,) = index.search([Search(question, self.most)])
        if not found:
            raise DataError(f"{question!r}: not a word of it stands in these documents; ask in their words")
        self.tell(Found(tuple(map(self._shown, found)), len(every)))
        return found

    @property
    def _chooses(self) -> bool:
        """Whether the method is given all passages, among which it chooses."""
        return bool(self.experiment.method.uses & {"pool", "graph"})

    def _shown(self, passage: Passage) -> Shown:
        return Shown.of(passage, self.documents.where(passage))

    def _heard(self, passages: Sequence[Passage]) -> Heard:
        by_id = {passage.id: passage for passage in passages}

        def told(extraction: Extraction) -> None:
            passage = by_id[extraction.passage_id]
            self.tell(extracted(passage.id, parse_triples(extraction.completion, passage).triples))

        return Heard(Way(self.experiment.method, self._shown, self.tell), told)

    def _named(self) -> dict[str, str]:
        return {group: self.experiment.choices.get(group, "") for group in ("method", "model", "engine")}

    def _left_out(self) -> dict[str, str]:
        return {str(file): reason for file, reason in self.documents.unreadable.items()}

    def _session(self, question: str, passages: tuple[Passage, ...]) -> Session:
        asked = Question("asked", question, (), passages)
        return Session(replace(self.experiment, given=PutToDocuments((asked,), self.documents)), self.pool)

    def _about(self, traced: TracedQuestion, seconds: float) -> list[tuple[str, str]]:
        experiment, documents = self.experiment, self.documents
        named = {**self._named(), "retriever": experiment.choices.get("retriever", "")}.items()
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

    def _answered(self, asked: Asked, passages: Sequence[Passage], seconds: float) -> Answered:
        """A method that chooses among all passages comes with none: `Found` was not told either."""
        prediction, out = asked.traced.prediction, self.experiment.settings.out
        name = "" if out else self._name(asked.traced.question.text)
        return Answered(
            question=asked.traced.question.text,
            answer=prediction.answer,
            error=prediction.error,
            said_by_a_sentence=asked.says_so,
            steps=asked.steps,
            passages=() if self._chooses else tuple(map(self._shown, passages)),
            **self._named(),
            left_out=self._left_out(),
            seconds=round(seconds, 1),
            page=str(_kept(asked, name) if name else replace_with_parts(Path(out or ""), asked_page(asked))),
            name=name,
            notes=prediction.notes,
        )

    def _name(self, question: str) -> str:
        """After the question; asked again the same way it has the same one, and what is kept of it is replaced."""
        name = "-".join(re.findall(r"[a-z0-9]+", question.lower()))[:SLUG].strip("-") or "question"
        return f"{name}-{digest([question, list(self.experiment.overrides), self.documents.identity()], 8)}"


def _kept(asked: Asked, name: str) -> Path:
    """Its page; beside it lies what the page says, for the viewer."""
    page = replace_with_parts(asked_folder() / f"{name}.html", asked_page(asked))
    replace_file(page.with_suffix(KIND), json_text(asked.json()))
    return page


def _defaults(overrides: Sequence[str]) -> list[str]:
    """What holds unless a person says otherwise; of TRACE the values of experiment=quick, for an answer in minutes."""
    named = override_values(overrides)
    words = ["dataset=folder", spelt("dataset.kinds", list(KINDS)), f"dataset.passage_size={PASSAGE_SIZE}"]
    if named.get("method", "trace") == "trace" and "experiment" not in named:
        words.append("experiment=quick")
    return [*words, "kg.head=any"]  # a file's name is seldom what its passages are about


def _refuse_of_runs(override: str) -> None:
    key = override_key(override)
    if override_group(override) in OF_RUNS or (override_group(override) == "dataset" and key not in OF_DOCUMENTS):
        raise ConfigError(f"{override}: is of runs over questions with known answers; kgqa ask takes no {key}=")
