"""Servers that speak OpenAI's protocol: vLLM, llama-server, SGLang and hosted ones."""

from kgqa.engines.openai.engine import OpenAI

__all__ = ["OpenAI"]
