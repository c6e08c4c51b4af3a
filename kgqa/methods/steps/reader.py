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
from kgqa.methods.steps.replies import first_line, nonzero_flags, read_conclusion, strip_answer_label
from kgqa.methods.steps.scope import Scope
from kgqa.prompting import render
from kgqa.types import Answer, Completion, Json, Passage, Prompt, Question

ZeroShot = Literal["zero_shot", "short"]
TEMPLATES: dict[ZeroShot, str] = {"zero_shot": "reader/answer", "short": "kgp/answer"}


def passages_text(passages: Iterable[Passage]) -> str:
    """Return passages as the prompt of the reader has them, separated by blank lines."""
    return "\n\n".join(f"Title: {passage.title}\n{passage.text}" for passage in passages)


def add_pinned(question: Question, retrieved: Iterable[Passage]) -> tuple[Passage, ...]:
    """Return the pinned passages of a question (IIRC's main passage), then the other retrieved ones."""
    pinned = {passage.id for passage in question.pinned}
    return (*question.pinned, *(passage for passage in retrieved if passage.id not in pinned))


def pinned_text(question: Question, shown: Sequence[Passage]) -> str:
    """Return the pinned passages among those that a prompt shows."""
    return passages_text(passage for passage in question.pinned if passage in shown)


def number_contexts(contexts: Iterable[str], mark: str = ": ") -> str:
    """Number the contexts as KGP's reader does, or with the mark ". " as TRACE's released code."""
    return "\n".join(f"{number}{mark}{context}" for number, context in enumerate(contexts, start=1))


async def read(
    question: Question, context: str, evidence: tuple[str, ...], max_tokens: int, template: str = "reader/answer"
) -> Answer:
    """Answer from the context, or from the knowledge of the model if the context is empty.

    The answer is the first line of the reply without "Answer:". Scorers normalize quotes and full stops.
    `context_tokens` counts only the context. The paper's "# Tok" is 53 to 57 without documents, so it seems to include
    the instruction.

    Flags: `empty_answer`, `truncated_answer` (the first line reached `max_tokens`).

    Raises:
        PromptTooLong: the context is never truncated, because the paper does not mention it.
    """
    reply = await Generate(render(template, question=question.text, context=context), max_tokens)
    line, cut = first_line(reply)
    text = strip_answer_label(line)
    tokens = await CountTokens(context) if context else 0
    flags = nonzero_flags(empty_answer=not text, truncated_answer=cut)
    return Answer(text, evidence, context_tokens=tokens, flags=flags)


@dataclass(slots=True)
class ReadingLog:
    """The searches and readings on the way to the answer of a question, with their counts.

    Flags: `passages_dropped` (passages that did not fit into prompts) and `cut_reply` (replies that reached their token
    limit). tokens: those of the shown passages, counted again in each call (KnowTrace, Table 2).
    """

    question: Question
    scope: Scope = field(default_factory=Scope)
    flags: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    last: int = 0  # those of the last call

    async def generate(
        self,
        prompt: Callable[[tuple[Passage, ...]], Prompt],
        passages: Sequence[Passage],
        max_tokens: int,
        stop: tuple[str, ...] = (),
        role: str = "reader",
    ) -> Completion:
        """Generate with `prompt(passages)`: pinned passages, then the best first, without the last that do not fit.

        Raises:
            PromptTooLong: the prompt does not fit without passages.
        """
        return await self.send(lambda shown: Generate(prompt(shown), max_tokens, stop, role=role), passages)

    async def read(
        self,
        template: str,
        passages: Sequence[Passage],
        max_tokens: int,
        stop: tuple[str, ...] = ("\nPassages:",),
        role: str = "reader",
        **values: object,
    ) -> str:
        """Generate with a template that shows the passages, as `generate` does."""

        def prompt(shown: tuple[Passage, ...]) -> Prompt:
            return render(template, passages=passages_text(shown), **values)

        return (await self.generate(prompt, passages, max_tokens, stop, role)).text

    async def send(self, call: Callable[[tuple[Passage, ...]], Generate], passages: Sequence[Passage]) -> Completion:
        """Send `call(passages)` as `generate` does."""
        passages = shown = add_pinned(self.question, passages)
        while True:
            try:
                reply = await call(shown)
            except PromptTooLong as refused:
                if not shown:
                    raise
                shown = await _drop_passages(shown, refused.tokens - refused.limit)
                continue
            await self.count(shown)
            self.flags["passages_dropped"] += len(passages) - len(shown)
            self.flags["cut_reply"] += reply.finish == "length"
            return reply

    async def search(self, query: str, count: int) -> tuple[Passage, ...]:
        """Return the best passages. Flag `empty_retrieval`."""
        passages = await self.scope.search(query, count)
        self.flags["empty_retrieval"] += not passages
        return passages

    async def write(self, prompt: Prompt, max_tokens: int, stop: tuple[str, ...] = ()) -> str:
        """Generate with a prompt without passages."""
        reply = await Generate(prompt, max_tokens, stop)
        self.flags["cut_reply"] += reply.finish == "length"
        return reply.text

    def read_conclusion(self, reply: str) -> str:
        """Return the answer after "Answer:", or the last line. Flag `no_answer_marker`."""
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
        """Return an answer with these flags, `empty_answer`, and passage_tokens (#Tok of KnowTrace's Table 2).

        Args:
            passages: the evidence, repeated passages once.
            context_tokens: the tokens of the last call if None.
        """
        return Answer(
            text,
            tuple(dict.fromkeys(passage.id for passage in passages)),
            context_tokens=self.last if context_tokens is None else context_tokens,
            flags=nonzero_flags(**self.flags, empty_answer=not text),
            figures={**figures, "passage_tokens": self.tokens},
            notes=notes,
        )

    async def count(self, shown: Sequence[Passage]) -> None:
        """Count the tokens of passages that a call has shown."""
        self.last = await CountTokens(passages_text(shown)) if shown else 0
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
    return tuple({passage.id: passage for _, passage in sorted(ranked, key=lambda pair: pair[0])}.values())


async def read_zero_shot(
    question: Question,
    retrieved: Iterable[Passage],
    evidence: tuple[str, ...],
    max_tokens: int,
    reader: ZeroShot = "zero_shot",
) -> Answer:
    """Answer from the pinned and the retrieved passages with TRACE's reader or KGP's (`short`)."""
    passages = add_pinned(question, retrieved)
    short = reader == "short"
    context = number_contexts(passage.text for passage in passages) if short else passages_text(passages)
    return await read(question, context, evidence, max_tokens, TEMPLATES[reader])


Reader = Literal["direct", "cot", "zero_shot", "short"]


async def read_passages(
    question: Question, retrieved: tuple[Passage, ...], reader: Reader, few_shot: FewShot, max_tokens: int
) -> Answer:
    """Answer with IRCoT's few-shot reader (`direct` or `cot`), TRACE's (`zero_shot`) or KGP's (`short`).

    Pinned passages come first. Evidence: the retrieved passages in order. Flags: those of the reader, and
    `empty_retrieval`.
    """
    evidence = tuple(passage.id for passage in retrieved)
    if reader == "zero_shot" or reader == "short":
        answer = await read_zero_shot(question, retrieved, evidence, max_tokens, reader)
    else:
        passages = add_pinned(question, retrieved)
        written = await few_shot.answer(Shot(question.text, passages, reader), max_tokens)
        shown = few_shot.shorten(passages[: len(passages) - written.flags["passages_dropped"]])
        tokens = await CountTokens(passages_text(shown)) if shown else 0
        notes = {"demonstrations": written.demonstrations}
        answer = Answer(written.text, evidence, context_tokens=tokens, flags=written.flags, notes=notes)
    return answer if retrieved else replace(answer, flags=Counter(answer.flags) + Counter(["empty_retrieval"]))


Path = tuple[Passage, ...]  # passages in the order of the walk


async def read_paths(question: Question, paths: Sequence[Path], max_tokens: int) -> Answer:
    """Answer from one context per pinned passage and per path, with one line per passage (KGP, supplement 8.9).

    Evidence: the distinct passages of the paths. If the prompt is too long, the last paths are dropped: flag
    `context_cut`.
    """
    pinned = [(passage,) for passage in question.pinned]
    contexts = number_contexts("\n".join(passage.wording for passage in path) for path in (*pinned, *paths))
    evidence = tuple(dict.fromkeys(passage.id for path in paths for passage in path))
    try:
        return await read(question, contexts, evidence, max_tokens, "kgp/answer")
    except PromptTooLong as error:
        if len(paths) < 2:
            raise
        count = max(1, min(len(paths) - 1, len(paths) * error.limit // error.tokens))
    answer = await read_paths(question, paths[:count], max_tokens)
    return replace(answer, evidence=evidence, flags={**Counter(answer.flags), "context_cut": 1})
