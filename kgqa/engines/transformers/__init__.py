"""transformers inside the process, in batches.

This face hands on the name that configurations use; its parts never import from it.
"""

from kgqa.engines.transformers.engine import Transformers

__all__ = ["Transformers"]
