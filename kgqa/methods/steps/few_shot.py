"""IRCoT's prompts (Trivedi et al., ACL 2023, §3): few-shot examples up to the context limit, then the question.

For IIRC the model also names the pages to search in (appendix B).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from math import inf
from typing import Annotated, Literal

from kgqa.calls import CountTokens, Generate, Search, gather
from kgqa.errors import PromptTooLong
from kgqa.methods.steps.replies import extract_answer, find_answer, plain_answer
from kgqa.methods.steps.search import Scope
from kgqa.prompting import render
from kgqa.prompting.demonstrations import ThoughtDemonstration, demonstration_set, describe_set
from kgqa.types import Passage, Prompt, Question
from kgqa.util.settings import Setting
from kgqa.util.validators import Count, Natural

Style = Literal["cot", "direct"]
# few-shot examples from the first to before the second, and number of passages
Size = tuple[int, int, int]

QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"')
BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")
# stripped from titles without quotes, and from the list
AROUND = " \t[]\"'“”‘’"
# passages per search for a title, of which the nearest title is chosen
NEAREST_OF = 10
MAX_TITLE_TOKENS = 100  # for a list of titles


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
    # `max_tokens` was reached in the line
    cut: bool
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
        drop: which examples are left out of a prompt that is too long: the last ones (`end`), or as IRCoT's released
            program does (`released`), see `choose_released`.
        passage_words: maximum words per passage.
    """

    labelled: Annotated[
        tuple[ThoughtDemonstration, ...],
        Setting("Labeled questions: 20 per family, as in the paper.", ours="the examples are ours"),
    ]
    sample: Annotated[Count, Setting("Number of the random set of few-shot examples, from 1.")]
    sample_size: Annotated[Natural, Setting("Examples in the prompt.")]
    distractors: Annotated[
        Natural | None,
        Setting("M, tuned in {1, 2, 3} (§4.1).", ours="the best value is not in the paper"),
    ] = 1
    instructed: Annotated[
        bool, Setting("Show the instruction.", paper="appendix G: true for Flan-T5")
    ] = False
    context_limit: Annotated[
        Count,
        Setting("Maximum tokens of prompt and reply. 6000 for Flan-T5.", paper="§4, for GPT-3"),
    ] = 8000
    drop: Annotated[
        Literal["end", "released"],
        Setting(
            "Examples to drop if the prompt is too long: end, the last ones | released, first the last ones for "
            "all questions, then the first ones per call.",
            ours="our choice",
        ),
    ] = "end"
    passage_words: Annotated[
        Count | None,
        Setting("Show the first words of longer passages. Released: 350.", ours="our choice"),
    ] = None

    def __post_init__(self) -> None:
        _ = self.demonstrations

    @property
    def description(self) -> str:
        """Return which examples these are, for a report."""
        return describe_set(self.labelled, self.sample, self.sample_size)

    @cached_property
    def demonstrations(self) -> tuple[ThoughtDemonstration, ...]:
        return demonstration_set(self.labelled, self.sample, self.sample_size)

    async def generate(self, shot: Shot, max_tokens: int, role: str) -> FewShotReply:
        """Generate the rest of the reply. See `pack` for flags and errors."""
        values = {
            "question": shot.question, "begun": shot.prefix, "style": shot.style, "distractors": self.distractors,
            "instructed": self.instructed,
        }  # fmt: skip
        return await self.pack(
            "few_shot/answer", self.demonstrations, shot.passages, values, max_tokens, role
        )

    async def answer(self, shot: Shot, max_tokens: int) -> FewShotReply:
        """Answer with the reader (§3.2), with style "cot" from the end of its chain of thought.

        A chain without an answer is the answer itself. Flags: those of `pack`, `no_answer_marker`, `truncated_answer`,
        `empty_answer`.
        """
        reply = await self.generate(shot, max_tokens, "reader")
        stated = extract_answer(reply.text) if shot.style == "cot" else reply.text
        # the chain does not say "answer is"
        if stated is None:
            stated = find_answer(reply.text) or None
        text = plain_answer(reply.text if stated is None else stated)
        flags = Counter(
            no_answer_marker=stated is None, truncated_answer=reply.cut, empty_answer=not text
        )
        return replace(reply, text=text, flags=reply.flags + flags)

    async def titles(
        self, question: str, pinned: tuple[Passage, ...], count: int, max_tokens: int
    ) -> FewShotReply:
        """Generate titles of pages that help to answer a question about the pinned passages (appendix B)."""
        labelled = [demonstration for demonstration in self.demonstrations if demonstration.pinned]
        values = {"question": question, "count": count}
        return await self.pack("few_shot/titles", labelled, pinned, values, max_tokens, "agent")

    def shorten(self, passages: Sequence[Passage]) -> tuple[Passage, ...]:
        """Return the passages as the prompt has them: on one line each, with at most `passage_words` words."""
        return tuple(
            replace(
                p,
                title=" ".join(p.title.split()),
                text=" ".join(p.text.split()[: self.passage_words]),
            )
            for p in passages
        )

    async def pack(
        self,
        template: str,
        labelled: Sequence[ThoughtDemonstration],
        context: Sequence[Passage],
        values: Mapping[str, object],
        max_tokens: int,
        role: str,
    ) -> FewShotReply:
        """Generate with the largest prompt that fits, without few-shot examples if needed (`drop`).

        If the passages of the question do not fit without examples, the last passages are dropped: flag
        `passages_dropped`. If the engine still rejects the prompt, it is shortened again: flag `shortened_prompt`.

        Raises PromptTooLong: the question without passages does not fit.
        """

        @cache  # it is rendered to count its tokens, and for the call
        def prompt(size: Size) -> Prompt:
            first, stop, count = size
            return render(
                template,
                demonstrations=labelled[first:stop],
                passages=self.shorten(context[:count]),
                **values,
            )

        examples, passages = len(labelled), len(context)
        room: float = self.context_limit - max_tokens
        sizes, flags = [(0, stop, passages) for stop in range(examples, -1, -1)], Counter[str]()
        if self.drop == "released":
            first, last = await self.choose_released(prompt, examples, passages, max_tokens, role)
            sizes = [(start, last, passages) for start in range(first, last + 1)]
            if first < last:
                # it fits by the released count, which leaves out what is between the parts
                room = inf
        sizes += [(0, 0, count) for count in range(passages - 1, -1, -1)]
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
            flags["passages_dropped"] += passages - size[2]
            text, line_end, _ = reply.text.partition("\n")
            return FewShotReply(
                text.strip(), reply.finish == "length" and not line_end, size[1] - size[0], +flags
            )

    async def choose_released(
        self,
        prompt: Callable[[Size], Prompt],
        examples: int,
        passages: int,
        max_tokens: int,
        role: str,
    ) -> tuple[int, int]:
        """Return the first example and the one after the last, as IRCoT's released program chooses them.

        It first leaves out the last examples, until the others, the reply and room for a question as long as the
        longest example fit. This does not depend on the question. Then it leaves out the first ones for each call. The
        parts of the prompt are counted one by one.
        """
        question = prompt((0, 0, passages)).messages[0].content
        parts = [
            prompt((index, index + 1, passages)).messages[0].content for index in range(examples)
        ]
        own, *tokens = await gather(
            CountTokens(question, role),
            *(CountTokens(part.removesuffix(question).strip(), role) for part in parts),
        )
        first, last, room = 0, examples, self.context_limit - max_tokens
        while last and sum(tokens[:last]) + max(tokens[:last]) > room:
            last -= 1
        while first < last and sum(tokens[first:last]) + own >= room:
            first += 1
        return first, last


async def largest_fitting(
    prompt: Callable[[Size], Prompt], sizes: Sequence[Size], room: float, role: str
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


async def choose_pages(
    scope: Scope, question: Question, few_shot: FewShot, count: int
) -> tuple[Scope, Counter[str]]:
    """Return the pages of the corpus that the model names for a question with a pinned passage, and flags.

    Other scopes do not change. The complete corpus is searched if no page is found: flag `no_titles`.
    """
    if scope.pool is not None or not question.pinned or not count:
        return scope, Counter()
    reply = await few_shot.titles(question.text, question.pinned, count, MAX_TITLE_TOKENS)
    named = parse_titles(reply.text)[:count]
    results = await gather(*(Search(title, NEAREST_OF) for title in named))
    nearest = (
        nearest_title(title, passages) for title, passages in zip(named, results, strict=True)
    )
    titles = tuple(dict.fromkeys(title for title in nearest if title))
    return Scope(titles=titles or None), reply.flags + Counter(no_titles=not titles)


def parse_titles(reply: str) -> list[str]:
    """Return the distinct strings in double quotes, or the parts between commas, as in IRCoT's released program."""
    titles = [unescape(match[0]).strip() for match in QUOTED.finditer(reply)]
    if not titles:
        titles = [BULLET.sub("", part).strip(AROUND) for part in reply.strip(AROUND).split(",")]
    return list(dict.fromkeys(title for title in titles if title))


def unescape(string: str) -> str:
    """Return the value of a JSON string, or the text between the quotes if an escape is invalid."""
    try:
        return str(json.loads(string, strict=False))
    except ValueError:
        return string[1:-1]


def nearest_title(wanted: str, passages: tuple[Passage, ...]) -> str | None:
    """Return the title with the most words in common with `wanted` (Jaccard), ties by rank; None without passages.

    BM25 scores titles together with texts, so its best passage can have another title.
    """
    first = words(wanted)

    def similarity(passage: Passage) -> float:
        second = words(passage.title)
        return len(first & second) / max(1, len(first | second))

    return max(passages, key=similarity).title if passages else None


def words(title: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", title.casefold()))
