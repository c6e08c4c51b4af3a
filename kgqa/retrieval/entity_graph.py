"""Retrieval over a graph of entities, sentences and passages, without a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kgqa.protocols import Progress, Query, Rankings, Retriever
from kgqa.retrieval import analysis
from kgqa.retrieval.composite import Composite, Opened, check_scores
from kgqa.retrieval.graphs.entities import LONGEST, WORD, find_capitalized_names
from kgqa.retrieval.graphs.keywords import STOP_WORDS, bare_title
from kgqa.retrieval.pagerank import Damping, compute_pagerank, transition_matrix
from kgqa.retrieval.search import Scored, Scores, normalize_scores, rank_found
from kgqa.types import JsonObject, Passage
from kgqa.util.fs import explain_storage_errors
from kgqa.util.sentences import sentences
from kgqa.util.validators import Count, NotNegative, Share

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

VERSION = 1  # of the graph and its scores
NAMES, TERMS = "names.txt", "terms.txt"  # one per line, sorted; its number is the line's
# terms × sentences, sentences × entities, and the walk between entities, which come first, and passages
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

    passages: Retriever
    depth: Count
    hops: Count
    threshold: Share
    passage_weight: NotNegative
    damping: Damping

    def __post_init__(self) -> None:
        check_scores(self.passages, "retriever.passages")

    def identity(self) -> JsonObject:
        identity = {**super().identity(), "retriever": "entity_graph", "version": VERSION}
        return {**identity, "analysis": analysis.VERSION}

    def build(self, passages: Sequence[Passage], folder: Path, advance: Progress) -> None:
        """Build the graph in memory, about 10 kB per passage."""
        super().build(passages, folder, advance)
        with explain_storage_errors(folder):
            _build_graph(passages, folder)

    def open(self, passages: Sequence[Passage], folder: Path) -> Opened:
        return replace(super().open(passages, folder), files=_Graph(len(passages), folder))

    def combine(self, opened: Opened, queries: Sequence[Query]) -> Rankings:
        graph, ranker = opened.files, opened.finders["passages"]
        wide = ranker.find_scored([replace(query, k=self.depth, among=None) for query in queries])
        return [
            self._rank(graph, query, entities, scored)
            if (entities := graph.entities_of(query.text))
            else ranker.find([query])[0]
            for query, scored in zip(queries, wide, strict=True)
        ]

    def _rank(self, graph: _Graph, query: Query, entities: Sequence[int], scored: Scored) -> list[int]:
        weights = self.passage_weight * normalize_scores(scored, graph.count)
        reset = np.concatenate([self._activate(graph, query.text, entities), weights])
        scores = compute_pagerank(graph.matrices[TRANSITIONS], reset, self.damping, TOLERANCE)[-graph.count :]
        return rank_found(scores.round(DIGITS), query)

    def _activate(self, graph: _Graph, query: str, entities: Sequence[int]) -> Scores:
        """Return the activation of each entity, divided by the number of its passages.

        Entities of the query have 1. With each hop, an entity gets the activation of those in the same sentences times
        the similarity of sentence and query, if that is more than it has and at least `threshold`.
        """
        similarity = graph.similarities(query)
        activation = np.zeros(graph.matrices[MENTIONS].shape[1])
        activation[entities] = 1
        for _ in range(self.hops):
            spread = graph.matrices[MENTIONS].T @ (similarity * (graph.matrices[MENTIONS] @ activation))
            spread = np.where(spread < self.threshold, 0, np.minimum(spread, 1))
            if (spread <= activation).all():
                break
            activation = np.maximum(spread, activation)
        holders = np.diff(graph.matrices[TRANSITIONS].indptr)[: -graph.count]  # the number of passages of each entity
        per_passage: Scores = activation / np.maximum(holders, 1.0)
        return per_passage


class _Graph:
    """The graph on disk. Its files are loaded with the first query."""

    def __init__(self, count: int, folder: Path) -> None:
        self.count, self._folder = count, folder

    def entities_of(self, text: str) -> list[int]:
        """Return the entities that a text names."""
        return sorted({self._names[name] for name in find_names(text, self._names)})

    def similarities(self, query: str) -> Scores:
        """Return the TF-IDF cosine of the query and each sentence with its title."""
        rows = self.matrices[SENTENCES]
        counts = Counter(self._terms[term] for term in analysis.terms(query) if term in self._terms)
        terms = sorted(counts)
        idf = _idf(rows.shape[1], np.diff(rows.indptr)[terms])
        weights = (1 + np.log([counts[term] for term in terms])) * idf
        similarities: Scores = rows[terms].T @ (weights / (np.linalg.norm(weights) or 1))
        return similarities

    @cached_property
    def _names(self) -> dict[str, int]:
        return _read_lines(self._folder / NAMES)

    @cached_property
    def _terms(self) -> dict[str, int]:
        return _read_lines(self._folder / TERMS)

    @cached_property
    def matrices(self) -> dict[str, csr_matrix]:
        from scipy.sparse import load_npz

        return {file: load_npz(self._folder / file) for file in (SENTENCES, MENTIONS, TRANSITIONS)}


def find_names(text: str, known: Mapping[str, object] | frozenset[str]) -> Iterator[str]:
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
    from scipy.sparse import csr_matrix, save_npz

    known = {_title_name(passage) for passage in passages}
    known.update(" ".join(name).lower() for passage in passages for name in find_capitalized_names(passage.text))
    names = {name: number for number, name in enumerate(sorted(known - {""}))}
    mentions, terms, owners = list[list[int]](), list[Counter[str]](), list[int]()
    for position, passage in enumerate(passages):
        for sentence in sentences(passage.text) or [""]:
            found = {*find_names(sentence, names), _title_name(passage)} - {""}
            mentions.append(sorted(names[name] for name in found))
            terms.append(Counter(analysis.terms(f"{passage.title} {sentence}")))
            owners.append(position)
    vocabulary = {term: number for number, term in enumerate(sorted({term for row in terms for term in row}))}
    numbered = [{vocabulary[term]: count for term, count in row.items()} for row in terms]
    by_sentence = _sparse([list(row) for row in numbered], len(vocabulary))
    by_sentence.data = 1 + np.log([count for row in numbered for count in row.values()])
    by_sentence.data *= _idf(len(terms), np.bincount(by_sentence.indices, minlength=len(vocabulary)))[
        by_sentence.indices
    ]
    lengths = np.sqrt(np.asarray(by_sentence.multiply(by_sentence).sum(axis=1)).ravel())
    by_sentence.data /= np.repeat(lengths, np.diff(by_sentence.indptr))
    mentioned = _sparse(mentions, len(names))
    owned = csr_matrix((np.ones(len(owners)), (owners, range(len(owners)))), shape=(len(passages), len(owners)))
    holders, held = (owned @ mentioned).nonzero()
    graph = transition_matrix(len(names) + len(passages), held, holders + len(names), np.ones(len(held)))
    _write_lines(folder / NAMES, names)
    _write_lines(folder / TERMS, vocabulary)
    for file, matrix in ((SENTENCES, by_sentence.T.tocsr()), (MENTIONS, mentioned), (TRANSITIONS, graph)):
        save_npz(folder / file, matrix, compressed=False)


def _sparse(rows: Rankings, columns: int) -> Any:
    """Return a matrix with 1 at the listed columns of each row."""
    from scipy.sparse import csr_matrix

    ends = np.cumsum([0, *map(len, rows)])
    indices = np.fromiter((column for row in rows for column in row), dtype=np.int32, count=ends[-1])
    return csr_matrix((np.ones(len(indices)), indices, ends), shape=(len(rows), columns))


def _idf(sentences: int, frequencies: NDArray[Any]) -> Scores:
    weights: Scores = np.log((1 + sentences) / (1 + frequencies))
    return weights


def _write_lines(file: Path, lines: Iterable[str]) -> None:
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", errors="surrogatepass")


def _read_lines(file: Path) -> dict[str, int]:
    lines = file.read_text(encoding="utf-8", errors="surrogatepass").split("\n")[:-1]
    return {line: number for number, line in enumerate(lines)}
