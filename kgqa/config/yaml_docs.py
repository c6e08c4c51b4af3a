"""Read the documentation in conf/: comments, defaults and sources, without Hydra."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kgqa.config.files import SECOND, Config, config_file, config_files, flatten
from kgqa.types import Json
from kgqa.util.plugins import package_conf

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


def describe_choice(group: str, name: str) -> str:
    """Return the opening comment of a choice's file."""
    lines = _text(group, name).splitlines()
    opening = lines[: next((n for n, line in enumerate(lines) if not line.startswith("#")), len(lines))]
    return " ".join(line.lstrip("# ") for line in opening)


def list_keys(group: str, name: str) -> tuple[Key, ...]:
    """Return the keys of a choice in the order of its file, behind those of the file that it extends."""
    by_name: dict[str, Key] = {}
    for choice in _choices(group, name):
        if choice.group == group and not choice.place and choice.name:
            by_name |= {key.name: key for key in list_keys(group, choice.name)}
    by_name |= {key.name: key for key in _read(_text(group, name))}
    return tuple(by_name.values())


def list_choices(group: str, name: str) -> list[Choice]:
    """Return the choices of other groups that come with this one, such as the graph of method=kgp."""
    return [choice for choice in _choices(group, name) if choice.group != group or choice.place]


def default_choices() -> dict[str, str]:
    """Return the default name of each group that has one."""
    listed = re.findall(r"^  - (?:\w+@)?(\w+): (\w+)", _main(), re.MULTILINE)
    return {group: name for group, name in listed if name != "null"}


def list_run_keys() -> tuple[Key, ...]:
    """Return the keys of conf/config.yaml that belong to no group."""
    return tuple(_read(_main().partition("\n\n")[2]))


def find_sources(config: Config) -> dict[str, str]:
    """Return the source of each value: the comment of its key, or who set another value, and both."""
    chosen = {group: name for group, name in config["choices"].items() if name and name in config_files(group)}
    experiment = chosen.get("experiment")
    given = {key.name: key for key in list_keys("experiment", experiment)} if experiment else {}
    values = flatten(config)
    said = {}
    for group, name in chosen.items():  # what was chosen long ago may be gone
        for key in list_keys(group, name):
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
    """Return whether a value differs from the file. References and lists over several lines are skipped."""
    import yaml

    return bool(default) and "${" not in default and default != "[…]" and yaml.safe_load(default) != value


def _standing(key: Key) -> str:
    """Return the file's value, as the paper's if its source is a place in a paper."""
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
    return (package_conf() / "config.yaml").read_text(encoding="utf-8")
