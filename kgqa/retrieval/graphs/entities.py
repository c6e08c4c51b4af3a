"""Passages that mention a common entity (KGP §3): names found offline, by an automaton over the collection's own names.

TAGME, which the paper asks, links mentions to Wikipedia; see `tagme` for it. Here an entity is a name as it is written:
the titles of the collection, and runs of capitalised words. So nothing is downloaded and any domain works, but two
names of one entity do not meet, two entities of one name do, and lower-case terms are not found unless they are titles.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from kgqa.retrieval.graphs.keywords import STOP_WORDS, bare_title, words_of
from kgqa.retrieval.graphs.links import Links, document_of, link_passages
from kgqa.types import Json, Passage
from kgqa.util.optional_deps import require_packages
from kgqa.util.validators import Validator

WORD = re.compile(r"\w+")
JOINING = frozenset([" ", "-", "'", "’", ". "])  # between two words of one name; ". " behind an initial alone
PARTICLES = words_of("of de del della der den di du da la le van von the")
LONGEST = 12  # words of a name; a longer run of capitalised words is a heading or a list
DATES = words_of(
    "January February March April May June July August September October November December "
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
)


class NameSpan(NamedTuple):
    """A name in a text; in the order of `_longest`."""

    start: int
    before_end: int  # minus its end
    name: int


CommonShare = Annotated[float, Validator("must be above 0 and at most 1", lambda share: 0 < share <= 1)]


@dataclass(frozen=True)
class Entities:
    """Two passages are linked where both texts mention a name, in the same letter case, as whole words.

    Of names that overlap in a text the one that begins first counts, and of those the longest; a name that stands in
    one passage alone does not take part in this ("Later Ida Ruhn" does not hide "Ida Ruhn"). A word that is capitalised
    as the first of a sentence is no name by that alone, nor are months and days, nor more than twelve words.

    most_common: names that a larger share of the passages mention link nothing (1: all do); thins the graph out.
    titles: whether a passage also mentions its document, so that all passages of a document are linked.
    """

    most_common: CommonShare
    titles: bool

    def identity(self) -> Mapping[str, Json]:
        require_packages("graphs", "ahocorasick-rs")
        return {"graph": "entities", "version": 2, "most_common": self.most_common, "titles": self.titles}

    def links(self, passages: Sequence[Passage]) -> Links:
        return self.join(passages, [self.read(passage) for passage in passages])

    def read(self, passage: Passage) -> frozenset[str]:
        """Return the part of the work that a passage alone decides: the names it brings into the collection."""
        title = " ".join(WORD.findall(bare_title(passage.title)))
        return frozenset(filter(None, [title, *_is_capitalized(passage.text)]))

    def join(self, passages: Sequence[Passage], parts: Sequence[frozenset[str]]) -> Links:
        """Return the rest: every text is searched for all names at once, in time linear in the texts."""
        documents = [(document_of(passage),) if self.titles else () for passage in passages]
        names = sorted(frozenset().union(*parts))
        if not names:
            return link_passages(documents)
        automaton = _automaton(names)
        spans = [list(_spans(automaton, passage.text)) for passage in passages]
        shared = Counter(name for held in spans for name in {span.name for span in held})
        mentions = [_longest(span for span in held if shared[span.name] > 1) for held in spans]
        holders = Counter(name for held in mentions for name in held)
        most = self.most_common * len(passages)
        kept = [sorted(name for name in held if holders[name] <= most) for held in mentions]
        return link_passages([(*held, *document) for held, document in zip(kept, documents, strict=True)])


def _automaton(names: Sequence[str]) -> Any:
    from ahocorasick_rs import AhoCorasick

    return AhoCorasick(names)


def _spans(automaton: Any, text: str) -> Iterator[NameSpan]:
    """Yield where names stand in a text as whole words."""
    plain = " ".join(WORD.findall(text))
    for name, start, end in automaton.find_matches_as_indexes(plain, overlapping=True):
        if (not start or plain[start - 1] == " ") and (end == len(plain) or plain[end] == " "):
            yield NameSpan(start, -end, name)


def _longest(spans: Iterable[NameSpan]) -> frozenset[int]:
    """Return the longest from the left, the longest of those that begin together; what overlaps it is passed over."""
    mentioned, covered = set[int](), 0
    for span in sorted(spans):
        if span.start >= covered:
            mentioned.add(span.name)
            covered = -span.before_end
    return frozenset(mentioned)


def _is_capitalized(text: str) -> Iterator[str]:
    """Yield runs of capitalised words, particles between them allowed, function words before them left out."""
    run: list[str] = []
    opens = True  # whether the run's first word begins a sentence
    seen = 0  # how far the text is read
    for match in WORD.finditer(text):
        gap, word = text[seen : match.start()], match[0]
        if run and (gap not in JOINING or (gap == ". " and len(run[-1]) > 1)):
            yield from _name(run, opens)
            run = []
        if word[0].isupper() or (run and word in PARTICLES):
            if not run:
                opens = not seen or re.search(r"[.!?:\n]", gap) is not None
            run.append(word)
        elif run:
            yield from _name(run, opens)
            run = []
        seen = match.end()
    yield from _name(run, opens)


def _name(run: Sequence[str], opens: bool) -> Iterator[str]:
    words = list(run)
    while words and words[-1].lower() in STOP_WORDS | PARTICLES:
        words.pop()
    while words and words[0].lower() in STOP_WORDS:
        words.pop(0)
        opens = False
    alone = len(words) == 1
    if 0 < len(words) <= LONGEST and not (alone and (opens or len(words[0]) == 1 or words[0] in DATES)):
        yield " ".join(words)
