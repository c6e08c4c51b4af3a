"""Forward passes of a language model in batches: causal models, and encoder-decoder models such as Flan-T5."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kgqa.artifacts.adapter import Adapter
from kgqa.calls import Generate
from kgqa.engines.grammar import Constraint
from kgqa.engines.labels import Conditional, Path, Spelling
from kgqa.engines.transformers.loading import AdapterSwitch
from kgqa.errors import EngineDied

CHUNK = 256  # tokens; smaller chunks share more prefixes but compute less efficiently
MAX_CHUNKS = 96  # in the cache: 24,576 tokens, 0.7 GB for a 1.5B model, 3 GB for an 8B one
MAX_ROWS = 32  # paths through the options that are scored together

Tensor = Any  # torch is imported late and not checked
Prompts = Sequence[Sequence[int]]
Chunk = list[tuple[Tensor, Tensor]]  # per layer: keys and values, (1, heads, CHUNK, dimension)


class DecodedReply:
    """The reply of one row while it is generated. It depends on its call only."""

    def __init__(
        self, call: Generate, decode: Callable[[list[int]], str], ends: Collection[int], constraint: Constraint | None
    ) -> None:
        self._call, self._decode, self._ends, self._constraint = call, decode, ends, constraint
        self._tokens: list[int] = []
        self._generator: Any = None
        self.finish: Literal["stop", "length"] = "length"
        self.generated = 0  # tokens, with the end token

    @property
    def text(self) -> str:
        """Return the text up to the first stop string."""
        text = self._decode(self._tokens)
        cuts = [cut for stop in self._call.stop if (cut := text.find(stop)) >= 0]
        return text[: min(cuts, default=None)]

    def pick(self, logits: Tensor) -> int | None:
        """Return a sampled token, or None for the likeliest one. A missing seed counts as 0."""
        import torch

        if self._constraint:
            logits = self._constraint.mask_logits(logits)
        if self._call.temperature == 0:
            return int(logits.argmax()) if self._constraint else None
        if self._generator is None:
            self._generator = torch.Generator().manual_seed(self._call.seed or 0)
        # On the CPU and in double precision a seed gives the same token for every device
        chances = torch.softmax(logits.double().cpu() / self._call.temperature, -1)
        if self._call.top_p < 1:
            ordered, order = chances.sort(descending=True, stable=True)
            ordered[ordered.cumsum(-1) - ordered >= self._call.top_p] = 0  # keeps the token that crosses top_p
            chances = torch.zeros_like(chances).scatter(-1, order, ordered)
        return int(torch.multinomial(chances, 1, generator=self._generator))

    def push(self, token: int) -> bool:
        """Add the next token. Return whether the reply is complete (end token, stop string, schema, `max_tokens`)."""
        self.generated += 1
        if token in self._ends:
            self.finish = "stop"
            return True
        self._tokens.append(token)
        complete = self._constraint is not None and self._constraint.push(token)
        if complete or (self._call.stop and any(stop in self._decode(self._tokens) for stop in self._call.stop)):
            self.finish = "stop"
            return True
        return self.generated >= self._call.max_tokens


@dataclass
class Batch:
    """Rows that are generated together.

    mask: (rows, tokens), 0 for padding. logits: (rows, vocabulary), of the next token. encoded: the output of an
    encoder and its mask, by row.
    """

    cache: Any
    mask: Tensor
    logits: Tensor
    encoded: tuple[Tensor, ...] = ()


class Decoder(ABC):
    """A loaded model. Not thread-safe. `stop` can be set from another thread and ends the work in progress."""

    def __init__(self, network: Any, adapters: AdapterSwitch, stop: threading.Event) -> None:
        self.network, self.device, self.adapters, self.stop = network, network.device, adapters, stop

    def generate(self, prompts: Prompts, replies: Sequence[DecodedReply]) -> list[int]:
        """Generate a reply for each prompt. Return the number of cached tokens of each prompt.

        A row leaves the batch when its reply is complete.
        """
        import torch

        with torch.inference_mode():
            batch, cached = self._start(prompts)
            active = list(replies)
            while True:
                likeliest: list[int] = batch.logits.argmax(-1).tolist()
                sampled = [reply.pick(batch.logits[row]) for row, reply in enumerate(active)]
                tokens = [best if token is None else token for best, token in zip(likeliest, sampled, strict=True)]
                rows = [row for row, token in enumerate(tokens) if not active[row].push(token)]
                if not rows:
                    return cached
                if len(rows) < len(active):
                    active = [active[row] for row in rows]
                    chosen = torch.tensor(rows, device=self.device)
                    batch.cache.batch_select_indices(chosen)
                    batch.mask = batch.mask[chosen]
                    batch.encoded = tuple(tensor[chosen] for tensor in batch.encoded)
                batch.mask = torch.nn.functional.pad(batch.mask, (0, 1), value=1)
                batch.logits = self._continue(self._ids([[tokens[row]] for row in rows]), batch)

    def choose(self, prompts: Prompts, spellings: Sequence[Spelling]) -> tuple[list[Conditional], list[int]]:
        """Return the log-probabilities that each spelling needs, and the number of cached tokens of each prompt.

        Each path of the options' tree is a row. Most labels are one token, so most prompts are one row.
        """
        import torch

        rows = [(number, path) for number, spelling in enumerate(spellings) for path in spelling.following]
        conditionals: list[dict[Path, float]] = [{} for _ in prompts]
        known = [0] * len(prompts)
        with torch.inference_mode():
            for first in range(0, len(rows), MAX_ROWS):
                some = rows[first : first + MAX_ROWS]
                batch, cached = self._start([[*prompts[number], *path] for number, path in some])
                logprobs = torch.log_softmax(batch.logits.float(), -1)
                for row, (number, path) in enumerate(some):
                    tokens = spellings[number].following[path]
                    values = logprobs[row, list(tokens)].tolist()
                    conditionals[number] |= {(*path, token): value for token, value in zip(tokens, values, strict=True)}
                    known[number] = known[number] if path else cached[row]
        return list(conditionals), known

    @abstractmethod
    def _start(self, prompts: Prompts) -> tuple[Batch, list[int]]:
        """Read the prompts. Return the batch, and the number of cached tokens of each prompt."""

    @abstractmethod
    def _continue(self, ids: Tensor, batch: Batch) -> Tensor:
        """Return the logits after one more token per row."""

    def _forward(self, **inputs: Any) -> Tensor:
        """Return the network's logits. Raise EngineDied if `stop` is set."""
        self._check()
        return self.network(**inputs).logits

    def _check(self) -> None:
        if self.stop.is_set():
            raise EngineDied("the engine was closed while it was answering")

    def _pad(self, rows: Prompts, side: Literal["left", "right"]) -> tuple[Tensor, Tensor]:
        """Return tokens and mask, (rows, longest)."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        tokens = [torch.tensor(row, dtype=torch.long) for row in rows]
        ids = pad_sequence(tokens, batch_first=True, padding_side=side)
        mask = pad_sequence([torch.ones_like(row) for row in tokens], batch_first=True, padding_side=side)
        return ids.to(self.device), mask.to(self.device)

    def _ids(self, rows: Sequence[Sequence[int]]) -> Tensor:
        import torch

        return torch.tensor(rows, dtype=torch.long, device=self.device)


class CausalDecoder(Decoder):
    """A model that reads and writes one text.

    The start of every prompt is computed in chunks of `CHUNK` tokens, one prompt at a time, and cached. Computing a
    chunk again gives the same bits, so a reply never depends on earlier calls.
    """

    def __init__(self, network: Any, adapters: AdapterSwitch, stop: threading.Event) -> None:
        super().__init__(network, adapters, stop)
        self.chunks: OrderedDict[tuple[Adapter | int | None, ...], Chunk] = OrderedDict()

    def _continue(self, ids: Tensor, batch: Batch) -> Tensor:
        return self._read(ids, batch.cache, batch.mask, batch.mask.sum(-1, keepdim=True) - 1)

    def _read(self, ids: Tensor, cache: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        """Return the logits after the last token of each row, (rows, vocabulary), and extend the cache."""
        return self._forward(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )[:, -1]

    def _start(self, prompts: Prompts) -> tuple[Batch, list[int]]:
        import torch

        heads, cached = [], []
        for prompt in prompts:
            head, reused = self._read_head(prompt)
            heads.append(head)
            cached.append(reused * CHUNK)
        tails = [prompt[len(head) * CHUNK :] for prompt, head in zip(prompts, heads, strict=True)]
        ids, read = self._pad(tails, "left")
        lengths = torch.tensor([[len(head) * CHUNK] for head in heads], device=self.device)
        depth = int(lengths.max())
        mask = torch.cat([(torch.arange(depth, device=self.device) >= depth - lengths).long(), read], -1)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, depth:]
        cache = self._join(heads)
        return Batch(cache, mask, self._read(ids, cache, mask, positions)), cached

    def _read_head(self, prompt: Sequence[int]) -> tuple[list[Chunk], int]:
        """Return the prompt's complete chunks, which leave at least one token, and how many were cached."""
        import torch

        chunks: list[Chunk] = []
        reused, cache = 0, None
        for end in range(CHUNK, len(prompt), CHUNK):
            key = (self.adapters.active, *prompt[:end])  # an adapter makes other keys and values of the same tokens
            chunk = self.chunks.get(key)
            if chunk is not None:
                reused, cache = reused + 1, None
            else:
                cache = self._join([chunks]) if cache is None else cache
                start = end - CHUNK
                positions = torch.arange(start, end, device=self.device)[None]
                mask = torch.ones((1, end), dtype=torch.long, device=self.device)
                self._read(self._ids([prompt[start:end]]), cache, mask, positions)
                chunk = [
                    (layer.keys[:, :, start:].clone(), layer.values[:, :, start:].clone()) for layer in cache.layers
                ]
            self.chunks[key] = chunk
            self.chunks.move_to_end(key)
            chunks.append(chunk)
        while len(self.chunks) > MAX_CHUNKS:
            self.chunks.popitem(last=False)
        return chunks, reused

    def _join(self, heads: Sequence[list[Chunk]]) -> Any:
        """Return a cache with one row per head, padded on the left. Each layer has all tokens."""
        import torch
        from transformers.cache_utils import DynamicCache

        cache = DynamicCache()
        longest = max(heads, key=len)
        for layer, blank in enumerate(longest[0] if longest else ()):
            rows = [[torch.zeros_like(blank[0])] * (len(longest) - len(head)) for head in heads]
            keys, values = (
                torch.cat(
                    [
                        torch.cat([*pad, *(c[layer][side] for c in head)], 2)
                        for pad, head in zip(rows, heads, strict=True)
                    ]
                )
                for side in (0, 1)
            )
            cache.update(keys, values, layer)
        return cache


class EncoderDecoder(Decoder):
    """A model with an encoder and a decoder.

    Its prompt is one token sequence: the encoder's text, its end token, the decoder's start token, and the prefill.
    """

    def _continue(self, ids: Tensor, batch: Batch) -> Tensor:
        from transformers.modeling_outputs import BaseModelOutput

        encoded, mask = batch.encoded
        return self._forward(
            encoder_outputs=BaseModelOutput(last_hidden_state=encoded),
            attention_mask=mask,
            decoder_input_ids=ids,
            decoder_attention_mask=batch.mask,
            past_key_values=batch.cache,
            use_cache=True,
        )[:, -1]

    def _start(self, prompts: Prompts) -> tuple[Batch, list[int]]:
        from transformers.cache_utils import DynamicCache, EncoderDecoderCache

        start = self.network.config.decoder_start_token_id
        seams = [len(prompt) - 1 - list(reversed(prompt)).index(start) for prompt in prompts]
        ids, mask = self._pad([prompt[:seam] for prompt, seam in zip(prompts, seams, strict=True)], "right")
        self._check()
        encoded = self.network.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
        ids, written = self._pad([prompt[seam:] for prompt, seam in zip(prompts, seams, strict=True)], "left")
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        batch = Batch(cache, written, None, (encoded, mask))
        batch.logits = self._continue(ids, batch)
        return batch, [0] * len(prompts)
