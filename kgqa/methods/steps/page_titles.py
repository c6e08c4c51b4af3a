"""IIRC's scoped retrieval (IRCoT, appendix B): the model names pages, and only their paragraphs are searched."""

from __future__ import annotations

import json
import re
from collections import Counter

from kgqa.calls import Search, gather
from kgqa.methods.steps.few_shot import FewShot
from kgqa.types import Passage, Question

QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"')
BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")
AROUND = " \t[]\"'“”‘’"  # of a title without quotes of its own, or of the list
NEAREST_OF = 10  # passages found by a title, among whose titles the nearest is chosen
MAX_TOKENS = 100  # of a list of titles


async def pages_named(question: Question, few_shot: FewShot, count: int) -> tuple[tuple[str, ...] | None, Counter[str]]:
    """Titles of the corpus' pages that the model names for a question about its pinned passage; flags.

    None where the question has no pinned passage, where the reply names no page, or where none is found (flag
    `no_titles`): then the whole corpus is to be searched.
    """
    if not question.pinned or not count:
        return None, Counter()
    written = await few_shot.titles(question.text, question.pinned, count, MAX_TOKENS)
    named = listed(written.text)[:count]
    results = await gather(*(Search(title, NEAREST_OF) for title in named))
    nearest = (nearest_title(title, passages) for title, passages in zip(named, results, strict=True))
    titles = tuple(dict.fromkeys(title for title in nearest if title))
    return titles or None, written.flags + Counter({"no_titles": int(not titles)})


def listed(reply: str) -> list[str]:
    """The strings in double quotes; where there is none, what commas part, as in IRCoT's released program.

    In order, once each, blank ones left out.
    """
    titles = [unescaped(match[0]).strip() for match in QUOTED.finditer(reply)]
    if not titles:
        titles = [BULLET.sub("", part).strip(AROUND) for part in reply.strip(AROUND).split(",")]
    return list(dict.fromkeys(title for title in titles if title))


def unescaped(string: str) -> str:
    """A JSON string's value; what stands between the quotes where an escape is not JSON's."""
    try:
        return str(json.loads(string, strict=False))
    except ValueError:
        return string[1:-1]


def nearest_title(wanted: str, passages: tuple[Passage, ...]) -> str | None:
    """Of the passages' titles the one most like `wanted` word for word, of equals the best-ranked; None without any.

    BM25 scores titles together with texts; of what it finds, the title decides.
    """
    ours = words(wanted)
    scored = [(overlap(ours, words(passage.title)), -place) for place, passage in enumerate(passages)]
    return passages[-max(scored)[1]].title if scored else None


def words(title: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", title.casefold()))


def overlap(ours: frozenset[str], theirs: frozenset[str]) -> float:
    """Jaccard's: 1 for the same words, 0 for none in common."""
    return len(ours & theirs) / len(ours | theirs) if ours | theirs else 0.0
