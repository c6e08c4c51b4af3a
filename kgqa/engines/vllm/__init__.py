"""vLLM inside the process, streaming.

This face hands on the name that configurations use; its parts never import from it.
"""

from kgqa.engines.vllm.engine import Vllm

__all__ = ["Vllm"]
