"""Passages that mention a common entity (KGP §3): names found offline, or Wikipedia's pages found by TAGME.

Offline, an entity is a name as it is written: the titles of the collection, and runs of capitalized words. So nothing
is downloaded and any domain works, but two names of one entity do not meet, two entities of one name do, and lower-case
terms are not found unless they are titles.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal

from kgqa.errors import ConfigError, DataError
from kgqa.retrieval.graphs.keywords import STOP_WORDS, Phrase, bare_title, find_phrases, words_of
from kgqa.retrieval.graphs.links import Links, link_passages
from kgqa.types import Passage
from kgqa.util.http import trusted_certificates
from kgqa.util.settings import NotIdentity, Setting
from kgqa.util.validators import Share, Url, Validator

WORD = re.compile(r"\w+")
# between two words of one name; ". " only behind an initial
JOINING = frozenset([" ", "-", "'", "’", ". "])
PARTICLES = words_of("of de del della der den di du da la le van von the")
# words of a name; a longer run of capitalized words is a heading or a list
LONGEST = 12
DATES = words_of(
    "January February March April May June July August September October November December "
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
)
CommonShare = Annotated[
    float, Validator("must be above 0 and at most 1", lambda share: 0 < share <= 1)
]
# at once; the service is slow and shared: hours for 12 articles (KGP supplement 8.5)
REQUESTS = 4
OFFLINE = "or choose graph=entities, which needs no server"


@dataclass(frozen=True)
class Entities:
    """Two passages are linked if both texts mention a name, in the same letter case, as whole words.

    Of names that overlap in a text the one that starts first counts, and of those the longest; a name in only one
    passage does not take part in this ("Later Ida Ruhn" does not hide "Ida Ruhn"). A word that is capitalized as the
    first of a sentence is no name by that alone, nor are months and days, nor more than twelve words.

    most_common: names that a larger share of the passages mention link nothing (1: all do); thins the graph out.
    titles: whether a passage also mentions its document, so that all passages of a document are linked.
    """

    most_common: Annotated[
        CommonShare,
        Setting(
            "Ignore names that more than this share of the passages mention. 1: use all names.",
            ours="our choice",
        ),
    ] = 1.0
    titles: Annotated[
        bool,
        Setting(
            "Also link a passage with its document's title, as the released code does.",
            paper="§3: entities only",
        ),
    ] = False

    # raise it when equal settings give other results
    version: ClassVar[int] = 2

    def links(self, passages: Sequence[Passage]) -> Links:
        texts = [WORD.findall(passage.text) for passage in passages]
        names = {tuple(WORD.findall(bare_title(passage.title))) for passage in passages}
        names.update(name for passage in passages for name in find_capitalized_names(passage.text))
        spans = find_phrases(texts, names - {()})
        shared = Counter(
            name for names_of_text in spans for name in {name for _, name in names_of_text}
        )
        mentions = [
            _longest([(start, name) for start, name in names_of_text if shared[name] > 1])
            for names_of_text in spans
        ]
        holders = Counter(name for names_of_text in mentions for name in names_of_text)
        most = self.most_common * len(passages)
        documents = [[passage.title] if self.titles else [] for passage in passages]
        return link_passages(
            [
                [*(name for name in names_of_text if holders[name] <= most), *document]
                for names_of_text, document in zip(mentions, documents, strict=True)
            ]
        )


def _longest(spans: Sequence[tuple[int, Phrase]]) -> set[Phrase]:
    """Return the longest names from the left; names that overlap one of them are skipped."""
    mentioned, covered = set[Phrase](), 0
    for start, name in spans:
        if start >= covered:
            mentioned.add(name)
            covered = start + len(name)
    return mentioned


def find_capitalized_names(text: str) -> Iterator[Phrase]:
    """Yield runs of capitalized words, particles between them allowed, function words before them left out."""
    run: list[str] = []
    # whether the run's first word starts a sentence
    starts_sentence = True
    # how far the text is read
    position = 0
    for match in WORD.finditer(text):
        gap, word = text[position : match.start()], match[0]
        if run and (gap not in JOINING or (gap == ". " and len(run[-1]) > 1)):
            yield from _name(run, starts_sentence)
            run = []
        if word[0].isupper() or (run and word in PARTICLES):
            if not run:
                starts_sentence = not position or re.search(r"[.!?:\n]", gap) is not None
            run.append(word)
        elif run:
            yield from _name(run, starts_sentence)
            run = []
        position = match.end()
    yield from _name(run, starts_sentence)


def _name(run: Sequence[str], starts_sentence: bool) -> Iterator[Phrase]:
    words = list(run)
    while words and words[-1].lower() in STOP_WORDS | PARTICLES:
        words.pop()
    while words and words[0].lower() in STOP_WORDS:
        words.pop(0)
        starts_sentence = False
    alone = len(words) == 1
    if 0 < len(words) <= LONGEST and not (
        alone and (starts_sentence or len(words[0]) == 1 or words[0] in DATES)
    ):
        yield tuple(words)


@dataclass(frozen=True)
class Tagme:
    """Two passages are linked if TAGME (Ferragina and Scaiella, 2010) finds one Wikipedia page in both.

    confidence: which of TAGME's is compared with the threshold: rho, of a mention's page in its context, or
    link_probability, of the mention being a link at all. A page counts with `threshold` or more.
    titles: whether a passage also mentions its document, so that all passages of a document are linked.
    token_env: the environment variable with the service's key. Each passage is one request.
    """

    url: Annotated[Url, Setting("Address of the service.", other="the service's documentation")] = (
        "https://tagme.d4science.org/tagme/tag"
    )
    token_env: Annotated[
        str, Setting("Environment variable with your key."), NotIdentity("a key")
    ] = "TAGME_TOKEN"  # noqa: S105 - the name of a variable
    confidence: Annotated[
        Literal["rho", "link_probability"],
        Setting(
            'Value that is compared with the threshold: rho | link_probability. Table 5 has a "prior threshold", '
            "P(page | mention), which TAGME does not return. The released code uses WAT, which does.",
            ours="our choice",
        ),
    ] = "rho"
    threshold: Annotated[
        Share,
        Setting(
            "Minimum confidence of an entity. Varied in Figs. 5 and 9. The released code uses 0.8 of WAT's prior.",
            ours="our choice",
        ),
    ] = 0.1
    titles: Annotated[
        bool,
        Setting(
            "Also link a passage with its document's title, as the released code does.",
            paper="§3: entities only",
        ),
    ] = False
    language: Annotated[str, Setting("Language of the texts.")] = "en"
    timeout: Annotated[
        float, Setting("Seconds per request.", ours="our choice"), NotIdentity("takes time only")
    ] = 60

    # raise it when equal settings give other results
    version: ClassVar[int] = 2

    def links(self, passages: Sequence[Passage]) -> Links:
        """Raise ConfigError without a key, DataError if the service does not answer."""
        if not os.environ.get(self.token_env):
            raise ConfigError(
                f"graph=tagme: no key in the environment variable {self.token_env}. Set it, {OFFLINE}"
            )
        certificates = trusted_certificates()
        with ThreadPoolExecutor(REQUESTS) as workers:
            names_of_text = list(workers.map(partial(self._find_pages, certificates), passages))
        documents = [[passage.title] if self.titles else [] for passage in passages]
        return link_passages(
            [[*pages, *document] for pages, document in zip(names_of_text, documents, strict=True)]
        )

    def _find_pages(self, certificates: str, passage: Passage) -> set[int]:
        import requests

        if not passage.text.strip():
            return set()
        form = {
            "gcube-token": os.environ[self.token_env],
            "text": passage.text,
            "lang": self.language,
        }
        try:
            # no redirects: the key is for this address
            answer = requests.post(
                self.url,
                data=form,
                timeout=self.timeout,
                verify=certificates,
                allow_redirects=False,
            )
            answer.raise_for_status()
            notes = answer.json()["annotations"]
            return {int(note["id"]) for note in notes if note[self.confidence] >= self.threshold}
        except (OSError, ValueError, KeyError, TypeError) as error:  # requests' errors are OSErrors
            raise DataError(
                f"TAGME at {self.url}: {error!r}. Check {self.token_env} and graph.url, {OFFLINE}"
            ) from None
