"""IRCoT (Trivedi et al., ACL 2023): retrieval and chain of thought take turns, then a reader answers.

§3.1: retrieve by the question → write the next sentence of the chain of thought → retrieve by it → …, until the chain
states an answer. §3.2: the reader is given every passage that was collected and begins anew.

Thoughts are written by the role `agent`, the answer by `reader`, both with the template few_shot/answer;
few_shot/titles asks for pages. A question's pinned passages, IIRC's main one, are always shown and never searched for.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Literal

from kgqa.constraints import Count, Natural
from kgqa.methods.retrieve_only import Scope, Searched, without_question_words
from kgqa.methods.steps.examples import Demonstrated
from kgqa.methods.steps.few_shot import FewShot, Shot, stated_answer
from kgqa.methods.steps.fitting import Reading
from kgqa.methods.steps.page_titles import pages_named
from kgqa.methods.steps.reader import with_pinned
from kgqa.methods.steps.reading import Reader, read_passages
from kgqa.methods.steps.sentences import sentences
from kgqa.protocols import Need
from kgqa.types import Answer, Passage, Question

MERE_REASONING = re.compile(r"(so|thus|therefore|hence|that is)\b|.*\d\s*[-+*/]\s*[\d.,]+\s*=", re.IGNORECASE)
NEAR_DUPLICATE = 0.9  # likeness of two texts under one title, 1 if equal: not in the paper, but in the released program
COMPARED = 2_000  # characters of each text


@dataclass(frozen=True)
class IRCoT(Demonstrated):
    """Fields as in conf/method/ircot.yaml, which cites the source of each value."""

    scope: Searched
    passages_per_step: Count
    max_passages: Count
    max_steps: Count
    strip_question_words: bool
    max_passage_words: Count | None
    until: Literal["answer", "passages"]
    titles: Natural
    reader: Reader | Literal["none"]
    max_thought_tokens: Count
    max_answer_tokens: Count
    few_shot: FewShot

    @property
    def shows(self) -> str:
        return f"{self.demos_from}: {self.few_shot.said}"

    @property
    def uses(self) -> frozenset[Need]:
        return frozenset({"model", "search" if self.scope == "corpus" else "pool"})

    async def answer(self, question: Question) -> Answer:
        """Evidence: the passages collected, first collected first. Notes: thoughts, queries, pages named. Figures:
        passage_tokens (#Tok of KnowTrace's Table 2).

        Flags beside those of the reader: `empty_retrieval`, `no_thought`, `truncated_thought` and `repeated_thought`
        for each such sentence, `unfinished` where no thought states an answer.
        """
        scope, pages, flags = Scope.of(self.scope, question), None, Counter[str]()
        if self.scope == "corpus":
            pages, flags = await pages_named(question, self.few_shot, self.titles)
            scope = Scope(titles=pages)
        reading, passages, thoughts, queries = Reading(flags), tuple[Passage, ...](), tuple[str, ...](), list[str]()
        while not self.ended(thoughts):
            retrieved = tuple[Passage, ...]()
            if len(passages) < self.max_passages:
                queries.append(query_of(question, thoughts, self.strip_question_words))
                retrieved = await self.retrieve(queries[-1], passages, scope)
                passages = collected(passages, retrieved)[: self.max_passages]
            if self.until == "passages" and (len(passages) == self.max_passages or not retrieved):
                break
            thoughts += (await self.reason(question, passages, thoughts, reading),)
        thoughts = tuple(filter(None, thoughts))
        flags.update(judged(thoughts))
        if self.until == "passages":
            del flags["unfinished"]  # no thought has to state an answer
        answer = await self.read(question, passages, thoughts)
        notes = {"thoughts": thoughts, "queries": queries, **({"pages": pages} if pages else {}), **answer.notes}
        figures = {"passage_tokens": reading.tokens + (answer.context_tokens or 0)}
        return replace(answer, flags=flags + Counter(answer.flags), figures=figures, notes=notes)

    def ended(self, thoughts: tuple[str, ...]) -> bool:
        """The last thought is empty or states the answer, where that counts, or there are `max_steps`."""
        if not thoughts or len(thoughts) == self.max_steps:
            return bool(thoughts)
        return self.until == "answer" and (not thoughts[-1] or stated_answer(thoughts[-1]) is not None)

    async def retrieve(self, query: str, known: tuple[Passage, ...], scope: Scope) -> tuple[Passage, ...]:
        """The best passages of the scope; where passages alone end the loop, the best of those not known."""
        if self.until == "answer":
            return await scope.search(query, self.passages_per_step, self.max_passage_words)
        found = await scope.search(query, self.passages_per_step + len(known), self.max_passage_words)
        return tuple(passage for passage in found if passage not in known)[: self.passages_per_step]

    async def reason(
        self, question: Question, passages: tuple[Passage, ...], thoughts: tuple[str, ...], reading: Reading
    ) -> str:
        """The next sentence of the chain of thought; what the model writes after it is thrown away.

        One that states the answer has no end but the line's: answers hold full stops.
        """
        shot = Shot(question.text, with_pinned(question, passages), "cot", " ".join(thoughts))
        written = await self.few_shot.write(shot, self.max_thought_tokens, "agent")
        thought = next(iter(sentences(written.text)), "")
        if stated_answer(thought) is not None:
            thought = written.text
        await reading.count(shot.passages[: len(shot.passages) - written.flags["passages_dropped"]])
        reading.flags.update(written.flags)
        reading.flags["truncated_thought"] += written.cut and thought == written.text
        return thought

    async def read(self, question: Question, passages: tuple[Passage, ...], thoughts: tuple[str, ...]) -> Answer:
        """Without a reader (appendix F) the chain's own answer counts, or the whole chain where it states none."""
        if self.reader != "none":
            return await read_passages(question, passages, self.reader, self.few_shot, self.max_answer_tokens)
        chain = " ".join(thoughts)
        stated = stated_answer(chain)
        text = chain if stated is None else stated
        flags = {"empty_retrieval": not passages, "no_answer_marker": stated is None, "empty_answer": not text}
        evidence = tuple(passage.id for passage in passages)
        return Answer(text, evidence, flags=Counter(flag for flag in flags if flags[flag]))


def query_of(question: Question, thoughts: tuple[str, ...], stripped: bool) -> str:
    """The last thought that says something new about the world, else the question; `stripped` of question words.

    A thought that only draws a conclusion or calculates ("Thus …", "1861 - 1842 = 19") holds nothing to look for:
    so says IRCoT's released program; the paper takes the last thought.
    """
    telling = [thought for thought in thoughts if not MERE_REASONING.match(thought)]
    query = telling[-1] if telling else question.text
    return without_question_words(query) if stripped else query


def collected(passages: tuple[Passage, ...], further: tuple[Passage, ...]) -> tuple[Passage, ...]:
    """The passages and, after them, those found that are new; one that is nearly the same as another is not."""
    for passage in further:
        if not any(nearly_same(passage, known) for known in passages):
            passages = (*passages, passage)
    return passages


def nearly_same(one: Passage, other: Passage) -> bool:
    """Whether both have one title and texts that differ in a few characters, as two dumps of one page do."""
    if one.id == other.id:
        return True
    if " ".join(one.title.casefold().split()) != " ".join(other.title.casefold().split()):
        return False
    mine, theirs = (passage.text[:COMPARED].casefold() for passage in (one, other))
    matcher = SequenceMatcher(None, mine, theirs, autojunk=False)
    return all(
        measure() >= NEAR_DUPLICATE for measure in (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio)
    )


def judged(thoughts: tuple[str, ...]) -> Counter[str]:
    """Flags of a finished chain."""
    flags = {
        "no_thought": not thoughts,
        "repeated_thought": len(thoughts) - len({thought.casefold() for thought in thoughts}),
        "unfinished": stated_answer(" ".join(thoughts)) is None,
    }
    return Counter({flag: int(count) for flag, count in flags.items() if count})
