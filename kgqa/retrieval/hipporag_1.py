"""HippoRAG (Gutiérrez et al., NeurIPS 2024): PageRank over entities, from the entities that a query names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from kgqa.calls import Fact, Generate, Search
from kgqa.prompting import render
from kgqa.prompting.json_replies import TEXT, list_schema, read_list
from kgqa.protocols import Query
from kgqa.retrieval import sparse
from kgqa.retrieval.graphs.entities import find_capitalized_names
from kgqa.retrieval.hipporag import DIGITS, EDGES, FACTS, ROLE, FactGraph, TripleRetriever
from kgqa.retrieval.pagerank import Walk, compute_pagerank
from kgqa.retrieval.search import OpenedIndex, Scores, rank_found
from kgqa.types import Passage, Triple
from kgqa.util.jsonio import decode_json

# of the graph and its scores
VERSION = 1


@dataclass(frozen=True)
class HippoRag1(TripleRetriever):
    """Walk from the entities of a query over facts and synonyms, and add up the probabilities of a passage's names.

    The model (role fact_filter) lists the entities of a query, and each becomes the name with the most similar
    embedding. Without a model they are the query's runs of capitalized words. A query without entities gets the ranking
    of `passages`.
    """

    # raise it when equal settings give other results
    version: ClassVar[int] = VERSION
    template: ClassVar[str] = "hipporag/entities"

    async def search(self, call: Search) -> tuple[Passage, ...]:
        """Search from the entities that the model lists. An unreadable reply lists none."""
        prompt, schema = (
            render(self.template, query=call.query),
            list_schema("named_entities", TEXT),
        )
        reply = await Generate(prompt, self.max_filter_tokens, schema=schema, role=ROLE)
        entities = [
            name for name in read_list(reply.text, "named_entities") or () if isinstance(name, str)
        ]
        # an entity is the head of a fact without a relation
        return await replace(call, facts=tuple((name, "", "") for name in entities if name.strip()))

    def _read_graph(self, triples: Sequence[Sequence[Triple]]) -> FactGraph:
        """Return the graph. The edge from a name to a passage has the number of the passage's facts with this name."""
        graph, clean = super()._read_graph(triples), self.clean
        counts = Counter[tuple[int, int]]()
        for position, some in enumerate(triples):
            facts = {(clean(each.head), clean(each.relation), clean(each.tail)) for each in some}
            ends = (end for head, _, tail in facts for end in {head, tail})
            counts.update((graph.names[end], len(graph.names) + position) for end in ends)
        return replace(graph, edges={**graph.edges, **counts})

    def _embedded_texts(self, facts: Sequence[Fact], names: Sequence[str]) -> Sequence[str]:  # noqa: ARG002 - hipporag embeds facts
        return names

    def load(self, folder: Path) -> _PhraseGraph:
        holders = np.array(decode_json((folder / FACTS).read_bytes())["holders"])
        edges, count = sparse.load_matrix(folder / EDGES), len(holders)
        return _PhraseGraph(1 / holders, Walk.of(edges[:count, :count]), edges[count:, :count])

    def rank(self, index: OpenedIndex, queries: Sequence[Query]) -> list[list[int]]:
        return [self._find(index, query) for query in queries]

    def _find(self, index: OpenedIndex, query: Query) -> list[int]:
        if query.facts is None:
            texts = [" ".join(words) for words in find_capitalized_names(query.text)]
        else:
            texts = [name for name, _, _ in query.facts]
        nearest = (
            index.finders["facts"].find([Query(self.clean(text), 1) for text in texts])
            if texts
            else ()
        )
        nodes = sorted({node for found in nearest for node in found})
        if not nodes:
            return list(index.finders["passages"].find([query])[0])
        reset = np.zeros(len(index.data.specificity))
        reset[nodes] = index.data.specificity[nodes]
        scores = index.data.counts @ compute_pagerank(index.data.walk, reset, self.damping)
        return rank_found(scores.round(DIGITS), query)


@dataclass(frozen=True)
class _PhraseGraph:
    """The stored graph. specificity: 1 / number of passages of each name. counts: shape (passages, names)."""

    specificity: Scores
    walk: Walk
    counts: sparse.Matrix
