"""What a call must say to be shown again, by its kind: a trace that was edited or damaged is refused at its line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kgqa.artefacts.form import AGAIN, Number, checked
from kgqa.errors import DataError, nearest
from kgqa.types import Json

Used = tuple[int, int, int, Number] | tuple[int, int, int, Number, int]


@dataclass(frozen=True, slots=True)
class _Prompt:
    template: str
    messages: tuple[tuple[str, str], ...]
    prefill: str


@dataclass(frozen=True, slots=True)
class _Failed:
    error: str
    message: str


@dataclass(frozen=True, slots=True)
class _Completion:
    text: str
    finish: str
    usage: Used
    flags: tuple[str, ...]
    thought: str = ""


@dataclass(frozen=True, slots=True)
class _Choice:
    logprobs: tuple[Number, ...]
    mass: Number | None
    usage: Used
    flags: tuple[str, ...]
    thought: str = ""


@dataclass(frozen=True, slots=True)
class _Found:
    id: str
    title: str


@dataclass(frozen=True, slots=True)
class _Count:
    reply: int


@dataclass(frozen=True, slots=True)
class _Generate:
    role: str
    prompt: _Prompt


@dataclass(frozen=True, slots=True)
class _Choose(_Generate):
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _CountTokens:
    role: str


@dataclass(frozen=True, slots=True)
class _Rank:
    query: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Search:
    query: str
    titles: tuple[str, ...] | None
    pool: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class _OfPassage:
    passage_id: str


@dataclass(frozen=True, slots=True)
class _Scores:
    reply: tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class _Passages:
    reply: tuple[_Found, ...]


@dataclass(frozen=True, slots=True)
class _Triples:
    reply: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class _Ids:
    reply: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Completed:
    reply: _Completion


@dataclass(frozen=True, slots=True)
class _Chosen:
    reply: _Choice


@dataclass(frozen=True, slots=True)
class _Unanswered:
    reply: _Failed


KINDS: Mapping[str, tuple[type, type]] = {  # what was asked, and what was replied
    "generate": (_Generate, _Completed),
    "choose": (_Choose, _Chosen),
    "count_tokens": (_CountTokens, _Count),
    "rank": (_Rank, _Scores),
    "search": (_Search, _Passages),
    "triples": (_OfPassage, _Triples),
    "neighbours": (_OfPassage, _Ids),
}


def check_call(call: Mapping[str, Json], place: str) -> None:
    """Raises DataError: a key is missing or of another type, or there are not as many replies as there were choices."""
    kind = call["call"]
    if kind not in KINDS:
        raise DataError(f"{place}: call={kind!r:.60}: no such kind; {nearest(str(kind), KINDS)}; {AGAIN}")
    asked, replied = KINDS[kind]
    reply = call["reply"]
    failed = isinstance(reply, dict) and "error" in reply
    where = f"{place}: a call to {kind}"
    checked(asked, call, where)
    checked(_Unanswered if failed else replied, call, where)
    if failed:
        return
    for choices, replies in (("texts", reply), ("options", reply["logprobs"] if kind == "choose" else ())):
        if choices in call and len(call[choices]) != len(replies):
            raise DataError(f"{where}: {len(replies)} replies to {len(call[choices])} {choices}; {AGAIN}")
