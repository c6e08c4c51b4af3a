"""The data types that all packages share. They are frozen and only use the standard library."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

WORDS_OF_A_LABEL = 2
Json = Any  # a value that `json.dumps` accepts
JsonObject = Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Passage:
    """A titled paragraph. Equal title and text give an equal id, in any file.

    `place` is only set for a page or table of a document, see `extras/documents/pdf.py`. It is then part of the id.
    """

    id: str
    title: str
    text: str
    # the dataset's own split; empty if it has none
    sentences: tuple[str, ...] = ()
    # "page 3", "table 2 page 3", "table 2 pages 3-4"
    place: str = ""

    @classmethod
    def of(cls, title: str, text: str, sentences: tuple[str, ...] = (), place: str = "") -> Passage:
        content = f"{title}\n{text}" + (f"\0{place}" if place else "")
        return cls(hashlib.sha256(content.encode()).hexdigest()[:16], title, text, sentences, place)

    @property
    def wording(self) -> str:
        """Return the text, or the title of a passage without text."""
        return self.text if self.text.strip() else self.title


@dataclass(frozen=True, slots=True)
class Triple:
    """A fact from one passage."""

    head: str
    relation: str
    tail: str
    passage_id: str = ""

    def __str__(self) -> str:
        return f"<{self.head}; {self.relation}; {self.tail}>"


@dataclass(frozen=True, slots=True)
class Hop:
    """A step of a question's gold decomposition (MuSiQue, 2Wiki evidences)."""

    question: str
    answer: str
    passage_id: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its gold answers and its dataset's passages, in file order."""

    id: str
    text: str
    # the gold answer first, then its aliases
    answers: tuple[str, ...]
    passages: tuple[Passage, ...] = ()
    support: frozenset[str] = frozenset()  # ids of the gold passages
    hops: int | None = None  # None: unknown
    type: str = ""
    decomposition: tuple[Hop, ...] = ()
    # of gold passages; a title without an id is one more gold passage
    support_titles: frozenset[str] = frozenset()
    # always in the reader's prompt, next to retrieved ones: IIRC's main passage
    pinned: tuple[Passage, ...] = ()
    # gold passages with only the page's title and a quotation
    quoted: tuple[Passage, ...] = ()
    # supporting sentences: a gold passage's id, and the sentence
    facts: tuple[tuple[str, str], ...] = ()
    # None: the dataset has answerable questions only
    answerable: bool | None = None
    # id of the same question with passages that do not answer it (MuSiQue-Full)
    twin: str = ""


@dataclass(frozen=True, slots=True)
class Lesson:
    """The part of a model's reply that `kgqa collect` uses as a training target.

    call: the number of the `Generate` call in the question's trace, from 0. kept: the stripped target, or "" if the
    reply is not used.
    """

    call: int
    role: str
    kept: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A method's answer with its evidence. A run drops figures "…_tokens" if the engine only estimates tokens."""

    text: str
    evidence: tuple[str, ...] = ()  # passage ids, best first
    # of these passages; the run adds them
    evidence_titles: tuple[str, ...] = ()
    # tokens of the reader's context, TRACE's "# Tok"
    context_tokens: int | None = None
    # counts of warnings, e.g. {"empty_answer": 1}
    flags: Mapping[str, int] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)  # measures; reports show their means
    # for the trace: chains, reasoning, …
    notes: Mapping[str, Json] = field(default_factory=dict)
    # for `kgqa collect`, also of wrong answers
    lessons: tuple[Lesson, ...] = ()

    def __post_init__(self) -> None:
        """Drop the flags without a count, so that methods can set `{"empty_answer": not text}`."""
        object.__setattr__(
            self, "flags", {flag: int(count) for flag, count in self.flags.items() if count}
        )


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model calls. `arguments` is JSON as the model wrote it, so it can be invalid."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a conversation. A message of the role `tool` is the result of the call with the id `answers`."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()  # of an assistant
    answers: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt, which the engine turns into the model's own text.

    `chat` prompts go through the model's chat template, and `prefill` starts the assistant's reply.
    `completion` prompts are the content of their single message, unchanged.
    """

    name: str  # of its template, e.g. "trace/select"
    messages: tuple[Message, ...]
    prefill: str = ""
    form: Literal["chat", "completion"] = "chat"

    @property
    def characters(self) -> int:
        """Return the length of its messages and its prefill."""
        return sum(len(message.content) for message in self.messages) + len(self.prefill)

    @property
    def has_transcript(self) -> bool:
        """Return whether the prefill is more than a label such as "Final answer:", so that the model must see it."""
        return len(re.findall(r"\w+", self.prefill)) > WORDS_OF_A_LABEL


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of a model call. A cached reply has the usage of the call that made it."""

    prompt_tokens: int = 0
    # of the prompt, from the engine's prefix cache
    cached_tokens: int = 0
    output_tokens: int = 0
    # service time without queueing; calls of a batch share it equally
    seconds: float = 0.0
    reasoning_tokens: int = 0  # of the output

    @property
    def tokens(self) -> int:
        """Return the tokens of prompt and output."""
        return self.prompt_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.output_tokens + other.output_tokens,
            self.seconds + other.seconds,
            self.reasoning_tokens + other.reasoning_tokens,
        )


@dataclass(frozen=True, slots=True)
class GeneratedToken:
    """A token of a reply, with its natural-log probability before temperature and top_p.

    top: the likeliest tokens at this place with theirs. id: None if the server does not send it.
    """

    text: str
    logprob: float
    id: int | None = None
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    text: str
    finish: Literal["stop", "length"] = "stop"
    usage: Usage = Usage()
    # warnings, e.g. "no_prefill", "unconstrained"; runs count them
    flags: tuple[str, ...] = ()
    # reasoning text before the answer, if the engine returns it; not part of `text`
    thought: str = ""
    tool_calls: tuple[ToolCall, ...] = ()  # see `Generate.tools`
    # the stop string that ended it, "" if none did; None: the engine does not report it
    stopped_by: str | None = None
    # see `Generate.logprobs`; without reasoning text. An end token or stop string can be among them
    tokens: tuple[GeneratedToken, ...] = ()
    # the tokens of the prompt, if `tokens` have ids and the engine knows them
    prompt_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentReply:
    """The end of an agent that is no program of kgqa. output: what it printed or returned, with its end only.

    problem: why it gave no answer, in one sentence, or "".
    """

    output: str
    # the end of its standard error
    errors: str = ""
    exit_code: int | None = None
    problem: str = ""
    # its queries with their passages, in order
    searches: tuple[tuple[str, tuple[Passage, ...]], ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """Natural-log probabilities over the options of a `Choose`, normalized over those options."""

    logprobs: tuple[float, ...]
    # sum of the probabilities before normalizing; None: unknown
    mass: float | None = None
    usage: Usage = Usage()
    # warnings, e.g. "parsed_choice"; runs count them
    flags: tuple[str, ...] = ()
    thought: str = ""  # as of a `Completion`
