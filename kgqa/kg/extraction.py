"""TRACE's KG generator (§3.2): one call per passage writes its triples, whatever the question."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from kgqa.calls import CountTokens, Generate
from kgqa.constraints import Count
from kgqa.demonstrations import DocumentDemonstration, Mode, choose_demonstrations, nearest_last
from kgqa.errors import ConfigError
from kgqa.kg.parsing import Extraction
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.triples import read_triples
from kgqa.types import Passage, Prompt

ROLE = "extractor"
Layout = Literal["figures", "released", "begun"]
TEMPLATES: dict[Layout, str] = {
    "figures": "trace/extract",
    "released": "trace/extract_released",
    "begun": "trace/extract_begun",
}
STOP = ("\nTitle:",)  # a model that runs on starts the next document


@dataclass(frozen=True)
class TripleExtractor:
    """Fields as in conf/kg/trace.yaml. `head=title`: demonstrations show only their triples of that form."""

    head: Literal["title", "any"]
    layout: Layout
    max_tokens: Count
    max_prompt_tokens: Count
    demonstrations: Mode
    demonstration_count: Count
    demonstrations_from: tuple[DocumentDemonstration, ...]

    def __post_init__(self) -> None:
        if self.demonstrations != "none" and self.demonstration_count > len(self._labelled):
            count, available = self.demonstration_count, len(self._labelled)
            raise ConfigError(f"kg.demonstration_count={count}: the file holds only {available} documents")

    @property
    def uses(self) -> frozenset[Need]:
        ranked: frozenset[Need] = frozenset({"demonstrations_ranker"} if self.demonstrations == "adaptive" else ())
        return ranked | {"model"}

    @property
    def template(self) -> str:
        return TEMPLATES[self.layout]

    @cached_property
    def _labelled(self) -> tuple[DocumentDemonstration, ...]:
        """The documents with the triples that may be shown; those without any are left out."""
        if self.head == "any":
            return self.demonstrations_from
        titled = (replace(document, triples=_of_title(document)) for document in self.demonstrations_from)
        return tuple(document for document in titled if document.triples)

    async def extract(self, passage: Passage) -> Extraction:
        """Flags: `demonstrations_dropped`, how many; `passage_cut`; `truncated_extraction` where the reply was cut.

        Raises:
            ConfigError: the instruction alone exceeds `max_prompt_tokens`.
        """
        chosen = await choose_demonstrations(
            self._labelled, self.demonstrations, self.demonstration_count, f"{passage.title}: {passage.text}"
        )
        shown, text = chosen, passage.text
        while shown and await self._surplus_tokens(self._prompt(passage.title, text, shown)):
            shown = shown[:-1]
        if not shown:
            text = await self._fitting_text(passage)
        reply = await Generate(self._prompt(passage.title, text, shown), self.max_tokens, stop=STOP, role=ROLE)
        flags = {
            "demonstrations_dropped": len(chosen) - len(shown),
            "passage_cut": int(text != passage.text),
            "truncated_extraction": int(reply.finish == "length"),
        }
        return Extraction(
            passage.id,
            passage.title,
            self._whole(reply.text),
            reply.usage.prompt_tokens,
            reply.usage.output_tokens,
            {flag: count for flag, count in flags.items() if count},
        )

    async def _fitting_text(self, passage: Passage) -> str:
        """The passage's text, shortened from its end until the prompt fits without demonstrations."""
        text = passage.text
        while surplus := await self._surplus_tokens(self._prompt(passage.title, text, ())):
            if not text:
                limit = self.max_prompt_tokens
                raise ConfigError(
                    f"kg.max_prompt_tokens={limit}: the instruction and the title alone take {limit + surplus} "
                    f"(passage {passage.id}); raise it"
                )
            tokens = max(1, await CountTokens(text, ROLE))
            kept = int(len(text) * max(0.0, 1 - surplus / tokens))  # in proportion; at least one character goes
            text = text[: min(kept, len(text) - 1)].rstrip()
        return text

    def _whole(self, reply: str) -> str:
        """With the bracket that the prompt wrote for the model; one that cannot be given a beginning writes its own."""
        return f"<{reply}" if self.layout == "begun" and not reply.lstrip().startswith("<") else reply

    def _prompt(self, title: str, text: str, chosen: tuple[DocumentDemonstration, ...]) -> Prompt:
        shown = nearest_last(chosen, self.demonstrations) if self.layout == "figures" else chosen
        return render(self.template, head=self.head, demonstrations=shown, title=title, text=text)

    async def _surplus_tokens(self, prompt: Prompt) -> int:
        """How many are too many; the chat template is not counted."""
        text = "\n".join([*(message.content for message in prompt.messages), prompt.prefill])
        if len(text.encode()) <= self.max_prompt_tokens:  # a token is at least one byte
            return 0
        return max(0, await CountTokens(text, ROLE) - self.max_prompt_tokens)


def _of_title(document: DocumentDemonstration) -> tuple[str, ...]:
    """Its triples whose head is the title, with or without what tells it from others of the name: "Elm (town)"."""
    names = {_folded(document.title), _folded(document.title.partition(" (")[0])}
    heads = ((text, read_triples(text).triples) for text in document.triples)
    return tuple(text for text, read in heads if not read or _folded(read[0][0]) in names)


def _folded(text: str) -> str:
    return "".join(text.split()).casefold()
