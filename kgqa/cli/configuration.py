"""Explain and complete key=value arguments: the groups and keys of conf/."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from kgqa.cli.parsing import rows
from kgqa.config.composing import OPTIONAL, check_choice
from kgqa.config.files import SECOND, groups
from kgqa.config.overrides import parse_override
from kgqa.config.yaml_docs import Key, default_choices, describe_choice, list_choices, list_keys, list_run_keys

SWITCH = ("true", "false")
NEEDS = """model: model=, engine=; triples: extracted by kg=; search of the corpus, or of a pool, the question's own
passages: retriever=; graph of passages: graph=; ranker: ranker=; reranker: reranker=; demonstrations
nearest to a question or a passage: demonstrations_ranker=, with the names of ranker="""


def explain_all() -> str:
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
    own = rows((_format_key(key.name, key), key.source) for key in list_run_keys() if key.default or key.source)
    return (
        f"method=NAME; * is the default; kgqa run method=NAME --help shows the keys of one:\n{methods}\n\n{NEEDS}\n\n"
        f"other groups, GROUP=NAME; kgqa run GROUP=NAME --help shows the keys of one:\n{others}\n\n"
        f"keys of a run:\n{own}"
    )


def _format_key(name: str, key: Key) -> str:
    return f"{name}={key.default}" if key.default else name


def _summarize(opening: str) -> str:
    """Return the part of an opening comment up to the list of needs, or its first sentence."""
    needing = re.match(r".*? Needs [\w, ]+\.", opening)
    return needing[0] if needing else opening.partition(". ")[0]


def explain_choices(words: Iterable[str]) -> str:
    """Return the help of each choice among the words: its keys, defaults and sources.

    Raises:
        ConfigError: a group does not have the name.
    """
    parts, choices_of = [], groups()
    for group, name in _list_chosen(words):
        check_choice(f"{group}={name}", choices_of)
        lines = [(_format_key(f"{group}.{key.name}", key), key.source) for key in list_keys(group, name)]
        along = ", ".join(f"{choice.group}={choice.name}" for choice in list_choices(group, name) if not choice.place)
        opening = [("", text) for text in (describe_choice(group, name), along and f"Comes with {along}.") if text]
        parts += ["\n".join(filter(None, [f"{group}={name}", rows(opening)])), rows(lines)]
    return "\n\n".join(filter(None, parts))


def completions(start: str, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what a word that starts like this can become, each with its meaning. `words` are the other words."""
    parsed = parse_override(start)
    key, group = parsed.key, parsed.key.partition(".")[0]
    known = {declared.name: declared for declared in list_run_keys()}
    name = {**default_choices(), **dict(_list_chosen(words))}.get(group, "")
    if "." in key and name in groups().get(group, ()):
        known |= {f"{group}.{declared.name}": declared for declared in list_keys(group, name)}
    if parsed.has_value:
        before = f"{key}={parsed.value[: parsed.value.rfind(',') + 1]}"  # -m: the last of method=trace,irc
        yield from ((f"{before}{name}", meaning) for name, meaning in _list_values(key, known.get(key)))
        return
    if "." not in key:
        yield from ((f"{of_group}=", "") for of_group in groups())
        yield "roles.", known["roles"].source
    for name, declared in known.items():
        if declared.default and ("." in name) == ("." in key):
            yield f"{name}=", f"{declared.default}  {declared.source}"


def _list_values(key: str, declared: Key | None) -> Iterator[tuple[str, str]]:
    """Yield the names of a group, the presets of a role, or true and false."""
    group = "model" if key.startswith("roles.") else key
    if names := groups().get(group):
        yield from ((name, _summarize(describe_choice(group, name))) for name in names)
    elif declared and declared.default in SWITCH:
        yield from ((position, "") for position in SWITCH)


def _list_chosen(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield groups and chosen names in the given order, both names of method=trace,ircot."""
    known = groups()
    for word in map(parse_override, words):
        if word.key in known:
            for name in word.value.split(","):
                if name not in ("null", "") or word.key not in OPTIONAL:
                    yield word.key, name
