"""A setting that torch and llama.cpp need before either is loaded."""

from __future__ import annotations

import os


def let_waiting_threads_sleep() -> None:
    """Call before importing torch or xllamacpp; without effect once a libgomp is loaded.

    By default GNU OpenMP's idle threads spin for milliseconds. Next to any busy process, such as the rest of this
    one, that makes both libraries several times slower.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
