"""Calls and replies as JSON: the one description that cache keys, stored replies and traces share."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import astuple, fields
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, StrictFloat, StrictInt, ValidationError
from typing_extensions import NotRequired, TypedDict

from kgqa.artifacts.schema import AGAIN, Artifact, check_json, validate
from kgqa.calls import (
    Call,
    Choose,
    CountTokens,
    Facts,
    Generate,
    Locate,
    Neighbours,
    Rank,
    RunAgent,
    Search,
    Triples,
)
from kgqa.errors import DataError
from kgqa.types import (
    AgentReply,
    Choice,
    Completion,
    GeneratedToken,
    Json,
    Message,
    Passage,
    Prompt,
    ToolCall,
    Triple,
    Usage,
)
from kgqa.util.digests import ids_digest

# fields that choose who answers, whose identity is in the cache key instead
ROUTING = ("role", "scorer")
_OPTIONAL: Mapping[str, Json] = {  # omitted then
    "thoughts": "split", "tools": None, "tool_choice": None, "logprobs": None, "keywords": None, "facts": None,
    "positions": None,
}  # fmt: skip


def call_json(call: Call[Any]) -> dict[str, Json]:
    """Return a call's kind, its routing fields and then its other fields in order."""
    fields: dict[str, Json] = {"call": _KIND_OF[type(call)]}
    for name in _FIELDS[type(call)]:
        value = getattr(call, name)
        if name in _OPTIONAL and value == _OPTIONAL[name]:
            continue
        match value:
            case Prompt():
                messages = [_message_json(message) for message in value.messages]
                rest = {"messages": messages, "prefill": value.prefill, "form": value.form}
                fields[name] = {"template": value.name, **rest}
            case Passage():
                fields[f"{name}_id"] = value.id
            case tuple():
                fields[name] = [item.id if isinstance(item, Passage) else item for item in value]
            case _:
                fields[name] = value
    if isinstance(call, Neighbours) and call.pool is not None:
        fields["pool"] = ids_digest(fields["pool"])
    return fields


def format_call(call: Call[Any]) -> dict[str, Json]:
    """Return `call_json` for the trace, with only the length of a counted text, which the next prompt contains.

    An agent has only its name: its settings are those of the run.
    """
    if isinstance(call, RunAgent):
        return {"call": "run_agent", "agent": call.name}
    if isinstance(call, CountTokens):
        return {"call": "count_tokens", "role": call.role, "characters": len(call.text)}
    return call_json(call)


def reply_json(reply: object) -> Json:
    """Return a reply or an error as the cache stores it."""
    match reply:
        case Completion():
            calls = {"tool_calls": list(map(astuple, reply.tool_calls))} if reply.tool_calls else {}
            stop = {} if reply.stopped_by is None else {"stopped_by": reply.stopped_by}
            return {
                "text": reply.text,
                "finish": reply.finish,
                **_model_json(reply),
                **calls,
                **stop,
                **_tokens_json(reply),
            }
        case AgentReply():
            ended = {"output": reply.output, "errors": reply.errors, "exit_code": reply.exit_code}
            return {**ended, **({"problem": reply.problem} if reply.problem else {})}
        case Choice():
            return {"logprobs": list(reply.logprobs), "mass": reply.mass, **_model_json(reply)}
        case Exception():
            return {"error": type(reply).__name__, "message": str(reply)}
        case tuple():
            return [_item_json(item) for item in reply]
    return reply


def format_reply(call: Call[Any], reply: object) -> Json:
    """Return `reply_json` for the trace, with only the ids of neighbors: a dense graph repeats their texts."""
    if isinstance(call, Neighbours) and isinstance(reply, tuple):
        return [passage.id for passage in reply]
    return reply_json(reply)


def _message_json(message: Message) -> list[Json]:
    """Return role and content, and an assistant's tool calls or the id of the call that a tool answers."""
    further = list(map(astuple, message.tool_calls)) or message.answers
    return [message.role, message.content, *([further] if further else [])]


def _model_json(reply: Completion | Choice) -> dict[str, Json]:
    usage = reply.usage
    numbers: list[Json] = [
        usage.prompt_tokens,
        usage.cached_tokens,
        usage.output_tokens,
        round(usage.seconds, 6),
    ]
    if usage.reasoning_tokens:
        numbers.append(usage.reasoning_tokens)
    thought = {"thought": reply.thought} if reply.thought else {}
    return {"usage": numbers, "flags": list(reply.flags), **thought}


def _tokens_json(reply: Completion) -> dict[str, Json]:
    tokens = {
        "tokens": [[each.text, each.logprob, each.id, list(each.top)] for each in reply.tokens]
    }
    prompt = {"prompt_ids": list(reply.prompt_ids)} if reply.prompt_ids else {}
    return {**(tokens if reply.tokens else {}), **prompt}


def _item_json(item: object) -> Json:
    match item:
        case Triple():
            return [item.head, item.relation, item.tail]
        case Passage():
            sentences = {"sentences": list(item.sentences)} if item.sentences else {}
            place = {"place": item.place} if item.place else {}
            return {"id": item.id, "title": item.title, "text": item.text, **sentences, **place}
    return item


def _reject_nan(value: int | float) -> int | float:
    # NaN, or an integer that is no float
    if value != value or sys.float_info.max < abs(value) < math.inf:
        raise ValueError("is not a number")
    return value


def _reject_size(value: float) -> float:
    """Reject a value that would make sums of millions of calls meaningless."""
    if not 0 <= value <= MOST:
        raise ValueError(f"is not between 0 and {MOST:,}")
    return value


# tokens or seconds of a call
MOST = 10**9
_Float = Annotated[
    StrictInt | StrictFloat, AfterValidator(_reject_nan)
]  # can be infinite: a log-probability
_Texts = tuple[str, str, str]
_Token = tuple[str, _Float, StrictInt | None, tuple[tuple[str, _Float], ...]]
_Count = Annotated[StrictInt, AfterValidator(_reject_size)]
_Seconds = Annotated[StrictInt | StrictFloat, AfterValidator(_reject_size)]
_Numbers = tuple[_Count, _Count, _Count, _Seconds] | tuple[_Count, _Count, _Count, _Seconds, _Count]
_ID = re.compile("[0-9a-f]{16}")  # see `Passage.of`


# typed dictionaries: pydantic reads them faster than models, and most replies of a run are read more than once
class _ModelReply(TypedDict):
    usage: Annotated[_Numbers, AfterValidator(lambda numbers: Usage(*numbers))]
    flags: tuple[str, ...]
    thought: NotRequired[str]


class _Completion(_ModelReply):
    text: str
    finish: Literal["stop", "length"]
    tool_calls: NotRequired[
        tuple[Annotated[_Texts, AfterValidator(lambda texts: ToolCall(*texts))], ...]
    ]
    stopped_by: NotRequired[str | None]
    tokens: NotRequired[
        tuple[Annotated[_Token, AfterValidator(lambda values: GeneratedToken(*values))], ...]
    ]
    prompt_ids: NotRequired[tuple[StrictInt, ...]]


class _Choice(_ModelReply):
    logprobs: tuple[_Float, ...]
    mass: _Float | None


class _AgentReply(Artifact):
    output: str
    errors: str
    exit_code: StrictInt | None
    problem: str = ""


_REPLIES: Mapping[type[Call[Any]], Any] = {  # types of stored replies
    Generate: Annotated[_Completion, AfterValidator(lambda reply: Completion(**reply))],
    Choose: Annotated[_Choice, AfterValidator(lambda reply: Choice(**reply))],
    CountTokens: _Count,
    Rank: tuple[_Float, ...],
    Search: tuple[Passage, ...],
    Triples: tuple[_Texts, ...],
    Neighbours: tuple[str, ...],
    Facts: tuple[_Texts, ...],
    Locate: tuple[StrictInt, ...],
    RunAgent: _AgentReply,
}
_KIND_OF = {call: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", call.__name__).lower() for call in _REPLIES}
_FIELDS = {  # in the order of `call_json`
    call: sorted((field.name for field in fields(call)), key=lambda name: name not in ROUTING)  # type: ignore[arg-type]
    for call in _REPLIES
}
_REPLY_OF = {kind: _REPLIES[call] for call, kind in _KIND_OF.items()}


def reply_from_json(call: Call[Any], value: Json) -> object:
    """Convert a stored value to the reply of this call.

    Raises:
        ValueError: the value is not a reply to this call, or has another number of scores or options.
    """
    try:
        reply = validate(_REPLIES[type(call)], value)
    except ValidationError as error:
        raise ValueError(
            f"no reply to {type(call).__name__}: {error.errors(include_input=False)[0]['msg']}"
        ) from None
    match call:
        case Choose():
            fits = len(reply.logprobs) == len(call.options)
        case Rank():
            fits = len(reply) == len(call.texts)
        case Search():
            most = call.k if call.positions is None else len(call.positions)
            fits = len(reply) <= most and all(map(_has_own_text, reply))
        case Locate():
            fits = len(reply) == len(call.passages)
        case Facts():
            fits = len(reply) <= call.k
        case _:
            fits = True
    if not fits:
        raise ValueError(
            f"no reply to {type(call).__name__}: of another length, or with changed passages"
        )
    return reply


def _has_own_text(passage: Passage) -> bool:
    """Return whether the id of a passage is the hash of its text. Own code can use other ids."""
    same = Passage.of(passage.title, passage.text, passage.sentences, passage.place)
    return not _ID.fullmatch(passage.id) or passage.id == same.id


def usage_of(reply: Json) -> Usage | None:
    """Return the usage of a stored reply of a model, or None."""
    try:
        return validate(_ModelReply, reply)["usage"]  # type: ignore[return-value]  # its validator builds it
    except ValidationError:
        return None


class _StoredPrompt(Artifact):
    template: str
    # role, content, and an assistant's tool calls or the id of the call that a tool answers
    messages: tuple[tuple[str, str] | tuple[str, str, str | tuple[_Texts, ...]], ...]
    prefill: str


class _Request(Artifact):
    """The fields of a call in a trace that reports read."""

    role: str | None = None
    prompt: _StoredPrompt | None = None
    query: str | None = None
    passage_id: str | None = None
    texts: tuple[str, ...] | None = None
    options: tuple[str, ...] | None = None


_NEEDED = {"generate": ("prompt",), "choose": ("prompt", "options"), "rank": ("texts",)}


class _Failure(Artifact):
    error: str
    message: str


def check_call(kind: str, request: Mapping[str, Json], reply: Json, location: str) -> None:
    """Check a call of a trace and its reply, which can be an error. Raises DataError if a value has another type."""
    if kind not in _REPLY_OF:
        raise DataError(f"{location}: call={kind!r:.60}: no such kind. {AGAIN}")
    place = f"{location}: a call to {kind}"
    fields = check_json(_Request, request, place)
    for name in _NEEDED.get(kind, ()):
        if getattr(fields, name) is None:
            raise DataError(f"{place}: {name} is missing. {AGAIN}")
    if isinstance(reply, dict) and "error" in reply:
        check_json(_Failure, reply, f"{place}: reply")
        return
    checked = check_json(_REPLY_OF[kind], reply, f"{place}: reply")
    many = fields.texts if kind == "rank" else fields.options if kind == "choose" else None
    if many is not None and len(many) != len(checked.logprobs if kind == "choose" else checked):
        raise DataError(f"{place}: the reply has another length. {AGAIN}")
