"""Turn calls into a model's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kgqa.calls import Generate, ModelCall
from kgqa.engines.chat import ChatTemplate
from kgqa.engines.conversion import convert_weights
from kgqa.engines.labels import Spelling, continuation, spell
from kgqa.engines.thinking import NO_THINKING, Thinking, leading
from kgqa.engines.weights import is_gguf
from kgqa.errors import EngineError, PromptTooLong

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Tokens that end a turn or a text, whatever generation_config forgets; the names llama.cpp knows
END_TOKENS = (
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>", "<|return|>",
    "<end_of_turn>", "<eos>", "</s>", "<EOT>", "<end_of_utterance>",
)  # fmt: skip


class Tokens:
    """The template and tokenizer that come with the weights. Thread-safe; a .gguf file is converted once."""

    def __init__(self, weights: Path, limit: int, thinking: Thinking = NO_THINKING) -> None:
        self.weights, self.limit = weights, limit  # limit: tokens of prompt and reply together
        self.thinking = thinking
        self._spellings: dict[tuple[str, ...], Spelling] = {}

    def render(self, call: ModelCall) -> str:
        return self._template.render(call)

    def flags(self, call: ModelCall) -> tuple[str, ...]:
        """Return the flags for the reply, see `ChatTemplate.flags`."""
        return self._template.flags(call)

    def thinks(self, call: ModelCall) -> bool:
        """Return see `ChatTemplate.thinks`."""
        return self._template.thinks(call)

    def encode(self, text: str) -> list[int]:
        """Return special tokens are those written out in the text; none are added."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return text

    def decode_thought(self, tokens: Sequence[int]) -> str:
        """With special tokens: what ends a thought is one in some vocabularies."""
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=False)
        return text

    def prompt(self, call: ModelCall, text: str | None = None) -> list[int]:
        """Return the tokens of the prompt, or of `text` where an engine renders the call in its own way.

        Raises:
            EngineError: the template refuses, the prompt is empty, two options look alike.
            PromptTooLong: no room is left for the reply the call asks for.
        """
        given = self.render(call) if text is None else text
        ids = self.encode(given)
        if not ids:
            raise EngineError("the prompt is empty")
        room = self.limit - (call.max_tokens if isinstance(call, Generate) else self.spelling(call.options).longest)
        length = len(ids)
        if self.thinks(call):
            length, room = len(self.encode(leading(given, "", call))), room - self.thinking.budget
        if length > room:
            raise PromptTooLong(length, room)
        return ids

    def spelling(self, options: tuple[str, ...]) -> Spelling:
        if options not in self._spellings:
            self._spellings[options] = spell(options, continuation(self.encode))
        return self._spellings[options]

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """Return the usual end tokens this vocabulary has."""
        ids = (self.tokenizer.token_to_id(token) for token in END_TOKENS)
        return tuple(token for token in ids if token is not None)

    @cached_property
    def folder(self) -> Path:
        """Return the weights as a transformers folder."""
        return convert_weights(self.weights) if is_gguf(self.weights) else self.weights

    @cached_property
    def _template(self) -> ChatTemplate:
        return ChatTemplate.of(self.weights, self.thinking)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(self.folder / "tokenizer.json"))
