"""Hugging Face transformers in this process: batches, exact option probabilities, any CPU or GPU torch knows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from threading import Event, Lock
from typing import Any, ClassVar, Literal

from kgqa.artifacts.adapter import Adapter
from kgqa.calls import Choose, Generate, ModelCall, ModelReply
from kgqa.engines.adapted import AdaptedBatch, base_differs
from kgqa.engines.grammar import Grammars
from kgqa.engines.thinking import Thinking, join_thought, leading, split_thought, thinking_call
from kgqa.engines.tokens import Tokens
from kgqa.engines.transformers.adapter_switch import Worn
from kgqa.engines.transformers.decoding import Decoder
from kgqa.engines.transformers.encoder_decoder import EncoderDecoder, Seam
from kgqa.engines.transformers.loading import is_encoder_decoder, load
from kgqa.engines.transformers.reply import DecodedReply
from kgqa.engines.weights import Model, is_gguf
from kgqa.errors import ConfigError, EngineDied, EngineError
from kgqa.protocols import Engine
from kgqa.types import Choice, Completion, Json, Usage
from kgqa.util.optional_deps import missing_libraries
from kgqa.util.validators import Count

ADAPTER = 1  # raise it when equal calls get other replies than before


@dataclass(frozen=True)
class Transformers:
    """A causal or encoder-decoder language model under transformers. A .gguf file is converted once, see `conversion`.

    Replies of one call do not depend on the calls beside it, except for rounding: in bfloat16 near-ties can flip
    with the batch's shape, in float32 they do not in practice.
    """

    model: Model
    dtype: Literal["bfloat16", "float32"]
    quantization: Literal["int8", "int4"] | None
    batch_size: Count
    device: str
    context: Count | None  # tokens of prompt and reply; None: the model's own

    _closing: Event = field(default_factory=Event, init=False, repr=False, compare=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)
    _views: dict[Adapter, AdaptedBatch] = field(default_factory=dict, init=False, repr=False, compare=False)

    streaming: ClassVar[bool] = False
    counts_freely: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _ = self._thinking

    def identity(self) -> Mapping[str, Json]:
        return {
            "engine": "transformers",
            "adapter": ADAPTER,
            "weights": self.model.digest(),
            "dtype": f"{self.quantization}/{self.dtype}" if self.quantization else self.dtype,
            "context": self._limit,
            "template": "from the weights",
            "options": "token sequences with and without a blank, exact",
            **self._thinking.identity(),
        }

    def render(self, call: ModelCall) -> str:
        if self._seam is None:
            return self._tokens.render(call)
        unfilled = replace(call, prompt=replace(call.prompt, prefill=""))
        return f"{self._tokens.render(unfilled)}{self._seam.end}{self._seam.start}{call.prompt.prefill}"

    def count_tokens(self, text: str) -> int:
        return len(self._tokens.encode(text))

    @property
    def base(self) -> Engine:
        return self

    def with_adapter(self, adapter: Adapter) -> Engine:
        """Return the engine with an adapter, which is loaded for its first batch."""
        if adapter not in self._views:
            self._views[adapter] = AdaptedBatch(self, adapter, base_differs(adapter, self.model))
        return self._views[adapter]

    def answer(self, calls: Sequence[ModelCall]) -> Sequence[ModelReply | Exception]:
        return self.answer_with(calls, None)

    def answer_with(self, calls: Sequence[ModelCall], adapter: Adapter | None) -> Sequence[ModelReply | Exception]:
        """Answer calls as `answer` does, through an adapter."""
        with self._lock:
            if self._closing.is_set():
                raise EngineDied("the engine is closed")
            _ = self._ends  # loading is no call's service time
            self._decoder.worn.put_on(adapter)
            replies: dict[int, ModelReply | Exception] = {}
            prompts: dict[int, list[int]] = {}
            for index, call in enumerate(calls):
                prompt = self._prompt(call)
                if isinstance(prompt, EngineError):
                    replies[index] = prompt
                else:
                    prompts[index] = prompt
            for kind, run in ((Generate, self._generate), (Choose, self._choose)):
                chosen = [index for index in prompts if isinstance(calls[index], kind)]
                for batch in _batches(chosen, self.batch_size):
                    done = run([prompts[index] for index in batch], [calls[index] for index in batch])
                    replies.update(zip(batch, done, strict=True))
            return [replies[index] for index in range(len(calls))]

    def close(self) -> None:
        """Ends a running batch at its next forward pass and lets go of the model."""
        self._closing.set()
        with self._lock:
            self.__dict__.pop("_decoder", None)

    def _generate(self, prompts: list[list[int]], calls: list[Any]) -> list[ModelReply]:
        """Generate the reasoning of all calls that use it, and then all answers."""
        texts = {row: self.render(call) for row, call in enumerate(calls) if self._tokens.thinks(call)}
        thoughts: dict[int, Completion] = {}
        if texts:
            thinking = [thinking_call(calls[row], self._thinking.budget, text) for row, text in texts.items()]
            written = self._write([prompts[row] for row in texts], thinking, self._tokens.decode_thought)
            thoughts = dict(zip(texts, written, strict=True))
            prompts = list(prompts)
            for row, thought in thoughts.items():
                prompts[row] = self._tokens.encode(leading(texts[row], thought.text, calls[row]))
        answers = self._write(prompts, calls, self._tokens.decode)
        return [
            join_thought(thoughts[row], reply) if row in thoughts else split_thought(reply)
            for row, reply in enumerate(answers)
        ]

    def _write(
        self, prompts: list[list[int]], calls: Sequence[Generate], decode: Callable[[Sequence[int]], str]
    ) -> list[Completion]:
        started = time.perf_counter()
        constraints = [self._grammars.constraint(call.schema) if call.schema else None for call in calls]
        replies = [
            DecodedReply(call, decode, self._ends, constraint)
            for call, constraint in zip(calls, constraints, strict=True)
        ]
        known = self._decoder.generate(prompts, replies)
        seconds = (time.perf_counter() - started) / len(calls)
        completions: list[Completion] = []
        for row, (call, reply) in enumerate(zip(calls, replies, strict=True)):
            free = ("unconstrained",) if call.schema and constraints[row] is None else ()
            usage = Usage(len(prompts[row]), known[row], reply.spent, seconds)
            completions.append(Completion(reply.text, reply.finish, usage, self._tokens.flags(call) + free))
        return completions

    def _choose(self, prompts: list[list[int]], calls: list[Any]) -> list[ModelReply]:
        started = time.perf_counter()
        spellings = [self._tokens.spelling(call.options) for call in calls]
        conditionals, known = self._decoder.choose(prompts, spellings)
        scores = [spelling.score(conditional) for spelling, conditional in zip(spellings, conditionals, strict=True)]
        seconds = (time.perf_counter() - started) / len(calls)
        return [
            Choice(*scores[row], Usage(len(prompts[row]), known[row], 1, seconds), self._tokens.flags(call))
            for row, call in enumerate(calls)
        ]

    def _prompt(self, call: ModelCall) -> list[int] | EngineError:
        """Return the call's tokens, or why it has none: a template that refuses, options that look alike, its
        length.
        """
        try:
            return self._tokens.prompt(call, self.render(call))
        except EngineError as error:
            return error

    @property
    def _limit(self) -> int:
        return min(self.context or self.model.context, self.model.context)

    @cached_property
    def _weights(self) -> Path:
        if missing := missing_libraries("transformers"):
            raise ConfigError(f"engine=transformers needs {', '.join(missing)}; pip install 'kgqa[transformers]'")
        return self.model.locate()

    @cached_property
    def _tokens(self) -> Tokens:
        return Tokens(self._weights, self._limit, self._thinking)

    @cached_property
    def _thinking(self) -> Thinking:
        return Thinking.of(self.model.thinking).fitting(self._limit)

    @cached_property
    def _seam(self) -> Seam | None:
        """Return None for a causal model, which reads and writes one text."""
        if is_gguf(self._weights) or not is_encoder_decoder(self._weights):
            return None
        return Seam.of(self._weights, self._tokens.tokenizer)

    @cached_property
    def _decoder(self) -> Decoder | EncoderDecoder:
        network = load(self._tokens.folder, self.dtype, self.device, self.quantization)
        kind = EncoderDecoder if self._seam else Decoder
        return kind(network, Worn(network, self._tokens.folder), self._closing)

    @cached_property
    def _grammars(self) -> Grammars:
        tokenizer = (self._tokens.folder / "tokenizer.json").read_text(encoding="utf-8")
        return Grammars(tokenizer, self._ends, self._decoder.network.config.get_text_config().vocab_size)

    @cached_property
    def _ends(self) -> frozenset[int]:
        """Return the ids of tokens that end a reply: those of the model's configuration and the usual ones of its
        vocabulary.
        """
        configured = self._decoder.network.generation_config.eos_token_id
        named = configured if isinstance(configured, list) else [] if configured is None else [configured]
        return frozenset({*named, *self._tokens.ends})


def _batches(indexes: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(indexes), size):
        yield indexes[start : start + size]
