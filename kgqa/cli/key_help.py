"""Explain and complete key=value arguments: the groups and keys of conf/."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from kgqa.cli.parsing import rows
from kgqa.config.files import (
    OPTIONAL,
    SECOND,
    default_choices,
    describe_choice,
    groups,
    list_choices,
    list_keys,
    list_run_keys,
)
from kgqa.config.overrides import parse_override

SWITCH = ("true", "false")
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


def explain(group: str, words: Iterable[str]) -> str:
    """Return the help of the choices among the words, or else of a group's names. "run" is all groups.

    Raises:
        ConfigError: a group does not have the name.
    """
    names = groups().get(group, [])
    chosen = [f"{group}={word}" if word in names else word for word in words]
    if text := _explain_choices(chosen):
        return text
    if group == "run":
        return _explain_all()
    if len(names) == 1:
        return _explain_choices([f"{group}={names[0]}"])
    listed = rows((name, describe_choice(group, name)) for name in names)
    return f"recipes (keys of a recipe: kgqa {group} RECIPE --help):\n{listed}"


def _explain_all() -> str:
    """Return the help of all methods, names of other groups and keys of a run, with defaults."""
    standard, known = default_choices(), groups()

    def mark(group: str, name: str) -> str:
        return f"{name}*" if standard.get(group) == name else name

    methods = rows((mark("method", name), _summarize(describe_choice("method", name))) for name in known["method"])
    others = rows(
        (f"{group}=", ", ".join(mark(group, name) for name in names))
        for group, names in known.items()
        if group != "method" and group not in SECOND
    )
    own = rows((key.name, key.describe()) for key in list_run_keys() if key.default or key.comment)
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
        others = ", ".join(f"{choice.group}={choice.name}" for choice in list_choices(group, name) if not choice.part)
        opening = [
            ("", text) for text in (describe_choice(group, name), others and f"Default choices: {others}.") if text
        ]
        parts += ["\n".join(filter(None, [f"{group}={name}", rows(opening)])), keys]
    return "\n\n".join(filter(None, parts))


def choose_examples(words: Iterable[str]) -> str:
    """Return commands that use the chosen method, dataset, model or other choice, or ""."""
    chosen = dict(_list_chosen(words))
    if not chosen:
        return ""
    choices = {"method": "trace", **chosen}
    named = " ".join(f"{group}={name}" for group, name in choices.items() if group != "dataset")
    dataset = chosen.get("dataset", "")
    lines = [f"kgqa run {named} dataset={dataset or 'demo'} limit=3"]
    if not dataset:
        lines.append(f"kgqa run {named} dataset=musique limit=100 dry_run=true")
    group, name = next(iter(chosen.items()))
    numbers = (key for key in list_keys(group, name) if key.default.isdecimal() and int(key.default) > 1)
    if number := next(numbers, None):
        lines.append(f"{lines[0]} {group}.{number.name}={int(number.default) * 2}")
    return "\n".join(lines)


def _list_chosen(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield groups and chosen names in the order of the words, both names of method=trace,ircot."""
    known = groups()
    for word in map(parse_override, words):
        if word.key in known:
            for name in word.value.split(","):
                if name not in ("null", "") or word.key not in OPTIONAL:
                    yield word.key, name


def complete_key(start: str, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the completions of a word, each with its meaning. `words` are the other words of the command line."""
    parsed = parse_override(start)
    key, group = parsed.key, parsed.group
    known = {declared.name: declared for declared in list_run_keys()}
    name = {**default_choices(), **dict(_list_chosen(words))}.get(group, "")
    if "." in key and name in groups().get(group, ()):
        known |= {f"{group}.{declared.name}": declared for declared in list_keys(group, name)}
    if parsed.has_value:
        before = f"{key}={parsed.value[: parsed.value.rfind(',') + 1]}"  # -m: the last of method=trace,irc
        choices = "model" if key.startswith("roles.") else key
        if names := groups().get(choices):
            yield from ((f"{before}{name}", _summarize(describe_choice(choices, name))) for name in names)
        elif key in known and known[key].default in SWITCH:
            yield from ((f"{before}{value}", "") for value in SWITCH)
        return
    if "." not in key:
        yield from ((f"{of_group}=", "") for of_group in groups())
        yield "roles.", known["roles"].comment
    for name, declared in known.items():
        if declared.default and ("." in name) == ("." in key):
            yield f"{name}=", declared.describe()
