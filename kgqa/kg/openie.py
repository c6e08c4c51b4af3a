"""HippoRAG's OpenIE: one call per passage lists its named entities, a second one writes triples with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from kgqa.calls import Generate
from kgqa.errors import ConfigError
from kgqa.kg.extraction import ROLE, UNREADABLE, Extraction
from kgqa.prompting import render
from kgqa.prompting.demonstrations import DocumentDemonstration
from kgqa.prompting.json_replies import TEXT, TRIPLE, list_schema, read_list
from kgqa.prompting.triples import read_triples
from kgqa.protocols import Need
from kgqa.types import Json, Passage
from kgqa.util.settings import Setting
from kgqa.util.validators import Count


@dataclass(frozen=True)
class OpenIe:
    """The extractor. Its triples are stored as those of `TripleExtractor`."""

    max_entity_tokens: Annotated[
        Count, Setting("Maximum tokens of the entities.", ours="our choice")
    ] = 512
    max_tokens: Annotated[Count, Setting("Maximum tokens of the triples.", ours="our choice")] = (
        1024
    )
    demonstration_count: Annotated[Count, Setting("Number of few-shot examples.", code="one")] = 1
    few_shot: Annotated[
        tuple[DocumentDemonstration, ...],
        Setting(
            "24 documents per family: hotpotqa, 2wiki, musique, iirc. Or another file.",
            ours="the examples are ours",
        ),
    ] = field(kw_only=True)

    uses: ClassVar[frozenset[Need]] = frozenset({"model"})
    templates: ClassVar[tuple[str, ...]] = ("openie/entities", "openie/triples")

    def __post_init__(self) -> None:
        if self.demonstration_count > len(self.few_shot):
            count, available = self.demonstration_count, len(self.few_shot)
            raise ConfigError(
                f"kg.demonstration_count={count}: the file has only {available} documents"
            )

    async def extract(self, passage: Passage) -> Extraction:
        """Extract the triples. Flags: `unreadable_entities`, `unreadable_triples`, `truncated_extraction`."""
        examples = [_example(document) for document in self.few_shot[: self.demonstration_count]]
        values = {"examples": examples, "title": passage.title, "text": passage.text}
        prompt, schema = render(self.templates[0], **values), list_schema("named_entities", TEXT)
        first = await Generate(prompt, self.max_entity_tokens, schema=schema, role=ROLE)
        entities = read_list(first.text, "named_entities")
        names = [name for name in entities or () if isinstance(name, str)]
        prompt, schema = (
            render(self.templates[1], **values, entities=names),
            list_schema("triples", TRIPLE),
        )
        second = await Generate(prompt, self.max_tokens, schema=schema, role=ROLE)
        triples = read_list(second.text, "triples")
        flags = {
            "unreadable_entities": entities is None,
            UNREADABLE: triples is None,
            "truncated_extraction": "length" in (first.finish, second.finish),
        }
        usage = first.usage + second.usage
        return Extraction(
            "\n".join(map(_line, triples or ())),
            usage.prompt_tokens,
            usage.output_tokens,
            {flag: 1 for flag, is_set in flags.items() if is_set},
        )


def _line(triple: Json) -> str:
    """Return a triple in the stored form, in which one without three texts is malformed."""
    parts = triple if isinstance(triple, list) else [triple]
    return "<{}>".format(
        "; ".join(str(part).replace(";", ",").replace("<", "(").replace(">", ")") for part in parts)
    )


def _example(document: DocumentDemonstration) -> dict[str, Json]:
    """Return a few-shot example. Its entities are the ends of its triples that the text contains."""
    triples = [list(triple) for triple in read_triples("\n".join(document.triples)).triples]
    ends = dict.fromkeys(end for head, _, tail in triples for end in (head, tail))
    named = [end for end in ends if end in document.text or end == document.title]
    return {"title": document.title, "text": document.text, "entities": named, "triples": triples}
