"""Forward passes of a language model in batches: causal models, and encoder-decoder models such as Flan-T5."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kgqa.artifacts.adapter import Adapter
from kgqa.calls import Generate
from kgqa.engines.grammar import Constraint
from kgqa.engines.labels import Conditional, Path, Spelling
from kgqa.engines.transformers.loading import AdapterSwitch
from kgqa.errors import EngineDied
from kgqa.types import Completion, GeneratedToken, Usage

# tokens; smaller chunks share more prefixes but compute less efficiently
CHUNK = 256
# in the cache: 24,576 tokens, 0.7 GB for a 1.5B model, 3 GB for an 8B one
MAX_CHUNKS = 96
# paths through the options that are scored together
MAX_ROWS = 32

# torch is imported late and not checked
Tensor = Any
Prompts = Sequence[Sequence[int]]
# per layer: keys and values, (1, heads, CHUNK, dimension)
Chunk = list[tuple[Tensor, Tensor]]


@dataclass
class DecodedReply:
    """The reply to one prompt while it is generated. It depends on its call only."""

    prompt: Sequence[int]
    call: Generate
    decode: Callable[[list[int]], str]
    ends: Collection[int]
    constraint: Constraint | None
    is_complete: bool = False
    finish: Literal["stop", "length"] = "length"
    generated: int = 0  # tokens, with the end token
    tokens: list[int] = field(default_factory=list)
    # with the end token, see `Generate.logprobs`
    listed: list[GeneratedToken] = field(default_factory=list)
    generator: Any = None

    def completion(self, cached: int, seconds: float, flags: tuple[str, ...]) -> Completion:
        """Return the text up to the first stop string. cached: tokens of the prompt."""
        text, stop = self.call.split_at_stop(self.decode(self.tokens))
        unconstrained = ("unconstrained",) if self.call.schema and self.constraint is None else ()
        usage = Usage(len(self.prompt), cached, self.generated, seconds)
        stopped_by = stop if self.call.stop else None
        prompt = tuple(self.prompt) if self.listed else ()
        return Completion(
            text,
            self.finish,
            usage,
            flags + unconstrained,
            stopped_by=stopped_by,
            tokens=tuple(self.listed),
            prompt_ids=prompt,
        )

    def list_token(self, token: int, logits: Tensor) -> None:
        """Add the log-probabilities of the next token and of the likeliest ones."""
        assert self.call.logprobs is not None
        logprobs = logits.float().log_softmax(-1)
        best = logprobs.topk(self.call.logprobs)
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        top = tuple((self.decode([other]), value) for other, value in pairs)
        self.listed.append(GeneratedToken(self.decode([token]), float(logprobs[token]), token, top))

    def pick(self, logits: Tensor) -> int | None:
        """Return a sampled token, or None for the likeliest one. A missing seed counts as 0."""
        import torch

        if self.constraint:
            logits = self.constraint.mask_logits(logits)
        if self.call.temperature == 0:
            return int(logits.argmax()) if self.constraint else None
        if self.generator is None:
            self.generator = torch.Generator().manual_seed(self.call.seed or 0)
        # On the CPU and in double precision a seed gives the same token for every device
        chances = torch.softmax(logits.double().cpu() / self.call.temperature, -1)
        if self.call.top_p < 1:
            ordered, order = chances.sort(descending=True, stable=True)
            # keeps the token that crosses top_p
            ordered[ordered.cumsum(-1) - ordered >= self.call.top_p] = 0
            chances = torch.zeros_like(chances).scatter(-1, order, ordered)
        return int(torch.multinomial(chances, 1, generator=self.generator))

    def push(self, token: int) -> None:
        """Add the next token. An end token, a stop string, the schema or `max_tokens` completes the reply."""
        self.generated += 1
        is_end = token in self.ends
        if not is_end:
            self.tokens.append(token)
            is_end = self.constraint is not None and self.constraint.push(token)
        if is_end or (
            self.call.stop and any(stop in self.decode(self.tokens) for stop in self.call.stop)
        ):
            self.finish = "stop"
        self.is_complete = self.finish == "stop" or self.generated >= self.call.max_tokens


class Decoder:
    """A loaded model. Not thread-safe. `stop` can be set from another thread and ends the work in progress.

    The start of every prompt of a causal model is computed in chunks of `CHUNK` tokens, one prompt at a time, and
    cached. Computing a chunk again gives the same bits, so a reply never depends on earlier calls.
    """

    def __init__(self, network: Any, adapters: AdapterSwitch, stop: threading.Event) -> None:
        from transformers import GenerationConfig

        self.network, self.device, self.adapters, self.stop = (
            network,
            network.device,
            adapters,
            stop,
        )
        self.chunks: OrderedDict[tuple[Adapter | int | None, ...], Chunk] = OrderedDict()
        self.is_encoder_decoder = network.config.is_encoder_decoder
        configured = network.generation_config.eos_token_id
        self.end_tokens = (
            configured
            if isinstance(configured, list)
            else []
            if configured is None
            else [configured]
        )
        # The model's own configuration can contain a temperature or penalties
        start = network.config.decoder_start_token_id if self.is_encoder_decoder else None
        network.generation_config = GenerationConfig(decoder_start_token_id=start, do_sample=False)

    def generate(self, replies: Sequence[DecodedReply]) -> Sequence[int]:
        """Generate the replies. Return the number of cached tokens of each prompt."""
        import torch

        unchanged: list[Tensor] = []

        def pick(_: Tensor, logits: Tensor) -> Tensor:
            if lists_logprobs:
                unchanged[:] = [logits.clone()]
            for row, reply in enumerate(replies):
                if not reply.is_complete and (token := reply.pick(logits[row])) is not None:
                    logits[row, token] = float("inf")
            return logits

        def push(ids: Tensor, _: Tensor) -> Tensor:
            self._check()
            for row, (reply, token) in enumerate(zip(replies, ids[:, -1].tolist(), strict=True)):
                if not reply.is_complete:
                    if reply.call.logprobs is not None:
                        reply.list_token(token, unchanged[0][row])
                    reply.push(token)
            return torch.tensor([reply.is_complete for reply in replies], device=ids.device)

        lists_logprobs = any(reply.call.logprobs is not None for reply in replies)
        with torch.inference_mode():
            inputs, cached = self._read([reply.prompt for reply in replies])
            longest = max(reply.call.max_tokens for reply in replies)
            self._run(inputs, longest, logits_processor=[pick], stopping_criteria=[push])
        return cached

    def choose(
        self, prompts: Prompts, spellings: Sequence[Spelling]
    ) -> tuple[list[Conditional], list[int]]:
        """Return the log-probabilities that each spelling needs, and the number of cached tokens of each prompt.

        Each path of the options' tree is a row. Most labels are one token, so most prompts are one row.
        """
        import torch

        rows = [
            (number, path)
            for number, spelling in enumerate(spellings)
            for path in spelling.following
        ]
        conditionals: list[dict[Path, float]] = [{} for _ in prompts]
        lengths = [0] * len(prompts)
        for first in range(0, len(rows), MAX_ROWS):
            some = rows[first : first + MAX_ROWS]
            with torch.inference_mode():
                inputs, cached = self._read([[*prompts[number], *path] for number, path in some])
                output = self._run(inputs, 1, output_logits=True, return_dict_in_generate=True)
            logprobs = output.logits[0].log_softmax(-1)
            for row, (number, path) in enumerate(some):
                tokens = spellings[number].following[path]
                values = logprobs[row, list(tokens)].tolist()
                conditionals[number] |= {
                    (*path, token): value for token, value in zip(tokens, values, strict=True)
                }
                lengths[number] = lengths[number] if path else cached[row]
        return list(conditionals), lengths

    def _run(self, inputs: dict[str, Any], max_tokens: int, **settings: Any) -> Any:
        self._check()
        return self.network.generate(**inputs, max_new_tokens=max_tokens, **settings)

    def _check(self) -> None:
        if self.stop.is_set():
            raise EngineDied("the engine was closed while it was answering")

    def _read(self, prompts: Prompts) -> tuple[dict[str, Any], Sequence[int]]:
        """Return the inputs of `generate`, and the number of cached tokens of each prompt.

        A prompt of an encoder-decoder model is the encoder's text, its end token, the decoder's start token, and the
        prefill.
        """
        import torch

        heads: Sequence[list[Chunk]] = ()
        cached: Sequence[int] = [0] * len(prompts)
        if self.is_encoder_decoder:
            start = self.network.config.decoder_start_token_id
            seams = [len(prompt) - 1 - list(reversed(prompt)).index(start) for prompt in prompts]
        else:
            heads, cached = zip(*map(self._read_head, prompts), strict=True)
            seams = [len(head) * CHUNK for head in heads]
        first, first_mask = self._pad(
            [prompt[:seam] for prompt, seam in zip(prompts, seams, strict=True)]
        )
        last, last_mask = self._pad(
            [prompt[seam:] for prompt, seam in zip(prompts, seams, strict=True)]
        )
        if self.is_encoder_decoder:
            texts = {"input_ids": first, "attention_mask": first_mask}
            return {**texts, "decoder_input_ids": last, "decoder_attention_mask": last_mask}, cached
        ids, mask = torch.cat([first, last], 1), torch.cat([first_mask, last_mask], 1)
        return {
            "input_ids": ids,
            "attention_mask": mask,
            "past_key_values": self._join(heads),
        }, cached

    def _pad(self, rows: Prompts) -> tuple[Tensor, Tensor]:
        """Return tokens and mask, (rows, longest), padded on the left."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        tokens = [torch.tensor(row, dtype=torch.long, device=self.device) for row in rows]
        masks = [torch.ones_like(row) for row in tokens]
        ids, mask = (
            pad_sequence(each, batch_first=True, padding_side="left") for each in (tokens, masks)
        )
        return ids, mask

    def _read_head(self, prompt: Sequence[int]) -> tuple[list[Chunk], int]:
        """Return the prompt's complete chunks, which leave at least one token, and the number of cached tokens."""
        chunks: list[Chunk] = []
        reused, cache = 0, None
        for end in range(CHUNK, len(prompt), CHUNK):
            # an adapter makes other keys and values of the same tokens
            key = (self.adapters.active, *prompt[:end])
            chunk = self.chunks.get(key)
            if chunk is not None:
                reused, cache = reused + CHUNK, None
            else:
                self._check()
                cache = self._join([chunks]) if cache is None else cache
                start = end - CHUNK
                ids, _ = self._pad([prompt[start:end]])
                self.network(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
                chunk = [
                    (layer.keys[:, :, start:].clone(), layer.values[:, :, start:].clone())
                    for layer in cache.layers
                ]
            self.chunks[key] = chunk
            self.chunks.move_to_end(key)
            chunks.append(chunk)
        while len(self.chunks) > MAX_CHUNKS:
            self.chunks.popitem(last=False)
        return chunks, reused

    def _join(self, heads: Sequence[list[Chunk]]) -> Any:
        """Return a cache with one row per head, padded on the left."""
        import torch
        from transformers.cache_utils import DynamicCache

        cache = DynamicCache()
        longest = max(heads, key=len)
        blank = (
            [(torch.zeros_like(keys), torch.zeros_like(values)) for keys, values in longest[0]]
            if longest
            else []
        )
        rows = [[blank] * (len(longest) - len(head)) + head for head in heads]
        for layer in range(len(blank)):
            keys, values = (
                torch.cat([torch.cat([chunk[layer][side] for chunk in row], 2) for row in rows])
                for side in (0, 1)
            )
            cache.update(keys, values, layer)
        return cache
