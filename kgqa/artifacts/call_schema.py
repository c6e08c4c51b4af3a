"""Calls and replies as JSON: the one description that cache keys, stored replies and traces share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StrictFloat, StrictInt, ValidationError

from kgqa.artifacts.schema import AGAIN, Artifact, check_json, validate
from kgqa.calls import Call, Choose, CountTokens, Generate, Neighbours, Rank, Search, Triples
from kgqa.errors import DataError, nearest
from kgqa.types import Choice, Completion, Json, Passage, Prompt, Triple, Usage
from kgqa.util.fs import ids_digest

CALLS: tuple[type[Call[Any]], ...] = (Generate, Choose, CountTokens, Rank, Search, Triples, Neighbours)
KINDS = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", call.__name__).lower(): call for call in CALLS}
_KIND_OF = {call: kind for kind, call in KINDS.items()}
# The fields that choose who answers. A cache key leaves them out, because it holds the identity of who answered.
ROUTING = ("role", "scorer")


def call_json(call: Call[Any]) -> dict[str, Json]:
    """Return a call's kind, who answers it, and then its other fields in their order."""
    if type(call) not in _KIND_OF:
        raise TypeError(f"no JSON form for {type(call).__name__}")
    values = {field.name: getattr(call, field.name) for field in fields(call)}  # type: ignore[arg-type]
    routing = {name: values.pop(name) for name in ROUTING if name in values}
    written: dict[str, Json] = {"call": _KIND_OF[type(call)], **routing}
    for name, value in values.items():
        match value:
            case Prompt():
                written[name] = prompt_json(value)
            case Passage():
                written[f"{name}_id"] = value.id
            case tuple():
                written[name] = [item.id if isinstance(item, Passage) else item for item in value]
            case _:
                written[name] = value
    if isinstance(call, Neighbours) and call.pool is not None:
        written["pool"] = ids_digest(written["pool"])
    return written


def prompt_json(prompt: Prompt) -> dict[str, Json]:
    """Return a prompt as traces hold it."""
    messages = [[message.role, message.content] for message in prompt.messages]
    return {"template": prompt.name, "messages": messages, "prefill": prompt.prefill, "form": prompt.form}


def format_call(call: Call[Any]) -> dict[str, Json]:
    """Return `call_json` with the length in place of a counted text: the next call's prompt holds that text."""
    if isinstance(call, CountTokens):
        return {"call": "count_tokens", "role": call.role, "characters": len(call.text)}
    return call_json(call)


def reply_json(reply: object) -> Json:
    """Return a reply, or the error in its place, as the cache stores it."""
    match reply:
        case Completion():
            return {"text": reply.text, "finish": reply.finish, **_model_json(reply)}
        case Choice():
            return {"logprobs": list(reply.logprobs), "mass": reply.mass, **_model_json(reply)}
        case Exception():
            return {"error": type(reply).__name__, "message": str(reply)}
        case tuple():
            return [_item_json(item) for item in reply]
    return reply


def format_reply(call: Call[Any], reply: object) -> Json:
    """Return `reply_json` with only the ids of neighbors: a dense graph would fill the trace with equal texts."""
    if isinstance(call, Neighbours) and isinstance(reply, tuple):
        return [passage.id for passage in reply]
    return reply_json(reply)


def _model_json(reply: Completion | Choice) -> dict[str, Json]:
    used = reply.usage
    numbers = [used.prompt_tokens, used.cached_tokens, used.output_tokens, round(used.seconds, 6)]
    if used.reasoning_tokens:
        numbers.append(used.reasoning_tokens)
    thought = {"thought": reply.thought} if reply.thought else {}
    return {"usage": numbers, "flags": list(reply.flags), **thought}


def _item_json(item: object) -> Json:
    match item:
        case Triple():
            return [item.head, item.relation, item.tail]
        case Passage():
            sentences = {"sentences": list(item.sentences)} if item.sentences else {}
            place = {"place": item.place} if item.place else {}
            return {"id": item.id, "title": item.title, "text": item.text, **sentences, **place}
    return item


def _refuse_nan(value: float) -> float:
    if value != value:
        raise ValueError("is not a number")
    return value


Finite = Annotated[StrictInt | StrictFloat, AfterValidator(_refuse_nan)]  # or infinite, as a log-probability can be


class _ModelReply(Artifact):
    usage: tuple[StrictInt, StrictInt, StrictInt, Finite] | tuple[StrictInt, StrictInt, StrictInt, Finite, StrictInt]
    flags: tuple[str, ...]
    thought: str = ""


class _Completion(_ModelReply):
    text: str
    finish: Literal["stop", "length"]


class _Choice(_ModelReply):
    logprobs: tuple[Finite, ...]
    mass: Finite | None


class _Error(Artifact):
    error: str
    message: str


class _Prompt(Artifact):
    template: str
    messages: tuple[tuple[str, str], ...]
    prefill: str


class _Generate(Artifact):
    role: str
    prompt: _Prompt


class _Choose(_Generate):
    options: tuple[str, ...]


class _CountTokens(Artifact):
    role: str


class _Rank(Artifact):
    query: str
    texts: tuple[str, ...]


class _Search(Artifact):
    query: str
    titles: tuple[str, ...] | None
    pool: tuple[str, ...] | None


class _OnePassage(Artifact):
    passage_id: str


# For each kind, what a trace must hold of the request, and the type of the reply
_SCHEMAS: Mapping[str, tuple[type[Artifact], Any]] = {
    "generate": (_Generate, _Completion),
    "choose": (_Choose, _Choice),
    "count_tokens": (_CountTokens, Annotated[StrictInt, Field(ge=0)]),
    "rank": (_Rank, tuple[Finite, ...]),
    "search": (_Search, tuple[Passage, ...]),
    "triples": (_OnePassage, tuple[tuple[str, str, str], ...]),
    "neighbours": (_OnePassage, tuple[str, ...]),
}


def reply_from_json(call: Call[Any], value: Json) -> object:
    """Convert a stored value to the reply of this call.

    Raises:
        ValueError: the value is not a reply to this call, or has another number of scores or options.
    """
    try:
        reply = validate(_SCHEMAS[_KIND_OF[type(call)]][1], value)
    except ValidationError as error:
        raise ValueError(f"no reply to {type(call).__name__}: {error.errors()[0]['msg']}") from None
    match call:
        case Generate():
            return Completion(reply.text, reply.finish, Usage(*reply.usage), reply.flags, reply.thought)
        case Choose() if len(reply.logprobs) == len(call.options):
            return Choice(reply.logprobs, reply.mass, Usage(*reply.usage), reply.flags, reply.thought)
        case Choose():
            fits = False
        case Rank():
            fits = len(reply) == len(call.texts)
        case Search():
            fits = len(reply) <= call.k
        case _:
            fits = True
    if not fits:
        raise ValueError(f"no reply to {type(call).__name__}: of another length")
    return reply


def check_call(call: Mapping[str, Json], place: str) -> None:
    """Check a call of a trace.

    Raises:
        DataError: a key is missing or has another type, or the number of replies is not that of options or texts.
    """
    kind = call["call"]
    if kind not in _SCHEMAS:
        raise DataError(f"{place}: call={kind!r:.60}: no such kind; {nearest(str(kind), _SCHEMAS)}; {AGAIN}")
    request_type, reply_type = _SCHEMAS[kind]
    reply = call["reply"]
    failed = isinstance(reply, dict) and "error" in reply
    where = f"{place}: a call to {kind}"
    check_json(request_type, call, where)
    check_json(_Error if failed else reply_type, reply, f"{where}: reply")
    if failed:
        return
    for choices, replies in (("texts", reply), ("options", reply["logprobs"] if kind == "choose" else ())):
        if choices in call and len(call[choices]) != len(replies):
            raise DataError(f"{where}: {len(replies)} replies to {len(call[choices])} {choices}; {AGAIN}")
