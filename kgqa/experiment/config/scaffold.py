"""The files of a new component of one's own, from `kgqa/scaffold/<group>/`: they run as they are."""

from __future__ import annotations

import re
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path

from kgqa.errors import ConfigError
from kgqa.experiment.config.files import groups
from kgqa.places import own_conf, own_folder, shipped_conf
from kgqa.storage import package

GROUPS = ("method", "dataset", "retriever")


def start(group: str, name: str) -> list[Path]:
    """Write them beside and into the own conf/, and give their paths.

    Raises:
        ConfigError: the name is taken or no name for a module, or one of the files is there. Nothing is written then.
    """
    if own_conf().resolve() == shipped_conf().resolve():
        raise ConfigError(f"{own_folder().resolve()}: kgqa's own folder; go to one of yours")
    _check(group, name)
    texts = {_place(group, file, name): _named(group, file.read_text(encoding="utf-8"), name) for file in _files(group)}
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
    if not (own_folder() / f"{name}.py").exists() and find_spec(name) is not None:
        raise ConfigError(f"{name}: an installed module has this name, and would be imported; choose another")


def _files(group: str) -> list[Path]:
    return sorted(file for file in (package() / "scaffold" / group).rglob("*") if file.is_file())


def _place(group: str, file: Path, name: str) -> Path:
    """Python is kept as .py.txt, lest tools take it for kgqa's own."""
    within = Path(_named(group, file.relative_to(package() / "scaffold" / group).as_posix(), name).removesuffix(".txt"))
    return own_conf() / within.relative_to("conf") if within.parts[0] == "conf" else own_folder() / within


def _named(group: str, text: str, name: str) -> str:
    """`my_method` and `MyMethod` become `walk_back` and `WalkBack`; "My method", which begins a docstring, too."""
    title_words = f"My {group}"
    words = name.split("_")
    camel, sentence = "".join(word.capitalize() for word in words), " ".join(words).capitalize()
    return (
        text.replace(f"my_{group}", name)
        .replace(title_words.title().replace(" ", ""), camel)
        .replace(title_words, sentence)
    )
