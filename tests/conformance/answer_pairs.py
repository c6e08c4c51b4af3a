"""Odd answers and gold answers for scorers, made from a seed."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TypeVar

WORDS = (
    "Oslo", "oslo", "York", "new", "New", "river", "Rhône", "São", "naïve", "Zürich", "東京", "O'Neil", "U.S.",
    "J.",
    "no",
    "yes", "No", "Yes", "noanswer", "True", "False", "the", "The", "a", "an", "A", "of", "and", "not", "none",
    "null",
    "1,000", "1000", "3.50", "$3.50", "-5", "5", "5.0", "05", "1e5", "nan", "inf", "8th", "1939–1945", "four-year",
    "½",
    "², ³", "snake_case", "_", "-", "--", ".", "...", ",", ";", "!", "?", "[", "]", "[Ann]", "(b)", '"', "“Paris”",
    "‘so’",
    "´", "`", "…", "\t", "\n", "\u00a0", "\u200b", "\ufeff", "ﬁre", "ﬂow", "Ｏｓｌｏ", "cafÃ©", "Ã¼ber", "â€œok",
    "Donâ€™t",
    "&amp;", "&lt;b&gt;", "é", "e\u0301", "İ", "ß", "ǅ", "ﬀ", "\x85", "\x1b[0m", "\ud83d\ude00", "answer is",
    "answer is:",
    "So the answer is", "is", "Answer:", "it", "both", "Ann", "Bob", "Hope", "another", "theme", "know", "I",
    "do",
)  # fmt: skip
SEPARATORS = (" ", " ", " ", " ", "", "  ", "-", ", ", "\n", "_", ".")
WRAPS = (("", ""),) * 12 + (
    ("[", "]"),
    ("[", ""),
    ("", "]"),
    ('"', '"'),
    (" ", " "),
    ("“", "”"),
    ('["', '"]'),
    ("the ", "."),
)
T = TypeVar("T")
BLOCK = 1000
BLOCKS = 20


def make_text(source: random.Random, longest: int) -> str:
    count = int(source.random() * (longest + 1))
    text = ""
    for number in range(count):
        text += _pick(source, SEPARATORS) if number else ""
        text += _pick(source, WORDS)
    opening, closing = _pick(source, WRAPS)
    return _without_surrogates(f"{opening}{text}{closing}")


@cache
def make_pairs(seed: int) -> list[tuple[str, list[list[str]]]]:
    """Return the pairs of a block: an answer, and gold answers of one span or several."""
    source = random.Random(f"answers {seed}")
    pairs = []
    for _ in range(BLOCK):
        golds = [[make_text(source, 4)] for _ in range(1 + int(3 * source.random()))]
        if source.random() < 0.15:
            golds = [[make_text(source, 2) for _ in range(2)] for _ in golds]
        pairs.append((_answer(source, golds), golds))
    return pairs


def write_golds(gold: Sequence[str]) -> str:
    """Return a gold answer as datasets have it: its span, or a JSON list if it has several or looks like one."""
    return (
        gold[0]
        if len(gold) == 1 and not gold[0].startswith('["')
        else json.dumps(gold, ensure_ascii=False)
    )


def summarize(values: Iterable[Sequence[float | None]]) -> list[object]:
    """Return the sums of each value and a digest of all of them, rounded to nine digits."""
    rows = [
        [None if value is None else round(float(value), 9) + 0.0 for value in row] for row in values
    ]
    sums = [
        round(sum(value for value in column if value is not None), 6)
        for column in zip(*rows, strict=True)
    ]
    return [*sums, hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]]


def _answer(source: random.Random, golds: Sequence[Sequence[str]]) -> str:
    kind, gold = source.random(), _pick(source, _pick(source, golds))
    changes: Sequence[Callable[[str], str]] = (
        str.lower, str.upper, str.title, lambda text: f"the {text}.", lambda text: f"So the answer is: {text}.",
        lambda text: f"{text} {make_text(source, 2)}", lambda text: f"{make_text(source, 2)} {text}",
        lambda text: " ".join(text.split()[::-1]), lambda text: text[: len(text) // 2], lambda text: f"[{text}]",
    )  # fmt: skip
    if kind < 0.25:
        return make_text(source, 5)
    if kind < 0.4:
        return gold
    if kind < 0.5:
        return write_golds(golds[0])
    return _pick(source, changes)(gold)


def _pick(source: random.Random, choices: Sequence[T]) -> T:
    return choices[int(source.random() * len(choices))]


def _without_surrogates(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16")
