"""HippoRAG 2 (Gutiérrez et al., ICML 2025): PageRank over entities and passages, from the facts of a query.

Before the walk a model keeps the facts that help to answer the query (the paper's recognition memory).
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from kgqa.calls import Fact, Facts, Generate, Search, settle
from kgqa.errors import ConfigError
from kgqa.prompting import render, template_hash
from kgqa.prompting.json_replies import list_schema, read_list
from kgqa.protocols import Need, Progress, Query, RetrievedTriples, Retriever
from kgqa.retrieval import sparse
from kgqa.retrieval.composite import Composite, check_scores, count_failures
from kgqa.retrieval.dense import Dense
from kgqa.retrieval.pagerank import Damping, Walk, compute_pagerank, join_edges
from kgqa.retrieval.search import LoadedPassages, OpenedIndex, normalize_scores, rank_found
from kgqa.retrieval.vector_store import Vectors
from kgqa.types import Json, JsonObject, Passage, Triple
from kgqa.util.fs import ensure_dir, explain_storage_errors
from kgqa.util.jsonio import decode_json, encode_json
from kgqa.util.settings import Setting
from kgqa.util.validators import Count, NotNegative, Share

# of the graph and its scores
VERSION = 4
TEMPLATE, ROLE = "hipporag/filter", "fact_filter"
EXTRACTOR = "extractor"  # the role
TRIPLES, FACTS, EDGES = "triples.json", "facts.json", "edges.npz"
# of a probability; later ones depend on the order of summation
DIGITS = 12
# names whose similarity to all names is in memory at once
BLOCK = 2_000
Edges = dict[tuple[int, int], float]
# the numbers of two names, and their cosine
Pairs = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class TripleRetriever(Composite):
    """A retriever over the graph of the corpus' triples.

    Two names are synonyms if the cosine of their embeddings reaches
    `synonym_similarity`, or that of their character trigrams if `facts` has no encoder.
    """

    passages: Annotated[
        Retriever,
        Setting("Retriever of passages: bm25 or a dense one, retriever@retriever.passages=NAME."),
    ]
    facts: Annotated[Retriever, Setting("Retriever of facts.")]
    triples: Annotated[RetrievedTriples, Setting("Where the triples come from.")]
    damping: Annotated[
        Damping,
        Setting("Probability to follow an edge instead of restarting.", code="released code"),
    ] = 0.5
    synonym_similarity: Annotated[
        Share, Setting("Least similarity of synonyms.", code="released code")
    ] = 0.8
    max_synonyms: Annotated[
        Count, Setting("Maximum number of synonyms of a name.", code="released code")
    ] = 100
    names: Annotated[
        Literal["unicode", "ascii"],
        Setting(
            "Letters that names keep: unicode, all | ascii, A to Z and digits.",
            ours="the released code has ascii",
        ),
    ] = "unicode"
    filter: Annotated[
        bool,
        Setting(
            "Let the model (role fact_filter) keep the facts that help to answer (hipporag), or list the entities of a "
            "query (hipporag_1).",
            paper="recognition memory",
        ),
    ] = True
    max_filter_tokens: Annotated[
        Count, Setting("Maximum tokens of the filter's reply.", ours="our choice")
    ] = 512

    # raise it when equal settings give other results
    version: ClassVar[int] = VERSION
    template: ClassVar[str] = TEMPLATE

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
        return {"template": template_hash(self.template)} if self.filter else {}

    @property
    def has_program(self) -> bool:
        return self.filter

    async def expand(
        self, passages: Sequence[Passage], folder: Path | None, advance: Progress
    ) -> Sequence[Passage]:
        """Extract the triples of all passages if there is no file of them, and save them. Return no passages."""

        async def extract(passage: Passage) -> tuple[list[Fact], bool]:
            triples, is_readable = await self.triples.extract(passage)
            advance(1)
            return [(triple.head, triple.relation, triple.tail) for triple in triples], is_readable

        results = await settle(*map(extract, passages))
        if folder:
            failed = count_failures(results, "extraction")
            extracted = [
                ([], True) if isinstance(result, Exception) else result for result in results
            ]
            unreadable = sum(not is_readable for _, is_readable in extracted)
            by_id = {
                passage.id: facts for passage, (facts, _) in zip(passages, extracted, strict=True)
            }
            saved = {"failed": failed, "unreadable": unreadable, "triples": by_id}
            with explain_storage_errors(folder):
                (folder / TRIPLES).write_bytes(encode_json(saved))
        return ()

    def build(self, passages: Sequence[Passage], folder: Path, advance: Progress) -> None:
        """Build in memory, about 10 kB per passage. Raises ConfigError if no passage has a triple."""
        with explain_storage_errors(folder):
            ranker, facts = ensure_dir(folder / "passages"), ensure_dir(folder / "facts")
        self.passages.build(passages, ranker, advance)
        if self.writer:
            saved = decode_json((folder / TRIPLES).read_bytes())["triples"]
            triples = [[Triple(*fact) for fact in saved[passage.id]] for passage in passages]
        else:
            triples = [[*self.triples.triples(passage)] for passage in passages]
        graph = self._read_graph(triples)
        if not graph.facts:
            raise ConfigError(
                "retriever.triples: no passage of the corpus has a triple. Choose another file or model"
            )
        texts = self._embedded_texts(graph.facts, list(graph.names))
        self.facts.build([Passage.of("", text) for text in texts], facts, lambda _: None)
        edges = graph.edges | self._find_synonyms(list(graph.names))
        rows, columns = zip(*edges, strict=True)
        nodes = len(graph.names) + len(passages)
        with explain_storage_errors(folder):
            sparse.save_matrix(
                folder / EDGES, join_edges(nodes, rows, columns, list(edges.values()))
            )
            (folder / FACTS).write_bytes(
                encode_json({"facts": graph.facts, "ends": graph.ends, "holders": graph.holders})
            )

    def _read_graph(self, triples: Sequence[Sequence[Triple]]) -> FactGraph:
        return FactGraph.of(triples, self.clean)

    @property
    def clean(self) -> Callable[[str], str]:
        """Return what makes names comparable."""
        return clean_ascii if self.names == "ascii" else clean_unicode

    def _embedded_texts(self, facts: Sequence[Fact], names: Sequence[str]) -> Sequence[str]:  # noqa: ARG002 - hipporag_1 embeds names
        """Return the text of each fact. The released code embeds a fact in Python's notation of a tuple."""
        return [str(fact) if isinstance(self.facts, Dense) else " ".join(fact) for fact in facts]

    def _find_synonyms(self, names: Sequence[str]) -> Edges:
        if not isinstance(self.facts, Dense):
            return find_similar_spellings(names, self.synonym_similarity, self.max_synonyms)
        vectors = self.facts.embed([Passage.of("", name) for name in names])
        return find_near_names(names, vectors, self.synonym_similarity, self.max_synonyms)

    def open(self, passages: Sequence[Passage], folder: Path) -> OpenedIndex:
        def load_texts() -> list[Passage]:
            stored = decode_json((folder / FACTS).read_bytes())
            facts = [(head, relation, tail) for head, relation, tail in stored["facts"]]
            names = {
                number: name
                for (head, _, tail), ends in zip(facts, stored["ends"], strict=True)
                for number, name in zip(ends, (head, tail), strict=True)
            }
            texts = self._embedded_texts(facts, [names[number] for number in sorted(names)])
            return [Passage.of("", text) for text in texts]

        finders = {
            "passages": self.passages.open(passages, folder / "passages"),
            "facts": self.facts.open(LoadedPassages(load_texts), folder / "facts"),
        }
        return OpenedIndex(self, passages, folder, finders)

    def count_lacks(self, passages: Sequence[Passage], folder: Path | None) -> Mapping[str, int]:
        """Return the numbers of passages without triples, and why. See `MeasuredRetriever`."""
        counts = dict(super().count_lacks(passages, folder))
        if not self.writer:
            empty = sum(not self.triples.triples(passage) for passage in passages)
            return counts | {
                "unmatched": len(self.triples.missing(passages)),
                "without_triples": empty,
            }
        if folder is None:
            return counts
        saved = decode_json((folder / TRIPLES).read_bytes())
        empty = sum(not saved["triples"][passage.id] for passage in passages)
        return counts | {
            "failed": saved["failed"],
            "unreadable": saved["unreadable"],
            "without_triples": empty,
        }


@dataclass(frozen=True)
class HippoRag(TripleRetriever):
    """Score facts and passages for a query, and rank passages by PageRank from both.

    A query without facts gets the ranking of `passages`.
    """

    fact_count: Annotated[
        Count, Setting("Number of facts from which the walk starts.", code="released code")
    ] = 5
    entity_count: Annotated[
        Count, Setting("Number of entities of these facts.", code="released code")
    ] = 5
    passage_weight: Annotated[
        NotNegative,
        Setting("Weight of the passages' scores, next to the entities'.", code="released code"),
    ] = 0.05
    depth: Annotated[
        Count | None,
        Setting(
            "Number of facts and of passages with a score; others have 0. null: all have one.",
            code="released code",
        ),
    ] = None
    max_facts: Annotated[
        Count, Setting("Maximum number of facts that the filter keeps.", code="released code")
    ] = 4

    async def search(self, call: Search) -> tuple[Passage, ...]:
        """Search from the facts that the model keeps.

        As in the released code, the most similar candidate counts as kept if the model changes the wording of a fact,
        and a reply that cannot be read keeps none.
        """
        candidates = await Facts(call.query, self.fact_count, call.pool)
        if not candidates:
            return await replace(call, facts=())
        reply = await Generate(
            render(TEMPLATE, query=call.query, facts=candidates, most=self.max_facts),
            self.max_filter_tokens,
            schema=list_schema(
                "facts",
                {"type": "array", "items": {"type": "string"}, "minItems": 3, "maxItems": 3},
            ),
            role=ROLE,
        )
        facts = (read_list(reply.text, "facts") or ())[: self.max_facts]
        return await replace(call, facts=match_facts(facts, candidates))

    def open(self, passages: Sequence[Passage], folder: Path) -> OpenedFacts:
        return OpenedFacts(self, passages, folder, super().open(passages, folder).finders)

    def load(self, folder: Path) -> _FactGraph:
        stored = decode_json((folder / FACTS).read_bytes())
        facts = [tuple(fact) for fact in stored["facts"]]
        return _FactGraph(
            facts, stored["ends"], stored["holders"], Walk.of(sparse.load_matrix(folder / EDGES))
        )

    def rank(self, index: OpenedIndex, queries: Sequence[Query]) -> list[list[int]]:
        return [self._find(index, query) for query in queries]

    def _find(self, index: OpenedIndex, query: Query) -> list[int]:
        graph, count = index.data, len(index.passages)
        (facts,) = index.finders["facts"].find_scored(
            [replace(query, k=self.depth or len(graph.facts), among=None)]
        )
        best_facts = [fact for fact, _ in facts[: self.fact_count]]
        if query.facts is not None:
            best_facts = [graph.numbers[fact] for fact in query.facts if fact in graph.numbers]
        if not best_facts:
            return list(index.finders["passages"].find([query])[0])
        scores = normalize_scores(facts, len(graph.facts))
        reset = np.zeros(len(graph.walk.roots))
        weights = graph.weigh_entities([(fact, scores[fact]) for fact in best_facts])
        for entity, weight in sorted(weights.items(), key=lambda pair: (-pair[1], pair[0]))[
            : self.entity_count
        ]:
            reset[entity] = weight
        (ranked,) = index.finders["passages"].find_scored(
            [replace(query, k=self.depth or count, among=None)]
        )
        reset[-count:] = self.passage_weight * normalize_scores(ranked, count)
        # no passage has a score, and the chosen facts have the lowest of all
        if not reset.any():
            reset[list(weights)] = 1
        return rank_found(
            compute_pagerank(graph.walk, reset, self.damping)[-count:].round(DIGITS), query
        )


def match_facts(choices: Sequence[Json], candidates: Sequence[Fact]) -> tuple[Fact, ...]:
    """Return the most similar candidate of each fact that a model wrote, in its order, each once."""
    texts = {json.dumps(fact): fact for fact in candidates}
    nearest = (get_close_matches(json.dumps(fact), texts, 1, 0.0)[0] for fact in choices)
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
    entity. edges: in both directions between entities, the number of passages with such a fact; from an entity to its
    passages, 1. Passages come behind the entities.
    """

    facts: tuple[tuple[str, str, str], ...]
    names: Mapping[str, int]
    ends: Sequence[tuple[int, int]]
    holders: Sequence[int]
    edges: Edges

    @classmethod
    def of(cls, triples: Sequence[Sequence[Triple]], clean: Callable[[str], str]) -> FactGraph:
        """Return the graph of these triples, those of each passage."""
        fact_texts = [
            list(
                dict.fromkeys(
                    (clean(each.head), clean(each.relation), clean(each.tail)) for each in some
                )
            )
            for some in triples
        ]
        counts = Counter(chain.from_iterable(fact_texts))
        names, members = sparse.count_items(
            [end for head, _, tail in facts for end in (head, tail)] for facts in fact_texts
        )
        ends = [(names[head], names[tail]) for head, _, tail in counts]
        edges = defaultdict[tuple[int, int], float](float)
        for (head, tail), count in zip(ends, counts.values(), strict=True):
            if head != tail:
                edges[head, tail] += count
                edges[tail, head] += count
        edges.update(
            ((entity, len(names) + position), 1)
            for position, entity in zip(*members.nonzero(), strict=True)
        )
        return cls(
            tuple(counts), names, ends, sparse.count_holders(members).astype(int).tolist(), edges
        )


def clean_unicode(text: str) -> str:
    """Return the text in lower case with single spaces."""
    return " ".join(text.lower().split())


def clean_ascii(text: str) -> str:
    """Return the text as the released code does: other characters than A to Z and 0 to 9 are spaces."""
    return re.sub("[^a-z0-9 ]", " ", text.lower()).strip()


def find_near_names(names: Sequence[str], vectors: Vectors, least: float, most: int) -> Edges:
    """Return the edges of synonyms by the cosine of their vectors, see `_link_synonyms`. All pairs are compared."""
    rows = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def compare() -> Iterator[Pairs]:
        for start in range(0, len(rows), BLOCK):
            cosines = rows[start : start + BLOCK] @ rows.T
            ones, others = (cosines >= least).nonzero()
            yield ones + start, others, cosines[ones, others]

    return _link_synonyms(names, compare(), most)


def find_similar_spellings(names: Sequence[str], least: float, most: int) -> Edges:
    """Return the edges of synonyms by the cosine of their trigrams, see `_link_synonyms`.

    Two names with this cosine share one of the rarest trigrams of both, so that few pairs are compared.
    """
    _, grams = sparse.count_items(map(_trigrams, names))
    holders = sparse.count_holders(grams)
    sparse.weigh_items(grams, np.log(len(names) / holders))
    rare = _keep_rarest(grams, holders, least)

    def compare() -> Iterator[Pairs]:
        for start in range(0, len(names), BLOCK):
            candidates = (rare[start : start + BLOCK] @ rare.T).tocoo()
            ones, others = candidates.row + start, candidates.col
            cosines = np.asarray(grams[ones].multiply(grams[others]).sum(axis=1)).ravel()
            near = cosines >= least
            yield ones[near], others[near], cosines[near]

    return _link_synonyms(names, compare(), most)


def _keep_rarest(rows: sparse.Matrix, holders: NDArray[np.float64], least: float) -> sparse.Matrix:
    """Return the rows without their most common items, which together are too short for a cosine of `least`."""
    rare = rows[:, np.argsort(holders, kind="stable")].tocsr()
    rare.sort_indices()
    squares = rare.data**2
    before = np.concatenate([[0.0], np.cumsum(squares)])
    left = 1 - (before[:-1] - np.repeat(before[rare.indptr[:-1]], np.diff(rare.indptr)))
    rare.data[left < least**2 - 1e-9] = 0
    rare.eliminate_zeros()
    return rare


def _link_synonyms(names: Sequence[str], blocks: Iterable[Pairs], most: int) -> Edges:
    """Return edges from names of more than two letters or digits to at most `most` others, weighted by the cosine.

    They replace edges of facts in the same direction, as in the released code.
    """
    edges: Edges = {}
    for ones, others, cosines in blocks:
        order = np.lexsort((others, -cosines.round(6), ones))
        counts = Counter[int]()
        for one, other, cosine in zip(
            ones[order], others[order], cosines[order].round(6), strict=True
        ):
            if (
                one != other
                and names[other]
                and counts[one] < most
                and sum(map(str.isalnum, names[one])) > 2
            ):
                counts[one] += 1
                edges[int(one), int(other)] = float(cosine)
    return edges


def _trigrams(name: str) -> Iterator[str]:
    padded = f" {name} "
    return (padded[start : start + 3] for start in range(len(padded) - 2))


@dataclass(frozen=True)
class _FactGraph:
    """The stored graph, see `FactGraph`."""

    facts: Sequence[Fact]
    ends: Sequence[tuple[int, int]]
    holders: Sequence[int]
    walk: Walk

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
