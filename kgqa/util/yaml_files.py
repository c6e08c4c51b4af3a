"""Read YAML files of users, with errors of one line: file, line, and what is expected."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgqa.errors import DataError
from kgqa.types import Json
from kgqa.util.fs import open_file

if TYPE_CHECKING:
    from yaml import YAMLError

# of a file. 9 levels of 9 would be a billion values
MAX_ALIASES = 20
_ALIAS = re.compile(r"(?:^|[\s,\[{:-])\*[A-Za-z0-9_]+", re.MULTILINE)
# what the parser reports, and what to write instead
_REMEDIES = {
    "could not find expected ':'": "no colon after the key. Write KEY: VALUE",
    "mapping values are not allowed": "a second colon in this line, or none in the line before. Write one "
    "KEY: VALUE per line, and quote a value with a colon",
    # a tab, mostly
    "cannot start any token": "{problem}. Indent with spaces instead of tabs, or quote the value",
}


def parse_yaml(file: Path, remedy: str) -> Json:
    """Return the content of a YAML file, {} for an empty one. Raise a DataError if it cannot be read."""
    import yaml

    try:
        read_yaml_text(file)
        with file.open(encoding="utf-8") as stream:
            return yaml.load(stream, Loader=_yaml_loader()) or {}  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise DataError(f"{explain_yaml(error)}. {remedy}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file}: not readable ({error}). {remedy}") from error


@cache
def _yaml_loader() -> type[Any]:
    """Return a safe loader, in C if possible, that reads 1e-4 as a number and dates as texts, as OmegaConf does."""
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        pass

    Loader.yaml_implicit_resolvers = {
        first: [resolver for resolver in resolvers if not resolver[0].endswith(":timestamp")]
        for first, resolvers in Loader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?[0-9][0-9.]*[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )
    return Loader


def read_yaml_text(file: Path) -> str:
    """Return the text of a YAML file. Raise a DataError for what a library would accept or explain badly.

    That is a file that is not UTF-8, or has many aliases: a list of aliases of lists can be a billion values.
    """
    try:
        with open_file(file) as source:
            text = source.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file}: not UTF-8 ({error.reason} at byte {error.start}). Save the file as UTF-8"
        ) from error
    if (aliases := len(_ALIAS.findall(text))) > MAX_ALIASES:
        raise DataError(
            f"{file}: {aliases} aliases (*name), the maximum is {MAX_ALIASES}. Write the values out"
        )
    return text


def explain_yaml(error: YAMLError) -> str:
    """Return `FILE:LINE: problem`, with what to write if it is known. An error of the bytes names the file only."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f"{getattr(error, 'name', '')}: {getattr(error, 'reason', error)}".lstrip(": ")
    problem = str(getattr(error, "problem", error))
    if "expected ':'" in problem:
        # a missing colon is noticed in the line after the key
        mark = getattr(error, "context_mark", None) or mark
    file = Path(mark.name)
    name = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    remedy = next((text for part, text in _REMEDIES.items() if part in problem), "{problem}")
    return f"{name}:{mark.line + 1}: {remedy.format(problem=problem)}"
