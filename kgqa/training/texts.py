"""Rendered examples in a model's own tokens: prompt and completion apart, the end token behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kgqa.artefacts.form import checked, read_json, read_lines
from kgqa.errors import ConfigError, DataError

IGNORED = -100  # a label that is not to be learnt
TooLong = Literal["leave_out", "cut"]


@dataclass(frozen=True, slots=True)
class Text:
    """A line of a file of rendered examples, as `kgqa train` prepares it."""

    id: str
    prompt: str
    completion: str


@dataclass(frozen=True, slots=True)
class Row:
    """`begins`: where in `ids` the completion does."""

    id: str
    ids: tuple[int, ...]
    begins: int
    length: int


@dataclass(frozen=True)
class Rows:
    rows: tuple[Row, ...]
    left_out: int
    cut: int


class Tokens:
    """The tokenizer of a transformers folder: special tokens are those written out in a text; none are added."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        file = folder / "tokenizer.json"
        if not file.is_file():
            raise DataError(f"{file}: no such file; the base needs a fast tokenizer: save it with transformers once")
        self._tokenizer = Tokenizer.from_file(str(file))
        self.end = self._end(folder)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def _end(self, folder: Path) -> int:
        """The token that ends a turn, as the tokenizer names it."""
        named = read_json(folder / "tokenizer_config.json", missing="no such file; get the model's folder again")
        token = named.get("eos_token")
        text = token.get("content") if isinstance(token, dict) else token
        end = self._tokenizer.token_to_id(text) if isinstance(text, str) else None
        if end is None:
            raise ConfigError(f"{folder / 'tokenizer_config.json'}: eos_token={text!r} is no token of tokenizer.json")
        return int(end)


def texts(file: Path) -> Iterator[Text]:
    """Raises DataError naming the line."""
    for place, line in read_lines(file):
        yield checked(Text, line, place)


def causal_rows(file: Path, tokens: Tokens, longest: int, too_long: TooLong) -> Rows:
    """One text after the other: prompt, completion, end token."""

    def encoded(text: Text) -> tuple[list[int], int]:
        prompt = tokens.encode(text.prompt)
        return [*prompt, *tokens.encode(text.completion), tokens.end], len(prompt)

    return _fitting(file, encoded, longest, too_long)


def _fitting(file: Path, encoded: Callable[[Text], tuple[list[int], int]], longest: int, too_long: TooLong) -> Rows:
    rows, left_out, cut = [], 0, 0
    for text in texts(file):
        ids, begins = encoded(text)
        if len(ids) > longest:
            if too_long == "leave_out" or begins >= longest:
                left_out += 1
                continue
            ids, cut = ids[:longest], cut + 1
        rows.append(Row(text.id, tuple(ids), begins, len(ids)))
    return Rows(tuple(rows), left_out, cut)


def padded(rows: Sequence[Sequence[int]], filler: int, *, left: bool) -> Any:
    """A tensor (rows, longest)."""
    import torch

    width = max(len(row) for row in rows)
    fillers = [[filler] * (width - len(row)) for row in rows]
    sides = zip(fillers, rows, strict=True)
    return torch.tensor([[*blank, *row] if left else [*row, *blank] for blank, row in sides])
