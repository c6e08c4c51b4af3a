"""The readers that all methods of a paper share: TRACE's (§3.4, Fig. 7) and KGP's (supplement 8.9).

Both are zero-shot and greedy, and say only the answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from kgqa.calls import CountTokens, Generate
from kgqa.methods.steps.replies import first_line
from kgqa.prompting import render
from kgqa.types import Answer, Passage, Question

ZeroShot = Literal["zero_shot", "short"]
TEMPLATES: dict[ZeroShot, str] = {"zero_shot": "reader/answer", "short": "kgp/answer"}


def passages_text(passages: Iterable[Passage]) -> str:
    """Passages as the reader sees them, a blank line between two."""
    return "\n\n".join(f"Title: {passage.title}\n{passage.text}" for passage in passages)


def with_pinned(question: Question, retrieved: Iterable[Passage]) -> tuple[Passage, ...]:
    """What a model is shown of a question's passages: the pinned ones, IIRC's main one, then those found, each once."""
    pinned = {passage.id for passage in question.pinned}
    return (*question.pinned, *(passage for passage in retrieved if passage.id not in pinned))


def numbered(contexts: Iterable[str], mark: str = ": ") -> str:
    """A line or more for each; KGP's reader sees them so, and with the mark ". " TRACE's of the released code."""
    return "\n".join(f"{number}{mark}{context}" for number, context in enumerate(contexts, start=1))


async def read(
    question: Question, context: str, evidence: tuple[str, ...], max_tokens: int, template: str = "reader/answer"
) -> Answer:
    """Answer from the context, or from the model's memory where the context is empty.

    The answer is the first line of the reply without blanks around it; quotes and full stops are left to the
    scorers' normalisation. `context_tokens` counts the context alone: the paper's "# Tok" has 53 to 57 without
    documents, so it seems to count instruction and question too.

    Flags: `empty_answer`; `truncated_answer` where the reply ended at `max_tokens` within its first line.

    Raises:
        PromptTooLong: nothing is cut, as the paper does not say that it cuts; this becomes the question's error.
    """
    reply = await Generate(render(template, question=question.text, context=context), max_tokens)
    text, cut = first_line(reply)
    flags = {"empty_answer": not text, "truncated_answer": cut}
    return Answer(
        text,
        evidence,
        context_tokens=await CountTokens(context) if context else 0,
        flags={flag: 1 for flag, is_set in flags.items() if is_set},
    )
