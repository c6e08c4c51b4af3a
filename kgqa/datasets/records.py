"""Questions in JSON, JSONL or TSV files with keys of any name: the YAML of a dataset names them.

A record, with `question_key: query`, `answer_keys: [gold.text]` and `title_key: evidence_list.title`:

    {"query": "Who wrote Birch?", "gold": [{"text": "Alder"}], "evidence_list": [{"title": "Birch"}]}
"""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import StrictBool

from kgqa.datasets.base import HASHED, FileDataset
from kgqa.datasets.corpus import Titled
from kgqa.datasets.schema import (
    LocatedQuestions,
    parse_record,
    plain_title,
    refuse_half_surrogates,
    shorten,
)
from kgqa.errors import DataError, nearest
from kgqa.types import Json, Passage, Question
from kgqa.util import jsonio
from kgqa.util.settings import Setting

# in a list that is written as a text
MOST_LISTS = 200


class GivenPassage(Titled):
    is_supporting: StrictBool = True


@dataclass(frozen=True)
class Records(FileDataset):
    """Questions of records. The YAML names the keys of the id, the question and so on.

    A key can lead into lists of objects: `evidence_list.title` is the title of each item. A text such as '["a", "b"]'
    is a list. The address of a Wikipedia page is its title. All answers have equal rank.
    """

    id_key: Annotated[
        str | None, Setting("Key with the id. null: the number of the record."), HASHED
    ] = None
    question_key: Annotated[str, Setting("Key with the question."), HASHED] = "question"
    answer_keys: Annotated[
        tuple[str, ...], Setting("Keys with gold answers. All are of equal rank."), HASHED
    ] = field(kw_only=True)
    type_key: Annotated[
        str | None, Setting("Key with the type of the question. null: none."), HASHED
    ] = None
    title_key: Annotated[
        str | None, Setting("Key with titles of gold passages. null: none."), HASHED
    ] = None
    passages_key: Annotated[
        str | None, Setting("Key with passages (title, text, is_supporting). null: none."), HASHED
    ] = None
    unanswerable_type: Annotated[
        str | None,
        Setting("Type of questions that the corpus does not answer. null: the dataset has none."),
    ] = None

    def records(self, file: Path) -> LocatedQuestions:
        for number, (where, record) in enumerate(_read(file), 1):
            yield where, self._question(record, where, str(number))

    def _question(self, record: Json, where: str, number: str) -> Question:
        def texts(key: str | None) -> list[str]:
            values = [] if key is None else _find(record, key.split("."))
            return [text for value in values for text in _texts(value, f"{where}: {key}")]

        def only(key: str, name: str) -> str:
            entries = texts(key)
            if len(entries) != 1:
                problem = f"{len(entries)} values of" if entries else "no"
                raise DataError(
                    f"{where}: {problem} {key!r}. {_suggest(key, record)}Correct the record, or name another key: "
                    f"dataset.{name}_key=KEY"
                )
            return entries[0]

        golds = [answer for key in self.answer_keys for answer in texts(key) if answer.strip()]
        if not golds:
            hint = "".join(_suggest(key, record) for key in self.answer_keys)
            raise DataError(
                f"{where}: no gold answer in {', '.join(self.answer_keys)}. "
                f"{hint or 'Remove the question'}".rstrip()
            )
        kind = " ".join(texts(self.type_key))
        pairs = [
            (Passage.of(plain_title(context.title), context.text), context.is_supporting)
            for value in (_find(record, [self.passages_key]) if self.passages_key else ())
            for item in (value if isinstance(value, list) else [value])
            for context in [parse_record(GivenPassage, item, where)]
        ]
        support = [passage for passage, is_gold in pairs if is_gold]
        titles = [*map(page_title, texts(self.title_key)), *(passage.title for passage in support)]
        return Question(
            id=only(self.id_key, "id") if self.id_key else number,
            text=only(self.question_key, "question"),
            answers=tuple(dict.fromkeys(golds)),
            passages=tuple(passage for passage, _ in pairs),
            support=frozenset(passage.id for passage in support),
            support_titles=frozenset(titles),
            type=kind,
            answerable=None if self.unanswerable_type is None else kind != self.unanswerable_type,
        )


def _read(file: Path) -> Iterator[tuple[str, Json]]:
    """Yield each record with its place."""
    if ".tsv" not in file.suffixes:
        yield from jsonio.stream_records(file)
        return
    table = csv.DictReader(jsonio.stream_lines(file), delimiter="\t", strict=True)
    try:
        for record in table:
            place = f"{file}:{table.line_num}"
            refuse_half_surrogates(record, place)
            yield place, record
    except csv.Error as error:
        raise DataError(
            f"{file}:{table.line_num}: not a table of tab-separated values ({error})"
        ) from None


def _suggest(key: str, record: Json) -> str:
    """Return the key of the record that is probably meant, or "" if it has this key or none is similar."""
    if _find(record, key.split(".")):
        return ""
    hint = nearest(key, _list_keys(record))
    return f"{hint} " if hint.startswith("Did") else ""


def _list_keys(value: Json, prefix: str = "") -> Iterator[str]:
    """Yield the keys of a record, and those of objects in it as KEY.INNER."""
    for item in value if isinstance(value, list) else [value]:
        for key, inner in item.items() if isinstance(item, dict) else ():
            yield f"{prefix}{key}"
            yield from _list_keys(inner, f"{prefix}{key}.")


def _find(value: Json, path: list[str]) -> Iterable[Json]:
    """Return the values at a path of keys, in all objects of a list."""
    if isinstance(value, list):
        return [value_of_item for item in value for value_of_item in _find(item, path)]
    if not path:
        return [value]
    return _find(value[path[0]], path[1:]) if isinstance(value, dict) and path[0] in value else []


def _texts(value: Json, where: str) -> list[str]:
    """Return a text, a number, or the items of a list that is written as a text. Raise a DataError for an object."""
    values = [value]
    if (
        isinstance(value, str)
        and value.startswith("[")
        and value.endswith("]")
        and value.count("[") < MOST_LISTS
    ):
        with suppress(ValueError, SyntaxError):
            values = ast.literal_eval(value)
    if invalid := next((item for item in values if isinstance(item, (dict, list, tuple))), None):
        hint = (
            "Name a key of it as KEY.INNER" if isinstance(invalid, dict) else "Correct the record"
        )
        raise DataError(f"{where}={shorten(invalid)}: must be a text. {hint}")
    return [str(item) for item in values if item is not None]


def page_title(text: str) -> str:
    """Return the title of a Wikipedia page from its address. Other texts are titles.

    A title can contain slashes, as in .../wiki/AC/DC. Some addresses name it as .../index.php?title=Ann_Lund.
    """
    if not text.startswith(("http://", "https://")):
        return plain_title(text)
    address = urlsplit(text)
    _, wiki, path = address.path.partition("/wiki/")
    (title, *_) = parse_qs(address.query).get("title", [""])
    if not title:
        title = unquote(path if wiki else address.path.rpartition("/")[2])
    return title.replace("_", " ")
