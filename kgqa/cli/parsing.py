"""Describe a command by its help, and parse its arguments: options, positionals and key=value in any order."""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from kgqa.config.foreign_names import KEYS
from kgqa.errors import ConfigError, nearest
from kgqa.types import Json
from kgqa.util.registry import load_function

# characters of a column of names
MAX_COLUMN = 32
# of options with a number, by metavar
MINIMA = {"N": 1, "DAYS": 0, "GPUS": 0, "PORT": 0}
PATHS = ("FILE", "FOLDER", "PATH")


@dataclass(frozen=True)
class Argument:
    """A line of a command's help.

    usage: `-m, --multirun` (a switch), `--limit N`, `--format {html,md}`, `--from RUN …` (can be repeated),
        `key=value …`, or a positional: `RUN`, `[QUESTION]` (optional), `RUN RUN …` (two or more).
    """

    usage: str
    meaning: str

    @property
    def names(self) -> list[str]:
        """Return the names of an option, the long one last."""
        return [word.rstrip(",") for word in self.usage.split() if word.startswith("-")]

    @property
    def metavar(self) -> str:
        """Return the name of an option's value, "" for a switch."""
        return self.usage.removesuffix(" …").partition(self.names[-1])[2].strip()

    @property
    def choices(self) -> list[str]:
        return self.metavar.strip("{}").split(",") if self.metavar.startswith("{") else []

    @property
    def least(self) -> int:
        """Return how many words a positional needs."""
        return 0 if self.usage.startswith("[") else len(self.usage.removesuffix(" …").split())

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        if self.metavar:
            type_ = int if self.metavar in MINIMA else Path if self.metavar in PATHS else str
            parser.add_argument(
                *self.names,
                type=_read_days if self.metavar == "DAYS" else type_,
                action="append" if "…" in self.usage else "store",
            )
        else:
            parser.add_argument(*self.names, action="store_true")

    def check(self, args: Namespace) -> None:
        """Raise a ConfigError for a value that the option does not allow."""
        value = vars(args)[self.names[-1].strip("-").replace("-", "_")]
        if value is not None and self.choices and value not in self.choices:
            raise ConfigError(
                f"{self.names[-1]} {value}: no such value. {nearest(value, self.choices)}"
            )
        if value is not None and value < MINIMA.get(self.metavar, value):
            raise ConfigError(f"{self.names[-1]} {value}: must be at least {MINIMA[self.metavar]}")


@dataclass(frozen=True)
class Command:
    """A command and its help.

    function: `module:function`. It gets the parsed arguments and a Terminal, and can return an exit code. "" for a
        group of commands.
    arguments: lines of the help, each with the usage, two spaces and the meaning.
    own_keys: keys and groups that only this command has. With `only_own` it accepts no others.
    explains: the group of conf/ with the names that the help lists, or "run" for all groups.
    needs_words: show the help if it accepts only key=value and gets none.
    """

    name: str
    summary: str
    examples: str
    function: str = ""
    arguments: str = ""
    own_keys: tuple[str, ...] = ()
    only_own: bool = False
    explains: str = ""
    notes: str = ""
    needs_words: bool = True

    @property
    def program(self) -> str:
        return f"kgqa {self.name}".strip()

    @property
    def options(self) -> list[Argument]:
        return [each for each in self._read_arguments() if each.names]

    @property
    def positionals(self) -> list[Argument]:
        return [
            each
            for each in self._read_arguments()
            if not each.names and "key=value" not in each.usage
        ]

    @property
    def has_keys(self) -> bool:
        return "key=value" in self.arguments

    def _read_arguments(self) -> Iterator[Argument]:
        for line in filter(None, map(str.strip, self.arguments.splitlines())):
            usage, meaning = re.split(r" {2,}", line, maxsplit=1)
            yield Argument(usage, " ".join(meaning.split()))

    def shows_help(self, words: Sequence[str]) -> bool:
        """Return whether the command does nothing without more words."""
        return not self.function or (
            not words and self.has_keys and not self.positionals and self.needs_words
        )

    def parse(self, words: Sequence[str]) -> Namespace:
        """Return `positionals`, `overrides` (the key=value arguments) and a value per option.

        Raises:
            ConfigError: an unknown option or key, or a word is missing or one too many.
        """
        parser = _Parser(self.program, allow_abbrev=False, add_help=False)
        options = self.options
        for option in options:
            option.add_to(parser)
        args, left = parser.parse_known_args(words)
        for place, word in enumerate(left):
            if word.startswith("-"):
                hint = self._hint_at_option(word, left[place + 1 :])
                raise ConfigError(f"{word}: no such option of {self.program}. {hint}")
        for option in options:
            option.check(args)
        args.command = self
        args.overrides = [
            word for word in left if self.has_keys and (_is_key(word) or not self.positionals)
        ]
        args.positionals = [word for word in left if word not in args.overrides]
        self._check_positionals(args.positionals)
        for override in args.overrides:
            self._refuse_option_as_key(override)
        if self.only_own:
            self._check_keys(args.overrides)
        return args

    def run(self, args: Namespace, *given: Any) -> int:
        code: int | None = load_function(self.function)(args, *given)
        return code or 0

    def missing(self, what: str) -> ConfigError:
        # the example names runs that can be missing here
        listed = ". List runs: kgqa runs" if what == "RUN" else ""
        return ConfigError(
            f"{what} is missing. Example: {self.examples.strip().splitlines()[0]}{listed}"
        )

    def help_text(
        self, explanation: str = "", commands: Sequence[tuple[str, Sequence[Command]]] = ()
    ) -> str:
        """Return the help. `explanation` is about groups of conf/. `commands` are those of a group, by heading."""
        words = [each for each in self._read_arguments() if not each.names]
        command = "[COMMAND]" if self.function else "COMMAND"
        usage = [each.usage for each in words] + [command] * bool(commands)
        parts = [f"usage: {' '.join([self.program, *usage, '[options]'])}", self.summary]
        parts.append(rows((each.usage, each.meaning) for each in words))
        for heading, listed in commands:
            parts.append(
                f"{heading}:\n" + rows((each.name.split()[-1], each.summary) for each in listed)
            )
        options = [*self.options, Argument("-h, --help", "show this help")]
        parts.append("options:\n" + rows((each.usage, each.meaning) for each in options))
        examples = [line.strip() for line in self.examples.strip().splitlines()]
        heading = "examples:" if len(examples) > 1 else "example:"
        parts += [explanation, fill(self.notes), "\n  ".join([heading, *examples])]
        return "\n\n".join(filter(None, parts)) + "\n"

    def _hint_at_option(self, word: str, following: Sequence[str]) -> str:
        """Return a hint for an unknown option: the key of this name with its value, or the closest option."""
        usages = " ".join(each.usage for each in self.positionals)
        if word.strip("-").upper() in re.findall("[A-Z]+", usages):
            return f"Write the value without it: {self.program} {usages}"
        names = [option.names[-1] for option in self.options]
        if word.partition("=")[0] == "--host" and "--port" in names:
            return f"{self.program} listens on 127.0.0.1 only"
        hint = nearest(word, [*names, "--help"])
        if not self.has_keys:
            return hint
        name, _, value = word.lstrip("-").partition("=")
        key = name.replace("-", "_")
        if following and not value and not re.search("^-|=", following[0]):
            value = following[0]
        values = self._list_keys()
        if key in values:
            is_switch = isinstance(values[key], bool)
            return f"Write {key}={value or ('true' if is_switch else 'VALUE')}"
        if key in KEYS:
            return f"{KEYS[key]}."
        example = f"{self.own_keys[0]}=VALUE" if self.only_own else "limit=3"
        return f"{hint} Settings are written KEY=VALUE, such as {example}."

    def _list_keys(self) -> Mapping[str, Json]:
        """Return the keys and groups that the command accepts, with the defaults of the run's keys."""
        own: dict[str, Json] = dict.fromkeys(self.own_keys)
        if self.only_own:
            return own
        # slow to import, and only for a message
        from kgqa.config.files import group_names
        from kgqa.config.run_keys import list_run_keys

        defaults = {key.name: key.value for key in list_run_keys()}
        return {**own, **dict.fromkeys(group_names()), **defaults}

    def _check_positionals(self, words: Sequence[str]) -> None:
        left = len(words)
        for positional in self.positionals:
            if left < positional.least:
                name = positional.usage.split()[0]
                raise self.missing(f"another {name}" if left else name)
            left -= left if "…" in positional.usage else min(left, max(positional.least, 1))
        if left:
            raise ConfigError(
                f"{words[-1]}: unexpected argument of {self.program}. Example: {self.examples.splitlines()[0]}"
            )

    def _refuse_option_as_key(self, override: str) -> None:
        """Raise a ConfigError for an option that is written like a key: port=80 for --port 80."""
        name, _, value = override.partition("=")
        for option in self.options:
            if option.names[-1] == f"--{name}" and name not in self._list_keys():
                usage = f"--{name} {value}" if option.metavar else f"--{name}"
                raise ConfigError(f"{override}: not a key of {self.program}. Write {usage}")

    def _check_keys(self, overrides: Sequence[str]) -> None:
        from kgqa.config.overrides import parse_override

        for override in overrides:
            key = parse_override(override).group
            if "=" in override and key not in self.own_keys:
                hint = nearest(key, self.own_keys)
                if key in KEYS and not any(own.startswith(key) for own in self.own_keys):
                    hint = f"{KEYS[key]}."
                raise ConfigError(f"{override}: not a key of {self.program}. {hint}")


def _read_days(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: must be a number of days, such as 7") from None


# messages of argparse in the words of kgqa
_MESSAGES = {
    # for --open=x
    "ignored explicit argument .*": "this option has no value",
    "expected one argument": "a value is missing",
    r"argument (\S+): invalid int value: '(.*)'": r"\1 \2: must be an integer",
    r"argument (\S+): (.*): must be": r"\1 \2: must be",
    "^argument ": "",
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        for pattern, plain in _MESSAGES.items():
            message = re.sub(pattern, plain, message)
        raise ConfigError(f"{message}. See {self.prog} --help")


def rows(pairs: Iterable[tuple[str, str]]) -> str:
    """Format names and meanings in two columns of the terminal's width."""
    listed = list(pairs)
    longest = max((len(name) for name, _ in listed), default=0)
    column = 4 + min(longest, MAX_COLUMN) if longest else 2
    width = max(shutil.get_terminal_size().columns - 2, 60) - column
    lines = []
    for name, meaning in listed:
        start = f"  {name}".ljust(column)
        if len(start) > column:
            lines.append(start)
            start = " " * column
        first, *others = textwrap.wrap(
            meaning, width, break_on_hyphens=False, break_long_words=False
        ) or [""]
        lines += [start + first, *(" " * column + line for line in others)]
    return "\n".join(line.rstrip() for line in lines)


def fill(text: str) -> str:
    """Wrap paragraphs and rows (lines that start with two spaces) at the terminal's width."""
    width = max(shutil.get_terminal_size().columns - 2, 60)
    joined = re.sub(r"(?<!\n)\n(?: {4,}|(?=\S))", " ", text)
    wrapped = []
    for line in joined.split("\n"):
        column = re.match(r"  \S+ {2,}|", line)
        indent = " " * (column.end() if column else 0)
        wrapped += textwrap.wrap(
            line, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
        ) or [""]
    return "\n".join(wrapped)


def _is_key(word: str) -> bool:
    """Return whether a word is key=value. A path on disk is not, whatever its name, and a sentence with = is not."""
    if not re.match(r"[^\s=]*=", word):
        return False
    try:
        return not Path(word).exists()
    except OSError:
        # longer than a file name can be, such as a list of ids
        return True
