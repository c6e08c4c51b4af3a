"""OpenAI's `/v1/responses` as calls of a session. kgqa stores no conversation: each request has all of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field, NonNegativeFloat, PositiveInt

from kgqa.calls import Generate
from kgqa.extras.serve.openai_api import (
    ROLES,
    ServedReply,
    check_model,
    join_text,
    read_schema,
    read_tools,
    request_id,
)
from kgqa.extras.serve.session import AgentSession, NotSupported
from kgqa.types import Completion, Json, Message, Prompt, ToolCall


class ResponsesRequest(BaseModel):
    model: str = ""
    input: str | list[dict[str, Json]]
    instructions: str | None = None
    max_output_tokens: PositiveInt | None = None
    temperature: NonNegativeFloat | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    tools: list[dict[str, Json]] | None = None
    tool_choice: str | dict[str, Json] | None = None
    text: dict[str, Json] | None = None
    stream: bool | None = None
    previous_response_id: str | None = None
    top_logprobs: int | None = None

    def call(self, session: AgentSession) -> Generate:
        """Return the call of the request."""
        if self.previous_response_id is not None:
            raise NotSupported(
                "previous_response_id: kgqa stores no responses. Send the complete conversation"
            )
        if self.top_logprobs:
            raise NotSupported("top_logprobs: use /v1/chat/completions for log-probabilities")
        first = [Message("system", self.instructions)] if self.instructions else []
        items = (
            [{"role": "user", "content": self.input}] if isinstance(self.input, str) else self.input
        )
        limits, (tools, choice) = (
            session.limits,
            read_tools(self._functions(), self._choice(), session),
        )
        return Generate(
            Prompt("agent/responses", (*first, *_read_items(items))),
            self.max_output_tokens or limits.max_tokens,
            temperature=limits.temperature if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            schema=read_schema(_read_format((self.text or {}).get("format"))),
            role=self.model if self.model in session.abilities.roles else "reader",
            tools=tools,
            tool_choice=choice,
        )

    def _choice(self) -> Json:
        """Return the choice among tools in the form of chats."""
        choice = self.tool_choice
        if isinstance(choice, dict) and choice.get("type") == "function":
            return {"type": "function", "function": {"name": choice.get("name")}}
        return choice

    def _functions(self) -> list[Json]:
        """Return the tools in the form of chats."""
        functions: list[Json] = []
        for tool in self.tools or ():
            if tool.get("type") != "function":
                raise NotSupported(
                    f"tools: {tool.get('type')!r} is not a function, and kgqa has no others"
                )
            fields = {
                key: tool[key]
                for key in ("name", "description", "parameters", "strict")
                if key in tool
            }
            functions.append({"type": "function", "function": fields})
        return functions


def _read_items(items: list[dict[str, Json]]) -> Iterator[Message]:
    """Yield the messages of a conversation. Calls that follow each other belong to one message."""
    calls: list[ToolCall] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call":
            calls.append(
                ToolCall(str(item["call_id"]), str(item["name"]), str(item.get("arguments", "{}")))
            )
            continue
        if calls:
            yield Message("assistant", "", tuple(calls))
            calls = []
        if kind == "function_call_output":
            yield Message(
                "tool", join_text(item.get("output")), answers=str(item.get("call_id", ""))
            )
        elif kind == "message" and item.get("role") in ROLES:
            yield Message(ROLES[item["role"]], join_text(item.get("content")))
        elif kind != "reasoning":
            raise NotSupported(f"input: an item of type {kind!r} cannot be read")
    if calls:
        yield Message("assistant", "", tuple(calls))


def _read_format(form: Json) -> Json:
    """Return a format in the form of chats."""
    if isinstance(form, dict) and form.get("type") == "json_schema":
        return {"type": "json_schema", "json_schema": form}
    return form


async def respond(body: Mapping[str, Json], session: AgentSession) -> ServedReply:
    """Answer a request of `/v1/responses`, see `openai_api.chat`."""
    check_model(body, session)
    request = ResponsesRequest.model_validate(body)
    call = request.call(session)
    response = _describe(request, call, await session.call(call), session)
    return ServedReply(response, stream(response) if request.stream else None)


def _describe(
    request: ResponsesRequest, call: Generate, reply: Completion, session: AgentSession
) -> dict[str, Json]:
    name, usage, is_cut = request_id("resp", call), reply.usage, reply.finish == "length"
    output: list[Json] = []
    if reply.text or not reply.tool_calls:
        text = {"type": "output_text", "text": reply.text, "annotations": []}
        output.append(
            {
                "type": "message",
                "id": f"msg_{name}",
                "role": "assistant",
                "status": "completed",
                "content": [text],
            }
        )
    output += [
        {
            "type": "function_call",
            "id": f"fc_{each.id}",
            "call_id": each.id,
            "name": each.name,
            "arguments": each.arguments,
            "status": "completed",
        }
        for each in reply.tool_calls
    ]
    return {
        "id": name,
        "object": "response",
        "created_at": int(time.time()),
        "status": "incomplete" if is_cut else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "instructions": request.instructions,
        "model": session.abilities.model,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": call.temperature,
        "tool_choice": request.tool_choice or "auto",
        "tools": request.tools or [],
        "top_p": call.top_p,
        "usage": {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens},
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.tokens,
        },
    }


def stream(response: Mapping[str, Any]) -> Iterator[str]:
    """Yield a response as server-sent events."""
    events: list[dict[str, Json]] = [
        {"type": "response.created", "response": {**response, "output": []}}
    ]
    for index, item in enumerate(response["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        events.append({"type": "response.output_item.added", "output_index": index, "item": item})
        if item["type"] == "message":
            (part,) = item["content"]
            inside = {**place, "content_index": 0}
            events += [
                {"type": "response.content_part.added", **inside, "part": {**part, "text": ""}},
                {
                    "type": "response.output_text.delta",
                    **inside,
                    "delta": part["text"],
                    "logprobs": [],
                },
                {
                    "type": "response.output_text.done",
                    **inside,
                    "text": part["text"],
                    "logprobs": [],
                },
                {"type": "response.content_part.done", **inside, "part": part},
            ]
        else:
            arguments = item["arguments"]
            events += [
                {"type": "response.function_call_arguments.delta", **place, "delta": arguments},
                {"type": "response.function_call_arguments.done", **place, "arguments": arguments},
            ]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": f"response.{response['status']}", "response": response})
    for number, event in enumerate(events):
        event["sequence_number"] = number
        yield f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n"
