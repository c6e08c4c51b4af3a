"""Packages that kgqa can do without: which are here, and which extra brings those that are not. Nothing is imported."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from kgqa.errors import ConfigError

# What an engine imports; one that is not named needs nothing
LIBRARIES = {
    "llamacpp": ("xllamacpp",),
    "transformers": ("torch", "transformers", "tokenizers", "accelerate", "gguf", "llguidance"),
    "vllm": ("vllm",),
}


def missing_libraries(engine: str) -> list[str]:
    """What an engine needs and cannot be imported."""
    return [library for library in LIBRARIES.get(engine, ()) if find_spec(library) is None]


def installed(extra: str, *packages: str) -> Mapping[str, str]:
    """The versions of the packages, which belong to an extra of kgqa.

    Raises:
        ConfigError: one of them is absent.
    """
    try:
        return {package: version(package) for package in packages}
    except PackageNotFoundError as error:
        raise ConfigError(f"the package {error.name} is not installed; pip install 'kgqa[{extra}]'") from None
