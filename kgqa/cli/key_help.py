"""Explain key=value arguments: the groups and keys of conf/."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from kgqa.cli.parsing import rows
from kgqa.config.files import (
    OPTIONAL,
    SECOND,
    default_choices,
    describe_choice,
    groups,
    list_choices,
)
from kgqa.config.keys import list_keys
from kgqa.config.overrides import parse_override
from kgqa.config.run_keys import list_run_keys

NEEDS = (
    ("model", "model= and engine="),
    ("triples", "kg= extracts or imports them"),
    ("search", "retriever= searches the corpus"),
    ("pool", "retriever= searches the question's own passages"),
    ("graph", "graph= links passages"),
    ("ranker", "ranker="),
    ("reranker", "reranker="),
    ("demonstrations_ranker", "selects similar few-shot examples. Same names as ranker="),
)

# what kgqa chooses on this machine, see system/defaults.py
CHOSEN = {
    "model": "the best one on this machine",
    "engine": "the first installed one that can read the weights",
}


def explain(group: str, words: Iterable[str]) -> str:
    """Return the help of the choices among the words, or else of a group's names. "run" is all groups.

    Raises:
        ConfigError: a group does not have the name.
    """
    names = groups().get(group, [])
    overrides = [f"{group}={word}" if word in names else word for word in words]
    if text := _explain_choices(overrides):
        return text
    if group == "run":
        return _explain_all()
    if len(names) == 1:
        return _explain_choices([f"{group}={names[0]}"])
    listed = rows((name, describe_choice(group, name)) for name in names)
    return f"recipes (keys of a recipe: kgqa {group} RECIPE --help):\n{listed}"


def _explain_all() -> str:
    """Return the help of all methods, names of other groups and keys of a run, with defaults."""
    standard, group_files = default_choices(), groups()

    def mark(group: str, name: str) -> str:
        return f"{name}*" if standard.get(group) == name and group not in CHOSEN else name

    def list_names(group: str, names: Iterable[str]) -> str:
        default = f" (default: {CHOSEN[group]})" if group in CHOSEN else ""
        return ", ".join(mark(group, name) for name in names) + default

    methods = rows(
        (mark("method", name), _summarize(describe_choice("method", name)))
        for name in group_files["method"]
    )
    others = rows(
        (f"{group}=", list_names(group, names))
        for group, names in group_files.items()
        if group != "method" and group not in SECOND
    )
    own = rows((key.name, key.describe()) for key in list_run_keys())
    return (
        f"method=NAME (*: default, keys of a method: kgqa run method=NAME --help):\n{methods}\n\n"
        f"What the methods need:\n{rows(NEEDS)}\n\n"
        f"other groups, GROUP=NAME (keys of a choice: kgqa run GROUP=NAME --help):\n{others}\n\n"
        f"keys of a run:\n{own}"
    )


def _summarize(opening: str) -> str:
    """Return the part of an opening comment up to the list of needs, or its first sentence."""
    needs = re.match(r".*? Needs [\w, ]+\.", opening)
    return needs[0] if needs else opening.partition(". ")[0]


def _explain_choices(words: Iterable[str]) -> str:
    parts = []
    for group, name in _list_chosen(words):
        keys = rows((f"{group}.{key.name}", key.describe()) for key in list_keys(group, name))
        others = ", ".join(
            f"{choice.group}={choice.name}"
            for choice in list_choices(group, name)
            if not choice.part
        )
        opening = [
            ("", text)
            for text in (describe_choice(group, name), others and f"Default choices: {others}.")
            if text
        ]
        parts += ["\n".join(filter(None, [f"{group}={name}", rows(opening)])), keys]
    return "\n\n".join(filter(None, parts))


def _list_chosen(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield groups and chosen names in the order of the words, both names of method=trace,ircot."""
    group_files = groups()
    for word in map(parse_override, words):
        if word.key in group_files:
            for name in word.value.split(","):
                if name not in ("null", "") or word.key not in OPTIONAL:
                    yield word.key, name
