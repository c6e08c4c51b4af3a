"""KGP's document collections (Wang et al., AAAI 2024, §8.1): gold documents and sampled negatives, as passages.

Documents are complete articles if `dataset.corpus` is set: all passages of a title, in order. Otherwise they are the
questions' own paragraphs: gold ones, then sampled distractors, then paragraphs of other questions. A record of a
released file:

    {"question": "Who wrote Birch?", "answer": "Alder", "supports": [["Birch", "Alder wrote it."]],
     "title_chunks": [["Birch", "Alder wrote it."], ["Elm", "Elm is a town."]]}
"""

from __future__ import annotations

import logging
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, islice
from pathlib import Path
from typing import Annotated, TypeVar

from kgqa.datasets.base import FileDataset
from kgqa.datasets.hotpotqa import MISSING
from kgqa.datasets.passages import distinct, distinct_passages
from kgqa.datasets.schema import Gold, LocatedQuestions, parse_record, plain_title
from kgqa.datasets.splitting import Piece, overlapping, split, splitter_identity
from kgqa.errors import ConfigError, DataError
from kgqa.scoring.retrieval import normalize_title
from kgqa.types import JsonObject, Passage, Question
from kgqa.util import jsonio
from kgqa.util.settings import NotIdentity, Setting
from kgqa.util.validators import Count

T = TypeVar("T")

RELEASED = "https://github.com/YuWVandy/KG-LLM-MDQA"
# documents from which all questions' negatives are sampled, which bounds the memory
RESERVOIR = 2000
WORDS = re.compile(r"\w+")

log = logging.getLogger(__name__)


class KgpRecord(Gold):
    question: str
    # title and text of each passage
    title_chunks: tuple[tuple[str, str], ...]
    supports: tuple[tuple[str, str], ...]  # title and sentence


@dataclass(frozen=True)
class KgpCollections(FileDataset):
    """Questions of a released `test_docs.json`, each with the passages of its twelve documents. An id is its position.

    A supporting sentence that is no passage is in `support` as "missing:<title>".
    """

    @property
    def remedy(self) -> str:
        return f"get the authors' file from {RELEASED}"

    def records(self, file: Path) -> LocatedQuestions:
        for number, (where, raw) in enumerate(jsonio.stream_records(file)):
            record = parse_record(KgpRecord, raw, where)
            passages = tuple(distinct(_passage(title, text) for title, text in record.title_chunks))
            ids, support = (
                {passage.id for passage in passages},
                [_passage(*pair) for pair in record.supports],
            )
            question = Question(
                id=str(number),
                text=record.question,
                answers=record.golds(where),
                passages=passages,
                support=frozenset(
                    gold.id if gold.id in ids else MISSING + gold.title for gold in support
                ),
                support_titles=record.gold_titles(title for title, _ in record.supports),
            )
            yield where, question


def _passage(title: str, text: str) -> Passage:
    return Passage.of(plain_title(title), text.strip())


@dataclass(frozen=True)
class Document:
    """Passages of one title, and the shorter passages into which they are split."""

    paragraphs: tuple[Passage, ...]
    passage_size: int

    @property
    def title(self) -> str:
        return self.paragraphs[0].title

    @cached_property
    def text(self) -> str:
        return "\n\n".join(paragraph.text for paragraph in self.paragraphs)

    @cached_property
    def pieces(self) -> list[Piece]:
        return split(self.text, self.passage_size)

    @cached_property
    def passages(self) -> list[Passage]:
        return [Passage.of(self.title, piece.text) for piece in self.pieces]

    def passages_with(self, part: str) -> list[Passage]:
        """Return the passages with some of `part`; if the text does not contain it, the one that shares most words."""
        if positions := overlapping(self.pieces, self.text, part):
            return [self.passages[position] for position in positions]
        words = set(WORDS.findall(part.lower()))
        shared = [
            len(words.intersection(WORDS.findall(passage.text.lower())))
            for passage in self.passages
        ]
        return [self.passages[shared.index(max(shared))]] if any(shared) else []


@dataclass(frozen=True)
class Collections:
    """The questions of a dataset with the split collections as `passages`, documents in a seeded random order.

    `support`: the passages with supporting sentences, or all passages of the gold paragraphs if the dataset names no
    sentences. If the article does not contain the sentence or paragraph, it is the passage that shares most words with
    it. A pinned passage is one of the gold documents, and no longer pinned. Gold that is not found stays in `support`
    as "missing:<title>".
    """

    documents: Annotated[Count, Setting("Documents per question.", paper="Table 3")] = 12
    passage_size: Annotated[
        Count, Setting("Maximum characters per passage, which ends at a sentence.", paper="§8.1")
    ] = 250
    seed: Annotated[
        int,
        Setting("Random seed of the negatives and of the order of documents.", ours="our choice"),
    ] = 0
    dataset: Annotated[FileDataset, NotIdentity("what it loads has its corpus")] = field(
        kw_only=True
    )

    def __post_init__(self) -> None:
        dataset: object = self.dataset
        if not isinstance(dataset, FileDataset) or isinstance(dataset, KgpCollections):
            name = getattr(dataset, "name", dataset)
            raise ConfigError(
                f"collection: dataset={name} has collections already. Leave collection= out, or set it to null"
            )

    @property
    def source(self) -> str:
        """Return the source of the documents, for the report."""
        return (
            "the questions' own paragraphs"
            if self.dataset.corpus is None
            else "whole articles of dataset.corpus"
        )

    def loads(self) -> JsonObject:
        """Return the versions of the splitter and of the corpus, but not the questions."""
        return {"splitter": splitter_identity(), "corpus": dict(self.dataset.corpus_identity())}

    def corpus_identity(self) -> JsonObject:
        settings = {
            "documents": self.documents,
            "passage_size": self.passage_size,
            "seed": self.seed,
        }
        return {**settings, **self.loads(), "questions": self.dataset.sha256}

    def passages(self) -> Iterator[Passage]:
        """Yield the passages of all collections, each once."""
        questions = self.collect(list(self.dataset.questions()))
        return distinct_passages(questions)

    def collect(self, questions: Sequence[Question]) -> Iterator[Question]:
        """Yield these questions with their collections, one after the other.

        Raises:
            DataError: a question has neither passages nor gold pages in `dataset.corpus`.
        """
        source = (
            _Articles.of(self, questions) if self.dataset.corpus is not None else _Paragraphs(self)
        )
        wanted = self.documents
        missing = few = 0
        for question in questions:
            gold, support = source.gold(question)
            draw = random.Random(f"{self.seed} {question.id}")  # noqa: S311 - a sample, no secret
            documents = [
                *gold,
                *islice(source.negatives(question, draw), max(wanted - len(gold), 0)),
            ]
            draw.shuffle(documents)
            missing += any(id_.startswith(MISSING) for id_ in support)
            few += len(documents) < wanted
            yield replace(
                question,
                passages=tuple(
                    distinct(passage for document in documents for passage in document.passages)
                ),
                support=support,
                pinned=(),
                facts=(),
                decomposition=tuple(replace(hop, passage_id="") for hop in question.decomposition),
            )
        for count, what in (
            (missing, "lack a gold document"),
            (few, f"have fewer than {wanted} documents"),
        ):
            if count:
                log.warning("collections: %d of %d questions %s", count, len(questions), what)


@dataclass(frozen=True)
class _Paragraphs:
    """Every paragraph is a document."""

    collections: Collections

    def gold(self, question: Question) -> tuple[list[Document], frozenset[str]]:
        """Return the gold documents and the support of the question."""
        if not (question.passages or question.pinned):
            raise DataError(
                f"question {question.id} came without passages. Name a file of articles: dataset.corpus=FILE"
            )
        gold = list(map(self._document, _gold_paragraphs(question)))
        support = {
            id_ for document in gold for id_ in _support(document, document.paragraphs, question)
        }
        return gold, frozenset(
            support | {id_ for id_ in question.support if id_.startswith(MISSING)}
        )

    def negatives(self, question: Question, draw: random.Random) -> Iterator[Document]:
        pinned = {passage.id for passage in question.pinned}
        own = [p for p in dict.fromkeys(question.passages) if p.id not in question.support | pinned]
        yield from map(self._document, draw.sample(own, len(own)))
        titles = {
            normalize_title(passage.title) for passage in (*question.passages, *question.pinned)
        }
        titles |= {normalize_title(title) for title in question.support_titles}
        others = [
            document
            for document in self._reservoir
            if normalize_title(document.title) not in titles
        ]
        yield from draw.sample(others, len(others))

    @cached_property
    def _reservoir(self) -> list[Document]:
        sampled = _sample(self.collections.dataset.passages(), self.collections.seed)
        return [self._document(paragraph) for paragraph in sampled]

    def _document(self, paragraph: Passage) -> Document:
        return Document((paragraph,), self.collections.passage_size)


@dataclass(frozen=True)
class _Articles:
    """All passages of a title are a document."""

    by_title: Mapping[str, Document]
    reservoir: Sequence[str]
    passage_size: int

    @classmethod
    def of(cls, collections: Collections, questions: Iterable[Question]) -> _Articles:
        """Read the corpus twice: for the titles to sample from, then for the articles that are needed."""
        titles = (
            title
            for title, _ in groupby(
                normalize_title(passage.title) for passage in collections.dataset.passages()
            )
        )
        reservoir = list(dict.fromkeys(_sample(titles, collections.seed)))
        needed: dict[str, list[Passage]] = {title: [] for title in reservoir}
        for question in questions:
            needed |= {title: [] for title in _gold_titles(question)}
        for passage in collections.dataset.passages():
            if (title := normalize_title(passage.title)) in needed:
                needed[title].append(passage)
        size = collections.passage_size
        return cls(
            {t: Document(tuple(articles), size) for t, articles in needed.items() if articles},
            reservoir,
            size,
        )

    def gold(self, question: Question) -> tuple[list[Document], frozenset[str]]:
        """Return the same. The question's own paragraph replaces an article that the corpus lacks."""
        own = defaultdict[str, list[Passage]](list)
        for passage in _gold_paragraphs(question):
            own[normalize_title(passage.title)].append(passage)
        documents, support = [], set[str]()
        for title, name in _gold_titles(question).items():
            paragraphs = tuple(own[title])
            document = self.by_title.get(title) or (
                Document(paragraphs, self.passage_size) if paragraphs else None
            )
            if document is None:
                support.add(MISSING + name)
            else:
                documents.append(document)
                support |= _support(document, paragraphs, question)
        return documents, frozenset(support)

    def negatives(self, question: Question, draw: random.Random) -> Iterator[Document]:
        gold = _gold_titles(question)
        others = [title for title in self.reservoir if title not in gold]
        return (self.by_title[title] for title in draw.sample(others, len(others)))


def _support(document: Document, gold: Iterable[Passage], question: Question) -> set[str]:
    """Return ids of the document's passages with the gold sentences of these paragraphs, or with the paragraphs."""
    facts = defaultdict[str, list[str]](list)
    for id_, sentence in question.facts:
        facts[id_].append(sentence)
    parts = (part for paragraph in gold for part in facts.get(paragraph.id, [paragraph.text]))
    return {passage.id for part in parts for passage in document.passages_with(part)}


def _gold_paragraphs(question: Question) -> list[Passage]:
    """Return the question's own gold and pinned paragraphs, each once, in their order."""
    own = distinct((*question.passages, *question.pinned))
    return [
        passage for passage in own if passage.id in question.support or passage in question.pinned
    ]


def _gold_titles(question: Question) -> dict[str, str]:
    """Return titles of gold and pinned pages by their normalized forms, in a fixed order."""
    gold = [passage.title for passage in question.passages if passage.id in question.support]
    titles = [
        *(passage.title for passage in question.pinned),
        *gold,
        *sorted(question.support_titles),
    ]
    return {normalize_title(title): title for title in reversed(titles)}


def _sample(items: Iterable[T], seed: int) -> list[T]:
    """Return at most `RESERVOIR` of the items, each as likely as any other (Vitter's algorithm R)."""
    draw = random.Random(seed)  # noqa: S311 - a sample, no secret
    sample: list[T] = []
    for count, item in enumerate(items):
        if count < RESERVOIR:
            sample.append(item)
        elif (index := draw.randrange(count + 1)) < RESERVOIR:
            sample[index] = item
    return sample
