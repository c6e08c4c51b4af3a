"""Retrieval over a graph of entities, sentences and passages, without a model."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np

from kgqa.protocols import Progress, Query, Rankings, Retriever
from kgqa.retrieval import analysis, sparse
from kgqa.retrieval.composite import Composite, check_scores
from kgqa.retrieval.graphs.entities import LONGEST, WORD, find_capitalized_names
from kgqa.retrieval.graphs.keywords import STOP_WORDS, bare_title
from kgqa.retrieval.pagerank import Damping, PassageWalk
from kgqa.retrieval.search import OpenedIndex, Scored, Scores, normalize_scores, rank_found
from kgqa.types import JsonObject, Passage
from kgqa.util.fs import explain_storage_errors
from kgqa.util.sentences import sentences
from kgqa.util.settings import Setting
from kgqa.util.validators import Count, NotNegative, Share

# of the graph and its scores
VERSION = 2
NAMES, TERMS = "names.txt", "terms.txt"
SENTENCES, MENTIONS, EDGES = "sentences.npz", "mentions.npz", "edges.npz"
# sum of the errors of all probabilities
TOLERANCE = 1e-6
# of a probability; later ones depend on the order of summation
DIGITS = 12
# letters of the longest name that keeps its s at the end
MIN_PLURAL = 3
# letters that Unicode does not split into a plain letter and a sign
STROKES = str.maketrans({"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ı": "i"})


@dataclass(frozen=True)
class EntityGraph(Composite):
    """Walk from the entities of a query over sentences to other entities, then rank passages by PageRank.

    The idea is LinearRAG's (arXiv 2510.10114): the graph has no relations, so that no model is needed to build it.
    Entities are titles and runs of capitalized words, compared without case. A query without a known entity gets the
    ranking of `passages`.
    """

    passages: Annotated[
        Retriever,
        Setting(
            "Retriever whose scores count next to the entities': bm25 or a dense one, "
            "retriever@retriever.passages=NAME."
        ),
    ]
    depth: Annotated[
        Count,
        Setting(
            "Number of passages with a score of `passages`. Other passages have 0.",
            ours="our choice",
        ),
    ] = 1000
    hops: Annotated[
        Count,
        Setting(
            "Number of steps from entities over sentences to other entities.",
            ours="which has at most 4",
        ),
    ] = 1
    threshold: Annotated[
        Share,
        Setting(
            "Least activation of an entity.",
            other="LinearRAG's scripts: 0.4 for HotpotQA and 2Wiki, 0.1 for MuSiQue",
        ),
    ] = 0.3
    fold_names: Annotated[
        bool,
        Setting(
            "Ignore accents and a plural's s in names, and the case of a question without a known name.",
            ours="our choice",
        ),
    ] = True
    title_weight: Annotated[
        NotNegative,
        Setting(
            "Weight of the edge between a passage and its title. Other edges have 1.",
            ours="our choice",
        ),
    ] = 6.0
    passage_weight: Annotated[
        NotNegative,
        Setting(
            "Weight of the passages' scores, next to the entities' activations.", ours="our choice"
        ),
    ] = 0.05
    damping: Annotated[
        Damping,
        Setting(
            "Probability to follow an edge instead of restarting.",
            ours="our choice",
            other="HippoRAG: 0.5",
        ),
    ] = 0.7

    # raise it when equal settings give other results
    version: ClassVar[int] = VERSION

    def __post_init__(self) -> None:
        check_scores(self.passages, "retriever.passages")

    def loads(self) -> JsonObject:
        return {"analysis": analysis.VERSION}

    def build(self, passages: Sequence[Passage], folder: Path, advance: Progress) -> None:
        """Build the graph in memory, about 10 kB per passage."""
        super().build(passages, folder, advance)
        with explain_storage_errors(folder):
            _build_graph(passages, folder, fold=self.fold_names, title_weight=self.title_weight)

    def count_lacks(self, passages: Sequence[Passage], folder: Path | None) -> Mapping[str, int]:
        """Return the number of passages without an entity, see `MeasuredRetriever`."""
        counts = dict(super().count_lacks(passages, folder))
        if folder is None:
            return counts
        edges = sparse.load_matrix(folder / EDGES)  # entities × passages
        return counts | {"without_entities": len(passages) - len(np.unique(edges.indices))}

    def open(self, passages: Sequence[Passage], folder: Path) -> OpenedGraph:
        return OpenedGraph(self, passages, folder, super().open(passages, folder).finders)

    def load(self, folder: Path) -> _Graph:
        names, terms = (sparse.load_words(folder / file) for file in (NAMES, TERMS))
        sentences, mentions, edges = (
            sparse.load_matrix(folder / file) for file in (SENTENCES, MENTIONS, EDGES)
        )
        return _Graph(names, terms, sentences, mentions, mentions.T.tocsr(), PassageWalk.of(edges))

    def rank(self, index: OpenedIndex, queries: Sequence[Query]) -> Rankings:
        graph, ranker = index.data, index.finders["passages"]
        wide = ranker.find_scored([replace(query, k=self.depth, among=None) for query in queries])
        return [
            self._rank(graph, query, entities, scored)
            if (entities := graph.entities_of(query.text, fold=self.fold_names))
            else ranker.find([query])[0]
            for query, scored in zip(queries, wide, strict=True)
        ]

    def _rank(
        self, graph: _Graph, query: Query, entities: Sequence[int], scored: Scored
    ) -> list[int]:
        weights = self.passage_weight * normalize_scores(scored, len(graph.walk.own))
        scores = graph.walk.rank(
            self._activate(graph, query.text, entities), weights, self.damping, TOLERANCE
        )
        return rank_found(scores.round(DIGITS), query)

    def _activate(self, graph: _Graph, query: str, entities: Sequence[int]) -> dict[int, float]:
        """Return the activation of each activated entity, divided by the number of its passages.

        Entities of the query have 1. With each hop, an entity gets the activation of those in the same sentences times
        the similarity of sentence and query, if that is more than it has and at least `threshold`.
        """
        similarity = graph.similarities(query)
        activation = np.zeros(graph.mentions.shape[1])
        activation[entities] = 1
        active = np.array(entities)
        for _ in range(self.hops):
            carried = similarity * (graph.mentioned[active].T @ activation[active])
            sentences = np.flatnonzero(carried)
            spread = np.minimum(graph.mentions[sentences].T @ carried[sentences], 1)
            if not (gains := (spread >= self.threshold) & (spread > activation)).any():
                break
            activation[gains] = spread[gains]
            active = np.flatnonzero(activation)
        active = np.flatnonzero(activation)
        holders = np.maximum(np.diff(graph.walk.edges.indptr)[active], 1)
        return dict(zip(active.tolist(), (activation[active] / holders).tolist(), strict=True))


@dataclass(frozen=True)
class OpenedGraph(OpenedIndex):
    """An opened graph, which also finds entities."""

    def has_entities(self, text: str) -> bool:
        return bool(self.data.entities_of(text, fold=self.retriever.fold_names))


@dataclass(frozen=True)
class _Graph:
    """The stored graph: names and terms with their numbers, and its matrices."""

    names: dict[str, int]
    terms: dict[str, int]
    sentences: sparse.Matrix  # terms × sentences
    mentions: sparse.Matrix  # sentences × entities
    mentioned: sparse.Matrix  # entities × sentences
    walk: PassageWalk

    def entities_of(self, text: str, *, fold: bool) -> list[int]:
        """Return the entities that a text names.

        fold: see `find_names`. If no name has a capital letter, names of two words or more need none.
        """
        names = find_names(text, self.names, fold=fold)
        if fold and not names:
            names = find_names(text, self.names, fold=fold, any_case=True)
        return sorted({self.names[name] for name in names})

    def similarities(self, query: str) -> Scores:
        """Return the TF-IDF cosine of the query and each sentence with its title."""
        counts = Counter(self.terms[term] for term in analysis.terms(query) if term in self.terms)
        terms = sorted(counts)
        idf = sparse.idf(self.sentences.shape[1], np.diff(self.sentences.indptr)[terms])
        weights = (1 + np.log([counts[term] for term in terms])) * idf
        similarities: Scores = self.sentences[terms].T @ (weights / (np.linalg.norm(weights) or 1))
        return similarities


def find_names(
    text: str, vocabulary: Container[str], *, fold: bool, any_case: bool = False
) -> list[str]:
    """Return the known names in a text from the left, the longest first; names do not overlap.

    A name starts with a word with a capital letter or a digit.

    Args:
        fold: accents, and a plural's s at the end of a name, make no difference.
        any_case: names of two words or more need no capital letter.
    """
    words, start = WORD.findall(fold_accents(text) if fold else text), 0
    lower = [word.lower() for word in words]
    names = list[str]()
    while start < len(words):
        count = 0
        capital = words[start] != lower[start] or words[start][0].isdigit()
        least = 1 if capital else 2 if any_case else LONGEST + 1
        for end in range(min(start + LONGEST, len(words)), start + least - 1, -1):
            name = _join_name(lower[start:end], fold=fold)
            # "The Who" is a name, "who" and "the who" are not
            plain = STOP_WORDS.issuperset(lower[start:end]) and (end == start + 1 or not capital)
            if name in vocabulary and not plain:
                names.append(name)
                count = end - start
                break
        start += count or 1
    return names


def _join_name(words: Sequence[str], *, fold: bool) -> str:
    """Return a name in the form in which names are compared."""
    name = " ".join(words).lower()
    plural = fold and len(name) > MIN_PLURAL and name.endswith("s") and not name.endswith("ss")
    return name[:-1] if plural else name


def fold_accents(text: str) -> str:
    """Return the text with plain letters for letters with accents and strokes."""
    if text.isascii():
        return text
    letters = unicodedata.normalize("NFD", text.translate(STROKES))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def _build_graph(
    passages: Sequence[Passage], folder: Path, *, fold: bool, title_weight: float
) -> None:
    from scipy.sparse import csr_matrix

    def read(text: str) -> str:
        return fold_accents(text) if fold else text

    titles = [
        _join_name(WORD.findall(read(bare_title(passage.title))), fold=fold) for passage in passages
    ]
    runs = (run for passage in passages for run in find_capitalized_names(read(passage.text)))
    vocabulary = {*titles, *(_join_name(run, fold=fold) for run in runs)} - {""}
    split = [
        (number, sentence)
        for number, each in enumerate(passages)
        for sentence in sentences(each.text) or [""]
    ]
    names, mentions = sparse.count_items(
        (
            {*find_names(sentence, vocabulary, fold=fold), titles[number]} - {""}
            for number, sentence in split
        ),
        sorted(vocabulary),
    )
    terms, weights = sparse.count_items(
        analysis.terms(f"{passages[number].title} {sentence}") for number, sentence in split
    )
    holders = sparse.count_holders(weights)
    weights.data = 1 + np.log(weights.data)
    sparse.weigh_items(weights, sparse.idf(len(split), holders))
    _, sentences_of = sparse.count_items([[number] for number, _ in split], range(len(passages)))
    owners, members = (sentences_of.T @ mentions).nonzero()
    own = np.array([names.get(title, -1) for title in titles])
    weight = np.where(members == own[owners], title_weight, 1.0)
    edges = csr_matrix((weight, (members, owners)), shape=(len(names), len(passages)))
    sparse.save_words(folder / NAMES, names)
    sparse.save_words(folder / TERMS, terms)
    sparse.save_matrix(folder / SENTENCES, weights.T.tocsr())
    sparse.save_matrix(folder / MENTIONS, mentions)
    sparse.save_matrix(folder / EDGES, edges)
