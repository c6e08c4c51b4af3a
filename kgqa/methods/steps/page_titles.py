"""IIRC's scoped retrieval (IRCoT, appendix B): search only in pages that the model names."""

from __future__ import annotations

import json
import re
from collections import Counter

from kgqa.calls import Search, gather
from kgqa.methods.steps.few_shot import FewShot
from kgqa.types import Passage, Question

QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"')
BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")
AROUND = " \t[]\"'“”‘’"  # stripped from titles without quotes, and from the list
NEAREST_OF = 10  # passages per search for a title, of which the nearest title is chosen
MAX_TOKENS = 100  # for a list of titles


async def predict_pages(
    question: Question, few_shot: FewShot, count: int
) -> tuple[tuple[str, ...] | None, Counter[str]]:
    """Return titles of pages of the corpus that the model names for a question with a pinned passage, and flags.

    The titles are None, so that the complete corpus is searched, if the question has no pinned passage, or if no page
    is found (flag `no_titles`).
    """
    if not question.pinned or not count:
        return None, Counter()
    written = await few_shot.titles(question.text, question.pinned, count, MAX_TOKENS)
    named = parse_titles(written.text)[:count]
    results = await gather(*(Search(title, NEAREST_OF) for title in named))
    nearest = (nearest_title(title, passages) for title, passages in zip(named, results, strict=True))
    titles = tuple(dict.fromkeys(title for title in nearest if title))
    return titles or None, written.flags + Counter({"no_titles": int(not titles)})


def parse_titles(reply: str) -> list[str]:
    """Return the distinct strings in double quotes, or the parts between commas, as in IRCoT's released program."""
    titles = [unescape(match[0]).strip() for match in QUOTED.finditer(reply)]
    if not titles:
        titles = [BULLET.sub("", part).strip(AROUND) for part in reply.strip(AROUND).split(",")]
    return list(dict.fromkeys(title for title in titles if title))


def unescape(string: str) -> str:
    """Return the value of a JSON string, or the text between the quotes if an escape is invalid."""
    try:
        return str(json.loads(string, strict=False))
    except ValueError:
        return string[1:-1]


def nearest_title(wanted: str, passages: tuple[Passage, ...]) -> str | None:
    """Return the title with the most words in common with `wanted`, ties by rank; None without passages.

    BM25 scores titles together with texts, so its best passage can have another title.
    """
    first = words(wanted)
    scored = [(overlap(first, words(passage.title)), -place) for place, passage in enumerate(passages)]
    return passages[-max(scored)[1]].title if scored else None


def words(title: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", title.casefold()))


def overlap(first: frozenset[str], second: frozenset[str]) -> float:
    """Return the Jaccard similarity: 1 for the same words, 0 for no common word."""
    return len(first & second) / len(first | second) if first | second else 0.0
