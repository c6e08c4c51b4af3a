"""Reads what a GGUF file says about itself, without the weights and without a third-party reader.

Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3.
"""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path
from typing import BinaryIO

from kgqa.errors import DataError

Value = int | float | bool | str | None
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_TOKENS = "tokenizer.ggml.tokens"


@cache
def read_header(file: Path) -> dict[str, Value]:
    """Return the file's keys and values; arrays are left out.

    Of the vocabulary, `bos_token` and `eos_token` are kept as text.
    """
    try:
        with file.open("rb") as source:
            magic, version, _, entries = struct.unpack("<4sIQQ", source.read(24))
            if magic != b"GGUF" or version not in (2, 3):
                raise DataError(f"{file}: not a GGUF file of version 2 or 3; get it again or name another")
            header: dict[str, Value] = {}
            vocabulary: list[str] = []
            for _ in range(entries):
                key = _string(source)
                (kind,) = struct.unpack("<I", source.read(4))
                if kind == _ARRAY:
                    strings = _array(source, keep=key == _TOKENS)
                    vocabulary = strings if key == _TOKENS else vocabulary
                else:
                    header[key] = _scalar(source, kind)
    except (struct.error, KeyError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: the GGUF header is broken ({error}); get the file again") from error
    for name in ("bos", "eos"):
        index = header.get(f"tokenizer.ggml.{name}_token_id")
        known = isinstance(index, int) and index < len(vocabulary)
        header[f"{name}_token"] = vocabulary[index] if known and isinstance(index, int) else None
    return header


def _string(source: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", source.read(8))
    return source.read(length).decode()


def _scalar(source: BinaryIO, kind: int) -> Value:
    if kind == _STRING:
        return _string(source)
    layout = _NUMBERS[kind]
    value: Value = struct.unpack(layout, source.read(struct.calcsize(layout)))[0]
    return value


def _array(source: BinaryIO, *, keep: bool) -> list[str]:
    """Return reads past an array; the strings of a kept one are returned."""
    kind, count = struct.unpack("<IQ", source.read(12))
    if kind == _STRING and keep:
        return [_string(source) for _ in range(count)]
    if kind == _STRING:
        for _ in range(count):
            (length,) = struct.unpack("<Q", source.read(8))
            source.seek(length, 1)
    else:
        source.seek(count * struct.calcsize(_NUMBERS[kind]), 1)
    return []
