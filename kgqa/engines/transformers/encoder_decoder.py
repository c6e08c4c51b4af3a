"""Forward passes of a model that reads with one half and writes with the other, such as Flan-T5.

Its prompt is one token sequence here too: the encoder's text, its end token, the token a decoder starts with, and then
what the reply is made to begin with.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgqa.engines.labels import ROOT, Spelling
from kgqa.engines.transformers.adapter_switch import Worn
from kgqa.engines.transformers.decoding import Writer, pick_tokens
from kgqa.errors import ConfigError, DataError, EngineDied
from kgqa.util.jsonio import parse_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

ROWS = 32  # paths through the options scored together

Tensor = Any  # torch is imported late and not checked


@dataclass(frozen=True)
class Seam:
    """The special tokens between what is read and what is written."""

    end: str
    start: str

    @classmethod
    def of(cls, folder: Path, tokenizer: Tokenizer) -> Seam:
        """Read the special tokens from the folder's configuration.

        Raises:
            ConfigError: a model with absolute positions, which rows that are padded on the left would shift.
        """
        settings = parse_json((folder / "config.json").read_bytes(), str(folder / "config.json"))
        if not isinstance(settings, dict) or "relative_attention_num_buckets" not in settings:
            raise ConfigError(f"{folder}: of encoder-decoder models only T5 and its kin are known; name another model")
        tokens = []
        for key in ("eos_token_id", "decoder_start_token_id"):
            token = tokenizer.id_to_token(settings[key]) if isinstance(settings.get(key), int) else None
            if token is None:
                raise DataError(f"{folder / 'config.json'}: {key} names no token of tokenizer.json; get it again")
            tokens.append(token)
        return cls(*tokens)


class EncoderDecoder:
    """A loaded model. Not thread-safe; `stop` may be set from another thread and ends the work in progress."""

    def __init__(self, network: Any, worn: Worn, stop: threading.Event) -> None:
        self.network, self.worn, self.stop = network, worn, stop
        self._start = network.config.decoder_start_token_id

    def generate(self, prompts: Sequence[Sequence[int]], writers: Sequence[Writer]) -> list[int]:
        """Write one reply per prompt into its writer; of no prompt any token was known before."""
        import torch
        from transformers.cache_utils import DynamicCache, EncoderDecoderCache

        with torch.inference_mode():
            read, mask, begun = self._read(prompts)
            ids, seen = self._pad(begun, left=True)
            cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
            active = list(writers)
            while True:
                tokens = pick_tokens(self._write(ids, seen, (read, mask), cache), active)
                going = [row for row, token in enumerate(tokens) if not active[row].push(token)]
                if not going:
                    return [0] * len(prompts)
                if len(going) < len(active):
                    rows = torch.tensor(going, device=self.network.device)
                    cache.batch_select_indices(rows)
                    read, mask, seen = read[rows], mask[rows], seen[rows]
                    active = [active[row] for row in going]
                ids = torch.tensor([[tokens[row]] for row in going], device=self.network.device)
                seen = torch.nn.functional.pad(seen, (0, 1), value=1)

    def choose(
        self, prompts: Sequence[Sequence[int]], spellings: Sequence[Spelling]
    ) -> tuple[list[list[float]], list[int]]:
        """Return per prompt log p(token | place) of its spelling's pairs; of no prompt any token was known before.

        Each place of the options' tree is a row of its own: relative position biases follow a token's place in its
        row, so that several places cannot share one as they do in `decoding`.
        """
        import torch

        with torch.inference_mode():
            read, mask, begun = self._read(prompts)
            paths = [(row, place) for row, s in enumerate(spellings) for place in range(ROOT, len(s.tokens))]
            tables: dict[tuple[int, int], Tensor] = {}
            for first in range(0, len(paths), ROWS):
                some = paths[first : first + ROWS]
                rows = torch.tensor([row for row, _ in some], device=self.network.device)
                written = [[*begun[row], *_path(spellings[row], place)] for row, place in some]
                ids, seen = self._pad(written, left=True)
                logits = self._write(ids, seen, (read[rows], mask[rows]), None)
                tables.update(zip(some, torch.log_softmax(logits.float(), -1), strict=True))
            conditionals = [
                [float(tables[row, place][token]) for place, token in spelling.pairs]
                for row, spelling in enumerate(spellings)
            ]
            return conditionals, [0] * len(prompts)

    def _read(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor, list[Sequence[int]]]:
        """Return what the encoder made of each prompt, its mask, and the tokens each reply begins with."""
        seams = [len(prompt) - 1 - list(reversed(prompt)).index(self._start) for prompt in prompts]
        ids, mask = self._pad([prompt[:seam] for prompt, seam in zip(prompts, seams, strict=True)], left=False)
        self._check()
        read = self.network.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
        return read, mask, [prompt[seam:] for prompt, seam in zip(prompts, seams, strict=True)]

    def _write(self, ids: Tensor, seen: Tensor, read: tuple[Tensor, Tensor], cache: Any) -> Tensor:
        """Return logits after the last token of each row; extends the cache, if there is one."""
        from transformers.modeling_outputs import BaseModelOutput

        self._check()
        return self.network(
            encoder_outputs=BaseModelOutput(last_hidden_state=read[0]),
            attention_mask=read[1],
            decoder_input_ids=ids,
            decoder_attention_mask=seen,
            past_key_values=cache,
            use_cache=cache is not None,
        ).logits[:, -1]

    def _pad(self, rows: Sequence[Sequence[int]], *, left: bool) -> tuple[Tensor, Tensor]:
        """Return tokens and mask, (rows, longest)."""
        import torch

        width = max(len(row) for row in rows)
        ids = torch.full((len(rows), width), self._start, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for number, row in enumerate(rows):
            place = slice(width - len(row), width) if left else slice(len(row))
            ids[number, place] = torch.tensor(row, dtype=torch.long)
            mask[number, place] = 1
        return ids.to(self.network.device), mask.to(self.network.device)

    def _check(self) -> None:
        if self.stop.is_set():
            raise EngineDied("the engine was closed while it was answering")


def _path(spelling: Spelling, place: int) -> list[int]:
    return [spelling.tokens[step] for step in reversed(spelling.ancestry(place))]
