"""Claude through the package `anthropic`."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, cast

from kgqa.calls import Generate
from kgqa.engines import batches
from kgqa.engines.batches import BatchNotes, BatchQueue, Outcome
from kgqa.engines.grammar import bound_schema
from kgqa.engines.openai.access import REACHING
from kgqa.engines.openai.requests import build_chat
from kgqa.engines.vendors.base import VendorEngine
from kgqa.errors import EngineError
from kgqa.types import Completion, Json, ToolCall, Usage
from kgqa.util.places import home
from kgqa.util.settings import NotIdentity, Setting
from kgqa.util.validators import Seconds

# statuses of HTTP
CLIENT_ERROR, SERVER_ERROR = 400, 500
# seconds that the clocks of both machines can differ
CLOCK = 600.0
# the least that the API accepts
LEAST_BUDGET = 1024


@dataclass(frozen=True)
class Anthropic(VendorEngine):
    """A model of Claude. The API has no seed, temperature and top_p.

    Flags: fixed_temperature, fixed_top_p, no_seed.
    """

    thinking_off: Annotated[
        Literal["disabled", "omitted"],
        Setting(
            "What requests without reasoning contain: disabled | omitted, for models that reject disabled."
        ),
    ] = "disabled"
    batch: Annotated[
        bool,
        Setting(
            "true: send calls in waves through Anthropic's Batch API, for half the price and within a day."
        ),
        NotIdentity("the same model answers, at another time"),
    ] = False
    batch_wait: Annotated[
        Seconds,
        Setting("Seconds without a new call, after which the calls so far are sent as a batch."),
        REACHING,
    ] = batches.WAIT

    calls_functions: ClassVar[bool] = True
    package: ClassVar[tuple[str, str]] = ("anthropic", "anthropic")
    key_variable: ClassVar[str] = "ANTHROPIC_API_KEY"

    # raise it when equal settings give other results
    version: ClassVar[int] = 1

    @property
    def sends_batches(self) -> bool:
        return self.batch

    def open_client(self) -> Any:
        key = self.find_key()
        from anthropic import AsyncAnthropic

        return AsyncAnthropic(
            api_key=key, base_url=self.base_url, timeout=self.timeout, max_retries=self.retries
        )

    async def send(self, call: Generate) -> Completion:
        return read_message(await self._request(self.write_request(call), call), call)

    async def _request(self, body: dict[str, Json], call: Generate) -> Mapping[str, Json]:
        """Return the message of a reply."""
        if not self.batch:
            required = {key: body[key] for key in ("model", "max_tokens", "messages")}
            # as a mapping: the client rejects keys that it does not know
            message = await self._client.messages.create(**required, extra_body=body)
            content: Mapping[str, Json] = message.to_dict()
            return content
        # the API has no seed, so equal requests need different replies
        outcome = await self._queue.send(body, str(call.seed))
        if outcome.status >= SERVER_ERROR:
            raise EngineError(f"the batch has no reply to this call: {outcome.content}")
        if outcome.status >= CLIENT_ERROR:
            raise self._explain(outcome.status, outcome.content, call)
        return cast(Mapping[str, Json], outcome.content)

    @cached_property
    def _queue(self) -> BatchQueue:
        name = hashlib.sha256(f"{self.base_url}".encode()).hexdigest()[:16]
        notes = BatchNotes(home() / "batches" / f"anthropic-{name}.jsonl")
        return BatchQueue(ClaudeBatches(self._client), notes, self.batch_wait)

    async def _close_client(self) -> None:
        if "_queue" in self.__dict__:
            self._queue.close()
        if "_client" in self.__dict__:
            await self._client.close()

    def write_request(self, call: Generate) -> dict[str, Json]:
        """Return the request for a call."""
        thinking = self.find_thinking(call)
        messages = build_chat(call.prompt, "hosted")["messages"]
        system = "\n\n".join(each["content"] for each in messages if each["role"] == "system")
        body: dict[str, Json] = {
            "model": self._name,
            "max_tokens": call.max_tokens + thinking.budget,
            "messages": list(_write_messages(messages)),
        }
        if system:
            body["system"] = system
        if call.stop and not thinking.budget:
            # the API rejects strings of spaces
            body["stop_sequences"] = [stop for stop in call.stop if stop.strip()]
        output: dict[str, Json] = {}
        if call.schema is not None and bound_schema(call.schema) is not None:
            output["format"] = {"type": "json_schema", "schema": json.loads(call.schema)}
        if thinking.effort:
            output["effort"] = thinking.effort
            body["thinking"] = {"type": "adaptive"}
        elif thinking.budget:
            body["max_tokens"] = call.max_tokens + max(LEAST_BUDGET, thinking.budget)
            body["thinking"] = {
                "type": "enabled",
                "budget_tokens": max(LEAST_BUDGET, thinking.budget),
            }
        elif self.thinking_off == "disabled":
            body["thinking"] = {"type": "disabled"}
        if output:
            body["output_config"] = output
        if call.tools is not None:
            body["tools"] = [_write_tool(tool["function"]) for tool in json.loads(call.tools)]
        if call.tool_choice is not None:
            body["tool_choice"] = _write_choice(json.loads(call.tool_choice))
        return {**body, **(self.extra_body or {})}

    def read_error(self, error: Exception) -> tuple[int, Mapping[str, Json]] | None:
        import anthropic

        if isinstance(error, anthropic.APIConnectionError):
            return 0, {"message": str(error)}
        if not isinstance(error, anthropic.APIStatusError):
            return None
        body = error.body if isinstance(error.body, dict) else {}
        inner = body.get("error")
        return error.status_code, inner if isinstance(inner, dict) else {"message": str(error)}


@dataclass(frozen=True)
class ClaudeBatches:
    """Anthropic's batches. They have no metadata, so a batch is known by the ids of its requests."""

    client: Any

    async def submit(self, wave: str, requests: Mapping[str, Json]) -> str:
        import anthropic

        started = time.time()
        rows = [{"custom_id": name, "params": body} for name, body in requests.items()]
        # a second attempt would submit the requests twice
        once = self.client.with_options(max_retries=0).messages.batches
        try:
            return str((await once.create(requests=rows)).id)
        except anthropic.APIConnectionError:
            batch = await self.find(wave, frozenset(requests), started)
            return batch or str((await once.create(requests=rows)).id)

    async def find(self, wave: str, ids: frozenset[str], since: float) -> str | None:  # noqa: ARG002 - see the class
        async for batch in self.client.messages.batches.list(limit=100):
            if batch.created_at.timestamp() < since - CLOCK:
                return None
            while (outcomes := await self.fetch(batch.id)) is None:
                await asyncio.sleep(batches.POLL)
            if not ids.isdisjoint(outcomes):
                return str(batch.id)
        return None

    async def fetch(self, batch: str) -> Mapping[str, Outcome] | None:
        state = await self.client.messages.batches.retrieve(batch)
        if state.processing_status != "ended":
            return None
        rows = await self.client.messages.batches.results(batch)
        return {row.custom_id: _read_result(row.result) async for row in rows}


def _read_result(result: Any) -> Outcome:
    match result.type:
        case "succeeded":
            return Outcome(200, result.message.to_dict())
        case "errored":
            error = result.error.to_dict()
            inner = error.get("error") or error
            return Outcome(
                CLIENT_ERROR if inner.get("type") == "invalid_request_error" else SERVER_ERROR,
                inner,
            )
    return Outcome(SERVER_ERROR, {"message": f"the request is {result.type}"})


def _write_messages(messages: list[dict[str, Json]]) -> Iterator[dict[str, Json]]:
    """Yield the messages of a conversation. The results of tools are a message of the user."""
    results: list[Json] = []
    for each in messages:
        if each["role"] == "tool":
            result = {
                "type": "tool_result",
                "tool_use_id": each["tool_call_id"],
                "content": each["content"],
            }
            results.append(result)
            continue
        if results:
            yield {"role": "user", "content": results}
            results = []
        if each["role"] == "system":
            continue
        if "tool_calls" not in each:
            yield {"role": each["role"], "content": each["content"]}
            continue
        text = [{"type": "text", "text": each["content"]}] if each["content"] else []
        yield {"role": "assistant", "content": [*text, *map(_write_call, each["tool_calls"])]}
    if results:
        yield {"role": "user", "content": results}


def _write_call(call: Json) -> Json:
    try:
        arguments = json.loads(call["function"]["arguments"] or "{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        arguments = {"arguments": call["function"]["arguments"]}
    return {
        "type": "tool_use",
        "id": call["id"],
        "name": call["function"]["name"],
        "input": arguments,
    }


def _write_tool(function: Json) -> Json:
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    return {
        "name": function["name"],
        "description": function.get("description", ""),
        "input_schema": schema,
    }


def _write_choice(choice: Json) -> Json:
    if isinstance(choice, dict):
        return {"type": "tool", "name": choice["function"]["name"]}
    return {"type": {"required": "any"}.get(choice, choice)}


def read_message(message: Mapping[str, Json], call: Generate) -> Completion:
    """Return the reply in a message."""
    blocks = message.get("content") or []
    calls = [
        ToolCall(str(each["id"]), str(each["name"]), json.dumps(each["input"], ensure_ascii=False))
        for each in blocks
        if each["type"] == "tool_use"
    ]
    usage = message.get("usage") or {}
    cached = usage.get("cache_read_input_tokens") or 0
    prompt = (
        (usage.get("input_tokens") or 0) + cached + (usage.get("cache_creation_input_tokens") or 0)
    )
    reasoning = (usage.get("output_tokens_details") or {}).get("thinking_tokens") or 0
    reason = message.get("stop_reason")
    flags = {
        "fixed_temperature": call.temperature != 1,
        "fixed_top_p": call.top_p != 1,
        "no_seed": call.temperature > 0,
        "unconstrained": call.schema is not None and bound_schema(call.schema) is None,
        "filtered": reason == "refusal",
    }
    return Completion(
        "".join(each["text"] for each in blocks if each["type"] == "text"),
        "length" if reason in ("max_tokens", "model_context_window_exceeded") else "stop",
        Usage(prompt, cached, usage.get("output_tokens") or 0, 0.0, reasoning),
        tuple(flag for flag, is_set in flags.items() if is_set),
        "\n".join(each["thinking"] for each in blocks if each["type"] == "thinking"),
        tuple(calls),
        (message.get("stop_sequence") or "") if call.stop else None,
    )
