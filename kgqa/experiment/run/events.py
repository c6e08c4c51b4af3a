"""What happens while a question is put to documents: terminal, `kgqa ask --events` and viewer are told the same.

A telling of one question begins with `Put` and ends with `Answered`, `Failed` or `Stopped`; before the first comes what
was made ready. As JSON an event has its name, in small letters, under "event".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kgqa.artefacts.asked import Step
from kgqa.artefacts.form import as_json
from kgqa.types import Json, Passage

LONGEST = 2000  # characters of a text that is told


@dataclass(frozen=True, slots=True)
class Said:
    """A line for people, of what is no event of its own."""

    text: str
    alarm: bool = False


@dataclass(frozen=True, slots=True)
class Ready:
    """Documents were read and the configuration holds. `left_out`: files that cannot be read, each with its reason."""

    files: int
    passages: int
    left_out: Mapping[str, str]
    method: str
    model: str
    engine: str


@dataclass(frozen=True, slots=True)
class Put:
    question: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A passage. `where`: its file with page or line, for people."""

    id: str
    title: str
    where: str
    text: str

    @classmethod
    def of(cls, passage: Passage, where: object) -> Shown:
        return cls(passage.id, passage.title, str(where or passage.title), passage.text[:LONGEST])


@dataclass(frozen=True, slots=True)
class Found:
    """The passages that the question comes with, best first, of all that there are."""

    passages: tuple[Shown, ...]
    of: int


@dataclass(frozen=True, slots=True)
class Extracted:
    """The triples of a passage: head, relation, tail. Told when they are made, and when a method asks for them."""

    passage: str  # its id; "" where a reply is about several
    triples: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Option:
    text: str
    probability: float


@dataclass(frozen=True, slots=True)
class Chosen:
    """A selector's likeliest options, the likeliest first. All chains' choices of one step have one `hop`, from 1."""

    hop: int
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Wrote:
    """What a model wrote to a prompt of this name."""

    prompt: str
    text: str


@dataclass(frozen=True, slots=True)
class Searched:
    query: str
    passages: tuple[Shown, ...]


@dataclass(frozen=True, slots=True)
class Walked:
    """A step of KGP: from a passage to the best of its neighbours. The budget may cut `chosen`; the answer's notes say.

    `aside`: the best of those passed over. `neighbours`: how many there were in all.
    """

    hop: int  # from 1
    start: Shown
    sought: str
    neighbours: int
    chosen: tuple[Shown, ...]
    aside: tuple[Shown, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far something long is; `count` None: nobody knows of how many."""

    what: str
    ended: int
    count: int | None
    seconds_left: float | None = None


@dataclass(frozen=True)
class Answered:
    """`name`: under which it is kept in `outputs/asked`, "" where `out=` put its page elsewhere."""

    question: str
    answer: str | None
    error: str | None
    said_by_a_sentence: bool
    steps: tuple[Step, ...]
    passages: tuple[Shown, ...]  # that the question came with; of a method that searches for itself none
    method: str
    model: str
    engine: str
    left_out: Mapping[str, str]
    seconds: float
    page: str
    name: str
    notes: Mapping[str, Json]  # the method's: chains, a traversal, thoughts


@dataclass(frozen=True, slots=True)
class Failed:
    reason: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """By the person who asked; what was extracted and answered so far is kept."""


Event = (
    Said | Ready | Put | Found | Extracted | Chosen | Wrote | Searched | Walked | Progress | Answered | Failed | Stopped
)
Tell = Callable[[Event], None]


def event_json(event: Event) -> dict[str, Json]:
    return {"event": type(event).__name__.lower(), **as_json(event)}
