"""Forward passes of a causal language model: shared prompt beginnings once, then whole batches.

The first tokens of every prompt are computed in pieces of `CHUNK` tokens, one prompt at a time, and kept. A kept
piece has the very bits that computing it again would give, so a reply never depends on what was asked before.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Protocol

from kgqa.engines.labels import ROOT, Spelling
from kgqa.engines.transformers.adapter_switch import Worn
from kgqa.engines.transformers.kv_cache import empty_cache
from kgqa.errors import EngineDied

CHUNK = 256  # tokens; smaller pieces share more but feed the matrix units less
KEPT_CHUNKS = 96  # 24,576 tokens: 0.7 GB for a 1.5B model, 3 GB for an 8B one

Tensor = Any  # torch is imported late and not checked
Chunk = list[tuple[Tensor, Tensor]]  # per layer: keys and values, (1, heads, CHUNK, dimension)


class Writer(Protocol):
    """The reply a row is writing."""

    def pick(self, logits: Tensor) -> int | None:
        """Return a token drawn from the row's logits; None takes the likeliest."""
        ...

    def push(self, token: int) -> bool:
        """Take the next token; True when the reply is complete."""
        ...


class Decoder:
    """A loaded model. Not thread-safe; `stop` may be set from another thread and ends the work in progress."""

    def __init__(self, network: Any, worn: Worn, stop: threading.Event) -> None:
        self.network, self.device, self.worn, self.stop = network, network.device, worn, stop
        self.chunks: OrderedDict[tuple[int, ...], Chunk] = OrderedDict()

    def generate(self, prompts: Sequence[Sequence[int]], writers: Sequence[Writer]) -> list[int]:
        """Write one reply per prompt into its writer; returns how many of each prompt's tokens were known.

        A row leaves the batch as soon as its writer is content.
        """
        import torch

        with torch.inference_mode():
            cache, mask, logits, known = self._prompts(prompts)
            active = list(writers)
            lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
            while True:
                tokens = pick_tokens(logits[:, -1], active)
                going = [row for row, token in enumerate(tokens) if not active[row].push(token)]
                if not going:
                    return known
                if len(going) < len(active):
                    rows = torch.tensor(going, device=self.device)
                    cache.batch_select_indices(rows)
                    mask, lengths = mask[rows], lengths[rows]
                    active = [active[row] for row in going]
                ids = torch.tensor([[tokens[row]] for row in going], device=self.device)
                mask = torch.nn.functional.pad(mask, (0, 1), value=1)
                logits = self._forward(ids, cache, mask, lengths[:, None])
                lengths = lengths + 1

    def choose(
        self, prompts: Sequence[Sequence[int]], spellings: Sequence[Spelling]
    ) -> tuple[list[list[float]], list[int]]:
        """Return per prompt log p(token | place) of its spelling's pairs, and how many prompt tokens were known."""
        import torch

        with torch.inference_mode():
            cache, mask, logits, known = self._prompts(prompts)
            tables = logits[:, -1:]  # (rows, 1, vocabulary): what follows the prompt
            if any(spelling.tokens for spelling in spellings):
                lengths = [len(prompt) for prompt in prompts]
                tables = torch.cat([tables, self._places(cache, mask, lengths, spellings)], 1)
            logprobs = torch.log_softmax(tables.float(), -1)
            conditionals = []
            for row, spelling in enumerate(spellings):
                places = torch.tensor([place - ROOT for place, _ in spelling.pairs], device=self.device)
                tokens = torch.tensor([token for _, token in spelling.pairs], device=self.device)
                conditionals.append(logprobs[row, places, tokens].tolist())
            return conditionals, known

    def _places(self, cache: Tensor, mask: Tensor, lengths: list[int], spellings: Sequence[Spelling]) -> Tensor:
        """Return logits after each inner place of each row: all places in one pass, each seeing only its own path."""
        import torch

        width = max(len(spelling.tokens) for spelling in spellings)
        ids = torch.zeros((len(spellings), width), dtype=torch.long)
        positions = torch.zeros_like(ids)
        sees = torch.eye(width, dtype=torch.bool).repeat(len(spellings), 1, 1)  # (rows, place, place)
        for row, spelling in enumerate(spellings):
            count = len(spelling.tokens)
            ids[row, :count] = torch.tensor(spelling.tokens, dtype=torch.long)
            positions[row] = lengths[row]
            positions[row, :count] += torch.tensor(spelling.depths, dtype=torch.long) - 1
            for place in range(count):
                sees[row, place, spelling.ancestry(place)] = True
        prompt = mask.bool()[:, None, :].expand(-1, width, -1)  # (rows, place, prompt)
        tree = torch.cat([prompt, sees.to(self.device)], -1)[:, None]
        return self._forward(ids.to(self.device), cache, tree, positions.to(self.device), keep=width)

    def _prompts(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor, Tensor, list[int]]:
        """Return the batch's cache, its mask, the logits after each prompt, and the known tokens of each."""
        import torch

        heads, known = [], []
        for prompt in prompts:
            head, reused = self._head(prompt)
            heads.append(head)
            known.append(reused * CHUNK)
        cache = self._join(heads)
        depth = max(len(head) for head in heads) * CHUNK
        tails = [prompt[len(head) * CHUNK :] for prompt, head in zip(prompts, heads, strict=True)]
        width = max(len(tail) for tail in tails)
        ids = torch.zeros((len(prompts), width), dtype=torch.long)
        positions = torch.zeros_like(ids)
        mask = torch.zeros((len(prompts), depth + width), dtype=torch.long)
        for row, (head, tail) in enumerate(zip(heads, tails, strict=True)):
            ids[row, width - len(tail) :] = torch.tensor(tail)
            positions[row, width - len(tail) :] = torch.arange(len(tail)) + len(head) * CHUNK
            mask[row, depth - len(head) * CHUNK : depth] = 1
            mask[row, depth + width - len(tail) :] = 1
        mask = mask.to(self.device)
        logits = self._forward(ids.to(self.device), cache, mask, positions.to(self.device))
        return cache, mask, logits, known

    def _head(self, prompt: Sequence[int]) -> tuple[list[Chunk], int]:
        """Return the prompt's whole pieces, at least one token left over, and how many of them were kept from
        before.
        """
        import torch

        pieces: list[Chunk] = []
        reused, cache = 0, None
        for end in range(CHUNK, len(prompt), CHUNK):
            key = (self.worn.on, *prompt[:end])  # an adapter makes other keys and values of the same tokens
            piece = self.chunks.get(key)
            if piece is not None:
                reused, cache = reused + 1, None
            else:
                cache = self._join([pieces]) if cache is None else cache
                start = end - CHUNK
                positions = torch.arange(start, end, device=self.device)[None]
                mask = torch.ones((1, end), dtype=torch.long, device=self.device)
                self._forward(torch.tensor([prompt[start:end]], device=self.device), cache, mask, positions)
                piece = [
                    (layer.keys[:, :, start:].clone(), layer.values[:, :, start:].clone()) for layer in cache.layers
                ]
            self.chunks[key] = piece
            self.chunks.move_to_end(key)
            pieces.append(piece)
        while len(self.chunks) > KEPT_CHUNKS:
            self.chunks.popitem(last=False)
        return pieces, reused

    def _join(self, heads: Sequence[list[Chunk]]) -> Tensor:
        """Return a cache with one row per head, padded on the left to the longest."""
        import torch

        cache = empty_cache()
        longest = max(heads, key=len)
        if not longest:
            return cache
        blank = [tuple(torch.zeros_like(tensor) for tensor in layer) for layer in longest[0]]
        for layer in range(len(blank)):
            keys, values = (
                torch.cat(
                    [
                        torch.cat(
                            [blank[layer][side]] * (len(longest) - len(head)) + [piece[layer][side] for piece in head],
                            2,
                        )
                        for head in heads
                    ]
                )
                for side in (0, 1)
            )
            cache.update(keys, values, layer)
        return cache

    def _forward(self, ids: Tensor, cache: Tensor, mask: Tensor, positions: Tensor, keep: int = 1) -> Tensor:
        """Return logits of the last `keep` tokens; extends the cache.

        Raises:
            EngineDied: `stop` was set.
        """
        if self.stop.is_set():
            raise EngineDied("the engine was closed while it was answering")
        return self.network(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=keep,
        ).logits


def pick_tokens(logits: Tensor, writers: Sequence[Writer]) -> list[int]:
    """Return each row's next token."""
    likeliest: list[int] = logits.argmax(-1).tolist()
    drawn = [writer.pick(logits[row]) for row, writer in enumerate(writers)]
    return [best if token is None else token for best, token in zip(likeliest, drawn, strict=True)]
