"""Pairs for encoders (KGP, supplement 8.1): both hops of MDR, and DPR's question with its supporting passages."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from kgqa.artifacts.examples import Dropped, Made, Origin, Positive, Source
from kgqa.errors import ConfigError
from kgqa.methods.mdr import Mdr
from kgqa.protocols import Query, Retriever
from kgqa.training.collect.facts import is_comparison, ordered_passages
from kgqa.types import Passage, Question
from kgqa.util.validators import Count, Natural, Share

Draw = Literal["random", "bm25"]


@dataclass(frozen=True)
class Negatives:
    """The question's other passages: `count` drawn at random, or those that BM25 ranks first."""

    draw: Draw
    count: Natural
    sparse: Retriever

    def sample(self, anchor: str, question: Question, chance: random.Random) -> tuple[str, ...]:
        """Return up to `count` texts."""
        gold = {passage.id for passage in ordered_passages(question)} | question.support
        others = list({passage.id: passage for passage in question.passages if passage.id not in gold}.values())
        if self.draw == "random" or not others:
            drawn = chance.sample(others, min(self.count, len(others)))
        else:
            drawn = self._rank(anchor, others)
        return tuple(passage.wording for passage in drawn)

    def _rank(self, anchor: str, others: Sequence[Passage]) -> list[Passage]:
        # an open index looks at its folder from a thread of its own, and may put a lock into it to the last
        with TemporaryDirectory(prefix="kgqa-pool-", ignore_cleanup_errors=True) as folder:
            self.sparse.build(others, Path(folder), lambda _: None)
            with closing(self.sparse.open(others, Path(folder))) as finder:
                (places,) = finder.find([Query(anchor, self.count)])
        return [others[place] for place in places]


@dataclass(frozen=True)
class HopPairs:
    """Fields as in conf/collect/mdr.yaml, which cites the source of each value."""

    sources: Mapping[str, str]
    hops: Count
    negatives: Draw
    negatives_each: Natural
    sparse: Retriever
    held_out: Share
    seed: int

    def collect(self, sources: Sequence[Source], advance: Callable[[], None]) -> Iterator[Made]:
        """Yield the question with the first passage, and both with the second."""
        negatives = Negatives(self.negatives, self.negatives_each, self.sparse)
        for source in sources:
            if not isinstance(source.method, Mdr):
                raise ConfigError("method: these examples use the prompts of method=mdr; remove method=")
            for question in source.questions:
                yield from self._chain(question, source.dataset, source.method, negatives)
                advance()

    def _chain(self, question: Question, dataset: str, method: Mdr, negatives: Negatives) -> Iterator[Made]:
        chance = random.Random(f"{self.seed}/{question.id}")  # noqa: S311 - a draw, not a secret
        chain = list(ordered_passages(question))
        if is_comparison(question):
            chance.shuffle(chain)
        if len(chain) < 2:
            yield Dropped(question.id, "question", "fewer than two passages in an order", Origin(dataset, 0, "gold"))
            return
        anchor = question.text
        for hop, passage in enumerate(chain[: self.hops], start=1):
            drawn = negatives.sample(anchor, question, chance)
            yield _positive(question, f"hop {hop}", (anchor, passage, drawn), Origin(dataset, hop, "gold"))
            anchor = method.second_query(anchor, passage)


@dataclass(frozen=True)
class SupportPairs:
    """Fields as in conf/collect/dpr.yaml, which cites the source of each value."""

    sources: Mapping[str, str]
    negatives: Draw
    negatives_each: Natural
    sparse: Retriever
    held_out: Share
    seed: int

    def collect(self, sources: Sequence[Source], advance: Callable[[], None]) -> Iterator[Made]:
        """Yield the question with each supporting passage, in the order of the file."""
        negatives = Negatives(self.negatives, self.negatives_each, self.sparse)
        for source in sources:
            for question in source.questions:
                chance = random.Random(f"{self.seed}/{question.id}")  # noqa: S311 - a draw, not a secret
                gold = {p.id: p for p in question.passages if p.id in question.support}.values()
                if not gold:
                    yield Dropped(question.id, "question", "no supporting passage", Origin(source.dataset, 0, "gold"))
                for place, passage in enumerate(gold, start=1):
                    texts = (question.text, passage, negatives.sample(question.text, question, chance))
                    yield _positive(question, "support", texts, Origin(source.dataset, place, "gold"))
                advance()


def _positive(question: Question, label: str, texts: tuple[str, Passage, tuple[str, ...]], origin: Origin) -> Positive:
    """Build an example from (anchor, passage, negatives)."""
    anchor, passage, negatives = texts
    return Positive(
        id=f"{origin.dataset}/{question.id}/{label.partition(' ')[0]} {origin.place}",
        question=question.id,
        anchor=anchor,
        positive=passage.wording,
        negatives=negatives,
        label=label,
        origin=origin,
    )
