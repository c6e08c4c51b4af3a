"""TRACE's KG generator (§3.2): one call per passage extracts its triples, independent of the question.

The call cache stores the replies of the model. They are parsed at each use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Literal, Protocol, runtime_checkable

from kgqa.calls import CountTokens, Generate, Program
from kgqa.errors import ConfigError
from kgqa.prompting import render
from kgqa.prompting.demonstrations import DocumentDemonstration, Mode, choose_demonstrations
from kgqa.prompting.triples import read_triples
from kgqa.protocols import Need
from kgqa.types import Passage, Prompt, Triple
from kgqa.util.settings import Setting
from kgqa.util.validators import Count

ROLE = "extractor"
Layout = Literal["figures", "released", "prefixed"]
TEMPLATES: dict[Layout, str] = {
    "figures": "trace/extract",
    "released": "trace/extract_released",
    "prefixed": "trace/extract_begun",
}
UNREADABLE = "unreadable_triples"  # a flag of an extraction
# a model that does not stop starts the next document
STOP = ("\nTitle:",)


@dataclass(frozen=True, slots=True)
class Extraction:
    """The unparsed reply about one passage, and its cost. Its triples are written as in `read_triples`."""

    completion: str
    prompt_tokens: int = 0
    output_tokens: int = 0
    flags: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ParsedTriples:
    """Distinct triples in the order of the reply, and the number of malformed ones."""

    triples: tuple[Triple, ...]
    malformed: int


def parse_triples(completion: str, passage: Passage) -> ParsedTriples:
    """Parse the triples of a reply, see `read_triples`.

    A head that is neither the title nor in the text becomes the title, if there is one (as in the released code). Case
    and repeated spaces are ignored.
    """
    lines = read_triples(completion)
    title, text = _fold(passage.title), _fold(passage.text)
    triples: dict[Triple, None] = {}
    for head, relation, tail in lines.triples:
        is_in_text = _fold(head) == title or _fold(head) in text
        triples[
            Triple(
                head if is_in_text else passage.title.strip() or head, relation, tail, passage.id
            )
        ] = None
    return ParsedTriples(tuple(triples), lines.malformed)


@runtime_checkable
class Extractor(Protocol):
    """A program that extracts the triples of a passage with the calls of `uses`."""

    @property
    def uses(self) -> frozenset[Need]: ...

    @property
    def templates(self) -> tuple[str, ...]: ...

    @property
    def few_shot(self) -> tuple[DocumentDemonstration, ...]: ...

    def extract(self, passage: Passage) -> Program[Extraction]: ...


async def extract_triples(extractor: Extractor, passage: Passage) -> tuple[Triple, ...]:
    """Extract the triples of a passage and parse them."""
    extraction = await extractor.extract(passage)
    return parse_triples(extraction.completion, passage).triples


@dataclass
class ExtractedTriples:
    """Answers `Triples` with the calls of an extractor.

    failed: the title and the error by id of each passage that failed before the first question. It has no triples in
    this run, and the next run tries it again. figures: sums over all passages.
    """

    extractor: Extractor
    failed: dict[str, str] = field(default_factory=dict)
    figures: Mapping[str, int] = field(default_factory=dict)

    async def extract(self, passage: Passage) -> tuple[Triple, ...]:
        """Return the triples of a passage, none if it failed before."""
        return () if passage.id in self.failed else await extract_triples(self.extractor, passage)


@dataclass(frozen=True)
class TripleExtractor:
    """The extractor. With `head=title`, few-shot examples show only such triples."""

    head: Annotated[
        Literal["title", "any"],
        Setting(
            "Head of a triple: title, the passage's | any (left to later work in Limitations, 1).",
            paper="§3.2, §B.1",
        ),
    ] = "title"
    layout: Annotated[
        Layout,
        Setting(
            "Form of the prompt, Fig. 5: figures | released, as the released code arranges it | "
            "prefixed, the same with "
            "the reply's first bracket (ours, for small models)"
        ),
    ] = "figures"
    max_tokens: Annotated[Count, Setting("Maximum tokens of a reply.", code="released code")] = 512
    max_prompt_tokens: Annotated[
        Count,
        Setting(
            "Longer prompts lose examples, the least similar first, then the passage's end.",
            code="released code",
        ),
    ] = 2048
    demonstrations: Annotated[
        Mode,
        Setting(
            "Few-shot examples of the extraction: adaptive, the most similar ones | fixed | none.",
            paper="§C.4",
        ),
    ] = "adaptive"
    demonstration_count: Annotated[
        Count, Setting("Few-shot examples in the prompt.", paper="§C.4")
    ] = 3
    few_shot: Annotated[
        tuple[DocumentDemonstration, ...],
        Setting(
            "24 per family: hotpotqa, 2wiki, musique, iirc. Or another file, or the authors'.",
            ours="the examples are ours",
        ),
    ] = field(kw_only=True)

    def __post_init__(self) -> None:
        if self.demonstrations != "none" and self.demonstration_count > len(self._examples):
            count, available = self.demonstration_count, len(self._examples)
            raise ConfigError(
                f"kg.demonstration_count={count}: the file has only {available} documents"
            )

    @property
    def uses(self) -> frozenset[Need]:
        ranked: frozenset[Need] = frozenset(
            {"demonstrations_ranker"} if self.demonstrations == "adaptive" else ()
        )
        return ranked | {"model"}

    @property
    def templates(self) -> tuple[str, ...]:
        return (TEMPLATES[self.layout],)

    @cached_property
    def _examples(self) -> tuple[DocumentDemonstration, ...]:
        """Return the documents with the triples to show, without documents that have none."""
        if self.head == "any":
            return self.few_shot
        titled = (
            replace(document, triples=_triples_of_title(document)) for document in self.few_shot
        )
        return tuple(document for document in titled if document.triples)

    async def extract(self, passage: Passage) -> Extraction:
        """Extract the triples of a passage. Flags: `demonstrations_dropped`, `passage_cut`, `truncated_extraction`.

        Raises:
            ConfigError: the instruction alone exceeds `max_prompt_tokens`.
        """
        few_shot = await choose_demonstrations(
            self._examples,
            self.demonstrations,
            self.demonstration_count,
            f"{passage.title}: {passage.text}",
        )
        examples, text = few_shot, passage.text
        while examples and await self._surplus_tokens(self._prompt(passage.title, text, examples)):
            examples = examples[:-1]
        if not examples:
            text = await self._cut_text(passage)
        reply = await Generate(
            self._prompt(passage.title, text, examples), self.max_tokens, stop=STOP, role=ROLE
        )
        flags = {
            "demonstrations_dropped": len(few_shot) - len(examples),
            "passage_cut": int(text != passage.text),
            "truncated_extraction": int(reply.finish == "length"),
        }
        return Extraction(
            self._with_bracket(reply.text),
            reply.usage.prompt_tokens,
            reply.usage.output_tokens,
            {flag: count for flag, count in flags.items() if count},
        )

    async def _cut_text(self, passage: Passage) -> str:
        """Cut the end of the passage until the prompt without few-shot examples fits."""
        text = passage.text
        while surplus := await self._surplus_tokens(self._prompt(passage.title, text, ())):
            if not text:
                limit = self.max_prompt_tokens
                raise ConfigError(
                    f"kg.max_prompt_tokens={limit}: the instruction and the title alone need {limit + surplus} "
                    f"(passage {passage.id}). Increase it."
                )
            tokens = max(1, await CountTokens(text, ROLE))
            # in proportion, and at least one character less
            length = int(len(text) * max(0.0, 1 - surplus / tokens))
            text = text[: min(length, len(text) - 1)].rstrip()
        return text

    def _with_bracket(self, reply: str) -> str:
        """Add the bracket with which the prompt started the reply, unless the model repeats it."""
        return (
            f"<{reply}"
            if self.layout == "prefixed" and not reply.lstrip().startswith("<")
            else reply
        )

    def _prompt(self, title: str, text: str, chosen: tuple[DocumentDemonstration, ...]) -> Prompt:
        # the nearest is next to the passage (not in the paper)
        is_last = self.layout == "figures" and self.demonstrations == "adaptive"
        examples = chosen[::-1] if is_last else chosen
        return render(
            self.templates[0], head=self.head, demonstrations=examples, title=title, text=text
        )

    async def _surplus_tokens(self, prompt: Prompt) -> int:
        """Return the number of excess tokens of the prompt, without the chat template."""
        text = "\n".join([*(message.content for message in prompt.messages), prompt.prefill])
        # a token is at least one byte
        if len(text.encode()) <= self.max_prompt_tokens:
            return 0
        return max(0, await CountTokens(text, ROLE) - self.max_prompt_tokens)


def _triples_of_title(document: DocumentDemonstration) -> tuple[str, ...]:
    """Return the triples with the title as head, with or without its part in parentheses: "Elm (town)"."""
    names = {_normalize(document.title), _normalize(document.title.partition(" (")[0])}
    heads = ((text, read_triples(text).triples) for text in document.triples)
    return tuple(text for text, read in heads if not read or _normalize(read[0][0]) in names)


def _normalize(text: str) -> str:
    return "".join(text.split()).casefold()


def _fold(text: str) -> str:
    return " ".join(text.split()).casefold()
