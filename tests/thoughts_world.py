"""A few passages and scripted replies to what `method=ircot` and its one-step relatives ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kgqa.calls import Generate, Rank, Search
from kgqa.errors import PromptTooLong
from kgqa.methods.ircot import IRCoT
from kgqa.methods.retrieve import RetrieveOnly, RetrieveRead
from kgqa.methods.steps.few_shot import FewShot
from kgqa.prompting.demonstrations import ThoughtDemonstration
from kgqa.protocols import Method
from kgqa.testing import drive
from kgqa.types import Answer, Completion, Passage, Question
from tests import method_world

ALDER = Passage.of("Alder", "Alder wrote Birch.")
BIRCH = Passage.of("Birch", "Birch is a book of 1901.")
CEDAR = Passage.of("Cedar", "Cedar is a town.")
DOGWOOD = Passage.of("Dogwood", "Dogwood is a river.")
QUESTION = Question(
    "q1", "When did the book by Alder appear?", ("1901",), (ALDER, BIRCH, CEDAR, DOGWOOD)
)
WROTE, APPEARED, CONCLUDED = (
    "Alder wrote Birch.",
    "Birch appeared in 1901.",
    "So the answer is: 1901.",
)


def demonstration(number: int, pinned: Sequence[Passage] = ()) -> ThoughtDemonstration:
    gold, distractor = (
        Passage.of(f"Gold {number}", "gold text"),
        Passage.of(f"Distractor {number}", "distractor text"),
    )
    thought, pools = (
        f"Thought {number}. So the answer is: answer {number}.",
        ((*pinned, gold), (*pinned, gold, distractor)),
    )
    return ThoughtDemonstration(
        f"Question {number}?", f"answer {number}", thought, pools, tuple(pinned), (gold.title,)
    )  # fmt: skip


FEW_SHOT = FewShot(
    labelled=(demonstration(1), demonstration(2)), sample=1, sample_size=15, distractors=1, instructed=False,
    context_limit=10_000, drop="end", passage_words=None,
)  # fmt: skip
ONLY = RetrieveOnly(
    scope="corpus",
    passages=2,
    strip_question_words=True,
    max_passage_words=None,
    reranker=False,
    candidates=3,
)
READ = RetrieveRead(
    scope="corpus", passages=2, strip_question_words=True, max_passage_words=None, reranker=False, candidates=3,
    titles=3, reader="direct", max_answer_tokens=50, few_shot_path="here", demonstration_set=1, demonstration_count=15,
    few_shot=FEW_SHOT,
)  # fmt: skip
IRCOT = IRCoT(
    scope="corpus", passages_per_step=2, max_passages=15, max_steps=8, strip_question_words=True, query_rules="names",
    max_passage_words=None, until="answer", titles=3, reader="direct", max_thought_tokens=40, max_answer_tokens=50,
    few_shot_path="here", demonstration_set=1, demonstration_count=15, few_shot=FEW_SHOT,
)  # fmt: skip


class World(method_world.World):
    """`found` maps a part of a query to passages; a query that has none of the parts finds nothing.

    `limit` is the most words a prompt may have before the engine refuses it.
    """

    def __init__(
        self,
        replies: Sequence[str | Completion],
        found: Mapping[str, Any] | None = None,
        limit: int = 1_000_000,
    ) -> None:
        super().__init__(replies)
        self.found = {"": (ALDER, CEDAR)} if found is None else found
        self.limit = limit

    def search(self, call: Search) -> tuple[Passage, ...]:
        results: tuple[Passage, ...] = next(
            (here for part, here in self.found.items() if part in call.query), ()
        )
        return results[: call.k]

    def rank(self, call: Rank) -> tuple[float, ...]:
        return tuple(float(len(text)) for text in call.texts)

    def write(self, call: Generate) -> method_world.Reply:
        words = len(call.prompt.messages[0].content.split())
        return PromptTooLong(words, self.limit) if words > self.limit else super().write(call)

    def answer(self, method: Method, question: Question = QUESTION) -> Answer:
        return drive(method.answer(question), self)

    def sequence(self) -> list[str]:
        """What was asked, in order: the kind of each call with its query or template; counted tokens left out."""
        renderers: dict[Any, Callable[[Any], str]] = {
            Search: lambda call: f"search {call.query}",
            Generate: lambda call: f"{call.role} {call.prompt.name}",
            Rank: lambda call: f"rank {call.scorer}",
        }
        return [renderers[type(call)](call) for call in self.calls if type(call) in renderers]

    def asked(self) -> list[str]:
        """The end of each prompt: the question's own passages, the question and what is written of the reply."""
        return [prompt.rpartition("\n\n\n")[2] for prompt in self.prompts()]
