"""Reading what a walk through passages found: KGP's numbered contexts (supplement 8.9), one for each path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from kgqa.errors import PromptTooLong
from kgqa.methods.steps.reader import numbered, read
from kgqa.types import Answer, Passage, Question

Path = tuple[Passage, ...]  # passages visited one after the other


async def read_paths(question: Question, paths: Sequence[Path], max_tokens: int) -> Answer:
    """A context for each pinned passage and each path, whose passages stand on lines of their own.

    Evidence: the passages of the paths, each once. Where the prompt is too long for the model, the last paths are left
    out: flag `context_cut`.
    """
    given = [(passage,) for passage in question.pinned]
    contexts = numbered("\n".join(passage.wording for passage in path) for path in (*given, *paths))
    evidence = tuple(dict.fromkeys(passage.id for path in paths for passage in path))
    try:
        return await read(question, contexts, evidence, max_tokens, "kgp/answer")
    except PromptTooLong as error:
        if len(paths) < 2:
            raise
        kept = max(1, min(len(paths) - 1, len(paths) * error.limit // error.tokens))
    answer = await read_paths(question, paths[:kept], max_tokens)
    return replace(answer, evidence=evidence, flags={**Counter(answer.flags), "context_cut": 1})
