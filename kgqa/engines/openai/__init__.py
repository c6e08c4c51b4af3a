"""Servers that speak OpenAI's protocol: vLLM, llama-server, SGLang and hosted ones.

This face hands on the name that configurations use; its parts never import from it.
"""

from kgqa.engines.openai.engine import OpenAI

__all__ = ["OpenAI"]
