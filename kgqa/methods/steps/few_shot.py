"""IRCoT's prompts (Trivedi et al., ACL 2023, §3): demonstrations, packed to the context limit, before the question."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from typing import Literal

from kgqa.calls import CountTokens, Generate
from kgqa.constraints import Count, Natural
from kgqa.demonstrations import ThoughtDemonstration, demonstration_set, set_said
from kgqa.errors import PromptTooLong
from kgqa.prompting import render
from kgqa.types import Passage, Prompt

Style = Literal["cot", "direct"]
Size = tuple[int, int]  # demonstrations and passages shown
SHOWN = 16_384  # passages kept as prompts have them: those of the questions at work come in each of their prompts
ANSWER_MARKER = re.compile(r"\banswer is\b[\s:]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Shot:
    """What a few-shot prompt ends with. `begun`: what is written of the reply already."""

    question: str
    passages: tuple[Passage, ...]
    style: Style
    begun: str = ""


@dataclass(frozen=True, slots=True)
class WrittenThoughts:
    """A reply's first line, without blanks around it."""

    text: str
    cut: bool  # it reached `max_tokens` before the line's end
    demonstrations: int  # shown
    flags: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class FewShot:
    """What the few-shot prompts of a method have in common.

    The demonstrations are the `sample`-th set of `sample_size` of those labelled. distractors: passages shown beside
    the gold ones of a demonstration; None: only its pinned ones are. instructed: an instruction stands before each
    question. context_limit: tokens of prompt and reply together. passage_words: shown of each of its passages.
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
    def said(self) -> str:
        """Which demonstrations these are, for a report."""
        return set_said(self.labelled, self.sample, self.sample_size)

    @cached_property
    def demonstrations(self) -> tuple[ThoughtDemonstration, ...]:
        return demonstration_set(self.labelled, self.sample, self.sample_size)

    async def write(self, shot: Shot, max_tokens: int, role: str) -> WrittenThoughts:
        """The rest of the reply to the shot's question. See `pack` for what is shown, flags and errors."""

        def prompt(size: Size) -> Prompt:
            return render(
                "few_shot/answer",
                demonstrations=self.demonstrations[: size[0]],
                distractors=self.distractors,
                style=shot.style,
                instructed=self.instructed,
                passages=self.shown(shot.passages[: size[1]]),
                question=shot.question,
                begun=shot.begun,
            )

        return await self.pack(prompt, (len(self.demonstrations), len(shot.passages)), max_tokens, role)

    async def answer(self, shot: Shot, max_tokens: int) -> WrittenThoughts:
        """The reader (§3.2): the reply to the question, or what its chain of thought states as the answer.

        A chain that states none is the answer as a whole. Flags beside those of `pack`: `no_answer_marker`,
        `truncated_answer`, `empty_answer`.
        """
        written = await self.write(shot, max_tokens, "reader")
        stated = stated_answer(written.text) if shot.style == "cot" else written.text
        text = written.text if stated is None else stated
        flags = {"no_answer_marker": stated is None, "truncated_answer": written.cut, "empty_answer": not text}
        return replace(written, text=text, flags=written.flags + Counter(flag for flag in flags if flags[flag]))

    async def titles(self, question: str, pinned: tuple[Passage, ...], count: int, max_tokens: int) -> WrittenThoughts:
        """A list of titles of pages that help to answer a question about the pinned passages (appendix B)."""
        labelled = [demonstration for demonstration in self.demonstrations if demonstration.pinned]

        def prompt(size: Size) -> Prompt:
            return render(
                "few_shot/titles",
                demonstrations=labelled[: size[0]],
                passages=self.shown(pinned[: size[1]]),
                question=question,
                count=count,
            )

        return await self.pack(prompt, (len(labelled), len(pinned)), max_tokens, "agent")

    def shown(self, passages: Sequence[Passage]) -> tuple[Passage, ...]:
        """As the prompt has them, each on one line, so that none can look like the end of its own text."""
        return tuple(_on_one_line(passage, self.passage_words) for passage in passages)

    async def pack(self, prompt: Callable[[Size], Prompt], most: Size, max_tokens: int, role: str) -> WrittenThoughts:
        """The reply to the largest prompt that fits: at most `most`, the last demonstrations left out first.

        Where the question's own passages do not fit without demonstrations, the last passages are left out too and
        counted as flag `passages_dropped`. A prompt the engine refuses all the same, since its own limit is lower or
        its count higher, is made smaller: flag `shortened_prompt`.

        Raises:
            PromptTooLong: not even the bare question fits.
        """
        demonstrations, passages = most
        sizes = [(shown, passages) for shown in range(demonstrations, -1, -1)]
        sizes += [(0, kept) for kept in range(passages - 1, -1, -1)]
        room, flags = self.context_limit - max_tokens, Counter[str]()
        prompt = cache(prompt)  # its tokens are counted, then it is asked with
        while True:
            size, tokens = await largest_fitting(prompt, sizes, room, role)
            sizes = sizes[sizes.index(size) + 1 :]
            try:
                reply = await Generate(prompt(size), max_tokens, stop=("\n",), role=role)
            except PromptTooLong as refused:
                if not sizes:
                    raise
                flags["shortened_prompt"] = 1
                room = tokens - max(1, refused.tokens - refused.limit)
                continue
            flags["passages_dropped"] += passages - size[1]
            text, line_end, _ = reply.text.partition("\n")
            return WrittenThoughts(text.strip(), reply.finish == "length" and not line_end, size[0], +flags)


@lru_cache(SHOWN)
def _on_one_line(passage: Passage, words: int | None) -> Passage:
    title, text = " ".join(passage.title.split()), " ".join(passage.text.split()[:words])
    same = (title, text) == (passage.title, passage.text)  # mostly; a copy would take as much memory again
    return passage if same else replace(passage, title=title, text=text)


async def largest_fitting(
    prompt: Callable[[Size], Prompt], sizes: Sequence[Size], room: int, role: str
) -> tuple[Size, int]:
    """The first of these sizes, from large to small, whose prompt has at most `room` tokens, and its tokens.

    The last one where none has; its tokens may be left uncounted, as 0. Tried first is the largest, then by halves:
    mostly one count is enough.
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


def stated_answer(chain: str) -> str | None:
    """What stands behind the last "answer is" of the first line that has one; None where no line has.

    All of the line, since answers hold full stops ("Ft. Worth"), without blanks around it and less one full stop at its
    end: so the demonstrations write it and IRCoT's released program reads it.
    """
    for line in chain.split("\n"):
        if marks := list(ANSWER_MARKER.finditer(line)):
            return line[marks[-1].end() :].strip().removesuffix(".").strip()
    return None
