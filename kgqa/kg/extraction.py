"""TRACE's KG generator (§3.2): one call per passage writes its triples, whatever the question."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from kgqa.calls import CountTokens, Generate
from kgqa.constraints import Count
from kgqa.demonstrations import DocumentDemonstration, Mode, choose_demonstrations
from kgqa.errors import ConfigError
from kgqa.kg.parsing import Extraction
from kgqa.prompting import render
from kgqa.triples import read_triples
from kgqa.types import Passage, Prompt

ROLE = "extractor"
STOP = ("\nTitle:",)  # a model that runs on starts the next document


@dataclass(frozen=True)
class TripleExtractor:
    """Fields as in conf/kg/trace.yaml. `head=title`: demonstrations show only their triples of that form."""

    head: Literal["title", "any"]
    max_tokens: Count
    max_prompt_tokens: Count
    demonstrations: Mode
    demonstration_count: Count
    demonstrations_from: tuple[DocumentDemonstration, ...]

    def __post_init__(self) -> None:
        if self.demonstrations != "none" and self.demonstration_count > len(self._labelled):
            count, available = self.demonstration_count, len(self._labelled)
            raise ConfigError(f"kg.demonstration_count={count}: the file holds only {available} documents")

    @cached_property
    def _labelled(self) -> tuple[DocumentDemonstration, ...]:
        """The documents with the triples that may be shown; those without any are left out."""
        if self.head == "any":
            return self.demonstrations_from
        titled = (replace(document, triples=_of_title(document)) for document in self.demonstrations_from)
        return tuple(document for document in titled if document.triples)

    async def extract(self, passage: Passage) -> Extraction:
        """Flags: `passage_cut` where the text was shortened, `truncated_extraction` where the reply was.

        Raises:
            ConfigError: instruction and demonstrations alone exceed `max_prompt_tokens`.
        """
        shown = await choose_demonstrations(
            self._labelled, self.demonstrations, self.demonstration_count, f"{passage.title}: {passage.text}"
        )
        text = await self._fitting_text(passage, shown)
        reply = await Generate(self._prompt(passage, text, shown), self.max_tokens, stop=STOP, role=ROLE)
        flags = {"passage_cut": text != passage.text, "truncated_extraction": reply.finish == "length"}
        return Extraction(
            passage.id,
            passage.title,
            reply.text,
            reply.usage.prompt_tokens,
            reply.usage.output_tokens,
            {flag: 1 for flag, is_set in flags.items() if is_set},
        )

    async def _fitting_text(self, passage: Passage, shown: tuple[DocumentDemonstration, ...]) -> str:
        """The passage's text, shortened from its end until the prompt fits; the chat template is not counted."""
        text = passage.text
        while True:
            surplus = await self._surplus_tokens(self._prompt(passage, text, shown))
            if surplus <= 0:
                return text
            if not text:
                limit = self.max_prompt_tokens
                raise ConfigError(
                    f"kg.max_prompt_tokens={limit}: instruction and demonstrations alone take {limit + surplus} "
                    f"(passage {passage.id}); raise it or lower kg.demonstration_count={self.demonstration_count}"
                )
            tokens = max(1, await CountTokens(text, ROLE))
            kept = int(len(text) * max(0.0, 1 - surplus / tokens))  # in proportion; at least one character goes
            text = text[: min(kept, len(text) - 1)].rstrip()

    def _prompt(self, passage: Passage, text: str, shown: tuple[DocumentDemonstration, ...]) -> Prompt:
        return render("trace/extract", head=self.head, demonstrations=shown, title=passage.title, text=text)

    async def _surplus_tokens(self, prompt: Prompt) -> int:
        text = "\n".join([*(message.content for message in prompt.messages), prompt.prefill])
        if len(text.encode()) <= self.max_prompt_tokens:  # a token is at least one byte
            return 0
        return await CountTokens(text, ROLE) - self.max_prompt_tokens


def _of_title(document: DocumentDemonstration) -> tuple[str, ...]:
    """Its triples whose head is the title, with or without what tells it from others of the name: "Elm (town)"."""
    names = {_folded(document.title), _folded(document.title.partition(" (")[0])}
    heads = ((text, read_triples(text).triples) for text in document.triples)
    return tuple(text for text, read in heads if not read or _folded(read[0][0]) in names)


def _folded(text: str) -> str:
    return "".join(text.split()).casefold()
