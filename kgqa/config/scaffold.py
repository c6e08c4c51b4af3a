"""Write the first files of a new component from `kgqa/scaffold/<group>/`."""

from __future__ import annotations

import re
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path

from kgqa.config.files import groups
from kgqa.errors import ConfigError
from kgqa.util.fs import package_folder
from kgqa.util.plugins import package_conf, user_conf, user_folder

GROUPS = ("method", "dataset", "retriever")


def write_scaffold(group: str, name: str) -> list[Path]:
    """Write the files next to and into the user's conf/, and return their paths.

    Raises:
        ConfigError: the name is taken or no name for a module, or one of the files is there. Nothing is written then.
    """
    if user_conf().resolve() == package_conf().resolve():
        raise ConfigError(f"{user_folder().resolve()}: kgqa's own folder; go to one of yours")
    _check(group, name)
    texts = {
        _target_path(group, file, name): _rename(group, file.read_text(encoding="utf-8"), name)
        for file in _files(group)
    }
    for place in texts:
        if place.exists():
            raise ConfigError(f"{place}: is there already; choose another name")
    for place, text in texts.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return list(texts)


def _check(group: str, name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or iskeyword(name):
        raise ConfigError(f"{name}: no name for a module; take small letters, digits and underscores, e.g. my_{group}")
    if name in groups()[group]:
        raise ConfigError(f"{group}={name}: there is one already; choose another name")
    if not (user_folder() / f"{name}.py").exists() and find_spec(name) is not None:
        raise ConfigError(f"{name}: an installed module has this name, and would be imported; choose another")


def _files(group: str) -> list[Path]:
    return sorted(file for file in (package_folder() / "scaffold" / group).rglob("*") if file.is_file())


def _target_path(group: str, file: Path, name: str) -> Path:
    """Return the path of a new file. Python is packaged as .py.txt, so that tools ignore it."""
    within = Path(
        _rename(group, file.relative_to(package_folder() / "scaffold" / group).as_posix(), name).removesuffix(".txt")
    )
    return user_conf() / within.relative_to("conf") if within.parts[0] == "conf" else user_folder() / within


def _rename(group: str, text: str, name: str) -> str:
    """Replace `my_method`, `MyMethod` and "My method" by the new name in its three forms."""
    title_words = f"My {group}"
    words = name.split("_")
    camel, sentence = "".join(word.capitalize() for word in words), " ".join(words).capitalize()
    return (
        text.replace(f"my_{group}", name)
        .replace(title_words.title().replace(" ", ""), camel)
        .replace(title_words, sentence)
    )
