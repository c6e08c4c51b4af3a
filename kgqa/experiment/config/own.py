"""What a configuration uses that is not of kgqa: files that change without a new version of it, for the manifest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kgqa.artefacts.manifest import Own
from kgqa.experiment.config.files import Config, Node, config_file, is_own
from kgqa.experiment.config.importing import code_files
from kgqa.places import prompt_folders
from kgqa.storage import sha256


def own_parts(config: Config) -> Own | None:
    """None where all is of kgqa."""
    chosen = {group: name for group, name in config["choices"].items() if name and is_own(group, name)}
    choices = {f"{group}={name}": str(config_file(group, name)) for group, name in chosen.items()}
    files = own_code(config)
    return Own(choices=choices, files=files) if choices or files else None


def own_code(config: Config) -> dict[str, str]:
    """The sha256 of every module that this configuration names outside kgqa, and of all templates outside kgqa."""
    code = {file for path in _targets(config) for file in code_files(path)}
    templates = {file for folder in prompt_folders()[:-1] for file in folder.rglob("*.j2")}
    return {_shown(file): sha256(file) for file in sorted(code | templates)}


def _targets(node: Node) -> Iterator[str]:
    for key, value in node.items():
        if key == "_target_":
            yield str(value)
        elif isinstance(value, dict):
            yield from _targets(value)


def _shown(file: Path) -> str:
    """Relative where it can be, so that the same files in another folder are the same."""
    here = Path.cwd()
    return str(file.absolute().relative_to(here)) if here in file.absolute().parents else str(file)
