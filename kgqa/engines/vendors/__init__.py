"""Models of vendors through their own clients, which are optional packages: Claude and Gemini."""

from kgqa.engines.vendors.claude import Anthropic
from kgqa.engines.vendors.gemini import Gemini

__all__ = ["Anthropic", "Gemini"]
