"""Hugging Face transformers in this process: batches, exact option probabilities, any CPU or GPU torch knows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from kgqa.artifacts.adapter import Adapter
from kgqa.calls import Choose, Generate, ModelCall, ModelReply
from kgqa.engines.base import LocalEngine
from kgqa.engines.grammar import Grammars
from kgqa.engines.thinking import join_thought, leading, read_reply, thinking_call
from kgqa.engines.transformers.decoding import DecodedReply, Decoder
from kgqa.engines.transformers.loading import AdapterSwitch, load
from kgqa.engines.weights import is_gguf, read_settings
from kgqa.errors import ConfigError, DataError, EngineError
from kgqa.types import Choice, Completion, Usage
from kgqa.util.optional_deps import check_libraries
from kgqa.util.settings import ORDER_OF_SUMS, Setting
from kgqa.util.validators import Count


@dataclass(frozen=True)
class Transformers(LocalEngine):
    """A causal or encoder-decoder language model under transformers. A .gguf file is converted once.

    Replies do not depend on the other calls of a batch, except for rounding: in bfloat16 near-ties can change with the
    shape of the batch, in float32 they do not in practice.
    """

    dtype: Annotated[
        Literal["bfloat16", "float32"],
        Setting("Bfloat16 | float32: twice the memory, replies that do not depend on the batch."),
    ] = "bfloat16"
    quantization: Annotated[
        Literal["int8", "int4"] | None,
        Setting("Int8 | int4 (bitsandbytes): a half or a quarter of the memory."),
    ] = None
    batch_size: Annotated[Count, Setting("Number of calls per forward pass."), ORDER_OF_SUMS] = 16
    device: Annotated[
        str,
        Setting("auto | cpu | cuda | cuda:1 | mps. auto distributes the layers over several GPUs."),
        ORDER_OF_SUMS,
    ] = "auto"

    # raise it when equal calls get other replies than before
    version: ClassVar[int] = 1
    streaming: ClassVar[bool] = False

    def render(self, call: ModelCall) -> str:
        if self._seam is None:
            return super().render(call)
        bare = replace(call, prompt=replace(call.prompt, prefill=""))
        return f"{super().render(bare)}{self._seam}{call.prompt.prefill}"

    def answer(
        self, calls: Sequence[ModelCall], adapter: Adapter | None = None
    ) -> Sequence[ModelReply | Exception]:
        """Answer calls, with an adapter if there is one. It is loaded for its first batch."""
        with self._lock:
            self._check_open()
            # load the model before time is measured
            _ = self._end_tokens
            self._decoder.adapters.activate(adapter)
            replies: dict[int, ModelReply | Exception] = {}
            prompts: dict[int, list[int]] = {}
            calls = [self._tokens.mask(call) for call in calls]
            for index, call in enumerate(calls):
                try:
                    prompts[index] = self._tokens.prompt(call, self.render(call))
                except EngineError as error:  # noqa: PERF203 - each call has its own error
                    replies[index] = error
            for kind, run in ((Generate, self._generate), (Choose, self._choose)):
                rows = [index for index in prompts if isinstance(calls[index], kind)]
                if rows:
                    results = run(
                        [prompts[index] for index in rows], [calls[index] for index in rows]
                    )
                    replies.update(zip(rows, results, strict=True))
            return [replies[index] for index in range(len(calls))]

    def close(self) -> None:
        """End a running batch at its next forward pass, and free the model."""
        self._closing.set()
        with self._lock:
            self.__dict__.pop("_decoder", None)

    def _generate(self, prompts: list[list[int]], calls: list[Any]) -> list[ModelReply]:
        """Generate the reasoning of all calls that use it, and then all answers."""
        texts = {
            row: self.render(call) for row, call in enumerate(calls) if self._template.thinks(call)
        }
        thoughts: dict[int, Completion] = {}
        if texts:
            first = [
                thinking_call(calls[row], self._thinking.budget, text)
                for row, text in texts.items()
            ]
            outputs = self._write([prompts[row] for row in texts], first, special=True)
            thoughts = dict(zip(texts, outputs, strict=True))
            prompts = [
                self._tokens.encode(leading(texts[row], thoughts[row].text, calls[row]))
                if row in texts
                else prompt
                for row, prompt in enumerate(prompts)
            ]
        return [
            join_thought(thoughts[row], reply) if row in thoughts else read_reply(calls[row], reply)
            for row, reply in enumerate(self._write(prompts, calls))
        ]

    def _write(
        self, prompts: list[list[int]], calls: Sequence[Generate], *, special: bool = False
    ) -> list[Completion]:
        """Generate one text per call, with special tokens or without."""
        started = time.perf_counter()
        decode = partial(self._tokens.decode, special=special)
        replies = []
        for prompt, call in zip(prompts, calls, strict=True):
            constraint = self._grammars.constraint(call.schema) if call.schema else None
            replies.append(DecodedReply(prompt, call, decode, self._end_tokens, constraint))
        cached = self._decoder.generate(replies)
        seconds = (time.perf_counter() - started) / len(calls)
        return [
            reply.completion(length, seconds, self._template.flags(reply.call))
            for reply, length in zip(replies, cached, strict=True)
        ]

    def _choose(self, prompts: list[list[int]], calls: list[Any]) -> list[ModelReply]:
        started = time.perf_counter()
        spellings = [self._tokens.spelling(call.options) for call in calls]
        conditionals, cached = self._decoder.choose(prompts, spellings)
        scores = [
            spelling.score(conditional)
            for spelling, conditional in zip(spellings, conditionals, strict=True)
        ]
        seconds = (time.perf_counter() - started) / len(calls)
        return [
            Choice(
                *scores[row],
                Usage(len(prompts[row]), cached[row], 1, seconds),
                self._template.flags(call),
            )
            for row, call in enumerate(calls)
        ]

    @cached_property
    def _weights(self) -> Path:
        check_libraries("transformers")
        return super()._weights

    @cached_property
    def _seam(self) -> str | None:
        """Return the special tokens between the texts of encoder and decoder, or None for a causal model.

        Raises:
            ConfigError: the model has absolute positions, which padding on the left would shift.
        """
        folder = self._weights
        config = {} if is_gguf(folder) else read_settings(folder / "config.json")
        if not config.get("is_encoder_decoder"):
            return None
        if "relative_attention_num_buckets" not in config:
            raise ConfigError(
                f"{folder}: unknown encoder-decoder model. Only T5 and its relatives are supported."
            )
        seam = ""
        for key in ("eos_token_id", "decoder_start_token_id"):
            number = config.get(key)
            token = self._tokens.tokenizer.id_to_token(number) if isinstance(number, int) else None
            if token is None:
                raise DataError(
                    f"{folder / 'config.json'}: {key} is not a token of tokenizer.json. Get it again."
                )
            seam += token
        return seam

    @cached_property
    def _decoder(self) -> Decoder:
        network = load(self._tokens.folder, self.dtype, self.device, self.quantization)
        return Decoder(network, AdapterSwitch(network, self._tokens.folder), self._closing)

    @cached_property
    def _grammars(self) -> Grammars:
        tokenizer = (self._tokens.folder / "tokenizer.json").read_text(encoding="utf-8")
        return Grammars(
            tokenizer, self._end_tokens, self._decoder.network.config.get_text_config().vocab_size
        )

    @cached_property
    def _end_tokens(self) -> frozenset[int]:
        """Return the end tokens of the model's configuration, and the usual ones."""
        return frozenset({*self._decoder.end_tokens, *self._tokens.end_tokens})
