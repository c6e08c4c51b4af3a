"""What conf/ says of itself, read as text: for help and completion, which cannot wait for Hydra, and for reports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kgqa.experiment.config.files import SECOND, Config, config_file, config_files, flatten
from kgqa.places import shipped_conf
from kgqa.types import Json

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
    """Where each value is from: the comment beside its key; where another value was given, who gave it, and both."""
    chosen = {group: name for group, name in config["choices"].items() if name and name in config_files(group)}
    experiment = chosen.get("experiment")
    given = {key.name: key for key in keys("experiment", experiment)} if experiment else {}
    values = flatten(config)
    said = {}
    for group, name in chosen.items():  # what was chosen long ago may be gone
        for key in keys(group, name):
            place = f"{group}.{key.name}"
            said[place] = key.source
            if place in values and _is_another(key.default, values[place]):
                theirs = given.get(place)
                if theirs and not _is_another(theirs.default, values[place]):
                    who = f"experiment={experiment}" + (f" ({theirs.source})" if theirs.source else "")
                else:
                    who = "given here"
                said[place] = f"{who}; {_standing(key)}"
    return {place: source for place, source in said.items() if source}


def _is_another(default: str, value: Json) -> bool:
    """Whether the value is not what the file has. References to other keys and lists over lines are not read."""
    import yaml

    return bool(default) and "${" not in default and default != "[…]" and yaml.safe_load(default) != value


def _standing(key: Key) -> str:
    """What the file has, as the paper's value where its source is a place in one."""
    whose = "paper" if re.search(r"§|Table|Fig|[Aa]ppendix", key.source) and "not in" not in key.source else "default"
    return f"{whose}: {key.default}" + (f" ({key.source})" if key.source else "")


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
