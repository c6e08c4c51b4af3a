"""llama.cpp inside the process: the embedded engine.

This face hands on the name that configurations use; its parts never import from it.
"""

from kgqa.engines.llamacpp.engine import LlamaCpp

__all__ = ["LlamaCpp"]
