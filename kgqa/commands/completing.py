"""What a command line that is not yet typed to its end can go on with, from the tree of commands."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Sequence

from kgqa.commands.parsing import Parser

SHOWN = 70  # characters of a meaning
Candidate = tuple[str, str]  # the whole word, and what it means


def split(line: str) -> tuple[list[str], str]:
    """The finished words behind the program's name, and the one under way; an open quote ends with the line."""
    ending = line[-1:].isspace()
    for quote in ("", '"', "'"):
        try:
            words = shlex.split(line + quote)[1:]
        except ValueError:
            continue
        return (words, "") if ending or not words else (words[:-1], words[-1])
    return [], ""


def complete(tree: Parser, line: str) -> list[Candidate]:
    """In the order of the help; none where only the shell can know, such as files."""
    words, begun = split(line)
    parser = tree
    while words and words[0] in parser.commands:
        parser = parser.commands[words.pop(0)]
    return [
        (word, textwrap.shorten(meaning, SHOWN, placeholder=" …"))
        for word, meaning in _candidates(parser, words, begun)
        if word.startswith(begun) and word != begun
    ]


def _candidates(parser: Parser, words: Sequence[str], begun: str) -> Iterator[Candidate]:
    options = {name: action for action in parser._actions for name in action.option_strings}
    if words and (before := options.get(words[-1])) and before.nargs != 0:
        yield from ((str(value), "") for value in before.choices or ())
    elif begun.startswith("-"):
        yield from ((name, action.help or "") for name, action in options.items() if name.startswith("--"))
    elif not words and parser.commands:
        yield from ((name, command.summary) for name, command in parser.commands.items())
    elif parser.keys:
        from kgqa.commands.configuration import completions

        yield from ((f"{key}=", "") for key in parser.own_keys if "=" not in begun)
        if parser.runs_keys or begun.partition("=")[0].partition(".")[0] in parser.own_keys:
            yield from completions(begun, words)
