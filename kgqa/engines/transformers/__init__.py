"""The engine of Hugging Face Transformers. It loads a model inside the process and answers calls in batches."""

from kgqa.engines.transformers.engine import Transformers

__all__ = ["Transformers"]
