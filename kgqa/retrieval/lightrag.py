"""LightRAG (Guo et al., 2024): search passages through the descriptions of their entities and relations."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain, zip_longest
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from kgqa.calls import Generate, Search, settle
from kgqa.errors import ConfigError
from kgqa.prompting import render, template_hash
from kgqa.prompting.json_replies import TEXT, object_schema, read_list
from kgqa.protocols import Finder, Need, Progress, Query, Rankings, TripleSource
from kgqa.retrieval.composite import Composite, count_failures
from kgqa.retrieval.dense import Dense
from kgqa.retrieval.hipporag import EXTRACTOR, ROLE
from kgqa.retrieval.lightrag_graph import (
    SCHEMA,
    Described,
    DescribedEntity,
    DescribedGraph,
    DescribedRelation,
    DescribedTriples,
)
from kgqa.retrieval.search import LoadedPassages, OpenedIndex
from kgqa.types import Json, JsonObject, Passage
from kgqa.util.fs import ensure_dir, explain_storage_errors
from kgqa.util.jsonio import decode_json, encode_json
from kgqa.util.settings import Setting
from kgqa.util.validators import Count, Share

# of the graph and the search
VERSION = 1
EXTRACT, GLEAN, MERGE, KEYWORDS = (
    "lightrag/extract",
    "lightrag/glean",
    "lightrag/merge",
    "lightrag/keywords",
)
GRAPH = "graph.json"
# folders of the three indexes
PASSAGES, ENTITIES, RELATIONS = "passages", "entities", "relations"
# of English, roughly
CHARACTERS_PER_TOKEN = 4
# characters around the texts of an entity or a relation in the released prompt
FRAME = 50
# of the descriptions that are merged in one call
MERGED_TOKENS = 12_000
HIGH, LOW = "high_level_keywords", "low_level_keywords"
KEYWORD_SCHEMA = object_schema(**{key: {"type": "array", "items": TEXT} for key in (HIGH, LOW)})
NONE = DescribedTriples([], [])


@dataclass(frozen=True)
class LightRag(Composite):
    """Find entities by the low-level keywords of a query, and relations by its high-level ones, then their passages.

    Of the passages of these entities, and of the further ones of these relations, those with the most similar
    embeddings to the query are found, in turn. A query without keywords gets the ranking of all passages.
    """

    nodes: Annotated[
        Dense,
        Setting(
            "Dense retriever of passages, entities and relations: retriever@retriever.nodes=NAME."
        ),
    ]
    triples: Annotated[
        TripleSource,
        Setting("Triples instead of the model's descriptions: retriever.triples.path=FILE."),
    ]
    mode: Annotated[
        Literal["hybrid", "local", "global", "mix"],
        Setting(
            "Start: local, entities | global, relations | hybrid, both | mix, both and the ranking of all passages.",
            paper="hybrid",
        ),
    ] = "hybrid"
    keywords: Annotated[
        bool,
        Setting(
            "Let the model (role fact_filter) list the keywords of a query. false: the query is its only keyword.",
            paper="paper",
        ),
    ] = True
    results: Annotated[
        Literal["passages", "all"],
        Setting(
            "Returned: passages | all: passages, entities and relations in turn, as texts that the method reads.",
            ours="our choice",
        ),
    ] = "passages"
    nearest: Annotated[
        Count,
        Setting("Entities, and relations, that are nearest to the keywords.", code="released code"),
    ] = 40
    least_similarity: Annotated[
        Share,
        Setting(
            "Least inner product of keywords and description. It is the cosine if vectors have length 1.",
            code="released code",
        ),
    ] = 0.2
    max_entity_tokens: Annotated[
        Count,
        Setting("Tokens (of four letters) of all entities of a search.", code="released code"),
    ] = 6000
    max_relation_tokens: Annotated[
        Count,
        Setting("Tokens (of four letters) of all relations of a search.", code="released code"),
    ] = 8000
    related: Annotated[
        Count,
        Setting(
            "Passages per two entities, and per two relations, among which the search ends.",
            code="released code",
        ),
    ] = 5
    gleanings: Annotated[
        Literal[0, 1],
        Setting("Further calls per passage for what the first one missed.", code="released code"),
    ] = 1
    merged_from: Annotated[
        Count,
        Setting(
            "Number of descriptions from which the model merges them into one.",
            code="released code",
        ),
    ] = 8
    max_description_tokens: Annotated[
        Count,
        Setting(
            "Tokens (of four letters) from which descriptions are merged, and maximum tokens of the result.",
            code="released code",
        ),
    ] = 1200
    max_tokens: Annotated[Count, Setting("Maximum tokens of an extraction.", ours="our choice")] = (
        2048
    )
    max_keyword_tokens: Annotated[
        Count, Setting("Maximum tokens of the keywords.", ours="our choice")
    ] = 512

    # raise it when equal settings give other results
    version: ClassVar[int] = VERSION

    def __post_init__(self) -> None:
        if not isinstance(self.nodes, Dense):
            raise ConfigError(
                f"retriever.nodes: {type(self.nodes).__name__} has no embeddings. Choose a dense one"
            )
        if self.results == "all" and self.triples.path:
            raise ConfigError(
                "retriever.results=all returns descriptions by a model. Remove retriever.triples.path"
            )

    @property
    def uses(self) -> frozenset[Need]:
        return frozenset({"model"} if self.keywords or self.writer else ())

    @property
    def writer(self) -> str:
        return "" if self.triples.path else EXTRACTOR

    @property
    def pools(self) -> bool:
        return not self.writer

    def loads(self) -> JsonObject:
        names = (KEYWORDS,) * self.keywords + (EXTRACT, GLEAN, MERGE) * bool(self.writer)
        return {"templates": [template_hash(name) for name in names]}

    @property
    def has_program(self) -> bool:
        return self.keywords

    async def expand(
        self, passages: Sequence[Passage], folder: Path | None, advance: Progress
    ) -> list[Passage]:
        """Extract the descriptions of entities and relations with the model, and save the graph.

        Return the descriptions as passages if searches return them.
        """

        async def extract(passage: Passage) -> DescribedTriples | None:
            extraction = await self._extract(passage)
            advance(1)
            return extraction

        results = await settle(*map(extract, passages))
        failed = count_failures(results, "extraction") if folder else 0
        extractions = [NONE if isinstance(each, Exception) else each for each in results]
        graph = DescribedGraph.of([each or NONE for each in extractions])
        described = {
            **graph.entities,
            **{
                f"how {one} and {other} are related": each
                for (one, other), each in graph.relations.items()
            },
        }
        merged = await settle(*(self._merge(name, each) for name, each in described.items()))
        failed += count_failures(merged, "merging descriptions") if folder else 0
        stored = graph.json()
        added = self._show(stored, passages) if self.results == "all" else []
        if folder:
            counts = {
                "failed": failed,
                "unreadable": sum(each is None for each in extractions),
                "without_triples": sum(not (each and each.entities) for each in extractions),
            }
            with explain_storage_errors(folder):
                (folder / GRAPH).write_bytes(encode_json({**stored, "counts": counts}))
        return added

    async def _extract(self, passage: Passage) -> DescribedTriples | None:
        """Return the descriptions of a passage, or None if the reply cannot be read."""
        prompt = render(EXTRACT, passage=passage)
        reply = await Generate(prompt, self.max_tokens, schema=SCHEMA, role=EXTRACTOR)
        extraction = DescribedTriples.read(reply.text)
        if extraction is None:
            return None
        for _ in range(self.gleanings):
            listed = json.dumps(extraction.json(), ensure_ascii=False)
            prompt = render(GLEAN, passage=passage, listed=listed)
            reply = await Generate(prompt, self.max_tokens, schema=SCHEMA, role=EXTRACTOR)
            extraction = extraction.add(DescribedTriples.read(reply.text) or NONE)
        return extraction

    async def _merge(self, name: str, described: Described) -> None:
        """Replace many or long descriptions by one of the model. If it fails, they stay."""
        tokens = sum(map(len, described.texts)) // CHARACTERS_PER_TOKEN
        if len(described.texts) < 2 or (
            len(described.texts) < self.merged_from and tokens < self.max_description_tokens
        ):
            return
        texts = _cut(described.texts, described.texts, MERGED_TOKENS)
        prompt = render(MERGE, name=name, descriptions=texts)
        reply = await Generate(prompt, self.max_description_tokens, role=EXTRACTOR)
        # a model can write half a surrogate pair
        if text := reply.text.strip().encode("utf-8", "replace").decode():
            described.texts[:] = [text]

    def _show(self, stored: dict[str, Json], passages: Sequence[Passage]) -> list[Passage]:
        """Return entities and relations as passages, and add their positions to the stored graph."""
        texts = _IndexGraph.of(stored).list_texts()
        positions = {passage.id: position for position, passage in enumerate(passages)}
        added = list[Passage]()
        for passage in texts:
            if passage.id not in positions:
                positions[passage.id] = len(passages) + len(added)
                added.append(passage)
        stored["positions"] = [positions[passage.id] for passage in texts]
        return added

    def build(self, passages: Sequence[Passage], folder: Path, advance: Progress) -> None:
        """Embed passages, entities and relations. Raises ConfigError if no passage has an entity."""
        if not self.writer:
            triples = (self.triples.triples(passage) for passage in passages)
            graph = DescribedGraph.of([DescribedTriples.of_triples(each) for each in triples])
            with explain_storage_errors(folder):
                (folder / GRAPH).write_bytes(encode_json(graph.json()))
        stored = self.load(folder)
        if not stored.entities or not stored.relations:
            raise ConfigError(
                "retriever: no passage of the corpus has a relation. Choose another model or file of triples"
            )
        for name, texts in (
            (PASSAGES, passages),
            (ENTITIES, stored.entity_passages),
            (RELATIONS, stored.relation_passages),
        ):
            with explain_storage_errors(folder):
                part = ensure_dir(folder / name)
            self.nodes.build(texts, part, advance if name == PASSAGES else lambda _: None)

    def open(self, passages: Sequence[Passage], folder: Path) -> OpenedIndex:
        texts: dict[str, Sequence[Passage]] = {
            PASSAGES: passages,
            ENTITIES: LoadedPassages(lambda: self.load(folder).entity_passages),
            RELATIONS: LoadedPassages(lambda: self.load(folder).relation_passages),
        }
        finders = {name: self.nodes.open(some, folder / name) for name, some in texts.items()}
        return OpenedIndex(self, passages, folder, finders)

    def load(self, folder: Path) -> _IndexGraph:
        return _IndexGraph.of(decode_json((folder / GRAPH).read_bytes()))

    def count_lacks(self, passages: Sequence[Passage], folder: Path | None) -> Mapping[str, int]:
        """Return the numbers of passages without descriptions, and why. See `MeasuredRetriever`."""
        if not self.writer:
            return {
                "unmatched": len(self.triples.missing(passages)),
                "without_triples": sum(not self.triples.triples(passage) for passage in passages),
            }
        if folder is None:
            return {}
        counts: dict[str, int] = decode_json((folder / GRAPH).read_bytes())["counts"]
        return counts

    async def search(self, call: Search) -> tuple[Passage, ...]:
        """Search with the keywords that the model lists. An unreadable reply lists none."""
        reply = await Generate(
            render(KEYWORDS, query=call.query),
            self.max_keyword_tokens,
            schema=KEYWORD_SCHEMA,
            role=ROLE,
        )
        high, low = (
            [each.strip() for each in read_list(reply.text, key) or () if isinstance(each, str)]
            for key in (HIGH, LOW)
        )
        # a low-level keyword is the head of a fact, a high-level one its relation
        facts = [
            *((each, "", "") for each in low if each),
            *(("", each, "") for each in high if each),
        ]
        return await replace(call, facts=tuple(facts))

    def rank(self, index: OpenedIndex, queries: Sequence[Query]) -> Rankings:
        return [self._find(index, query) for query in queries]

    def _find(self, index: OpenedIndex, query: Query) -> list[int]:
        facts = [(query.text, query.text, "")] if query.facts is None else query.facts
        low = ", ".join(head for head, _, _ in facts if head)
        high = ", ".join(relation for _, relation, _ in facts if relation)
        passages: Any = index.finders[PASSAGES]
        if not (low or high):
            return list(passages.find([query])[0])
        graph: _IndexGraph = index.data
        entities, relations = self._find_nodes(index, low, high)

        def choose(positions: set[int], count: int) -> list[int]:
            """Return those of the positions with the most similar passages."""
            among = tuple(sorted(positions))
            wanted = replace(query, k=self.related * count // 2, among=among)
            return list(passages.find([wanted])[0]) if among and wanted.k else []

        held = {holder for each in entities for holder in graph.entities[each].holders}
        first = choose(held, len(entities))
        left, count = set[int](), 0
        for each in relations:
            new = set(graph.relations[each].holders) - left - set(first)
            left |= new
            count += bool(new)
        lists = [first, choose(left, count)]
        if self.mode == "mix":
            lists.insert(0, list(passages.find([replace(query, among=None)])[0]))
        found = _take_turns(*lists)
        if self.results == "all":
            found = _take_turns(
                found,
                [graph.positions[each] for each in entities],
                [graph.positions[len(graph.entities) + each] for each in relations],
            )
        allowed = found if query.among is None else [at for at in found if at in set(query.among)]
        return allowed[: query.k]

    def _find_nodes(self, index: OpenedIndex, low: str, high: str) -> tuple[list[int], list[int]]:
        """Return the numbers of the entities and of the relations of a search, the best first."""
        graph: _IndexGraph = index.data
        # as in the released code, a mode without its keywords starts at the other ones
        from_entities = self.mode != "global" or not high
        from_relations = self.mode != "local" or not low
        entities = self._find_nearest(index.finders[ENTITIES], low) if from_entities else []
        relations = self._find_nearest(index.finders[RELATIONS], high) if from_relations else []
        around = dict.fromkeys(edge for each in entities for edge in graph.edges[each])
        ends = (end for each in relations for end in graph.relations[each][:2])
        entities = _take_turns(entities, list(dict.fromkeys(ends)))
        relations = _take_turns(sorted(around, key=graph.weigh, reverse=True), relations)
        entity_texts = [graph.entities[each].name + graph.entities[each].text for each in entities]
        relation_texts = [
            "".join([*graph.find_names(each), graph.relations[each].text]) for each in relations
        ]
        return (
            _cut(entities, entity_texts, self.max_entity_tokens),
            _cut(relations, relation_texts, self.max_relation_tokens),
        )

    def _find_nearest(self, finder: Finder, keywords: str) -> list[int]:
        if not keywords:
            return []
        scored: Any = finder
        (found,) = scored.find_scored([Query(keywords, self.nearest)])
        return [position for position, score in found if score >= self.least_similarity]


@dataclass(frozen=True)
class _IndexGraph:
    """The stored graph. positions: of entities and then relations among the passages, if searches return them."""

    entities: Sequence[DescribedEntity]
    relations: Sequence[DescribedRelation]
    positions: Sequence[int]

    @classmethod
    def of(cls, stored: Any) -> _IndexGraph:
        return cls(
            [DescribedEntity(*each) for each in stored["entities"]],
            [DescribedRelation(*each) for each in stored["relations"]],
            stored.get("positions", ()),
        )

    @cached_property
    def edges(self) -> list[list[int]]:
        """Return the relations of each entity."""
        edges: list[list[int]] = [[] for _ in self.entities]
        for number, relation in enumerate(self.relations):
            edges[relation.one].append(number)
            edges[relation.other].append(number)
        return edges

    def weigh(self, relation: int) -> tuple[int, int]:
        """Return the number of relations of both ends, and the weight."""
        one, other, *_ = self.relations[relation]
        return len(self.edges[one]) + len(self.edges[other]), self.relations[relation].weight

    def find_names(self, relation: int) -> tuple[str, str]:
        one, other, *_ = self.relations[relation]
        return self.entities[one].name, self.entities[other].name

    @property
    def entity_passages(self) -> list[Passage]:
        """Return what is embedded of each entity: its name and description."""
        return [Passage.of(each.name, each.text) for each in self.entities]

    @property
    def relation_passages(self) -> list[Passage]:
        """Return what is embedded of each relation: keywords, names and description."""
        texts = []
        for number, each in enumerate(self.relations):
            one, other = self.find_names(number)
            texts.append(Passage.of(f"{each.keywords}\t{one}", f"{other}\n{each.text}"))
        return texts

    def list_texts(self) -> list[Passage]:
        """Return entities and relations as a method reads them."""
        titles = (" – ".join(self.find_names(number)) for number in range(len(self.relations)))
        relations = zip(titles, self.relations, strict=True)
        return [
            *self.entity_passages,
            *(Passage.of(title, each.text) for title, each in relations),
        ]


def _cut(items: Sequence[Any], texts: Sequence[str], most: int) -> list[Any]:
    """Return the first items that have at most `most` tokens together."""
    lengths = accumulate(len(text) + FRAME for text in texts)
    return [
        item
        for item, length in zip(items, lengths, strict=True)
        if length // CHARACTERS_PER_TOKEN <= most
    ]


def _take_turns(*lists: Sequence[int]) -> list[int]:
    """Return the first item of each list, then the second ones and so on, each once."""
    turns: Iterator[int | None] = chain.from_iterable(zip_longest(*lists))
    return list(dict.fromkeys(each for each in turns if each is not None))
