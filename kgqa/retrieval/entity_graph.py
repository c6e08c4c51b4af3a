"""Retrieval over a graph of entities, sentences and passages, without a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np

from kgqa.protocols import Progress, Query, Rankings, Retriever
from kgqa.retrieval import analysis, sparse
from kgqa.retrieval.composite import Composite, check_scores
from kgqa.retrieval.graphs.entities import LONGEST, WORD, find_capitalized_names
from kgqa.retrieval.graphs.keywords import STOP_WORDS, bare_title
from kgqa.retrieval.pagerank import Damping, compute_pagerank, transition_matrix
from kgqa.retrieval.search import OpenedIndex, Scored, Scores, normalize_scores, rank_found
from kgqa.types import JsonObject, Passage
from kgqa.util.fs import explain_storage_errors
from kgqa.util.sentences import sentences
from kgqa.util.settings import Setting
from kgqa.util.validators import Count, NotNegative, Share

VERSION = 1  # of the graph and its scores
NAMES, TERMS = "names.txt", "terms.txt"
SENTENCES, MENTIONS, TRANSITIONS = "sentences.npz", "mentions.npz", "transitions.npz"
TOLERANCE = 1e-6  # sum of the errors of all probabilities
DIGITS = 12  # of a probability; later ones depend on the order of summation


@dataclass(frozen=True)
class EntityGraph(Composite):
    """Walk from the entities of a query over sentences to other entities, then rank passages by PageRank.

    The idea is LinearRAG's (arXiv 2510.10114): the graph has no relations, so that no model is needed to build it.
    Entities are titles and runs of capitalized words, compared without case. A query without a known entity gets the
    ranking of `passages`. Fields as in conf/retriever/entity_graph.yaml.
    """

    passages: Annotated[
        Retriever,
        Setting(
            "Retriever whose scores count next to the entities': bm25 or a dense one, "
            "retriever@retriever.passages=NAME."
        ),
    ]
    depth: Annotated[
        Count, Setting("Number of passages with a score of `passages`. Other passages have 0.", ours="our choice")
    ] = 1000
    hops: Annotated[
        Count, Setting("Number of steps from entities over sentences to other entities.", ours="which has at most 4")
    ] = 1
    threshold: Annotated[
        Share,
        Setting(
            "Least activation of an entity.", other="LinearRAG's scripts: 0.4 for HotpotQA and 2Wiki, 0.1 for MuSiQue"
        ),
    ] = 0.3
    passage_weight: Annotated[
        NotNegative, Setting("Weight of the passages' scores, next to the entities' activations.", ours="our choice")
    ] = 0.1
    damping: Annotated[
        Damping,
        Setting("Probability to follow an edge instead of restarting.", ours="our choice", other="HippoRAG: 0.5"),
    ] = 0.7

    version: ClassVar[int] = VERSION  # raise it when equal settings give other results

    def __post_init__(self) -> None:
        check_scores(self.passages, "retriever.passages")

    def loads(self) -> JsonObject:
        return {"analysis": analysis.VERSION}

    def build(self, passages: Sequence[Passage], folder: Path, advance: Progress) -> None:
        """Build the graph in memory, about 10 kB per passage."""
        super().build(passages, folder, advance)
        with explain_storage_errors(folder):
            _build_graph(passages, folder)

    def load(self, folder: Path) -> _Graph:
        words = [sparse.load_words(folder / file) for file in (NAMES, TERMS)]
        return _Graph(*words, *(sparse.load_matrix(folder / file) for file in (SENTENCES, MENTIONS, TRANSITIONS)))

    def rank(self, index: OpenedIndex, queries: Sequence[Query]) -> Rankings:
        graph, ranker = index.data, index.finders["passages"]
        wide = ranker.find_scored([replace(query, k=self.depth, among=None) for query in queries])
        return [
            self._rank(graph, query, entities, scored)
            if (entities := graph.entities_of(query.text))
            else ranker.find([query])[0]
            for query, scored in zip(queries, wide, strict=True)
        ]

    def _rank(self, graph: _Graph, query: Query, entities: Sequence[int], scored: Scored) -> list[int]:
        weights = self.passage_weight * normalize_scores(scored, graph.passages)
        reset = np.concatenate([self._activate(graph, query.text, entities), weights])
        scores = compute_pagerank(graph.transitions, reset, self.damping, TOLERANCE)[-graph.passages :]
        return rank_found(scores.round(DIGITS), query)

    def _activate(self, graph: _Graph, query: str, entities: Sequence[int]) -> Scores:
        """Return the activation of each entity, divided by the number of its passages.

        Entities of the query have 1. With each hop, an entity gets the activation of those in the same sentences times
        the similarity of sentence and query, if that is more than it has and at least `threshold`.
        """
        similarity = graph.similarities(query)
        activation = np.zeros(graph.mentions.shape[1])
        activation[entities] = 1
        for _ in range(self.hops):
            spread = graph.mentions.T @ (similarity * (graph.mentions @ activation))
            spread = np.where(spread < self.threshold, 0, np.minimum(spread, 1))
            if (spread <= activation).all():
                break
            activation = np.maximum(spread, activation)
        holders = np.diff(graph.transitions.indptr)[: -graph.passages]  # the number of passages of each entity
        per_passage: Scores = activation / np.maximum(holders, 1.0)
        return per_passage


@dataclass(frozen=True)
class _Graph:
    """The stored graph: names and terms with their numbers, and its matrices."""

    names: dict[str, int]
    terms: dict[str, int]
    sentences: sparse.Matrix  # terms × sentences
    mentions: sparse.Matrix  # sentences × entities
    transitions: sparse.Matrix  # the walk between entities, which come first, and passages

    @property
    def passages(self) -> int:
        return int(self.transitions.shape[0] - self.mentions.shape[1])

    def entities_of(self, text: str) -> list[int]:
        """Return the entities that a text names."""
        return sorted({self.names[name] for name in find_names(text, self.names)})

    def similarities(self, query: str) -> Scores:
        """Return the TF-IDF cosine of the query and each sentence with its title."""
        counts = Counter(self.terms[term] for term in analysis.terms(query) if term in self.terms)
        terms = sorted(counts)
        idf = sparse.idf(self.sentences.shape[1], np.diff(self.sentences.indptr)[terms])
        weights = (1 + np.log([counts[term] for term in terms])) * idf
        similarities: Scores = self.sentences[terms].T @ (weights / (np.linalg.norm(weights) or 1))
        return similarities


def find_names(text: str, known: Container[str]) -> Iterator[str]:
    """Yield the known names in a text from the left, the longest first; names do not overlap.

    A name starts with a word with a capital letter or a digit.
    """
    words, start = WORD.findall(text), 0
    lower = [word.lower() for word in words]
    while start < len(words):
        found = 0
        if words[start] != lower[start] or words[start][0].isdigit():
            for end in range(min(start + LONGEST, len(words)), start, -1):
                name = " ".join(lower[start:end])
                if name in known and name not in STOP_WORDS:
                    yield name
                    found = end - start
                    break
        start += found or 1


def _title_name(passage: Passage) -> str:
    return " ".join(WORD.findall(bare_title(passage.title))).lower()


def _build_graph(passages: Sequence[Passage], folder: Path) -> None:
    found = [" ".join(name).lower() for passage in passages for name in find_capitalized_names(passage.text)]
    known = {*map(_title_name, passages), *found} - {""}
    split = [(number, sentence) for number, each in enumerate(passages) for sentence in sentences(each.text) or [""]]
    names, mentions = sparse.count_items(
        ({*find_names(sentence, known), _title_name(passages[number])} - {""} for number, sentence in split),
        sorted(known),
    )
    terms, weights = sparse.count_items(
        analysis.terms(f"{passages[number].title} {sentence}") for number, sentence in split
    )
    holders = sparse.count_holders(weights)
    weights.data = 1 + np.log(weights.data)
    sparse.weigh_items(weights, sparse.idf(len(split), holders))
    _, sentences_of = sparse.count_items([[number] for number, _ in split], range(len(passages)))
    owners, held = (sentences_of.T @ mentions).nonzero()
    graph = transition_matrix(len(names) + len(passages), held, owners + len(names), np.ones(len(held)))
    sparse.save_words(folder / NAMES, names)
    sparse.save_words(folder / TERMS, terms)
    sparse.save_matrix(folder / SENTENCES, weights.T.tocsr())
    sparse.save_matrix(folder / MENTIONS, mentions)
    sparse.save_matrix(folder / TRANSITIONS, graph)
