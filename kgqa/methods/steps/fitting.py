"""Prompts that show retrieved passages: as many as fit, the lowest-ranked left out first, and what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from kgqa.calls import CountTokens, Generate
from kgqa.errors import PromptTooLong
from kgqa.methods.steps.reader import passages_text
from kgqa.types import Completion, Passage, Prompt


@dataclass(slots=True)
class Reading:
    """What a model read and wrote on the way to one answer.

    Flags: `passages_dropped`, how many passages were left out of prompts, and `cut_reply`, how many replies reached
    their token limit. tokens: of the passages shown, counted again in each call that shows them (KnowTrace, Table 2).
    """

    flags: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    last: int = 0  # of these, in the last call

    async def ask(
        self,
        prompt: Callable[[tuple[Passage, ...]], Prompt],
        passages: Sequence[Passage],
        max_tokens: int,
        stop: tuple[str, ...] = (),
        role: str = "reader",
    ) -> Completion:
        """The reply to `prompt(passages)`, best passage first, of which the last are left out until it fits.

        Raises:
            PromptTooLong: it does not fit without any.
        """
        shown = tuple(passages)
        while True:
            try:
                reply = await Generate(prompt(shown), max_tokens, stop, role=role)
            except PromptTooLong as refused:
                if not shown:
                    raise
                shown = await _fewer(shown, refused.tokens - refused.limit)
                continue
            await self.count(shown)
            self.flags["passages_dropped"] += len(passages) - len(shown)
            self.flags["cut_reply"] += reply.finish == "length"
            return reply

    async def count(self, shown: Sequence[Passage]) -> None:
        """Take in the tokens of passages that a call has shown."""
        self.last = await CountTokens(passages_text(shown)) if shown else 0
        self.tokens += self.last


async def _fewer(passages: tuple[Passage, ...], excess: int) -> tuple[Passage, ...]:
    """Without the last ones, one or as many as have `excess` tokens together."""
    for kept in range(len(passages) - 1, 0, -1):
        if await CountTokens(passages_text(passages[kept:])) >= excess:
            return passages[:kept]
    return ()


def best_first(searches: Iterable[Sequence[Passage]]) -> tuple[Passage, ...]:
    """The passages of several searches by their rank there, of an earlier search before a later one, once each."""
    ranked = [(rank, passage) for passages in searches for rank, passage in enumerate(passages)]
    return tuple({passage.id: passage for _, passage in sorted(ranked, key=lambda found: found[0])}.values())
