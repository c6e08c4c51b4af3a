"""What stands in key=value words: the groups and keys of conf/, for help and for completion."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from kgqa.commands.parsing import rows
from kgqa.experiment.config.composing import OPTIONAL, check_choice
from kgqa.experiment.config.files import SECOND, groups
from kgqa.experiment.config.listing import Key, about, choices, defaults, keys, run_keys

SWITCH = ("true", "false")
NEEDS = """model: model=, engine=; triples: extracted by kg=; search of the corpus, or of a pool, the question's own
passages: retriever=; graph of passages: graph=; ranker: ranker=; reranker: reranker=; demonstrations
nearest to a question or a passage: demonstrations_ranker=, with the names of ranker="""


def overview() -> str:
    """The methods, the names in every other group and the keys of a run, with what holds unless something is said."""
    standard, known = defaults(), groups()

    def marked(group: str, name: str) -> str:
        return f"{name}*" if standard.get(group) == name else name

    methods = rows((marked("method", name), _summary(about("method", name))) for name in known["method"])
    others = rows(
        (f"{group}=", ", ".join(marked(group, name) for name in names))
        for group, names in known.items()
        if group != "method" and group not in SECOND
    )
    own = rows((_written(key.name, key), key.source) for key in run_keys() if key.default or key.source)
    return (
        f"method=NAME; * is the default; kgqa run method=NAME --help shows the keys of one:\n{methods}\n\n{NEEDS}\n\n"
        f"other groups, GROUP=NAME; kgqa run GROUP=NAME --help shows the keys of one:\n{others}\n\n"
        f"keys of a run:\n{own}"
    )


def _written(name: str, key: Key) -> str:
    return f"{name}={key.default}" if key.default else name


def _summary(opening: str) -> str:
    """What it is, its paper and what it needs; the first sentence of an opening that does not say what is needed."""
    needing = re.match(r".*? Needs [\w, ]+\.", opening)
    return needing[0] if needing else opening.partition(". ")[0]


def chosen_help(words: Iterable[str]) -> str:
    """The keys of each group's choice among the words, with their defaults and where these are from.

    Raises:
        ConfigError: a name that its group does not have.
    """
    parts, choices_of = [], groups()
    for group, name in _chosen(words):
        check_choice(f"{group}={name}", choices_of)
        lines = [(_written(f"{group}.{key.name}", key), key.source) for key in keys(group, name)]
        along = ", ".join(f"{choice.group}={choice.name}" for choice in choices(group, name) if not choice.place)
        opening = [("", text) for text in (about(group, name), along and f"Comes with {along}.") if text]
        parts += ["\n".join(filter(None, [f"{group}={name}", rows(opening)])), rows(lines)]
    return "\n\n".join(filter(None, parts))


def completions(begun: str, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What a word that begins like this can become, and what each is. `words`: the others, whose choices have keys."""
    key, equals, value = begun.partition("=")
    group = key.partition(".")[0]
    known = {declared.name: declared for declared in run_keys()}
    name = {**defaults(), **dict(_chosen(words))}.get(group, "")
    if "." in key and name in groups().get(group, ()):
        known |= {f"{group}.{declared.name}": declared for declared in keys(group, name)}
    if equals:
        before = f"{key}={value[: value.rfind(',') + 1]}"  # -m: the last of method=trace,irc
        yield from ((f"{before}{name}", meaning) for name, meaning in _values(key, known.get(key)))
        return
    if "." not in key:
        yield from ((f"{of_group}=", "") for of_group in groups())
        yield "roles.", known["roles"].source
    for name, declared in known.items():
        if declared.default and ("." in name) == ("." in key):
            yield f"{name}=", f"{declared.default}  {declared.source}"


def _values(key: str, written: Key | None) -> Iterator[tuple[str, str]]:
    """The names of a group, the presets of a role, or what a switch can be."""
    group = "model" if key.startswith("roles.") else key
    if names := groups().get(group):
        yield from ((name, _summary(about(group, name))) for name in names)
    elif written and written.default in SWITCH:
        yield from ((position, "") for position in SWITCH)


def _chosen(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Groups and names, in the order given; each of method=trace,ircot."""
    known = groups()
    for word in words:
        group, _, names = word.partition("=")
        if group in known:
            yield from ((group, name) for name in names.split(",") if name not in ("null", "") or group not in OPTIONAL)
