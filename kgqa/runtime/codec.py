"""Calls and replies as JSON: for cache keys, cached values and traces."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from kgqa.calls import Call, Choose, CountTokens, Generate, Neighbours, Rank, Search, Triples
from kgqa.storage import ids_digest
from kgqa.types import Choice, Completion, Json, Passage, Prompt, Triple, Usage


def call_key(identity: Mapping[str, Json], call: Call[Any]) -> str:
    """Hash of everything that can change the reply.

    The prompt enters before the chat template is applied: `identity` holds the hash of the weights the template
    comes with, so the pair determines the rendered text, and a replay needs neither tokeniser nor weights.
    """
    written = call_json(call)
    written.pop("role", None)
    written.pop("scorer", None)
    if "prompt" in written:
        written["prompt"].pop("template")
    canonical = json.dumps([identity, written], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


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
    """The reply a cached value stands for; the call says of what kind it is."""
    match call:
        case Generate():
            usage, flags = Usage(*value["usage"]), tuple(value["flags"])
            return Completion(value["text"], value["finish"], usage, flags, value.get("thought", ""))
        case Choose():
            usage, flags = Usage(*value["usage"]), tuple(value["flags"])
            return Choice(tuple(value["logprobs"]), value["mass"], usage, flags, value.get("thought", ""))
        case Rank():
            return tuple(value)
        case Search():
            return tuple(Passage(**{**passage, "sentences": tuple(passage.get("sentences", ()))}) for passage in value)
    return value


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
