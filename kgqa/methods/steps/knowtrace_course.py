"""What KnowTrace found and wrote for a question, and what backtracing makes of each of its generations (§3.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kgqa.methods.steps.knowtrace_graph import Fact, Pair
from kgqa.methods.steps.knowtrace_replies import Exploration, read_exploration, read_facts
from kgqa.types import Lesson, Passage

EXPLORER, COMPLETER = "explorer", "completer"


@dataclass(frozen=True, slots=True)
class Completed:
    """What the passages of one pair say about it."""

    pair: Pair
    facts: tuple[Fact, ...] = ()
    passages: tuple[Passage, ...] = ()
    tokens: int = 0  # of the passages
    text: str = ""
    flags: Mapping[str, int] = field(default_factory=dict)
    call: int | None = None  # see `kgqa.types.Lesson`; None: there were no passages, so no model was asked


@dataclass(slots=True)
class Course:
    """How the tracing went so far."""

    graph: dict[Fact, None] = field(default_factory=dict)  # in the order found
    memory: str = ""  # the graph as the last exploration was told it
    explored: list[Exploration] = field(default_factory=list)
    completed: list[list[Completed]] = field(default_factory=list)  # by iteration
    flags: Counter[str] = field(default_factory=Counter)
    replies: int = 0

    def heard(self) -> int:
        """The number of the reply that has just come."""
        self.replies += 1
        return self.replies - 1

    def grow(self, completions: Iterable[Completed]) -> bool:
        """Take one iteration's triples in; False where none of them is new."""
        before = len(self.graph)
        self.completed.append([replace(one, call=self.heard()) if one.passages else one for one in completions])
        for completed in self.completed[-1]:
            self.graph.update(dict.fromkeys(completed.facts))
            self.flags.update(completed.flags)
        return len(self.graph) > before


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation as backtracing sees it: what of it is kept, and what is filtered out."""

    role: str
    call: int | None
    kept: str
    filtered: tuple[str, ...] = ()
    taught: bool = True  # False: whatever is kept, nobody shall write so


def generations(course: Course, kept: set[Fact]) -> list[Generation]:
    """In the order of calls. `kept`: the triplets that support the answer.

    Out go unavailing pairs, extraneous triplets, and whole generations of which nothing is left. The last exploration,
    which concludes, stays; taught it is only where the model came to it by itself.
    """
    judged: list[Generation] = []
    for exploration, completions in zip(course.explored, course.completed, strict=False):
        judged.append(_explored(exploration, completions, kept))
        judged += [_completed(completion, kept) for completion in completions]
    rest = course.explored[len(course.completed) :]
    judged += [Generation(EXPLORER, unread.call, "", (unread.text,), taught=False) for unread in rest[:-1]]
    judged += [Generation(EXPLORER, last.call, last.text.strip(), taught=_concludes(last)) for last in rest[-1:]]
    return judged


def filtered(judged: Iterable[Generation]) -> list[str]:
    """What backtracing filters out: FA of Figure 4 counts its tokens."""
    return [text for generation in judged for text in generation.filtered]


def lessons(judged: Iterable[Generation]) -> tuple[Lesson, ...]:
    """P⁺ and T⁺ of Algorithm 2."""
    heard = ((each, each.call) for each in judged if each.taught)
    return tuple(Lesson(call, each.role, each.kept) for each, call in heard if call is not None)


def _explored(exploration: Exploration, completions: Sequence[Completed], kept: set[Fact]) -> Generation:
    """As the model wrote it where all its pairs are kept; else those that are, in the form it is asked for."""
    pairs = [completion.pair for completion in completions if kept.intersection(completion.facts)]
    if not pairs:
        return Generation(EXPLORER, exploration.call, "", (exploration.text,))
    unavailing = tuple(str(each.pair) for each in completions if not kept.intersection(each.facts))
    written = read_exploration(exploration.text)
    as_written = [*written.pairs] == pairs and not written.malformed
    text = exploration.text.strip() if as_written else "\n".join(["No", "Explore:", *(f"- {pair}" for pair in pairs)])
    return Generation(EXPLORER, exploration.call, text, unavailing)


def _completed(completion: Completed, kept: set[Fact]) -> Generation:
    facts = [fact for fact in completion.facts if fact in kept]
    if not facts:
        return Generation(COMPLETER, completion.call, "", (completion.text,))
    extraneous = tuple(str(fact) for fact in completion.facts if fact not in kept)
    written = read_facts(completion.text)
    as_written = [*written.facts] == facts and not (written.malformed or written.empty)
    text = completion.text.strip() if as_written else "\n".join(map(str, facts))
    return Generation(COMPLETER, completion.call, text, extraneous)


def _concludes(exploration: Exploration) -> bool:
    return bool(exploration.sufficient and exploration.answer) and not exploration.forced
