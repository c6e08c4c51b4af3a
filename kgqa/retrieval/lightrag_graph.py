"""LightRAG's graph: entities and relations with the descriptions of all passages that mention them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kgqa.prompting.json_replies import TEXT, object_node, object_schema, read_list
from kgqa.types import Json, Passage, Triple

# between descriptions that no model merged
SEPARATOR = "<SEP>"
NUMBER = re.compile(r"[0-9]{1,2}|(?=[0-9]*\.)[0-9.]{1,5}")
# of the entities of a reply, and of its relations
ENTITY = ("name", "description")
RELATION = ("source", "target", "keywords", "description")
SCHEMA = object_schema(
    entities={"type": "array", "items": object_node(**dict.fromkeys(ENTITY, TEXT))},
    relationships={"type": "array", "items": object_node(**dict.fromkeys(RELATION, TEXT))},
)


class DescribedTriples(NamedTuple):
    """The descriptions of a passage: (name, description), and (source, target, keywords, description)."""

    entities: list[list[str]]
    relations: list[list[str]]

    @classmethod
    def read(cls, text: str) -> DescribedTriples | None:
        """Return the complete items of a reply. None: it is not in this form."""
        entities = read_list(text, "entities")
        if entities is None:
            return None
        relations = _read_items(read_list(text, "relationships") or (), RELATION)
        return cls(
            [
                [name, words]
                for name, words in _read_items(entities, ENTITY)
                if is_name(name) and words
            ],
            [
                [one, other, keywords, words]
                for one, other, keywords, words in relations
                if is_name(one) and is_name(other) and words and one != other
            ],
        )

    @classmethod
    def of_triples(cls, triples: Sequence[Triple]) -> DescribedTriples:
        """Return an extraction with the triples as sentences. An entity is described by its first triple."""
        entities: dict[str, str] = {}
        relations = []
        for each in triples:
            sentence = f"{each.head} {each.relation} {each.tail}"
            entities.setdefault(each.head, sentence)
            entities.setdefault(each.tail, sentence)
            if each.head != each.tail:
                relations.append([each.head, each.tail, each.relation, sentence])
        return cls([list(pair) for pair in entities.items()], relations)

    def json(self) -> dict[str, Json]:
        """Return the form in which a model writes it."""
        return {
            "entities": [dict(zip(ENTITY, each, strict=True)) for each in self.entities],
            "relationships": [dict(zip(RELATION, each, strict=True)) for each in self.relations],
        }

    def add(self, more: DescribedTriples) -> DescribedTriples:
        """Return this with the items of a second look. Of two descriptions of one thing the longer one stays."""
        return DescribedTriples(
            _choose_longer(self.entities, more.entities, 1),
            _choose_longer(self.relations, more.relations, 2),
        )


def clean(text: str) -> str:
    """Return a text with single blanks, without quotation marks around it."""
    text = " ".join(text.split())
    quote = text[:1]
    is_quoted = quote in ("'", '"') and text.count(quote) == 2 and text.endswith(quote)
    return text[1:-1].strip() if is_quoted else text


def is_name(text: str) -> bool:
    """Return whether a text can name an entity. As in the released code, a short number cannot."""
    return bool(text) and not NUMBER.fullmatch(text)


def _read_items(items: Sequence[Json], keys: Sequence[str]) -> Iterator[list[str]]:
    """Yield the values of each item that is an object with text under all keys."""
    for item in items:
        values = [item.get(key) for key in keys] if isinstance(item, dict) else []
        texts = [clean(value) for value in values if isinstance(value, str)]
        if len(texts) == len(keys):
            yield texts


def _choose_longer(first: list[list[str]], second: list[list[str]], size: int) -> list[list[str]]:
    """Return the items of both lists by their first `size` values, which name them. The last value describes them."""
    named: dict[tuple[str, ...], list[list[str]]] = {}
    for item in first:
        named.setdefault(tuple(item[:size]), []).append(item)
    new: dict[tuple[str, ...], list[list[str]]] = {}
    for item in second:
        new.setdefault(tuple(item[:size]), []).append(item)
    for name, items in new.items():
        if name not in named or len(items[0][-1]) > len(named[name][0][-1]):
            named[name] = items
    return [item for items in named.values() for item in items]


@dataclass
class Described:
    """An entity or a relation. holders: the positions of its passages."""

    texts: list[str] = field(default_factory=list)
    holders: list[int] = field(default_factory=list)
    keywords: set[str] = field(default_factory=set)
    weight: int = 0

    def add(self, position: int, texts: Sequence[str]) -> None:
        """Add a passage with its descriptions, the longest first."""
        self.texts += dict.fromkeys(
            text for text in sorted(texts, key=len, reverse=True) if text not in self.texts
        )
        if position not in self.holders[-1:]:
            self.holders.append(position)

    @property
    def text(self) -> str:
        return SEPARATOR.join(self.texts)


@dataclass(frozen=True)
class DescribedGraph:
    """Entities by name, and relations by their two names in alphabetical order."""

    entities: Mapping[str, Described]
    relations: Mapping[tuple[str, str], Described]

    @classmethod
    def of(cls, extractions: Sequence[DescribedTriples]) -> DescribedGraph:
        """Return the graph of the extractions of all passages.

        As in the released code, an end of a relation that is no entity of the passage becomes one, with the relation's
        description, and the weight of a relation is the number of its descriptions.
        """
        entities: dict[str, Described] = {}
        relations: dict[tuple[str, str], Described] = {}
        for position, extraction in enumerate(extractions):
            of_entity: dict[str, list[str]] = {}
            for name, text in extraction.entities:
                of_entity.setdefault(name, []).append(text)
            for name, texts in of_entity.items():
                entities.setdefault(name, Described()).add(position, texts)
            of_relation: dict[tuple[str, str], list[tuple[str, str]]] = {}
            for one, other, keywords, text in extraction.relations:
                pair = (min(one, other), max(one, other))
                of_relation.setdefault(pair, []).append((keywords, text))
            for pair, items in of_relation.items():
                relation = relations.setdefault(pair, Described())
                relation.add(position, [text for _, text in items])
                relation.weight += len(items)
                words = (word.strip() for keywords, _ in items for word in keywords.split(","))
                relation.keywords.update(word for word in words if word)
                for name in pair:
                    texts = [] if name in entities else [relation.text]
                    entities.setdefault(name, Described()).add(position, texts)
        return cls(entities, relations)

    def json(self) -> dict[str, Json]:
        """Return lists with numbers instead of names."""
        numbers = {name: number for number, name in enumerate(self.entities)}
        return {
            "entities": [
                [name, each.text, list(each.holders)] for name, each in self.entities.items()
            ],
            "relations": [
                [
                    numbers[one],
                    numbers[other],
                    ",".join(sorted(each.keywords)),
                    each.text,
                    each.weight,
                    list(each.holders),
                ]
                for (one, other), each in self.relations.items()
            ],
        }


class DescribedEntity(NamedTuple):
    """A stored entity."""

    name: str
    text: str
    holders: list[int]

    @property
    def passage(self) -> Passage:
        """Return what is embedded and shown."""
        return Passage.of(self.name, self.text)


class DescribedRelation(NamedTuple):
    """A stored relation. The ends are numbers of entities."""

    one: int
    other: int
    keywords: str
    text: str
    weight: int
    holders: list[int]
