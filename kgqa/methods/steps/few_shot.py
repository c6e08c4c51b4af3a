"""IRCoT's prompts (Trivedi et al., ACL 2023, §3): few-shot examples up to the context limit, then the question."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Literal

from kgqa.calls import CountTokens, Generate
from kgqa.errors import PromptTooLong
from kgqa.prompting import render
from kgqa.prompting.demonstrations import ThoughtDemonstration, demonstration_set, set_said
from kgqa.types import Passage, Prompt
from kgqa.util.validators import Count, Natural

Style = Literal["cot", "direct"]
Size = tuple[int, int]  # number of few-shot examples and passages
ANSWER_MARKER = re.compile(r"\banswer is\b[\s:]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Shot:
    """The question at the end of a few-shot prompt. `prefix`: the start of the reply."""

    question: str
    passages: tuple[Passage, ...]
    style: Style
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class FewShotReply:
    """The stripped first line of a reply."""

    text: str
    cut: bool  # `max_tokens` was reached in the line
    demonstrations: int  # shown
    flags: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class FewShot:
    """The few-shot prompts of a method.

    Args:
        labelled: the pool of few-shot examples.
        sample: which random set of the pool, from 1.
        sample_size: number of examples in the set.
        distractors: passages next to the gold ones of an example; None: only its pinned ones.
        instructed: put an instruction before each question.
        context_limit: tokens of prompt and reply together.
        passage_words: maximum words per passage.
    """

    labelled: tuple[ThoughtDemonstration, ...]
    sample: Count
    sample_size: Natural
    distractors: Natural | None
    instructed: bool
    context_limit: Count
    passage_words: Count | None

    def __post_init__(self) -> None:
        _ = self.demonstrations

    @property
    def description(self) -> str:
        """Return which examples these are, for a report."""
        return set_said(self.labelled, self.sample, self.sample_size)

    @cached_property
    def demonstrations(self) -> tuple[ThoughtDemonstration, ...]:
        return demonstration_set(self.labelled, self.sample, self.sample_size)

    async def generate(self, shot: Shot, max_tokens: int, role: str) -> FewShotReply:
        """Generate the rest of the reply. See `pack` for flags and errors."""

        def prompt(size: Size) -> Prompt:
            return render(
                "few_shot/answer",
                demonstrations=self.demonstrations[: size[0]],
                distractors=self.distractors,
                style=shot.style,
                instructed=self.instructed,
                passages=self.shorten(shot.passages[: size[1]]),
                question=shot.question,
                begun=shot.prefix,
            )

        return await self.pack(prompt, (len(self.demonstrations), len(shot.passages)), max_tokens, role)

    async def answer(self, shot: Shot, max_tokens: int) -> FewShotReply:
        """Answer with the reader (§3.2), with style "cot" from the end of its chain of thought.

        A chain without an answer is the answer itself. Flags: those of `pack`, `no_answer_marker`, `truncated_answer`,
        `empty_answer`.
        """
        written = await self.generate(shot, max_tokens, "reader")
        stated = extract_answer(written.text) if shot.style == "cot" else written.text
        text = written.text if stated is None else stated
        flags = {"no_answer_marker": stated is None, "truncated_answer": written.cut, "empty_answer": not text}
        return replace(written, text=text, flags=written.flags + Counter(flag for flag in flags if flags[flag]))

    async def titles(self, question: str, pinned: tuple[Passage, ...], count: int, max_tokens: int) -> FewShotReply:
        """Generate titles of pages that help to answer a question about the pinned passages (appendix B)."""
        labelled = [demonstration for demonstration in self.demonstrations if demonstration.pinned]

        def prompt(size: Size) -> Prompt:
            return render(
                "few_shot/titles",
                demonstrations=labelled[: size[0]],
                passages=self.shorten(pinned[: size[1]]),
                question=question,
                count=count,
            )

        return await self.pack(prompt, (len(labelled), len(pinned)), max_tokens, "agent")

    def shorten(self, passages: Sequence[Passage]) -> tuple[Passage, ...]:
        """Return the passages as the prompt has them: on one line each, with at most `passage_words` words."""
        return tuple(_on_one_line(passage, self.passage_words) for passage in passages)

    async def pack(self, prompt: Callable[[Size], Prompt], most: Size, max_tokens: int, role: str) -> FewShotReply:
        """Generate with the largest prompt that fits, without the last few-shot examples if needed.

        If the passages of the question do not fit without examples, the last passages are dropped: flag
        `passages_dropped`. If the engine still rejects the prompt, it is shortened again: flag `shortened_prompt`.

        Raises:
            PromptTooLong: the question without passages does not fit.
        """
        demonstrations, passages = most
        sizes = [(shown, passages) for shown in range(demonstrations, -1, -1)]
        sizes += [(0, count) for count in range(passages - 1, -1, -1)]
        room, flags = self.context_limit - max_tokens, Counter[str]()
        prompt = cache(prompt)  # it is rendered to count its tokens, and for the call
        while True:
            size, tokens = await largest_fitting(prompt, sizes, room, role)
            sizes = sizes[sizes.index(size) + 1 :]
            try:
                reply = await Generate(prompt(size), max_tokens, stop=("\n",), role=role)
            except PromptTooLong as error:
                if not sizes:
                    raise
                flags["shortened_prompt"] = 1
                room = tokens - max(1, error.tokens - error.limit)
                continue
            flags["passages_dropped"] += passages - size[1]
            text, line_end, _ = reply.text.partition("\n")
            return FewShotReply(text.strip(), reply.finish == "length" and not line_end, size[0], +flags)


def _on_one_line(passage: Passage, words: int | None) -> Passage:
    return replace(passage, title=" ".join(passage.title.split()), text=" ".join(passage.text.split()[:words]))


async def largest_fitting(
    prompt: Callable[[Size], Prompt], sizes: Sequence[Size], room: int, role: str
) -> tuple[Size, int]:
    """Return the largest of these sizes with at most `room` tokens, and its number of tokens.

    If none fits, this is the last size, with 0 tokens if it was not counted. The largest size is tried first, then a
    binary search, because usually everything fits.
    """
    low, high, tried = 0, len(sizes) - 1, 0
    counted: dict[int, int] = {}
    while low < high:
        counted[tried] = await CountTokens(prompt(sizes[tried]).messages[0].content, role)
        if counted[tried] <= room:
            high = tried
        else:
            low = tried + 1
        tried = (low + high) // 2
    return sizes[low], counted.get(low, 0)


def extract_answer(chain: str) -> str | None:
    """Return the text after the last "answer is" of the first line that has one, or None.

    The text goes to the end of the line, because answers contain full stops ("Ft. Worth"), without one final full stop.
    This is the format of the few-shot examples, and of IRCoT's released program.
    """
    for line in chain.split("\n"):
        if marks := list(ANSWER_MARKER.finditer(line)):
            return line[marks[-1].end() :].strip().removesuffix(".").strip()
    return None
