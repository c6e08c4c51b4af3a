"""Remove keys and passwords from texts, and describe errors without them."""

from __future__ import annotations

import os
import platform
import re
import shlex
import tempfile
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from importlib.metadata import version
from inspect import unwrap
from pathlib import Path
from types import CoroutineType
from typing import Any

import kgqa.calls as calls
from kgqa.errors import KgqaError, nearest
from kgqa.types import Json
from kgqa.util.places import home, package_folder

MARK = "[key]"
MAX_MESSAGE = 200  # characters of an unexpected error
# characters; shorter values are ordinary words such as EMPTY
MIN_LENGTH = 8
_NAMES = re.compile(
    r"(?:^|_)(?:API_?)?(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)(?:_ID)?(?:_|$)"
)
# the path of a key is not a key
_PATHS = re.compile(r"_(?:FILE|PATH|DIR|HOME|ENV|URL)$")
_CREDENTIALS = re.compile(r"(?<=://)[^/?#@\s'\"]+@")
_QUERY = re.compile(
    r"(?i)(?<=[?&])((?:api[_-]?)?key|(?:access_)?token|secret|password|sig(?:nature)?)=[^&\s'\"]+"
)
_HEADER = re.compile(r"(?i)\b(authorization['\"]?\s*[:=]\s*['\"]?(?:bearer|basic)\s+)[^\s'\",}]+")


class ApiKey:
    """An API key of a server, or "" for none."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __repr__(self) -> str:
        return MARK

    def is_in(self, reply: str) -> bool:
        """Return whether a model's reply contains the key. Short words such as EMPTY are not secret."""
        return len(self._key) > MIN_LENGTH and self._key in reply

    def redact(self, text: str) -> str:
        """Return the text with `MARK` for the key."""
        return redact_urls(text.replace(self._key, MARK) if self._key else text)

    def redact_json(self, value: Json) -> Json:
        """Return the JSON value with the key removed from every text, also from names of members."""
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, list):
            return [self.redact_json(each) for each in value]
        if isinstance(value, dict):
            return {self.redact(name): self.redact_json(each) for name, each in value.items()}
        return value


def is_secret(variable: str) -> bool:
    """Return whether the name of an environment variable says that it holds a key or a password."""
    name = variable.upper()
    return bool(_NAMES.search(name)) and not _PATHS.search(name)


def hide_secret(name: str, value: object) -> object:
    """Return a value for a message, or … if its name says that it is a key or a password."""
    return "…" if is_secret(name) else value


def secret_variables() -> Mapping[str, str]:
    """Return the environment variables that hold keys and passwords, without values as short as ordinary words."""
    return {
        name: value
        for name, value in os.environ.items()
        if is_secret(name) and len(value.strip()) > MIN_LENGTH
    }


def has_credentials(text: str) -> bool:
    """Return whether an address in the text contains a name, a password or a key."""
    return bool(_CREDENTIALS.search(text) or _QUERY.search(text))


def redact_urls(text: str) -> str:
    """Return the text without credentials in addresses and Authorization headers."""
    text = _HEADER.sub(rf"\1{MARK}", _CREDENTIALS.sub(f"{MARK}@", text))
    return _QUERY.sub(rf"\1={MARK}", text)


def redact(message: Any) -> str:
    """Return a message without secrets, for whatever leaves the program as a line or an error."""
    text = redact_urls(str(message))
    for value in secret_variables().values():
        text = text.replace(value.strip(), MARK)
    return text


def describe_error(error: BaseException) -> str:
    """Return the type and message of an error, and for an unexpected one its location, such as (mine.py:28)."""
    text = f"{type(error).__name__}: {redact(error)}".removesuffix(": ")
    if isinstance(error, KgqaError):
        return text
    frames = own_frames(error)
    location = f" ({show_file(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return f"{text}{location}{_hint_at_await(error) or _hint_at_attribute(error)}"


def own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames of a traceback in the user's code and in templates; if there are none, in kgqa or a library."""
    frames = traceback.extract_tb(error.__traceback__)
    standard = f"{Path(os.__file__).parent}{os.sep}"
    kgqa = f"{package_folder()}{os.sep}"

    packages = f"{os.sep}site-packages{os.sep}"
    outside = [
        each
        for each in frames
        if packages in each.filename or not each.filename.startswith(("<", standard))
    ]
    ours = [each for each in outside if packages not in each.filename]
    users = [
        each for each in ours if each.filename.endswith(".j2") or not each.filename.startswith(kgqa)
    ]
    return users or ours or outside


def format_frames(error: BaseException) -> list[str]:
    """Return the lines of `own_frames` for a terminal, each with its source."""
    return [
        redact(f"{show_file(frame.filename)}:{frame.lineno}: {frame.line}".removesuffix(": "))
        for frame in own_frames(error)
    ]


def awaiting_line(program: Coroutine[Any, Any, Any]) -> str:
    """Return FILE:LINE where a suspended program of the user awaits, or "" if it is kgqa's."""
    line = ""
    inner: Any = program
    while isinstance(inner, CoroutineType) and inner.cr_frame:
        file = inner.cr_frame.f_code.co_filename
        if not file.startswith(f"{package_folder()}{os.sep}"):
            line = f"{show_file(file)}:{inner.cr_frame.f_lineno}"
        inner = inner.cr_await
    return line


def function_line(function: Callable[..., Any]) -> str:
    """Return FILE:LINE of a function."""
    code = unwrap(function).__code__
    return f"{show_file(code.co_filename)}:{code.co_firstlineno}"


def show_file(file: str | Path) -> str:
    """Return the path from the working directory, or only the name outside of it."""
    path = Path(file).absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name


def _hint_at_await(error: BaseException) -> str:
    """Return a hint if a call was used like its reply, or something else than a call was awaited."""
    if isinstance(error, RuntimeError) and str(error) == "no running event loop":
        return ". A method can await only the calls of kgqa.calls"
    named = (
        re.search(r"'?(\w+)'? object", str(error))
        if isinstance(error, (TypeError, AttributeError))
        else None
    )
    kind = getattr(calls, named[1], None) if named else None
    if isinstance(kind, type) and issubclass(kind, calls.Call):
        return f". Is `await` missing before {kind.__name__}(…)?"
    return ""


def _hint_at_attribute(error: BaseException) -> str:
    """Return the attribute that is probably meant, such as text for question.txt."""
    if not isinstance(error, AttributeError) or error.name is None:
        return ""
    hint = nearest(error.name, (each for each in dir(error.obj) if not each.startswith("_")))
    return f". {hint.rstrip('.')}" if hint.startswith("Did") else ""


def write_crash_report(error: BaseException, arguments: Sequence[str]) -> str:
    """Write the traceback to a file that only its owner can read, without secrets, and return the line to show."""
    message = " ".join(redact(f"{type(error).__name__}: {error}").split()).removesuffix(":")[
        :MAX_MESSAGE
    ]
    report = redact(
        f"kgqa {version('kgqa')}, Python {platform.python_version()}, {platform.platform()}\n"
        f"{shlex.join(['kgqa', *arguments])}\n\n{''.join(traceback.format_exception(error))}"
    )
    for folder in (home() / "errors", Path(tempfile.gettempdir())):
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / f"kgqa-{datetime.now():%Y%m%d-%H%M%S-%f}.txt"
            file.touch(0o600)
            file.write_text(report, encoding="utf-8", errors="backslashreplace")
            return f"unexpected error ({message}). Please report it with {file}"
    return f"unexpected error ({message}). Its traceback could not be written to a file"
