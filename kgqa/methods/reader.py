"""The reader that all methods of the TRACE paper share (§3.4, Fig. 7): zero-shot, greedy, only the answer."""

from __future__ import annotations

from collections.abc import Iterable

from kgqa.calls import CountTokens, Generate
from kgqa.prompting import render
from kgqa.types import Answer, Passage, Question


def passages_text(passages: Iterable[Passage]) -> str:
    """Passages as the reader sees them, a blank line between two."""
    return "\n\n".join(f"Title: {passage.title}\n{passage.text}" for passage in passages)


async def read(question: Question, context: str, evidence: tuple[str, ...], max_tokens: int) -> Answer:
    """Answer from the context, or from the model's memory where the context is empty.

    The answer is the first line of the reply without blanks around it; quotes and full stops are left to the
    scorers' normalisation. `context_tokens` counts the context alone: the paper's "# Tok" has 53 to 57 without
    documents, so it seems to count instruction and question too.

    Flags: `empty_answer`; `truncated_answer` where the reply ended at `max_tokens` within its first line.

    Raises:
        PromptTooLong: nothing is cut, as the paper does not say that it cuts; this becomes the question's error.
    """
    reply = await Generate(render("reader/answer", question=question.text, context=context), max_tokens)
    text, _, further = reply.text.strip().partition("\n")
    flags = {"empty_answer": not text, "truncated_answer": reply.finish == "length" and not further}
    return Answer(
        text.strip(),
        evidence,
        context_tokens=await CountTokens(context) if context else 0,
        flags={flag: 1 for flag, is_set in flags.items() if is_set},
    )
