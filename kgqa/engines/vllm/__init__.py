"""The engine of vLLM. It loads a model inside the process and delivers each reply when it is ready."""

from kgqa.engines.vllm.engine import Vllm

__all__ = ["Vllm"]
