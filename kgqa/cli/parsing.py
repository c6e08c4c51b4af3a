"""The shape of a command line: options, places (runs, files, ids) and key=value, in any order, as one argparse tree."""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from kgqa.errors import ConfigError, nearest

WIDEST = 32  # of a column of names
RUN = "a run: its folder, or the beginning of its name, or last"


@dataclass(frozen=True)
class Place:
    """A word that is no key=value: a run, a file, a question's id."""

    name: str
    meaning: str
    least: int
    most: int

    def usage(self) -> str:
        shown = f"{self.name} …" if self.most > max(self.least, 1) else self.name
        return " ".join([self.name] * (self.least - 1) + [shown]) if self.least else f"[{shown}]"


class HelpWanted(Exception):
    """Help is to be shown: asked for (code 0), or in place of a long run that nobody may have meant to start (2)."""

    def __init__(self, parser: Parser, code: int = 0) -> None:
        super().__init__(parser.prog)
        self.parser, self.code = parser, code


class Parser(argparse.ArgumentParser):
    """A command, or a group of them. What is wrong is one line; help says what is taken and ends in examples."""

    def __init__(self, prog: str, summary: str = "") -> None:
        super().__init__(
            prog=prog, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, add_help=False
        )
        self.summary = summary
        self.examples: tuple[str, ...] = ()
        self.places: list[Place] = []
        self.keys: str | None = None  # what its key=value words are; None: it takes none
        self.own_keys: tuple[str, ...] = ()
        self.runs_keys = True  # takes those of kgqa run, too
        self.starts_bare = False  # given nothing, it does what it is for, even if it takes keys alone
        self.notes = ""  # below the options
        self.explain: Callable[[Sequence[str]], str] | None = None  # notes that depend on the words given
        self.commands: dict[str, Parser] = {}
        self._tasks: dict[str, list[str]] = {}  # names of commands by heading
        self._group: Any = None  # argparse has no public name for what add_subparsers gives
        self.add_argument("-h", "--help", action=_Help, nargs=0, help="show this help")
        self.set_defaults(parser=self)

    def command(self, name: str, summary: str, task: str = "") -> Parser:
        """Add a command to this group, below the heading `task` of the help: `given.command` or `given.action`."""
        if self._group is None:
            dest = "action" if " " in self.prog else "command"
            self._group = self.add_subparsers(dest=dest, prog=self.prog, help=argparse.SUPPRESS)
        parser: Parser = self._group.add_parser(name, summary=summary)
        self.commands[name] = parser
        self._tasks.setdefault(task, []).append(name)
        return parser

    def takes_places(self, name: str, meaning: str, least: int = 1, most: int = 1) -> None:
        """Accept words that are not key=value: `given.places`."""
        self.places.append(Place(name, meaning, least, most))
        self._takes_words()

    def takes_keys(self, meaning: str = "as for kgqa run", own: Sequence[str] = (), *, only: bool = False) -> None:
        """Accept key=value words: `given.overrides`. A command with only these shows its help without arguments."""
        self.keys, self.own_keys, self.runs_keys = meaning, tuple(own), not only
        self._takes_words()

    def _takes_words(self) -> None:
        if not any(action.dest == "words" for action in self._actions):
            self.add_argument("words", nargs="*", help=argparse.SUPPRESS)

    def help_text(self, words: Sequence[str]) -> str:
        """Return the help; the command line `words` can narrow it, e.g. to one method."""
        taken = [(place.usage(), place.meaning) for place in self.places]
        taken += (
            [("[key=value …]" if self.places or self.starts_bare else "key=value …", self.keys)] if self.keys else []
        )
        shown = [name for name, _ in taken] + (["COMMAND"] if self.commands else [])
        self.usage = " ".join([self.prog, *shown, "[options]"])
        parts = [self.summary, rows(taken)]
        for task, names in self._tasks.items():
            listing = rows((name, self.commands[name].summary) for name in names)
            parts.append(f"{task}:\n{listing}" if task else listing)
        self.description = "\n\n".join(filter(None, parts))
        examples = "\n".join(["examples:" if len(self.examples) > 1 else "example:", *self.examples])
        notes = self.explain(words) if self.explain else self.notes
        self.epilog = "\n\n".join(filter(None, [notes, examples.replace("\n", "\n  ")]))
        return self.format_help()

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see {self.prog} --help")

    def missing(self, what: str) -> ConfigError:
        return ConfigError(f"{what} is missing; e.g. {self.examples[0]}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            place = action.option_strings or self.prog.split()[1:]
            if not action.option_strings:
                from kgqa.config.renamed import check_renamed_command

                check_renamed_command(" ".join([*place, str(value)]))
            what = "value" if action.option_strings else "command"
            hint = nearest(str(value), map(str, action.choices))
            raise ConfigError(f"{' '.join([*place, str(value)])}: no such {what}; {hint}")


class _Help(argparse.Action):
    """Raised rather than printed: what is explained depends on all words, and here only some are known."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        assert isinstance(parser, Parser)
        raise HelpWanted(parser)


def rows(pairs: Iterable[tuple[str, str]]) -> str:
    """Format names and meanings in two columns of the terminal's width."""
    listed = list(pairs)
    longest = max((len(name) for name, _ in listed), default=0)
    column = 2 + (min(longest, WIDEST) + 2 if longest else 0)
    width = max(shutil.get_terminal_size().columns - 2, 60) - column
    lines = []
    for name, meaning in listed:
        text = textwrap.wrap(meaning, width, break_on_hyphens=False, break_long_words=False)
        beside = text[:1] if len(name) <= WIDEST else []
        lines.append(f"  {name}".ljust(column) + "".join(beside))
        lines += [" " * column + line for line in text[len(beside) :]]
    return "\n".join(line.rstrip() for line in lines)


def parse(tree: Parser, arguments: Sequence[str]) -> Namespace:
    """Parse a command line: `given.parser` is the command's, `given.tree` the complete one.

    Raises:
        ConfigError: an unknown command or option, or a word that is missing or one too many.
        HelpWanted: help was asked for, or nothing at all was given to what does nothing without.
    """
    given, left = tree.parse_known_args(arguments)
    parser: Parser = given.parser
    given.tree = tree
    for word in left:
        if word.startswith("-"):
            options = [name for action in parser._actions for name in action.option_strings if name.startswith("--")]
            raise ConfigError(f"{word}: no such option of {parser.prog}; {nearest(word, options)}")
    words = [*getattr(given, "words", ()), *left]
    nothing = list(arguments) == parser.prog.split()[1:]
    if parser.commands or (nothing and parser.keys and not (parser.places or parser.starts_bare)):
        raise HelpWanted(parser, code=2)
    keys = {word for word in words if parser.keys and (_is_key(word) or not parser.places)}
    given.overrides = [word for word in words if word in keys]
    given.places = [word for word in words if word not in keys]
    _check_places(parser, given.places)
    _check_keys(parser, given.overrides)
    return given


def find_repeated(overrides: Sequence[str]) -> list[str]:
    """Return a line for each key that is set more than once."""
    from kgqa.config.overrides import override_key

    given: dict[str, list[str]] = {}
    for override in overrides:
        given.setdefault(override_key(override), []).append(override)
    return [f"{' '.join(words)}: the last one counts" for words in given.values() if len(words) > 1]


def _is_key(word: str) -> bool:
    """Return whether a word is key=value. A path on disk is not, whatever its name, and a sentence with = is not."""
    return re.match(r"[^\s=]*=", word) is not None and not _on_disk(word)


def _on_disk(word: str) -> bool:
    try:
        return Path(word).exists()
    except OSError:  # longer than a name can be, such as a list of ids
        return False


def _check_places(parser: Parser, places: Sequence[str]) -> None:
    if len(places) > sum(place.most for place in parser.places):
        raise ConfigError(f"{places[-1]}: one word too many for {parser.prog}; e.g. {parser.examples[0]}")
    left = len(places)
    for place in parser.places:
        if left < place.least:
            raise parser.missing(f"another {place.name}" if left else place.name)
        left -= min(left, place.most)


def _check_keys(parser: Parser, overrides: Sequence[str]) -> None:
    from kgqa.config.overrides import override_group

    for override in overrides if not parser.runs_keys else ():
        if "=" in override and (key := override_group(override)) not in parser.own_keys:
            raise ConfigError(f"{override}: not a key of {parser.prog}; {nearest(key, parser.own_keys)}")
