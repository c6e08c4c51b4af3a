"""HippoRAG 2 (Gutiérrez et al., ICML 2025): PageRank over entities and passages, from the facts of a query.

Before the walk a model keeps the facts that help to answer the query (the paper's recognition memory).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np

from kgqa.calls import Fact, Facts, Generate, Search, gather
from kgqa.errors import ConfigError
from kgqa.prompting import render, template_hash
from kgqa.prompting.json_replies import list_schema, read_list
from kgqa.protocols import Need, Progress, Query, RetrievedTriples, Retriever
from kgqa.retrieval import sparse
from kgqa.retrieval.composite import Composite, check_scores
from kgqa.retrieval.pagerank import Damping, compute_pagerank, transition_matrix
from kgqa.retrieval.search import OpenedIndex, normalize_scores, rank_found
from kgqa.types import Json, JsonObject, Passage, Triple
from kgqa.util.fs import ensure_dir, explain_storage_errors
from kgqa.util.jsonio import decode_json, encode_json
from kgqa.util.settings import Setting
from kgqa.util.validators import Count, NotNegative, Share

VERSION = 3  # of the graph and its scores
TEMPLATE, ROLE = "hipporag/filter", "fact_filter"
EXTRACTOR = "extractor"  # the role
TRIPLES, FACTS, TRANSITIONS = "triples.json", "facts.json", "transitions.npz"
DIGITS = 12  # of a probability; later ones depend on the order of summation
BLOCK = 2_000  # names whose similarity to all names is in memory at once
Edges = dict[tuple[int, int], float]


@dataclass(frozen=True)
class HippoRag(Composite):
    """Score facts and passages for a query, and rank passages by PageRank from both.

    Fields as in conf/retriever/hipporag.yaml. Two names are synonyms if the cosine of their character trigrams reaches
    `synonym_similarity`; the paper compares embeddings. A query without facts gets the ranking of `passages`.
    """

    passages: Annotated[
        Retriever, Setting("Retriever of passages: bm25 or a dense one, retriever@retriever.passages=NAME.")
    ]
    facts: Annotated[Retriever, Setting("Retriever of facts.")]
    triples: Annotated[RetrievedTriples, Setting("Where the triples come from.")]
    fact_count: Annotated[Count, Setting("Number of facts from which the walk starts.", code="released code")] = 5
    entity_count: Annotated[Count, Setting("Number of entities of these facts.", code="released code")] = 5
    passage_weight: Annotated[
        NotNegative, Setting("Weight of the passages' scores, next to the entities'.", code="released code")
    ] = 0.05
    damping: Annotated[
        Damping, Setting("Probability to follow an edge instead of restarting.", code="released code")
    ] = 0.5
    synonym_similarity: Annotated[Share, Setting("Least similarity of synonyms.", code="of embeddings")] = 0.8
    max_synonyms: Annotated[Count, Setting("Maximum number of synonyms of a name.", code="released code")] = 100
    depth: Annotated[
        Count, Setting("Number of facts and of passages with a score; others have 0.", ours="all have one")
    ] = 1000
    filter: Annotated[
        bool,
        Setting("Let the model (role fact_filter) keep the facts that help to answer.", paper="recognition memory"),
    ] = True
    max_filter_tokens: Annotated[Count, Setting("Maximum tokens of the filter's reply.", ours="our choice")] = 512

    version: ClassVar[int] = VERSION  # raise it when equal settings give other results

    def __post_init__(self) -> None:
        check_scores(self.passages, "retriever.passages")
        check_scores(self.facts, "retriever.facts")

    @property
    def uses(self) -> frozenset[Need]:
        return frozenset({"model"} if self.filter or self.writer else ())

    @property
    def writer(self) -> str:
        return "" if self.triples.path else EXTRACTOR

    @property
    def pools(self) -> bool:
        return super().pools and not self.writer

    def loads(self) -> JsonObject:
        return {"template": template_hash(TEMPLATE)} if self.filter else {}

    @property
    def has_program(self) -> bool:
        return self.filter

    async def search(self, call: Search) -> tuple[Passage, ...]:
        """Search from the facts that the model keeps.

        As in the released code, the most similar candidate counts as kept if the model changes the wording of a fact,
        and a reply that cannot be read keeps none.
        """
        candidates = await Facts(call.query, self.fact_count, call.pool)
        if not candidates:
            return await replace(call, facts=())
        reply = await Generate(
            render(TEMPLATE, query=call.query, facts=candidates),
            self.max_filter_tokens,
            schema=list_schema("facts", {"type": "array", "items": {"type": "string"}, "minItems": 3, "maxItems": 3}),
            role=ROLE,
        )
        return await replace(call, facts=match_facts(read_list(reply.text, "facts") or (), candidates))

    async def expand(self, passages: Sequence[Passage], folder: Path | None, advance: Progress) -> Sequence[Passage]:
        """Extract the triples of all passages if there is no file of them, and save them. Return no passages."""

        async def extract(passage: Passage) -> list[Fact]:
            triples = await self.triples.extract(passage)
            advance(1)
            return [(triple.head, triple.relation, triple.tail) for triple in triples]

        extracted = await gather(*map(extract, passages))
        if folder:
            by_id = {passage.id: triples for passage, triples in zip(passages, extracted, strict=True)}
            with explain_storage_errors(folder):
                (folder / TRIPLES).write_bytes(encode_json(by_id))
        return ()

    def build(self, passages: Sequence[Passage], folder: Path, advance: Progress) -> None:
        """Build in memory, about 10 kB per passage. Raises ConfigError if no passage has a triple."""
        with explain_storage_errors(folder):
            ranker, facts = ensure_dir(folder / "passages"), ensure_dir(folder / "facts")
        self.passages.build(passages, ranker, advance)
        if self.writer:
            saved = decode_json((folder / TRIPLES).read_bytes())
            triples = [[Triple(*fact) for fact in saved[passage.id]] for passage in passages]
        else:
            triples = [[*self.triples.triples(passage)] for passage in passages]
        graph = FactGraph.of(triples)
        if not graph.facts:
            raise ConfigError("retriever.triples: no passage of the corpus has a triple. Choose another file or model")
        texts = [Passage.of("", " ".join(fact)) for fact in graph.facts]
        self.facts.build(texts, facts, lambda _: None)
        edges = graph.edges | find_synonyms(list(graph.names), self.synonym_similarity, self.max_synonyms)
        rows, columns = zip(*edges, strict=True)
        nodes = len(graph.names) + len(passages)
        with explain_storage_errors(folder):
            sparse.save_matrix(folder / TRANSITIONS, transition_matrix(nodes, rows, columns, list(edges.values())))
            (folder / FACTS).write_bytes(
                encode_json({"facts": graph.facts, "ends": graph.ends, "holders": graph.holders})
            )

    def open(self, passages: Sequence[Passage], folder: Path) -> OpenedFacts:
        return OpenedFacts(self, passages, folder, super().open(passages, folder).finders)

    def load(self, folder: Path) -> _Graph:
        stored = decode_json((folder / FACTS).read_bytes())
        facts = [tuple(fact) for fact in stored["facts"]]
        return _Graph(facts, stored["ends"], stored["holders"], sparse.load_matrix(folder / TRANSITIONS))

    def rank(self, index: OpenedIndex, queries: Sequence[Query]) -> list[list[int]]:
        return [self._find(index, query) for query in queries]

    def _find(self, index: OpenedIndex, query: Query) -> list[int]:
        graph, count = index.data, len(index.passages)
        wide = replace(query, k=self.depth, among=None)
        (facts,) = index.finders["facts"].find_scored([wide])
        chosen = [fact for fact, _ in facts[: self.fact_count]]
        if query.facts is not None:
            chosen = [graph.numbers[fact] for fact in query.facts if fact in graph.numbers]
        if not chosen:
            return list(index.finders["passages"].find([query])[0])
        scores = normalize_scores(facts, len(graph.facts))
        reset = np.zeros(graph.transitions.shape[0])
        weights = graph.weigh_entities([(fact, scores[fact]) for fact in chosen])
        for entity, weight in sorted(weights.items(), key=lambda pair: (-pair[1], pair[0]))[: self.entity_count]:
            reset[entity] = weight
        (ranked,) = index.finders["passages"].find_scored([wide])
        reset[-count:] = self.passage_weight * normalize_scores(ranked, count)
        if not reset.any():  # no passage has a score, and the chosen facts have the lowest of all
            reset[list(weights)] = 1
        return rank_found(compute_pagerank(graph.transitions, reset, self.damping)[-count:].round(DIGITS), query)


def match_facts(kept: Sequence[Json], candidates: Sequence[Fact]) -> tuple[Fact, ...]:
    """Return the most similar candidate of each fact that a model wrote, in its order, each once."""
    texts = {json.dumps(fact): fact for fact in candidates}
    nearest = (get_close_matches(json.dumps(fact), texts, 1, 0.0)[0] for fact in kept)
    return tuple(dict.fromkeys(texts[text] for text in nearest))


@dataclass(frozen=True)
class OpenedFacts(OpenedIndex):
    """An opened HippoRAG index, which also finds facts."""

    def find_facts(self, query: Query) -> tuple[Fact, ...]:
        (facts,) = self.finders["facts"].find([query])
        return tuple(self.data.facts[fact] for fact in facts)


@dataclass(frozen=True)
class FactGraph:
    """The distinct facts of a corpus, in lower case, and the graph of their entities and the passages.

    names: entities with their numbers. ends: the two entities of each fact. holders: the number of passages of each
    entity. edges: between entities, twice the number of passages with such a fact, because the released code adds both
    directions; between an entity and its passages, 1. Passages come behind the entities.
    """

    facts: tuple[tuple[str, str, str], ...]
    names: Mapping[str, int]
    ends: Sequence[tuple[int, int]]
    holders: Sequence[int]
    edges: Edges

    @classmethod
    def of(cls, triples: Sequence[Sequence[Triple]]) -> FactGraph:
        """Return the graph of these triples, those of each passage."""
        written = [
            list(dict.fromkeys((_lower(each.head), _lower(each.relation), _lower(each.tail)) for each in found))
            for found in triples
        ]
        counts = Counter(chain.from_iterable(written))
        names, held = sparse.count_items([end for head, _, tail in facts for end in (head, tail)] for facts in written)
        ends = [(names[head], names[tail]) for head, _, tail in counts]
        edges = defaultdict[tuple[int, int], float](float)
        for (head, tail), count in zip(ends, counts.values(), strict=True):
            if head != tail:
                edges[min(head, tail), max(head, tail)] += 2 * count
        edges.update(((entity, len(names) + position), 1) for position, entity in zip(*held.nonzero(), strict=True))
        return cls(tuple(counts), names, ends, sparse.count_holders(held).astype(int).tolist(), edges)


def _lower(text: str) -> str:
    return " ".join(text.lower().split())


def find_synonyms(names: Sequence[str], least: float, most: int) -> Edges:
    """Return edges between names of more than two letters, weighted by twice the cosine of their trigrams.

    They replace edges of facts, as in the released code.

    Args:
        least: smallest cosine.
        most: largest number of synonyms per name, the most similar first.
    """
    _, grams = sparse.count_items(map(_trigrams, names))
    sparse.weigh_items(grams, np.log(len(names) / sparse.count_holders(grams)))
    edges: Edges = {}
    for start in range(0, len(names), BLOCK):
        similar = (grams[start : start + BLOCK] @ grams.T).tocsr()
        for row in range(similar.shape[0]):
            found = slice(similar.indptr[row], similar.indptr[row + 1])
            pairs = zip(similar.data[found].round(6), similar.indices[found], strict=True)
            near = sorted((-value, int(other)) for value, other in pairs if value >= least and other != start + row)
            for value, other in near[:most]:
                edges[min(start + row, other), max(start + row, other)] = -2 * value
    return edges


def _trigrams(name: str) -> Iterator[str]:
    padded = f" {name} "
    if sum(map(str.isalnum, name)) > 2:
        yield from (padded[start : start + 3] for start in range(len(padded) - 2))


@dataclass(frozen=True)
class _Graph:
    """The stored graph, see `FactGraph`."""

    facts: Sequence[Fact]
    ends: Sequence[tuple[int, int]]
    holders: Sequence[int]
    transitions: sparse.Matrix

    @cached_property
    def numbers(self) -> Mapping[Fact, int]:
        return {fact: number for number, fact in enumerate(self.facts)}

    def weigh_entities(self, facts: Sequence[tuple[int, float]]) -> dict[int, float]:
        """Return the mean over an entity's facts of score / number of passages that hold it."""
        weights: defaultdict[int, list[float]] = defaultdict(list)
        for fact, score in facts:
            for entity in set(self.ends[fact]):
                weights[entity].append(score / self.holders[entity])
        return {entity: sum(values) / len(values) for entity, values in weights.items()}
