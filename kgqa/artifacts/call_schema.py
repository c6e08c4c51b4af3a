"""Calls and replies as JSON: the one description that cache keys, stored replies and traces share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StrictFloat, StrictInt, ValidationError

from kgqa.artifacts.schema import AGAIN, Artifact, check_json, validate
from kgqa.calls import Call, Choose, CountTokens, Facts, Generate, Neighbours, Rank, Search, Triples
from kgqa.errors import DataError, nearest
from kgqa.types import Choice, Completion, Json, Message, Passage, Prompt, ToolCall, Triple, Usage
from kgqa.util.fs import ids_digest

_CALLS: tuple[type[Call[Any]], ...] = (Generate, Choose, CountTokens, Rank, Search, Triples, Neighbours, Facts)
_KIND_OF = {call: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", call.__name__).lower() for call in _CALLS}
# The fields that choose who answers. A cache key leaves them out, because it holds the identity of who answered.
ROUTING = ("role", "scorer")
# Later fields, left out if they have these values: keys of calls from before there was a choice stay valid
ADDED: Mapping[str, Json] = {"thoughts": "split", "tools": None, "keywords": None, "facts": None}


def call_json(call: Call[Any]) -> dict[str, Json]:
    """Return a call's kind, who answers it, and then its other fields in their order."""
    if type(call) not in _KIND_OF:
        raise TypeError(f"no JSON form for {type(call).__name__}")
    values = {field.name: getattr(call, field.name) for field in fields(call)}  # type: ignore[arg-type]
    values = {name: value for name, value in values.items() if name not in ADDED or value != ADDED[name]}
    routing = {name: values.pop(name) for name in ROUTING if name in values}
    written: dict[str, Json] = {"call": _KIND_OF[type(call)], **routing}
    for name, value in values.items():
        match value:
            case Prompt():
                messages = [_message_json(message) for message in value.messages]
                written[name] = {
                    "template": value.name,
                    "messages": messages,
                    "prefill": value.prefill,
                    "form": value.form,
                }
            case Passage():
                written[f"{name}_id"] = value.id
            case tuple():
                written[name] = [item.id if isinstance(item, Passage) else item for item in value]
            case _:
                written[name] = value
    if isinstance(call, Neighbours) and call.pool is not None:
        written["pool"] = ids_digest(written["pool"])
    return written


def format_call(call: Call[Any]) -> dict[str, Json]:
    """Return `call_json` with the length in place of a counted text: the next call's prompt holds that text."""
    if isinstance(call, CountTokens):
        return {"call": "count_tokens", "role": call.role, "characters": len(call.text)}
    return call_json(call)


def reply_json(reply: object) -> Json:
    """Return a reply, or the error in its place, as the cache stores it."""
    match reply:
        case Completion():
            calls = {"tool_calls": _tool_calls_json(reply.tool_calls)} if reply.tool_calls else {}
            return {"text": reply.text, "finish": reply.finish, **_model_json(reply), **calls}
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


def _message_json(message: Message) -> list[Json]:
    """Return role and content, and then an assistant's tool calls, or the id of the call that a tool answers."""
    further = _tool_calls_json(message.tool_calls) or message.answers
    return [message.role, message.content, *([further] if further else [])]


def _tool_calls_json(calls: tuple[ToolCall, ...]) -> list[list[str]]:
    return [[call.id, call.name, call.arguments] for call in calls]


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
    tool_calls: tuple[tuple[str, str, str], ...] = ()


class _Choice(_ModelReply):
    logprobs: tuple[Finite, ...]
    mass: Finite | None


_REPLIES: Mapping[str, Any] = {  # the type of a stored reply by kind
    "generate": _Completion,
    "choose": _Choice,
    "count_tokens": Annotated[StrictInt, Field(ge=0)],
    "rank": tuple[Finite, ...],
    "search": tuple[Passage, ...],
    "triples": tuple[tuple[str, str, str], ...],
    "neighbours": tuple[str, ...],
    "facts": tuple[tuple[str, str, str], ...],
}


def reply_from_json(call: Call[Any], value: Json) -> object:
    """Convert a stored value to the reply of this call.

    Raises:
        ValueError: the value is not a reply to this call, or has another number of scores or options.
    """
    try:
        reply = validate(_REPLIES[_KIND_OF[type(call)]], value)
    except ValidationError as error:
        raise ValueError(f"no reply to {type(call).__name__}: {error.errors()[0]['msg']}") from None
    fits = True
    match call:
        case Generate():
            calls = tuple(ToolCall(*each) for each in reply.tool_calls)
            return Completion(reply.text, reply.finish, Usage(*reply.usage), reply.flags, reply.thought, calls)
        case Choose():
            fits = len(reply.logprobs) == len(call.options)
            reply = Choice(reply.logprobs, reply.mass, Usage(*reply.usage), reply.flags, reply.thought)
        case Rank():
            fits = len(reply) == len(call.texts)
        case Search() | Facts():
            fits = len(reply) <= call.k
    if not fits:
        raise ValueError(f"no reply to {type(call).__name__}: of another length")
    return reply


def check_reply(kind: str, reply: Json, place: str) -> None:
    """Check the reply to a call of a trace, which can be an error. Raises DataError if it has another type."""
    if kind not in _REPLIES:
        raise DataError(f"{place}: call={kind!r:.60}: no such kind; {nearest(kind, _REPLIES)}; {AGAIN}")
    if not (isinstance(reply, dict) and "error" in reply):
        check_json(_REPLIES[kind], reply, f"{place}: a call to {kind}: reply")
