"""The state of KnowTrace for one question, and what backtracing makes of each reply (§3.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kgqa.methods.steps.knowtrace_graph import Fact, Pair
from kgqa.methods.steps.knowtrace_replies import Exploration, read_exploration, read_facts
from kgqa.types import Lesson, Passage

EXPLORER, COMPLETER = "explorer", "completer"


@dataclass(frozen=True, slots=True)
class PairCompletion:
    """The triples in the passages of one pair."""

    pair: Pair
    facts: tuple[Fact, ...] = ()
    passages: tuple[Passage, ...] = ()
    tokens: int = 0  # of the passages
    text: str = ""
    flags: Mapping[str, int] = field(default_factory=dict)
    call: int | None = None  # see `kgqa.types.Lesson`; None: no passages, so no model call


@dataclass(slots=True)
class KnowTraceState:
    """The graph, the replies and the flags so far."""

    graph: dict[Fact, None] = field(default_factory=dict)  # in the order found
    memory: str = ""  # the graph in the prompt of the last exploration
    explored: list[Exploration] = field(default_factory=list)
    completed: list[list[PairCompletion]] = field(default_factory=list)  # by iteration
    flags: Counter[str] = field(default_factory=Counter)
    replies: int = 0

    def record_reply(self) -> int:
        """Count a reply and return its number, from 0."""
        self.replies += 1
        return self.replies - 1

    def add_iteration(self, completions: Iterable[PairCompletion]) -> bool:
        """Add the triples of one iteration, and return whether one of them is new."""
        before = len(self.graph)
        self.completed.append([replace(one, call=self.record_reply()) if one.passages else one for one in completions])
        for completed in self.completed[-1]:
            self.graph.update(dict.fromkeys(completed.facts))
            self.flags.update(completed.flags)
        return len(self.graph) > before


@dataclass(frozen=True, slots=True)
class JudgedReply:
    """One reply after backtracing: the part that is kept, and the texts that are filtered out."""

    role: str
    call: int | None
    kept: str
    filtered: tuple[str, ...] = ()
    taught: bool = True  # False: not a training target


def judge_replies(state: KnowTraceState, support: set[Fact]) -> list[JudgedReply]:
    """Judge the replies in the order of calls, given the triples that support the answer.

    Unavailing pairs, extraneous triples and replies without a remaining part are filtered out. The last exploration,
    which concludes, stays. It is a training target only if it was not forced.
    """
    judged: list[JudgedReply] = []
    for exploration, completions in zip(state.explored, state.completed, strict=False):
        judged.append(_judge_exploration(exploration, completions, support))
        judged += [_judge_completion(completion, support) for completion in completions]
    rest = state.explored[len(state.completed) :]
    judged += [JudgedReply(EXPLORER, unread.call, "", (unread.text,), taught=False) for unread in rest[:-1]]
    judged += [JudgedReply(EXPLORER, last.call, last.text.strip(), taught=_concludes(last)) for last in rest[-1:]]
    return judged


def list_filtered_texts(judged: Iterable[JudgedReply]) -> list[str]:
    """Return the texts that backtracing filters out. FA of Figure 4 counts their tokens."""
    return [text for generation in judged for text in generation.filtered]


def select_lessons(judged: Iterable[JudgedReply]) -> tuple[Lesson, ...]:
    """Return the training targets: P⁺ and T⁺ of Algorithm 2."""
    return tuple(Lesson(each.call, each.role, each.kept) for each in judged if each.taught and each.call is not None)


def _judge_exploration(
    exploration: Exploration, completions: Sequence[PairCompletion], support: set[Fact]
) -> JudgedReply:
    """Keep the reply if all its pairs brought support, otherwise list these pairs in the requested format."""
    pairs = [completion.pair for completion in completions if support.intersection(completion.facts)]
    if not pairs:
        return JudgedReply(EXPLORER, exploration.call, "", (exploration.text,))
    unavailing = tuple(str(each.pair) for each in completions if not support.intersection(each.facts))
    written = read_exploration(exploration.text)
    as_written = [*written.pairs] == pairs and not written.malformed
    text = exploration.text.strip() if as_written else "\n".join(["No", "Explore:", *(f"- {pair}" for pair in pairs)])
    return JudgedReply(EXPLORER, exploration.call, text, unavailing)


def _judge_completion(completion: PairCompletion, support: set[Fact]) -> JudgedReply:
    facts = [fact for fact in completion.facts if fact in support]
    if not facts:
        return JudgedReply(COMPLETER, completion.call, "", (completion.text,))
    extraneous = tuple(str(fact) for fact in completion.facts if fact not in support)
    written = read_facts(completion.text)
    as_written = [*written.facts] == facts and not (written.malformed or written.empty)
    text = completion.text.strip() if as_written else "\n".join(map(str, facts))
    return JudgedReply(COMPLETER, completion.call, text, extraneous)


def _concludes(exploration: Exploration) -> bool:
    return bool(exploration.sufficient and exploration.answer) and not exploration.forced
