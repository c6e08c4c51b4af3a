"""HippoRAG 2 (Gutiérrez et al., ICML 2025): PageRank over entities and passages, from the facts of a query."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgqa.errors import ConfigError
from kgqa.protocols import Query, Retriever, StoredTriples
from kgqa.retrieval.composite import Composite, Opened, check_scores
from kgqa.retrieval.pagerank import Damping, compute_pagerank, transition_matrix
from kgqa.retrieval.search import normalize_scores, rank_places
from kgqa.types import Json, Passage
from kgqa.util.fs import ensure_dir, explain_storage_errors
from kgqa.util.jsonio import decode_json, encode_json
from kgqa.util.validators import Count, NotNegative, Share

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

VERSION = 1  # of the graph and its scores
FACTS, TRANSITIONS = "facts.json", "transitions.npz"
DIGITS = 12  # of a probability; later ones depend on the order of summation
BLOCK = 2_000  # names whose similarity to all names is in memory at once
Edges = Counter[tuple[int, int]]


@dataclass(frozen=True)
class HippoRag(Composite):
    """Score facts and passages for a query, and rank passages by PageRank from both.

    Fields as in conf/retriever/hipporag.yaml. Two names are synonyms if the cosine of their character trigrams reaches
    `synonym_similarity`; the paper compares embeddings. A query that finds no fact gets the ranking of `passages`.
    """

    passages: Retriever
    facts: Retriever
    triples: StoredTriples
    fact_count: Count
    entity_count: Count
    passage_weight: NotNegative
    damping: Damping
    synonym_similarity: Share
    max_synonyms: Count
    depth: Count

    def __post_init__(self) -> None:
        check_scores(self.passages, "retriever.passages")
        check_scores(self.facts, "retriever.facts")

    def identity(self) -> Mapping[str, Json]:
        return {**super().identity(), "version": VERSION, "triples": self.triples.sha256}

    def build(self, passages: Sequence[Passage], folder: Path, advance: Callable[[int], None]) -> None:
        """Build in memory, about 10 kB per passage. Raises ConfigError if no passage has a triple."""
        with explain_storage_errors(folder):
            ranker, facts = ensure_dir(folder / "passages"), ensure_dir(folder / "facts")
        self.passages.build(passages, ranker, advance)
        graph = FactGraph.of(passages, self.triples)
        if not graph.facts:
            raise ConfigError("retriever.triples: no passage of the corpus has a triple in this file; choose another")
        texts = [Passage.of("", " ".join(fact)) for fact in graph.facts]
        self.facts.build(texts, facts, lambda _: None)
        edges = graph.edges + find_synonyms(list(graph.names), self.synonym_similarity, self.max_synonyms)
        rows, columns = zip(*edges, strict=True)
        nodes = len(graph.names) + len(passages)
        with explain_storage_errors(folder):
            from scipy.sparse import save_npz

            save_npz(folder / TRANSITIONS, transition_matrix(nodes, rows, columns, list(edges.values())), False)
            (folder / FACTS).write_bytes(encode_json([graph.ends, graph.holders]))

    def open(self, passages: Sequence[Passage], folder: Path) -> Opened:
        opened = super().open(passages, folder)
        return replace(opened, finders={**opened.finders, "graph": _Graph(folder)})

    def combine(self, opened: Opened, queries: Sequence[Query]) -> Sequence[Sequence[int]]:
        return [self._find(opened, query) for query in queries]

    def _find(self, opened: Opened, query: Query) -> Sequence[int]:
        import numpy as np

        graph, count = opened.finders["graph"], len(opened.passages)
        wide = replace(query, k=self.depth, among=None)
        (facts,) = opened.finders["facts"].find_scored([wide])
        if not facts:
            return list(opened.finders["passages"].find([query])[0])
        scores = normalize_scores(facts, len(graph.ends))
        reset = np.zeros(graph.transitions.shape[0])
        weights = graph.weigh_entities([(fact, scores[fact]) for fact, _ in facts[: self.fact_count]])
        for entity, weight in sorted(weights.items(), key=lambda pair: (-pair[1], pair[0]))[: self.entity_count]:
            reset[entity] = weight
        (ranked,) = opened.finders["passages"].find_scored([wide])
        reset[-count:] = self.passage_weight * normalize_scores(ranked, count)
        found = compute_pagerank(graph.transitions, reset, self.damping)[-count:].round(DIGITS)
        places = np.arange(count) if query.among is None else np.array(query.among, dtype=np.int64)
        places = places[found[places] > 0]
        return rank_places(found[places], query.k, places)


@dataclass(frozen=True)
class FactGraph:
    """The distinct facts of a corpus, in lower case, and the graph of their entities and the passages.

    names: entities with their numbers. ends: the two entities of each fact. holders: the number of passages of each
    entity. edges: between entities, the number of passages with such a fact; between an entity and its passages, 1.
    Passages come behind the entities.
    """

    facts: tuple[tuple[str, str, str], ...]
    names: Mapping[str, int]
    ends: Sequence[tuple[int, int]]
    holders: Sequence[int]
    edges: Edges

    @classmethod
    def of(cls, passages: Sequence[Passage], triples: StoredTriples) -> FactGraph:
        places: defaultdict[tuple[str, str, str], set[int]] = defaultdict(set)
        for place, passage in enumerate(passages):
            for triple in triples.triples(passage):
                places[_lower(triple.head), _lower(triple.relation), _lower(triple.tail)].add(place)
        names = {name: 0 for head, _, tail in places for name in (head, tail)}
        names = {name: number for number, name in enumerate(names)}
        ends = [(names[head], names[tail]) for head, _, tail in places]
        edges, held = Edges(), set[tuple[int, int]]()
        for (head, tail), found in zip(ends, places.values(), strict=True):
            held.update((entity, place) for entity in (head, tail) for place in found)
            if head != tail:
                edges[head, tail] += len(found)
        edges.update((entity, len(names) + place) for entity, place in held)
        holders = Counter(entity for entity, _ in held)
        return cls(tuple(places), names, ends, [holders[entity] for entity in range(len(names))], edges)


def _lower(text: str) -> str:
    return " ".join(text.lower().split())


def find_synonyms(names: Sequence[str], least: float, most: int) -> Any:
    """Return edges between names of more than two letters, weighted by the cosine of their trigrams.

    Args:
        least: smallest cosine.
        most: largest number of synonyms per name, the most similar first.
    """
    import numpy as np
    from scipy.sparse import csr_matrix, diags

    numbers: dict[str, int] = {}
    counts = [Counter(_trigrams(name)) for name in names]
    columns = [numbers.setdefault(gram, len(numbers)) for count in counts for gram in count]
    ends = np.cumsum([0, *map(len, counts)])
    values = np.array([value for count in counts for value in count.values()], dtype=np.float64)
    grams = csr_matrix((values, columns, ends), shape=(len(names), len(numbers)))
    grams = grams @ diags(np.log(len(names) / np.maximum(np.bincount(columns, minlength=len(numbers)), 1)))
    lengths = np.sqrt(np.asarray(grams.multiply(grams).sum(axis=1)).ravel())
    grams = (diags(1 / np.where(lengths > 0, lengths, 1)) @ grams).tocsr()
    edges: Counter[tuple[int, int]] = Counter()
    for start in range(0, len(names), BLOCK):
        similar = (grams[start : start + BLOCK] @ grams.T).tocsr()
        for row in range(similar.shape[0]):
            found = slice(similar.indptr[row], similar.indptr[row + 1])
            pairs = zip(similar.data[found].round(6), similar.indices[found], strict=True)
            near = sorted((-value, int(other)) for value, other in pairs if value >= least and other != start + row)
            for value, other in near[:most]:
                edges[min(start + row, other), max(start + row, other)] = -value
    return edges


def _trigrams(name: str) -> Iterator[str]:
    padded = f" {name} "
    if sum(map(str.isalnum, name)) > 2:
        yield from (padded[start : start + 3] for start in range(len(padded) - 2))


class _Graph:
    """The graph on disk. It is loaded with the first query."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def weigh_entities(self, facts: Sequence[tuple[int, float]]) -> dict[int, float]:
        """Return the mean over an entity's facts of score / number of passages that hold it."""
        weights: defaultdict[int, list[float]] = defaultdict(list)
        for fact, score in facts:
            for entity in set(self.ends[fact]):
                weights[entity].append(score / self._facts[1][entity])
        return {entity: sum(values) / len(values) for entity, values in weights.items()}

    def close(self) -> None:
        """Free the graph."""
        self.__dict__ = {"_folder": self._folder}

    @property
    def ends(self) -> list[list[int]]:
        ends: list[list[int]] = self._facts[0]
        return ends

    @cached_property
    def _facts(self) -> Any:
        return decode_json((self._folder / FACTS).read_bytes())

    @cached_property
    def transitions(self) -> csr_matrix:
        from scipy.sparse import load_npz

        return load_npz(self._folder / TRANSITIONS)
