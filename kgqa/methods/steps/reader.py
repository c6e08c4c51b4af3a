"""Readers: show passages to a model as far as they fit, and read its answer.

TRACE's reader (§3.4, Fig. 7) and KGP's (supplement 8.9) are zero-shot. Both give only the answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from kgqa.calls import CountTokens, Generate
from kgqa.errors import PromptTooLong
from kgqa.methods.steps.few_shot import FewShot, Shot
from kgqa.methods.steps.replies import MAX_SCORE_TOKENS, read_conclusion, read_first_answer
from kgqa.methods.steps.search import Scope
from kgqa.prompting import render
from kgqa.types import Answer, Completion, Json, Passage, Prompt, Question

ZeroShot = Literal["zero_shot", "short"]
TEMPLATES: dict[ZeroShot, str] = {"zero_shot": "reader/answer", "short": "kgp/answer"}


def passages_text(passages: Iterable[Passage]) -> str:
    """Return passages as the prompt of the reader has them, separated by blank lines."""
    return "\n\n".join(f"Title: {passage.title}\n{passage.text}" for passage in passages)


def evidence_of(passages: Iterable[Passage]) -> tuple[str, ...]:
    """Return the ids of passages in order, each once, for `Answer.evidence`."""
    return tuple(dict.fromkeys(passage.id for passage in passages))


def add_pinned(question: Question, retrieved: Iterable[Passage]) -> tuple[Passage, ...]:
    """Return the pinned passages of a question (IIRC's main passage), then the other retrieved ones."""
    pinned = {passage.id for passage in question.pinned}
    return (*question.pinned, *(passage for passage in retrieved if passage.id not in pinned))


def pinned_text(question: Question, context: Sequence[Passage]) -> str:
    """Return the pinned passages among those that a prompt shows."""
    return passages_text(passage for passage in question.pinned if passage in context)


def number_contexts(contexts: Iterable[str], mark: str = ": ") -> str:
    """Number the contexts as KGP's reader does, or with the mark ". " as TRACE's released code."""
    return "\n".join(f"{number}{mark}{context}" for number, context in enumerate(contexts, start=1))


async def read(
    question: Question,
    context: str,
    evidence: tuple[str, ...],
    max_tokens: int,
    template: str = "reader/answer",
) -> Answer:
    """Answer from the context, or from the knowledge of the model if the context is empty.

    The answer is the first line of the reply without "Answer:", unless the reply marks another one. Scorers normalize
    quotes and full stops.
    `context_tokens` counts only the context. The paper's "# Tok" is 53 to 57 without documents, so it seems to include
    the instruction.

    Flags: `empty_answer`, `truncated_answer` (the first line reached `max_tokens`).

    Raises PromptTooLong: the context is never truncated, because the paper does not mention it.
    """
    reply = await Generate(render(template, question=question.text, context=context), max_tokens)
    text, cut = read_first_answer(reply)
    tokens = await CountTokens(context) if context else 0
    return Answer(
        text,
        evidence,
        context_tokens=tokens,
        flags={"empty_answer": not text, "truncated_answer": cut},
    )


Show = Callable[[tuple[Passage, ...]], Mapping[str, object]]


def show_passages(context: tuple[Passage, ...]) -> Mapping[str, object]:
    """Return the value of a template with passages that most templates have."""
    return {"passages": passages_text(context)}


@dataclass(slots=True)
class ReadingLog:
    """The searches and readings on the way to the answer of a question, with their counts.

    Flags: `empty_retrieval`, `passages_dropped` (passages that did not fit into prompts), `cut_reply` (replies that
    reached their token limit), `no_answer_marker` (no line "Answer:" in the last reply, so its last line is the answer)
    and `empty_answer`. Figures: passage_tokens, those of the shown passages, counted again in each call (#Tok of
    KnowTrace's Table 2).
    """

    question: Question
    scope: Scope = field(default_factory=Scope)
    flags: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    last: int = 0  # those of the last call

    async def read(
        self,
        template: str,
        passages: Sequence[Passage],
        max_tokens: int,
        stop: tuple[str, ...] = ("\nPassages:",),
        role: str = "reader",
        show: Show = show_passages,
        settings: tuple[float, float] = (0.0, 1.0),
        **values: object,
    ) -> str:
        """Generate with a template that shows the passages, as `send` does.

        show: its values that contain them. settings: temperature and top_p.
        """

        def call(context: tuple[Passage, ...]) -> Generate:
            return Generate(
                render(template, **show(context), **values), max_tokens, stop, *settings, role=role
            )

        return (await self.send(call, passages)).text

    async def send(
        self, call: Callable[[tuple[Passage, ...]], Generate], passages: Sequence[Passage]
    ) -> Completion:
        """Send `call(passages)`: pinned passages, then the best first, without the last that do not fit.

        Raises PromptTooLong: the prompt does not fit without passages.
        """
        passages = context = add_pinned(self.question, passages)
        while True:
            request = call(context)
            try:
                reply = await request
            except PromptTooLong as refused:
                if not context:
                    raise
                context = await _drop_passages(context, refused.tokens - refused.limit)
                continue
            await self.count(context)
            self.flags["passages_dropped"] += len(passages) - len(context)
            # a score is cut by design, and flagged if it is unreadable
            self.flags["cut_reply"] += (
                reply.finish == "length" and request.max_tokens > MAX_SCORE_TOKENS
            )
            return reply

    async def search(self, query: str, count: int) -> tuple[Passage, ...]:
        """Return the best passages."""
        passages = await self.scope.search(query, count)
        self.flags["empty_retrieval"] += not passages
        return passages

    async def write(self, prompt: Prompt, max_tokens: int, stop: tuple[str, ...] = ()) -> str:
        """Generate with a prompt without passages."""
        reply = await Generate(prompt, max_tokens, stop)
        self.flags["cut_reply"] += reply.finish == "length"
        return reply.text

    def read_conclusion(self, reply: str) -> str:
        """Return the answer after "Answer:", or the last line."""
        text, marked = read_conclusion(reply)
        self.flags["no_answer_marker"] += not marked
        return text

    def answer(
        self,
        text: str,
        passages: Iterable[Passage],
        notes: Mapping[str, Json],
        figures: Mapping[str, float] = MappingProxyType({}),
        context_tokens: int | None = None,
    ) -> Answer:
        """Return an answer with these flags and figures.

        passages: the evidence. context_tokens: the tokens of the last call if None.
        """
        return Answer(
            text,
            evidence_of(passages),
            context_tokens=self.last if context_tokens is None else context_tokens,
            flags={**self.flags, "empty_answer": not text},
            figures={**figures, "passage_tokens": self.tokens},
            notes=notes,
        )

    async def count(self, context: Sequence[Passage]) -> None:
        """Count the tokens of passages that a call has shown."""
        self.last = await CountTokens(passages_text(context)) if context else 0
        self.tokens += self.last


async def _drop_passages(passages: tuple[Passage, ...], excess: int) -> tuple[Passage, ...]:
    """Drop the last passages with at least `excess` tokens together."""
    for count in range(len(passages) - 1, 0, -1):
        if await CountTokens(passages_text(passages[count:])) >= excess:
            return passages[:count]
    return ()


def merge_rankings(searches: Iterable[Sequence[Passage]]) -> tuple[Passage, ...]:
    """Return the distinct passages of several searches by rank; ties go to the earlier search."""
    ranked = [(rank, passage) for passages in searches for rank, passage in enumerate(passages)]
    return tuple(
        {passage.id: passage for _, passage in sorted(ranked, key=lambda pair: pair[0])}.values()
    )


async def read_zero_shot(
    question: Question,
    retrieved: Sequence[Passage],
    max_tokens: int,
    reader: ZeroShot = "zero_shot",
) -> Answer:
    """Answer from the pinned and the retrieved passages with TRACE's reader or KGP's (`short`).

    Evidence: the retrieved passages in order, repeated ones once.
    """
    passages = add_pinned(question, retrieved)
    short = reader == "short"
    context = (
        number_contexts(passage.text for passage in passages) if short else passages_text(passages)
    )
    return await read(question, context, evidence_of(retrieved), max_tokens, TEMPLATES[reader])


Reader = Literal["direct", "cot", "zero_shot", "short"]


async def read_passages(
    question: Question,
    retrieved: tuple[Passage, ...] | None,
    reader: Reader,
    few_shot: FewShot,
    max_tokens: int,
) -> Answer:
    """Answer with IRCoT's few-shot reader (`direct` or `cot`), TRACE's (`zero_shot`) or KGP's (`short`).

    Pinned passages come first. Evidence: the retrieved passages in order. Flags: those of the reader, and
    `empty_retrieval`, but not without a search (None).
    """
    if reader == "zero_shot" or reader == "short":
        answer = await read_zero_shot(question, retrieved or (), max_tokens, reader)
    else:
        passages = add_pinned(question, retrieved or ())
        reply = await few_shot.answer(Shot(question.text, passages, reader), max_tokens)
        context = few_shot.shorten(passages[: len(passages) - reply.flags["passages_dropped"]])
        tokens = await CountTokens(passages_text(context)) if context else 0
        evidence, notes = evidence_of(retrieved or ()), {"demonstrations": reply.demonstrations}
        answer = Answer(reply.text, evidence, context_tokens=tokens, flags=reply.flags, notes=notes)
    return replace(answer, flags={**answer.flags, "empty_retrieval": retrieved == ()})


# passages in the order of the walk
Path = tuple[Passage, ...]


async def read_paths(question: Question, paths: Sequence[Path], max_tokens: int) -> Answer:
    """Answer from one context per pinned passage and per path, with one line per passage (KGP, supplement 8.9).

    Evidence: the distinct passages of the paths. If the prompt is too long, the last paths are dropped: flag
    `context_cut`.
    """
    pinned, count = [(passage,) for passage in question.pinned], len(paths)
    evidence = evidence_of(passage for path in paths for passage in path)
    while True:
        context = (*pinned, *paths[:count])
        contexts = number_contexts(
            "\n".join(passage.wording for passage in path) for path in context
        )
        try:
            answer = await read(question, contexts, evidence, max_tokens, "kgp/answer")
            return replace(answer, flags={**answer.flags, "context_cut": count < len(paths)})
        except PromptTooLong as error:
            if count < 2:
                raise
            count = max(1, min(count - 1, count * error.limit // error.tokens))
