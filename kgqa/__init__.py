"""kgqa: experiments in multi-hop question answering with knowledge-graph-grounded RAG.

    import kgqa

    run = kgqa.run(method="trace", dataset="demo", limit=3)
    run.metrics.score("f1").mean, run.predictions

`kgqa.api` documents these functions. Importing kgqa does not import them.
"""

from importlib import import_module
from importlib.metadata import version

__all__ = [
    "Run", "ask", "compare", "current_tools", "evaluate", "explain", "load", "plan", "run", "runs", "sweep",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name == "__version__":
        return version("kgqa")
    if name in __all__:
        return getattr(import_module("kgqa.api"), name)
    raise AttributeError(f"module 'kgqa' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
