"""Check that an index finds the passages it contains, for `kgqa data check-index`."""

from __future__ import annotations

import random
from dataclasses import dataclass

from kgqa.calls import Search
from kgqa.retrieval.passages import text_key
from kgqa.retrieval.search import PassageIndex

SAMPLE = 200  # passages that are looked for
SAMPLE_WORDS = 20  # of a passage's text, as a query that should find it
DEPTH = 10


@dataclass(frozen=True, slots=True)
class KnownItems:
    """The number of sampled passages that their own first words find."""

    first: int  # as the best
    among: int  # in the first `DEPTH`
    searched: int


def sample_known_items(index: PassageIndex, seed: int) -> KnownItems:
    places = random.Random(seed).sample(range(len(index.passages)), min(SAMPLE, len(index.passages)))  # noqa: S311
    passages = [passage for place in places if (passage := index.passages[place]).text.strip()]
    queries = [Search(" ".join(passage.text.split()[:SAMPLE_WORDS]), DEPTH) for passage in passages]
    first = among = 0
    for passage, hits in zip(passages, index.search(queries), strict=True):
        texts = [text_key(hit) for hit in hits]
        first += texts[:1] == [text_key(passage)]
        among += text_key(passage) in texts
    return KnownItems(first, among, len(passages))
