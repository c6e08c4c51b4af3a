"""Calls and replies as JSON: for cache keys, cached values and traces."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from kgqa.calls import Call, Choose, CountTokens, Generate, Neighbours, Rank, Search, Triples
from kgqa.json_texts import quoted
from kgqa.storage import ids_digest
from kgqa.types import Choice, Completion, Json, Passage, Prompt, Triple, Usage

_CANONICAL = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode


def call_key(identity: Mapping[str, Json], call: Call[Any]) -> str:
    """Hash of everything that can change the reply.

    The prompt enters before the chat template is applied: `identity` holds the hash of the weights the template
    comes with, so the pair determines the rendered text, and a replay needs neither tokeniser nor weights.
    """
    return key_of(canonical(identity), call)


def canonical(value: Json) -> bytes:
    """JSON without blanks, keys in the order of the alphabet."""
    return _CANONICAL(value).encode("utf-8", "surrogatepass")


def key_of(identity: bytes, call: Call[Any]) -> str:
    """The same, of an identity that is canonical already: it is the same for all calls of a service."""
    match call:
        case Generate():
            before, behind = _generating(call.max_tokens, call.schema, call.seed, call.stop)
            behind = b'%b,"temperature":%b,"top_p":%b}' % (behind, _number(call.temperature), _number(call.top_p))
            written = b"%b%b%b" % (before, _canonical_prompt(call.prompt), behind)
        case Choose():
            before, behind = b'{"call":"choose","options":%b,"prompt":' % canonical(call.options), b"}"
            written = b"%b%b%b" % (before, _canonical_prompt(call.prompt), behind)
        case _:
            told = call_json(call)
            told.pop("role", None)
            told.pop("scorer", None)
            written = canonical(told)
    return hashlib.sha256(b"[%b,%b]" % (identity, written)).hexdigest()


def _canonical_prompt(prompt: Prompt) -> bytes:
    """Without the name of its template."""
    messages = b",".join(b"[%b,%b]" % (quoted(each.role), quoted(each.content)) for each in prompt.messages)
    return b'{"form":%b,"messages":[%b],"prefill":%b}' % (quoted(prompt.form), messages, quoted(prompt.prefill))


@lru_cache(maxsize=256)
def _generating(max_tokens: int, schema: str | None, seed: int | None, stop: tuple[str, ...]) -> tuple[bytes, bytes]:
    """What stands before and behind the prompt: the same in most calls."""
    before = canonical({"call": "generate", "max_tokens": max_tokens})
    behind = canonical({"schema": schema, "seed": seed, "stop": stop})
    return b'%b,"prompt":' % before[:-1], b",%b" % behind[1:-1]


@lru_cache(maxsize=256, typed=True)  # 0 and 0.0 are equal, and written in two ways
def _number(value: float) -> bytes:
    return canonical(value)


def call_json(call: Call[Any]) -> dict[str, Json]:
    match call:
        case Generate():
            return {
                "call": "generate",
                "role": call.role,
                "prompt": _prompt_json(call.prompt),
                "max_tokens": call.max_tokens,
                "stop": list(call.stop),
                "temperature": call.temperature,
                "top_p": call.top_p,
                "seed": call.seed,
                "schema": call.schema,
            }
        case Choose():
            return {
                "call": "choose",
                "role": call.role,
                "prompt": _prompt_json(call.prompt),
                "options": list(call.options),
            }
        case CountTokens():
            return {"call": "count_tokens", "role": call.role, "text": call.text}
        case Rank():
            return {"call": "rank", "scorer": call.scorer, "query": call.query, "texts": list(call.texts)}
        case Search():
            pool = None if call.pool is None else [passage.id for passage in call.pool]
            titles = None if call.titles is None else list(call.titles)
            return {"call": "search", "query": call.query, "k": call.k, "titles": titles, "pool": pool}
        case Triples():
            return {"call": "triples", "passage_id": call.passage.id}
        case Neighbours():
            within = None if call.pool is None else ids_digest(passage.id for passage in call.pool)
            return {"call": "neighbours", "passage_id": call.passage.id, "pool": within}
    raise TypeError(f"no JSON form for {type(call).__name__}")


def traced_call_json(call: Call[Any]) -> dict[str, Json]:
    """As `call_json`, but what was counted by its length alone: it is what is asked next, and would be kept twice."""
    if isinstance(call, CountTokens):
        return {"call": "count_tokens", "role": call.role, "characters": len(call.text)}
    return call_json(call)


def traced_reply_json(call: Call[Any], reply: object) -> Json:
    """As `reply_json`, but neighbours by their ids alone: those of a dense graph would fill a trace with one text."""
    if isinstance(call, Neighbours) and isinstance(reply, tuple):
        return [passage.id for passage in reply]
    return reply_json(reply)


def reply_json(reply: object) -> Json:
    match reply:
        case Completion():
            completion = {"text": reply.text, "finish": reply.finish, "usage": _usage_json(reply.usage)}
            return {**completion, "flags": list(reply.flags), **_thought_json(reply)}
        case Choice():
            choice = {"logprobs": list(reply.logprobs), "mass": reply.mass, "usage": _usage_json(reply.usage)}
            return {**choice, "flags": list(reply.flags), **_thought_json(reply)}
        case Exception():
            return {"error": type(reply).__name__, "message": str(reply)}
        case tuple():
            return [_item_json(item) for item in reply]
    return reply


def reply_from_json(call: Call[Any], value: Json) -> object:
    """The reply a cached value stands for; the call says of what kind it is, and how long.

    Raises:
        ValueError: it is no reply to this call.
    """
    try:
        reply = _reply(call, value)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"no reply to {type(call).__name__}: {error!r}") from None
    if not _fits(call, reply):
        raise ValueError(f"no reply to {type(call).__name__}")
    return reply


def _reply(call: Call[Any], value: Json) -> object:
    match call:
        case Generate():
            usage, flags = _usage(value["usage"]), tuple(value["flags"])
            return Completion(value["text"], value["finish"], usage, flags, value.get("thought", ""))
        case Choose():
            usage, flags = _usage(value["usage"]), tuple(value["flags"])
            return Choice(tuple(value["logprobs"]), value["mass"], usage, flags, value.get("thought", ""))
        case Rank() if isinstance(value, list):
            return tuple(value)
        case Search() if isinstance(value, list):
            return tuple(Passage(**{**passage, "sentences": tuple(passage.get("sentences", ()))}) for passage in value)
    return value


def _usage(numbers: Json) -> Usage:
    if not isinstance(numbers, list) or len(numbers) < 4:
        raise TypeError(f"usage {numbers}")
    return Usage(*numbers)


def _fits(call: Call[Any], reply: Any) -> bool:
    """Whether its parts are of their types, and as many as the call asks for."""
    if isinstance(call, Rank | Search) and not isinstance(reply, tuple):
        return False
    match call:
        case Generate():
            known = (
                isinstance(reply.text, str) and isinstance(reply.thought, str) and reply.finish in ("stop", "length")
            )
            return known and _counted(reply)
        case Choose():
            mass = reply.mass is None or _is_number(reply.mass)
            right = len(reply.logprobs) == len(call.options) and all(map(_is_number, reply.logprobs))
            return right and mass and isinstance(reply.thought, str) and _counted(reply)
        case CountTokens():
            return type(reply) is int and reply >= 0
        case Rank():
            return len(reply) == len(call.texts) and all(map(_is_number, reply))
        case Search():
            texts = (text for passage in reply for text in (passage.id, passage.title, passage.text))
            return len(reply) <= call.k and all(isinstance(text, str) for text in texts)
    return True


def _counted(reply: Completion | Choice) -> bool:
    used = reply.usage
    numbers = (used.prompt_tokens, used.cached_tokens, used.output_tokens, used.seconds, used.reasoning_tokens)
    return all(map(_is_number, numbers)) and all(isinstance(flag, str) for flag in reply.flags)


def _is_number(value: object) -> bool:
    """NaN is none."""
    return (type(value) is float or type(value) is int) and value == value


def _prompt_json(prompt: Prompt) -> dict[str, Json]:
    return {
        "template": prompt.name,
        "messages": [[message.role, message.content] for message in prompt.messages],
        "prefill": prompt.prefill,
        "form": prompt.form,
    }


def _usage_json(usage: Usage) -> list[float]:
    numbers = [usage.prompt_tokens, usage.cached_tokens, usage.output_tokens, round(usage.seconds, 6)]
    return [*numbers, usage.reasoning_tokens] if usage.reasoning_tokens else numbers


def _thought_json(reply: Completion | Choice) -> dict[str, Json]:
    return {"thought": reply.thought} if reply.thought else {}


def _item_json(item: object) -> Json:
    match item:
        case Triple():
            return [item.head, item.relation, item.tail]
        case Passage():
            sentences = {"sentences": list(item.sentences)} if item.sentences else {}
            place = {"place": item.place} if item.place else {}
            return {"id": item.id, "title": item.title, "text": item.text, **sentences, **place}
    return item
