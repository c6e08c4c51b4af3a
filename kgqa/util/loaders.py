"""Load weights once per process, and free them when others need the memory."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import _lru_cache_wrapper, cache
from typing import Any, TypeVar

T = TypeVar("T")
_LOADERS: list[_lru_cache_wrapper[Any]] = []


def load_once(load: Callable[..., T]) -> _lru_cache_wrapper[T]:
    """Decorate a function that loads weights, so that equal arguments share them until `free_loaded`."""
    loader = cache(load)
    _LOADERS.append(loader)
    return loader


def free_loaded() -> None:
    """Forget all loaded encoders and rerankers, and return their memory to the GPUs."""
    for loader in _LOADERS:
        loader.cache_clear()
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
