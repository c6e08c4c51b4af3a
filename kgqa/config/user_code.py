"""List and hash the files of a user's components."""

from __future__ import annotations

from pathlib import Path

from kgqa.artifacts.manifest import Own
from kgqa.config.files import Config, config_file, flatten, is_own
from kgqa.identity.program_code import find_data_files, find_modules
from kgqa.prompting import list_own_templates
from kgqa.scoring.own_metrics import list_own_metrics
from kgqa.util.fs import sha256
from kgqa.util.places import user_folder


def find_user_parts(config: Config) -> Own | None:
    """Return the files of a configuration that are not kgqa's, or None."""
    own_files = {
        group: name for group, name in config["choices"].items() if name and is_own(group, name)
    }
    choices = {
        f"{group}={name}": str(config_file(group, name)) for group, name in own_files.items()
    }
    files = hash_user_code(config)
    return Own(choices=choices, files=files) if choices or files else None


def hash_user_code(config: Config) -> dict[str, str]:
    """Return the sha256 of what is outside kgqa and this configuration or its scores can use.

    These are modules, the files that they name, templates, and the files of metrics.
    """
    targets = {
        value for key, value in flatten(config).items() if key.rpartition(".")[2] == "_target_"
    }
    metrics = list_own_metrics().values()
    targets |= {metric.target for metric in metrics}
    code = {file for target in targets for file in _code_files(str(target))}
    code |= {file for target in targets for file in _data_files(str(target))}
    templates = set(list_own_templates())
    # another metric can be a function of the same module
    files = code | templates | {metric.file for metric in metrics}
    return {_display_path(file): sha256(file) for file in sorted(files)}


def _code_files(path: str) -> list[Path]:
    """Return the files of the module or package of a `_target_`, but not of kgqa's own."""
    top = path.partition(".")[0]
    if top == "kgqa":
        return []
    if (package := user_folder() / top).is_dir():
        return list(package.rglob("*.py"))
    return [
        file for name, file in find_modules(path.rpartition(".")[0]) if not name.startswith("kgqa.")
    ]


def _data_files(path: str) -> list[Path]:
    """Return the files that the module of a `_target_` and its helpers name, but not of kgqa's own."""
    module = path.rpartition(".")[0]
    return [] if path.partition(".")[0] == "kgqa" else find_data_files(module)


def _display_path(file: Path) -> str:
    """Return a relative path if possible, so that equal files in another folder are equal."""
    path = file.absolute()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else file)
