"""Constrain replies to a JSON schema, token by token, with llguidance. llama.cpp contains it."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import cached_property
from typing import Any

from kgqa.errors import ConfigError
from kgqa.types import Json

# torch is imported late and not checked
Tensor = Any
# As in `json.dumps`: a weak model would fill its reply with optional blanks
SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def bound_schema(schema: str) -> Json | None:
    """Return the schema with fixed blanks between values, or None if llguidance cannot express it.

    Raises:
        ConfigError: llguidance is not installed.
    """
    try:
        from llguidance import LLMatcher
    except ImportError as error:
        raise ConfigError(
            "Replies that follow a JSON schema need llguidance. Run: pip install llguidance"
        ) from error
    try:
        spaced = {**json.loads(schema), "x-guidance": SPACING}
    except (TypeError, ValueError):
        # not JSON, or not an object
        return None
    return (
        None if LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(spaced)) else spaced
    )


class Constraint:
    """The state of one reply under a grammar, which decides the tokens that can follow."""

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def mask_logits(self, logits: Tensor) -> Tensor:
        """Return the logits with -inf for every token that violates the schema."""
        import torch

        biases = torch.frombuffer(bytearray(self._matcher.compute_logit_bias()), dtype=torch.uint8)
        return logits.masked_fill(biases[: len(logits)].to(logits.device) == 0, float("-inf"))

    def push(self, token: int) -> bool:
        """Add the next token. Return whether the JSON value is complete."""
        self._matcher.consume_token(token)
        return bool(self._matcher.is_stopped())


class Grammars:
    """Constraints over one vocabulary. `tokenizer`: the text of its tokenizer.json; `size`: logits per token."""

    def __init__(self, tokenizer: str, ends: Collection[int], size: int) -> None:
        self._source, self._ends, self._size = tokenizer, sorted(ends), size

    def constraint(self, schema: str) -> Constraint | None:
        """Return the constraint of a schema, or None if llguidance cannot express it or read the vocabulary."""
        spaced = bound_schema(schema)
        if spaced is None or self._vocabulary is None:
            return None
        from llguidance import LLMatcher

        matcher = LLMatcher(
            self._vocabulary, LLMatcher.grammar_from_json_schema(spaced), log_level=0
        )
        return None if matcher.is_error() else Constraint(matcher)

    @cached_property
    def _vocabulary(self) -> Any:
        from llguidance import LLTokenizer

        try:
            return LLTokenizer(self._source, n_vocab=self._size, eos_token=self._ends)
        except ValueError:
            # a kind of tokenizer it does not know
            return None
