"""List the files outside kgqa that a configuration uses, for the manifest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kgqa.artifacts.manifest import Own
from kgqa.config.files import Config, Node, config_file, is_own
from kgqa.config.importing import code_files
from kgqa.util.fs import sha256
from kgqa.util.plugins import prompt_folders


def find_user_parts(config: Config) -> Own | None:
    """Return the files of a configuration that are not kgqa's, or None."""
    chosen = {group: name for group, name in config["choices"].items() if name and is_own(group, name)}
    choices = {f"{group}={name}": str(config_file(group, name)) for group, name in chosen.items()}
    files = hash_user_code(config)
    return Own(choices=choices, files=files) if choices or files else None


def hash_user_code(config: Config) -> dict[str, str]:
    """Return the sha256 of every module and template outside kgqa that this configuration can use."""
    code = {file for path in _targets(config) for file in code_files(path)}
    templates = {file for folder in prompt_folders()[:-1] for file in folder.rglob("*.j2")}
    return {_display_path(file): sha256(file) for file in sorted(code | templates)}


def _targets(node: Node) -> Iterator[str]:
    for key, value in node.items():
        if key == "_target_":
            yield str(value)
        elif isinstance(value, dict):
            yield from _targets(value)


def _display_path(file: Path) -> str:
    """Return a relative path if possible, so that equal files in another folder are equal."""
    here = Path.cwd()
    return str(file.absolute().relative_to(here)) if here in file.absolute().parents else str(file)
