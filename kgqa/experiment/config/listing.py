"""What conf/ says of itself, read as text: for help and completion, which cannot wait for Hydra, and for reports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kgqa.experiment.config.files import SECOND, Config, config_file, config_files
from kgqa.places import shipped_conf

LINE = re.compile(r"^( *)([\w.]+):(?: +(.*?))??(?:\s+# *(.*))?$")
CHOICE = re.compile(r"^ *- (?:override )?/?([\w]+)(?:@(\S+))?(?:: *(\w+))?(?:\s+#.*)?$")


@dataclass(frozen=True)
class Key:
    """A line of a YAML file. `default` is what is written there, empty where more keys follow; `source` its comment."""

    name: str  # with those it stands in: few_shot.sample_size
    default: str
    source: str


@dataclass(frozen=True)
class Choice:
    """That another choice comes along: graph=tfidf of method=kgp. `place`: where inside, empty for a group's own."""

    group: str
    place: str
    name: str


def about(group: str, name: str) -> str:
    """The opening comment."""
    lines = _text(group, name).splitlines()
    opening = lines[: next((n for n, line in enumerate(lines) if not line.startswith("#")), len(lines))]
    return " ".join(line.lstrip("# ") for line in opening)


def keys(group: str, name: str) -> tuple[Key, ...]:
    """In the file's order, behind those of the file it builds on; what a file says again stands where it was first."""
    by_name: dict[str, Key] = {}
    for choice in _choices(group, name):
        if choice.group == group and not choice.place and choice.name:
            by_name |= {key.name: key for key in keys(group, choice.name)}
    by_name |= {key.name: key for key in _read(_text(group, name))}
    return tuple(by_name.values())


def choices(group: str, name: str) -> list[Choice]:
    """Those of other groups that come with this one, e.g. the graph of method=kgp."""
    return [choice for choice in _choices(group, name) if choice.group != group or choice.place]


def defaults() -> dict[str, str]:
    """What is chosen in each group unless the command line says otherwise; a group without a choice is left out."""
    listed = re.findall(r"^  - (?:\w+@)?(\w+): (\w+)", _main(), re.MULTILINE)
    return {group: name for group, name in listed if name != "null"}


def run_keys() -> tuple[Key, ...]:
    """Those of conf/config.yaml that belong to no group."""
    return tuple(_read(_main().partition("\n\n")[2]))


def sources(config: Config) -> dict[str, str]:
    """The comment beside each key in the YAML it comes from: where its value is from."""
    return {
        f"{group}.{key.name}": key.source
        for group, name in config["choices"].items()
        if name and name in config_files(group)  # what was chosen long ago may be gone
        for key in _read(_text(group, name))
        if key.source
    }


def _choices(group: str, name: str) -> Iterator[Choice]:
    text = _text(group, name)
    if not (listed := re.search(r"^defaults:\n((?:  - .*\n)+)", text, re.MULTILINE)):
        return
    for line in listed[1].splitlines():
        if not (read := CHOICE.match(line)) or read[1] == "_self_":
            continue
        if read[3] is None:  # - dense: the same group's
            yield Choice(group, "", read[1])
        else:
            place = (read[2] or "").removeprefix(f"_global_.{read[1]}")
            yield Choice(place, "", read[3]) if place in SECOND else Choice(read[1], place, read[3])


def _read(text: str) -> Iterator[Key]:
    above: list[tuple[int, str]] = []
    lines = text.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if not (read := LINE.match(line)) or read[2] in ("_target_", "defaults"):
            continue
        indent = len(read[1])
        above = [*(parent for parent in above if parent[0] < indent), (indent, read[2])]
        listed = "[…]" if following.lstrip().startswith("- ") else ""
        yield Key(".".join(name for _, name in above), read[3] or listed, read[4] or "")


def _text(group: str, name: str) -> str:
    return config_file(group, name).read_text(encoding="utf-8")


def _main() -> str:
    return (shipped_conf() / "config.yaml").read_text(encoding="utf-8")
