"""The nouns of the project. Frozen, standard library only, importable from everywhere."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Json = Any  # whatever `json.dumps` takes


@dataclass(frozen=True, slots=True)
class Passage:
    """A titled paragraph. Equal title and text give an equal id, whichever file it was read from.

    `place` is set for a whole page or table of a document alone, see `kgqa.datasets.pdf`, and is then part of the id.
    """

    id: str
    title: str
    text: str
    sentences: tuple[str, ...] = ()  # the dataset's own split; empty where it has none
    place: str = ""  # "page 3", "table 2 page 3", "table 2 pages 3-4"

    @classmethod
    def of(cls, title: str, text: str, sentences: tuple[str, ...] = (), place: str = "") -> Passage:
        content = f"{title}\n{text}" + (f"\0{place}" if place else "")
        return cls(hashlib.sha256(content.encode()).hexdigest()[:16], title, text, sentences, place)

    def __reduce__(self) -> tuple[type[Passage], tuple[str, str, str, tuple[str, ...], str]]:
        """A run packs and unpacks millions: what dataclasses do for pickle goes through a list of their fields."""
        return Passage, (self.id, self.title, self.text, self.sentences, self.place)

    @property
    def wording(self) -> str:
        """What stands for the passage: its text, or its title where it has none."""
        return self.text if self.text.strip() else self.title


@dataclass(frozen=True, slots=True)
class Triple:
    """One fact read in one passage."""

    head: str
    relation: str
    tail: str
    passage_id: str = ""

    def __str__(self) -> str:
        return f"<{self.head}; {self.relation}; {self.tail}>"


@dataclass(frozen=True, slots=True)
class Hop:
    """One step of a question's gold decomposition (MuSiQue, 2Wiki evidences)."""

    question: str
    answer: str
    passage_id: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its gold answers and the passages its dataset came with, in file order."""

    id: str
    text: str
    answers: tuple[str, ...]  # the gold answer first, then its aliases
    passages: tuple[Passage, ...] = ()
    support: frozenset[str] = frozenset()  # ids of the gold passages
    hops: int | None = None  # None: the dataset does not say
    type: str = ""
    decomposition: tuple[Hop, ...] = ()
    support_titles: frozenset[str] = frozenset()  # their titles; all there is where the file has no contexts
    pinned: tuple[Passage, ...] = ()  # always given to the reader beside what is retrieved: IIRC's main passage
    quoted: tuple[Passage, ...] = ()  # gold passages of which the file gives the page's title and some words alone
    facts: tuple[tuple[str, str], ...] = ()  # supporting sentences: a gold passage's id, and the words in its text


@dataclass(frozen=True, slots=True)
class Lesson:
    """What is worth learning of one reply that a model gave on the way to an answer.

    call: which of the question's answered `Generate` calls, from 0, in the order of its trace. kept: as it is to be
    learnt, without blanks around it; "" for a reply of which nothing is.
    """

    call: int
    role: str
    kept: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a method says, and what it rests on. Where tokens are estimated, a run keeps no figure "…_tokens"."""

    text: str
    evidence: tuple[str, ...] = ()  # passage ids, best first
    evidence_titles: tuple[str, ...] = ()  # theirs; the run adds them from what was given and retrieved
    context_tokens: int | None = None  # tokens of the reader's context, TRACE's "# Tok"
    flags: Mapping[str, int] = field(default_factory=dict)  # counted oddities, e.g. {"empty_answer": 1}
    figures: Mapping[str, float] = field(default_factory=dict)  # measures of the way there; reports show their means
    notes: Mapping[str, Json] = field(default_factory=dict)  # for the trace: chains, thoughts, …
    lessons: tuple[Lesson, ...] = ()  # for `kgqa collect`, whether or not the answer is right


@dataclass(frozen=True, slots=True)
class Message:
    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """What to ask a model; the engine turns it into the model's own text.

    `chat` prompts go through the model's chat template, and `prefill` starts the assistant's reply.
    `completion` prompts are the single message's content as it stands.
    """

    name: str  # the template it was rendered from, e.g. "trace/select"
    messages: tuple[Message, ...]
    prefill: str = ""
    form: Literal["chat", "completion"] = "chat"


@dataclass(frozen=True, slots=True)
class Usage:
    """What one model call cost. A reply from the cache keeps the usage of the call that made it."""

    prompt_tokens: int = 0
    cached_tokens: int = 0  # of the prompt, found in the engine's prefix cache
    output_tokens: int = 0
    seconds: float = 0.0  # service time, queueing excluded; a batch's time is shared equally
    reasoning_tokens: int = 0  # of the output, spent on thinking


@dataclass(frozen=True, slots=True)
class Completion:
    text: str
    finish: Literal["stop", "length"] = "stop"
    usage: Usage = Usage()
    flags: tuple[str, ...] = ()  # what the engine could not do as asked, e.g. "no_prefill", "unconstrained"; counted
    thought: str = ""  # what the model wrote before it answered, as far as it is told; no part of `text`


@dataclass(frozen=True, slots=True)
class Choice:
    """Natural-log probabilities over the options of a `Choose`, normalised over those options."""

    logprobs: tuple[float, ...]
    mass: float | None = None  # probability of all options together before normalising; None: not known
    usage: Usage = Usage()
    flags: tuple[str, ...] = ()  # how it was made where it is not exact, e.g. "parsed_choice"; counted
    thought: str = ""  # as of a `Completion`
