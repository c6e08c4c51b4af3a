"""What must not be seen, keys and passwords: found in any spelling, and left out. The one place that knows how.

Messages pass through here where they are made of a server's words (`Key.left_out_of`), and all lines and errors once
more where they leave the program (`without_secrets`). What is no message but a value is refused instead.
"""

from __future__ import annotations

import base64
import html
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from traceback import extract_tb
from typing import Any
from urllib.parse import unquote

from kgqa.errors import KgqaError
from kgqa.types import Json

MARK = "[key]"
LEAST = 8  # characters: a variable's value, or a piece of a key, that is shorter is found everywhere and tells nothing
STEP = 4  # between the pieces of a short key that replies are searched for: 11 characters of it hold one of them
NESTED = 3  # spellings inside each other
NAMES = re.compile(r"(?:^|_)(?:API_?)?(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)(?:_ID)?(?:_|$)")
PLACES = re.compile(r"_(?:FILE|PATH|DIR|HOME|ENV|URL)$")  # where a key lies is none
CREDENTIALS = re.compile(r"(?<=://)[^/?#@\s'\"]+@")  # in an address
QUERY = re.compile(r"(?i)(?<=[?&])((?:api[_-]?)?key|(?:access_)?token|secret|password|sig(?:nature)?)=[^&\s'\"]+")
ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")


class Key:
    """A key that goes to a server. Its characters are ASCII and can be printed."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._windows = {key[start : start + LEAST] for start in range(len(key) - LEAST + 1)} or {key}
        is_long = len(key) > 5 * LEAST  # and begins with a word that all keys of that server have
        first, step = (LEAST, LEAST) if is_long else (0, STEP)
        self._looked_for = (
            *(key[start : start + LEAST] for start in range(first, len(key) - LEAST + 1, step)),
            *self._coded,
        )

    def __repr__(self) -> str:
        return MARK

    def is_in(self, reply: str) -> bool:
        """Whether a model's reply holds the key or a piece of it, however it is spelled. Microseconds.

        Words like EMPTY, which servers without keys are given, are no secret.
        """
        if len(self._key) <= LEAST:
            return False
        return self._shows(reply) or any(map(self._shows, _decoded(reply)))

    def _shows(self, text: str) -> bool:
        return any(piece in text for piece in self._looked_for)

    def left_out_of(self, text: str) -> str:
        """The text, decoded where that shows the key, with `MARK` for each piece of it."""
        text = self._masked(text)
        for decoded in _decoded(text):
            if (masked := self._masked(decoded)) != decoded:
                text = masked
        return text

    def left_out_of_all(self, value: Json) -> Json:
        """Every text of a server's JSON, names of keys included."""
        if isinstance(value, str):
            return self.left_out_of(value)
        if isinstance(value, list):
            return [self.left_out_of_all(each) for each in value]
        if isinstance(value, dict):
            return {self.left_out_of(name): self.left_out_of_all(each) for name, each in value.items()}
        return value

    @cached_property
    def _coded(self) -> tuple[str, ...]:
        """Of base64, what the key gives wherever it begins; and its bytes as hexadecimal digits."""
        raw, coded = self._key.encode(), []
        for before in range(3):  # bytes; characters of base64 hold six bits, the key's own are between these two
            whole = base64.b64encode(b" " * before + raw).decode()
            core = whole[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
            coded += [core, core.translate(str.maketrans("+/", "-_"))]
        return *dict.fromkeys(coded), raw.hex(), raw.hex().upper()

    def _masked(self, text: str) -> str:
        for form in self._coded if len(self._key) >= LEAST else ():
            text = text.replace(form, MARK)
        size = min(LEAST, len(self._key))
        hits = (start for start in range(len(text) - size + 1) if text[start : start + size] in self._windows)
        parts: list[str] = []
        end = 0
        for start in hits:
            if start >= end or not parts:
                parts += [text[end:start], MARK]
            end = start + size
        return "".join([*parts, text[end:]])


def _decoded(text: str) -> Iterator[str]:
    """What else the text can be read as: JSON's escapes, an address's and a page's undone, one after another."""
    undo: tuple[tuple[str, Callable[[str], str]], ...] = (("\\", _unescaped), ("%", unquote), ("&", html.unescape))
    for _ in range(NESTED):
        before = text
        for sign, decode in undo:
            if sign in text:
                text = decode(text)
        if text == before:
            return
        yield text


def _unescaped(text: str) -> str:
    return ESCAPE.sub(lambda match: chr(int(match[1], 16)), text).replace("\\/", "/")


def is_secret(variable: str) -> bool:
    """Whether an environment variable's name says that it holds a key or a password."""
    name = variable.upper()
    return bool(NAMES.search(name)) and not PLACES.search(name)


def secrets(named: Mapping[str, str] | None = None) -> dict[str, str]:
    """By variable, of the environment: keys and passwords long enough to be told from ordinary words."""
    environment = os.environ if named is None else named
    return {name: value for name, value in environment.items() if is_secret(name) and len(value.strip()) > LEAST}


def has_credentials(text: str) -> bool:
    """Whether an address in it has a name or password before its host, or a key in its query."""
    return bool(CREDENTIALS.search(text) or QUERY.search(text))


def without_credentials(text: str) -> str:
    """Addresses in it without a name, a password or a key."""
    return QUERY.sub(lambda match: f"{match[1]}={MARK}", CREDENTIALS.sub(f"{MARK}@", text))


def told(error: BaseException) -> str:
    """An error's kind and words as a file may have them; of one that nobody foresaw its place too: (mine.py:28)."""
    return f"{type(error).__name__}: {without_secrets(error)}{'' if isinstance(error, KgqaError) else _place(error)}"


def _place(error: BaseException) -> str:
    """File and line where it was raised, the last that are not Python's own library's; "" where none is known."""
    own = f"{Path(os.__file__).parent}{os.sep}"
    frames = extract_tb(error.__traceback__)
    ours = [each for each in frames if not each.filename.startswith(own) or "site-packages" in each.filename]
    return f" ({Path(ours[-1].filename).name}:{ours[-1].lineno})" if ours else ""


def without_secrets(message: Any) -> str:
    """For whatever leaves the program as a line or an error: no key of the environment, no password of an address."""
    text = without_credentials(str(message))
    for value in secrets().values():
        if value.strip() in text:
            text = text.replace(value.strip(), MARK)
    return text
