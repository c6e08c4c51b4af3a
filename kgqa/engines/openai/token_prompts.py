"""Write prompts in the tokens of a server's model: the server tokenizes them, and fills in its chat template."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from kgqa.calls import ModelCall
from kgqa.engines.control_text import (
    END_TOKENS,
    CallT,
    as_plain,
    find_candidates,
    mask,
    split_masks,
)
from kgqa.engines.labels import Spelling, spell
from kgqa.engines.openai.connection import Connection
from kgqa.engines.openai.requests import build_chat
from kgqa.engines.thinking import NO_THINKING, TAGS, Thinking, opening
from kgqa.types import Json

# characters of a text that the server tokenizes once: labels and prefills
MAX_CACHED = 64
# texts with a known number of tokens
MAX_COUNTS = 100_000
# tokens that start or end every text, at most
STARTS = 8


@dataclass
class TokenPrompts(ABC):
    """The prompts of one model."""

    connection: Connection
    thinking: Thinking
    _tokens: dict[tuple[str, bool], list[int]] = field(default_factory=dict)
    # by the hash of the text
    _counts: dict[bytes, int] = field(default_factory=dict)

    async def mask(self, call: CallT) -> CallT:
        """Return the call with the control tokens of its messages masked, if kgqa tokenizes its rendered text."""
        return call

    async def find_stops(self) -> Mapping[str, Json]:
        """Return the settings that end a reply, if the server does not know the usual end tokens."""
        return {}

    @abstractmethod
    def show_special(self, end: str) -> Mapping[str, Json]:
        """Return the settings with which a reply shows the special token that ends a thought."""

    def as_text(self, call: ModelCall, reply: int) -> str | None:  # noqa: ARG002 - most servers need tokens
        """Return the prompt as text if the server makes the same tokens of it, and it fits with the reply."""
        return None

    @abstractmethod
    async def write_turn(self, call: ModelCall, *, thinks: bool) -> tuple[list[int], str]:
        """Return a conversation up to the reply or to the reasoning before it, and the text that starts a thought."""

    @abstractmethod
    async def tokenize_part(self, text: str, *, special: bool, is_plain: bool) -> list[int]:
        """Return the tokens of a text. special: with those that start every text. is_plain: it has no special ones."""

    async def turn(self, call: ModelCall, *, thinks: bool) -> tuple[list[int], str]:
        """Return a prompt up to the reply or to the reasoning before it, and the text that starts a thought."""
        if call.prompt.form == "completion":
            return await self.tokenize(call.prompt.messages[0].content, special=True), ""
        return await self.write_turn(call, thinks=thinks)

    async def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Return the tokens of a text with its special tokens. `special`: with those that start every text."""
        if (text, special) in self._tokens:
            return self._tokens[text, special]
        tokens = list[int]()
        for number, (part, is_plain) in enumerate([*split_masks(text)] or [("", False)]):
            tokens += await self.tokenize_part(
                part, special=special and not number, is_plain=is_plain
            )
        if len(text) <= MAX_CACHED:
            self._tokens[text, special] = tokens
        return tokens

    async def count(self, text: str) -> int:
        """Return the number of tokens of a text. Each text is tokenized once."""
        key = _hash(text)
        if key not in self._counts:
            if len(self._counts) >= MAX_COUNTS:
                self._counts.clear()
            self._counts[key] = len(await self.tokenize(text))
        return self._counts[key]

    def bound_length(self, text: str) -> int:
        """Return the number of tokens of a text that was counted, otherwise a number that is not lower."""
        # a token is at least one byte
        return self._counts.get(_hash(text), len(_encode(text))) + STARTS

    async def continuation(self, text: str) -> list[int]:
        """Return the tokens of a text inside a line, see `labels.continuation`."""
        line, both = await self.tokenize("\n"), await self.tokenize(f"\n{text}")
        return both[len(line) :] if both[: len(line)] == line else await self.tokenize(text)

    async def spelling(self, options: tuple[str, ...]) -> Spelling:
        """Return how the options are written in the server's tokens."""
        forms = [form for option in options for form in (option, f" {option}")]
        tokens = {form: await self.continuation(form) for form in forms}
        return spell(options, tokens.__getitem__)

    def describe_turn(self, call: ModelCall, *, thinks: bool) -> dict[str, Json]:
        """Return the messages and the settings of the chat template, without the prefill."""
        prompt = replace(call.prompt, prefill="")
        thinking = self.thinking if thinks else NO_THINKING
        return {
            "model": self.connection.model,
            **build_chat(prompt, self.connection.server, thinking),
        }


@dataclass
class VllmPrompts(TokenPrompts):
    """Prompts of a vLLM server, which renders and tokenizes a conversation in one request."""

    # text between turns and a thought, or an answer
    _openings: dict[bool, str] = field(default_factory=dict)
    _stops: Mapping[str, Json] | None = None
    _finding: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def find_stops(self) -> Mapping[str, Json]:
        """Return the end tokens of this vocabulary. The generation_config of a model can lack them."""
        async with self._finding:
            if self._stops is None:
                token_ids = [await self.tokenize(token) for token in END_TOKENS]
                self._stops = {
                    "stop_token_ids": [tokens[0] for tokens in token_ids if len(tokens) == 1]
                }
        return self._stops

    def show_special(self, end: str) -> Mapping[str, Json]:  # noqa: ARG002 - it shows all of them
        return {"skip_special_tokens": False}

    def as_text(self, call: ModelCall, reply: int) -> str | None:
        """Return a plain prompt, so that vLLM tokenizes it only once."""
        text = call.prompt.messages[0].content
        is_short = self.bound_length(text) + reply <= self.connection.context
        return text if call.prompt.form == "completion" and is_short else None

    async def tokenize_part(self, text: str, *, special: bool, is_plain: bool) -> list[int]:  # noqa: ARG002 - no masks
        body = {"model": self.connection.model, "prompt": text, "add_special_tokens": special}
        return list(await self.connection.call("../tokenize", body, "tokens"))

    async def write_turn(self, call: ModelCall, *, thinks: bool) -> tuple[list[int], str]:
        body = self.describe_turn(call, thinks=thinks)
        tokens = list(await self.connection.call("../tokenize", body, "tokens"))
        if thinks not in self._openings:  # every conversation ends alike
            last = {"model": self.connection.model, "tokens": tokens[-8:]}
            text = str(await self.connection.call("../detokenize", last, "prompt"))
            self._openings[thinks] = opening(text, thinks=thinks)
        begin = self._openings[thinks]
        for part in (begin, "" if thinks else call.prompt.prefill):
            tokens += await self.continuation(part) if part else []
        return tokens, begin or TAGS.begin


class LlamaPrompts(TokenPrompts):
    """Prompts of llama.cpp's server, which renders a conversation and tokenizes its text in two requests."""

    async def mask(self, call: CallT) -> CallT:
        controls = set()
        for text in find_candidates(call.prompt):
            tokens = await self.tokenize(text)
            if len(tokens) == 1 and tokens != await self.tokenize(as_plain(text)):
                controls.add(text)
        return mask(call, controls)

    def show_special(self, end: str) -> Mapping[str, Json]:
        return {"preserved_tokens": [end]}

    async def tokenize_part(self, text: str, *, special: bool, is_plain: bool) -> list[int]:
        body = {"content": text, "add_special": special, "parse_special": not is_plain}
        return list(await self.connection.call("../tokenize", body, "tokens"))

    async def write_turn(self, call: ModelCall, *, thinks: bool) -> tuple[list[int], str]:
        text = str(
            await self.connection.call(
                "../apply-template", self.describe_turn(call, thinks=thinks), "prompt"
            )
        )
        begin = opening(text, thinks=thinks)
        prefill = "" if thinks else call.prompt.prefill
        # the template leaves the token that starts a text to this step
        return await self.tokenize(text + begin + prefill, special=True), begin or TAGS.begin


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _hash(text: str) -> bytes:
    return blake2b(_encode(text), digest_size=16).digest()
