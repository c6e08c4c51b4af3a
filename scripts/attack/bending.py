"""Mutations: of JSON values, one to four at a time, and of bytes."""

from __future__ import annotations

import bz2
import copy
import gzip
import io
import json
import random
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence

from kgqa.types import Json

# values of the wrong type, of the wrong size, and texts that mean something to some program
STRANGE: tuple[Json, ...] = (
    None, True, False, 0, -1, 1e308, float("nan"), float("inf"), 10**4000, -(10**400), 2**63, "", " ", "\x00",
    "\u202eabc", "\ud800", "\ufeff", "\u2028", "\u0085", "e\u0301", "\U0010ffff", "\r\n", "<script>alert(1)</script>",
    "=cmd|' /C calc'!A0", "\x1b[31m", "../../etc/passwd", "${oc.env:HOME}", "{{7*7}}", "[bold]x[/bold]", "[/]",
    "%s%n", "nan", "x" * 100_000, "word " * 20_000, [], [[]], [None], {}, {"a": {}}, ["x"] * 2000, [1, "a"],
    {"_target_": "os.system"},
)  # fmt: skip
FURTHER_KEYS = ("x", "id", "_id", "question", "answer", "context", "error", "flags")
Path_ = tuple[str | int, ...]


def paths(value: Json, above: Path_ = ()) -> Iterator[Path_]:
    """Ways to every value within, of lists the first four items only."""
    yield above
    if isinstance(value, dict):
        for key in value:
            yield from paths(value[key], (*above, key))
    elif isinstance(value, list):
        for place in range(min(len(value), 4)):
            yield from paths(value[place], (*above, place))


def bent(value: Json, dice: random.Random) -> tuple[Json, str]:
    """A copy with one to four changes, and what they are."""
    changed, said = copy.deepcopy(value), []
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        ways = [way for way in paths(changed) if way]
        if not ways:
            break
        said.append(dice.choices(_CHANGES, (60, 20, 10, 10))[0](changed, dice.choice(ways), ways, dice))
    return changed, ", ".join(said)


def _set(value: Json, way: Path_, _: Sequence[Path_], dice: random.Random) -> str:
    strange = dice.choice(STRANGE)
    _parent(value, way)[way[-1]] = copy.deepcopy(strange)
    return f"{_shown(way)} = {repr(strange)[:40] if not isinstance(strange, int) else 'a number'}"


def _delete(value: Json, way: Path_, _: Sequence[Path_], __: random.Random) -> str:
    del _parent(value, way)[way[-1]]
    return f"without {_shown(way)}"


def _copy(value: Json, way: Path_, ways: Sequence[Path_], dice: random.Random) -> str:
    source = dice.choice(ways)
    _parent(value, way)[way[-1]] = copy.deepcopy(_parent(value, source)[source[-1]])
    return f"{_shown(source)} at {_shown(way)}"


def _add(value: Json, way: Path_, _: Sequence[Path_], dice: random.Random) -> str:
    inner = _parent(value, way)[way[-1]]
    if isinstance(inner, list) and inner:
        inner.append(copy.deepcopy(dice.choice(inner)))
        return f"an item of {_shown(way)} twice"
    if isinstance(inner, dict):
        inner[dice.choice(FURTHER_KEYS)] = copy.deepcopy(dice.choice(STRANGE))
        return f"a further key in {_shown(way)}"
    return "nothing"


_CHANGES: tuple[Callable[[Json, Path_, Sequence[Path_], random.Random], str], ...] = (_set, _delete, _copy, _add)


def _parent(value: Json, way: Path_) -> Json:
    for key in way[:-1]:
        value = value[key]
    return value


def _shown(way: Path_) -> str:
    return "/".join(map(str, way))


def _inserted(raw: bytes, dice: random.Random, what: bytes) -> bytes:
    place = dice.randrange(len(raw) + 1)
    return raw[:place] + what + raw[place:]


def flipped(raw: bytes, dice: random.Random, bits: int) -> bytes:
    """With so many bits turned."""
    changed = bytearray(raw)
    for _ in range(bits if changed else 0):
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed)


def _cut(raw: bytes, dice: random.Random) -> bytes:
    return raw[: dice.randrange(len(raw) + 1)]


def _without_slice(raw: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(raw) + 1)
    return raw[:place] + raw[place + dice.choice((1, 10, 1000)) :]


def _zipped(raw: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("../../x", raw)
    return file.getvalue()


def _recoded(raw: bytes, encoding: str) -> bytes:
    return raw.decode("utf-8", "replace").encode(encoding, "replace")


_SYNTAX = (b'"', b"{", b"}", b"[", b"]", b",", b"\\", b"\n", b"\r", b"\\ud800", b"NaN", b"\xe2\x80\xa8", b"\x1b[2J")
_TAILS = (b"]", b"garbage", b"\x00", b"{}", b"null\n", b"[]\n", b"\xff")
_HEADS = (b"garbage", b"[", b"{", b"\x00", b",,,", b"//c\n", b"\xff", b"null\n", b"1\n", b'"s"\n')
_DEEP = (
    b"[" * 100_000,
    b"[" * 3000 + b"]" * 3000,
    b'{"a":' * 50_000,
    b'{"_id":"x","answer":' + b"[" * 5000 + b"]" * 5000 + b"}",
)
Bytes = Callable[[bytes, random.Random], bytes]

DAMAGES: Mapping[str, Bytes] = {
    "a bit flipped": lambda raw, dice: flipped(raw, dice, 1),
    "twenty bits flipped": lambda raw, dice: flipped(raw, dice, 20),
    "cut short": _cut,
    "a slice lost": _without_slice,
    "zeros within": lambda raw, dice: _inserted(raw, dice, b"\x00" * dice.choice((1, 100))),
    "a sign of syntax within": lambda raw, dice: _inserted(raw, dice, dice.choice(_SYNTAX)),
    "UTF-16": lambda raw, _: _recoded(raw, "utf-16"),
    "a mark of UTF-16 before it": lambda raw, _: b"\xff\xfe" + raw,
    "Latin-1": lambda raw, _: _recoded(raw, "latin-1") + b"\xe9",
    "twice in a row": lambda raw, _: raw + raw,
    "lines ended by CR": lambda raw, _: raw.replace(b"\n", b"\r"),
    "lines broken at commas": lambda raw, _: raw.replace(b", ", b",\n"),
    "gzipped, cut": lambda raw, dice: gzip.compress(raw)[: dice.randrange(2, 20 + len(raw) // 8)],
    "gzipped, a bit flipped": lambda raw, dice: gzip.compress(raw)[:2] + flipped(gzip.compress(raw)[2:], dice, 1),
    "gzipped, more behind": lambda raw, dice: gzip.compress(raw) + dice.choice((b"junk", b"\x00" * 50, b"\x1f\x8b")),
    "more behind": lambda raw, dice: raw + dice.choice(_TAILS),
    "more before": lambda raw, dice: dice.choice(_HEADS) + raw,
    "deeply nested": lambda _, dice: dice.choice(_DEEP),
    "a number of many digits": lambda raw, dice: b'{"id": ' + b"9" * dice.choice((4000, 5000, 100_000)) + b"}\n" + raw,
    "a line of 4 MB": lambda raw, _: b'{"id":"' + b"A" * 4_000_000 + b'"}\n' + raw,
    "zipped": lambda raw, _: _zipped(raw),
    "bzipped": lambda raw, _: bz2.compress(raw),
    "half a surrogate behind": lambda raw, _: raw + b'{"id":"\xed\xa0\x80"}',
    "empty": lambda *_: b"",
    "blanks": lambda _, dice: b" \n\t" * dice.choice((1, 100_000)),
}
# the same content in another dress
HARMLESS: Mapping[str, Bytes] = {
    "lines ended by CR LF": lambda raw, _: raw.replace(b"\n", b"\r\n"),
    "a byte order mark": lambda raw, _: b"\xef\xbb\xbf" + raw,
    "gzipped": lambda raw, _: gzip.compress(raw),
    "gzipped in two parts": lambda raw, dice: _two_parts(raw, dice.randrange(len(raw) + 1)),
    "blanks behind": lambda raw, _: raw + b" \n\n",
}


def _two_parts(raw: bytes, place: int) -> bytes:
    return gzip.compress(raw[:place]) + gzip.compress(raw[place:])


def damaged(raw: bytes, dice: random.Random) -> tuple[bytes, str]:
    """Changed as disks, editors and networks do, and what it was."""
    name = dice.choice(tuple(DAMAGES))
    return DAMAGES[name](raw, dice), name


def as_lines(records: Sequence[Json]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def bent_file(raw: bytes, dice: random.Random, lines: bool) -> tuple[bytes, str]:
    """A file of JSON, or of a value a line, with some of its values bent."""
    text = raw.decode("utf-8")
    value: Json = [json.loads(line) for line in text.split("\n") if line] if lines else json.loads(text)
    changed, said = bent(value, dice)
    written = as_lines(changed) if lines and isinstance(changed, list) else json.dumps(changed).encode()
    return written, said
