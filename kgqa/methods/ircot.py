"""IRCoT (Trivedi et al., ACL 2023): retrieval and chain of thought take turns, then a reader answers.

§3.1: retrieve by the question → generate the next sentence of the chain of thought → retrieve by it → …, until the
chain contains an answer. §3.2: the reader answers from all collected passages, without the chain.

The role `agent` generates thoughts, `reader` the answer, both with the template few_shot/answer. The template
few_shot/titles requests pages. Pinned passages (IIRC's main one) are always shown and never searched for.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import Annotated, Literal

from kgqa.methods.retrieve import QUESTION_WORDS, remove_question_words
from kgqa.methods.steps.examples import FewShotKeys
from kgqa.methods.steps.few_shot import FewShot, Shot, choose_pages
from kgqa.methods.steps.reader import Reader, ReadingLog, add_pinned, evidence_of, read_passages
from kgqa.methods.steps.replies import extract_answer, plain_answer
from kgqa.methods.steps.search import Scope, ScopedMethod
from kgqa.types import Answer, Passage, Question
from kgqa.util.sentences import sentences
from kgqa.util.settings import Setting
from kgqa.util.validators import Count, Natural

MERE_REASONING = re.compile(
    r"(so|thus|therefore|hence|that is)\b|.*\d\s*[-+*/]\s*[\d.,]+\s*=", re.IGNORECASE
)
# of the released program: openings, and a sum or a difference
RELEASED_REASONING = re.compile(
    r"(thus|so)[ ,]|that is,|therefore|hence|.*\d [+-] \d[\d,]*(\.\d+)? = \d", re.IGNORECASE
)
QueryRules = Literal["names", "released"]
# similarity of two texts with one title: not in the paper, but in the released program
NEAR_DUPLICATE = 0.9
COMPARED = 2_000  # characters of each text


@dataclass(frozen=True)
class IRCoT(ScopedMethod, FewShotKeys):
    """The method, with the fields of conf/method/ircot.yaml."""

    passages_per_step: Annotated[
        Count,
        Setting("K, tuned in {2, 4, 6, 8} (§4.1).", ours="the best value is not in the paper"),
    ] = 4
    max_passages: Annotated[
        Count,
        Setting("Maximum number of passages collected over all steps.", paper="§3.1, footnote 5"),
    ] = 15
    max_steps: Annotated[
        Count, Setting("Maximum number of reasoning steps.", paper="§3.1, footnote 4")
    ] = 8
    strip_question_words: Annotated[
        bool,
        Setting(
            'Remove question words such as "who" and "is" from each query. Released: true.',
            ours="our choice",
        ),
    ] = False
    query_rules: Annotated[
        QueryRules,
        Setting(
            "Keep question words in names, and skip sentences with calculations | released: words as they are "
            "between blanks, and the patterns of the released code.",
            ours="our choice",
        ),
    ] = "names"
    max_passage_words: Annotated[
        Count | None, Setting("Skip longer passages of a search. Released: 600.", ours="our choice")
    ] = None
    until: Annotated[
        Literal["answer", "passages"],
        Setting(
            "When to stop: answer, a sentence states the answer | passages, max_passages are collected (KGP "
            "supplement 8.2).",
            paper="§3.1",
        ),
    ] = "answer"
    titles: Annotated[
        Natural,
        Setting(
            "Number of pages that the model names, if a question has a pinned passage (IIRC). 0: none.",
            paper="appendix B",
        ),
    ] = 3
    reader: Annotated[
        Reader | Literal["none"],
        Setting(
            "Prompt of the answer: direct (best for Flan-T5) | cot (best for GPT-3) | none, the chain's own answer "
            "(appendix F) | zero_shot, TRACE's | short, KGP's.",
            paper="§3.2",
        ),
    ] = "direct"
    max_thought_tokens: Annotated[
        Count, Setting("Maximum tokens of one sentence.", ours="our choice")
    ] = 100
    max_answer_tokens: Annotated[
        Count, Setting("Maximum tokens of the answer.", ours="our choice")
    ] = 200
    few_shot: Annotated[FewShot, Setting("Few-shot examples.", paper="§3.1")] = field(kw_only=True)

    @property
    def shows(self) -> str:
        return f"{self.few_shot_path}: {self.few_shot.description}"

    async def answer(self, question: Question) -> Answer:
        """Alternate between retrieval and thoughts, then read.

        Evidence: the collected passages, first collected first. Notes: thoughts, queries, named pages. Figures:
        passage_tokens (#Tok of KnowTrace's Table 2).

        Flags: those of the reader, `empty_retrieval`, `no_thought`, `truncated_thought`, `repeated_thought`,
        `unfinished` (no thought contains an answer).
        """
        scope, flags = await choose_pages(
            self.scope_of(question), question, self.few_shot, self.titles
        )
        reading, queries = ReadingLog(question, scope, flags), list[str]()
        passages, thoughts = tuple[Passage, ...](), tuple[str, ...]()
        while not self.is_finished(thoughts):
            retrieved = tuple[Passage, ...]()
            if len(passages) < self.max_passages:
                queries.append(
                    choose_query(question, thoughts, self.strip_question_words, self.query_rules)
                )
                retrieved = await self.retrieve(queries[-1], passages, scope)
                passages = add_passages(passages, retrieved)[: self.max_passages]
            if self.until == "passages" and (len(passages) == self.max_passages or not retrieved):
                break
            thoughts += (await self.reason(question, passages, thoughts, reading),)
        thoughts = tuple(filter(None, thoughts))
        flags.update(
            no_thought=not thoughts,
            repeated_thought=len(thoughts) - len({thought.casefold() for thought in thoughts}),
            # with until=passages, thoughts do not have to contain an answer
            unfinished=self.until == "answer" and extract_answer(" ".join(thoughts)) is None,
        )
        answer = await self.read(question, passages, thoughts)
        notes = {"thoughts": thoughts, "queries": queries, **scope.notes, **answer.notes}
        figures = {"passage_tokens": reading.tokens + (answer.context_tokens or 0)}
        return replace(answer, flags=flags + Counter(answer.flags), figures=figures, notes=notes)

    def is_finished(self, thoughts: tuple[str, ...]) -> bool:
        """Return whether the last thought is empty or contains the answer, or there are `max_steps`."""
        if not thoughts or len(thoughts) == self.max_steps:
            return bool(thoughts)
        return self.until == "answer" and (
            not thoughts[-1] or extract_answer(thoughts[-1]) is not None
        )

    async def retrieve(
        self, query: str, earlier: tuple[Passage, ...], scope: Scope
    ) -> tuple[Passage, ...]:
        """Return the best passages, with until=passages the best unknown ones."""
        if self.until == "answer":
            return await scope.search(query, self.passages_per_step, self.max_passage_words)
        passages = await scope.search(
            query, self.passages_per_step + len(earlier), self.max_passage_words
        )
        return tuple(passage for passage in passages if passage not in earlier)[
            : self.passages_per_step
        ]

    async def reason(
        self,
        question: Question,
        passages: tuple[Passage, ...],
        thoughts: tuple[str, ...],
        reading: ReadingLog,
    ) -> str:
        """Generate the next sentence of the chain of thought, and drop the rest of the reply.

        A sentence with the answer goes to the end of the line, because answers contain full stops.
        """
        shot = Shot(question.text, add_pinned(question, passages), "cot", " ".join(thoughts))
        reply = await self.few_shot.generate(shot, self.max_thought_tokens, "agent")
        thought = next(iter(sentences(reply.text)), "")
        if extract_answer(thought) is not None:
            thought = reply.text
        await reading.count(shot.passages[: len(shot.passages) - reply.flags["passages_dropped"]])
        reading.flags.update(reply.flags)
        reading.flags["truncated_thought"] += reply.cut and thought == reply.text
        return thought

    async def read(
        self, question: Question, passages: tuple[Passage, ...], thoughts: tuple[str, ...]
    ) -> Answer:
        """Answer with the reader, or without one (appendix F) with the answer of the chain or the complete chain."""
        if self.reader != "none":
            return await read_passages(
                question, passages, self.reader, self.few_shot, self.max_answer_tokens
            )
        chain = " ".join(thoughts)
        stated = extract_answer(chain)
        text = chain if stated is None else plain_answer(stated)
        flags = {
            "empty_retrieval": not passages,
            "no_answer_marker": stated is None,
            "empty_answer": not text,
        }
        return Answer(text, evidence_of(passages), flags=flags)


def choose_query(
    question: Question, thoughts: tuple[str, ...], stripped: bool, rules: QueryRules
) -> str:
    """Return the last thought with a new fact, or the question, without question words if `stripped`.

    As in IRCoT's released program, conclusions and calculations ("Thus …", "1861 - 1842 = 19") are no queries. The
    paper uses the last thought.
    """
    is_released = rules == "released"
    reasoning = RELEASED_REASONING if is_released else MERE_REASONING
    facts = [thought for thought in thoughts if not reasoning.match(thought)]
    query = facts[-1] if facts else question.text
    if is_released and stripped:
        return " ".join(word for word in query.split(" ") if word.lower() not in QUESTION_WORDS)
    return remove_question_words(query) if stripped else query


def add_passages(
    passages: tuple[Passage, ...], further: tuple[Passage, ...]
) -> tuple[Passage, ...]:
    """Append the further passages that are no near duplicates of earlier ones."""
    for passage in further:
        if not any(is_near_duplicate(passage, other) for other in passages):
            passages = (*passages, passage)
    return passages


def is_near_duplicate(one: Passage, other: Passage) -> bool:
    """Return whether both have one title and texts with few differences, as two dumps of one page."""
    if one.id == other.id:
        return True
    if " ".join(one.title.casefold().split()) != " ".join(other.title.casefold().split()):
        return False
    first, second = (passage.text[:COMPARED].casefold() for passage in (one, other))
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    return all(
        measure() >= NEAR_DUPLICATE
        for measure in (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio)
    )
