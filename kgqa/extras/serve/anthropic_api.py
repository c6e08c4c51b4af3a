"""Anthropic's `/v1/messages` as calls of a session."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, NonNegativeFloat, PositiveInt

from kgqa.calls import Generate
from kgqa.extras.serve.openai_api import (
    ServedReply,
    check_model,
    check_prefill,
    join_text,
    read_tools,
    request_id,
)
from kgqa.extras.serve.session import AgentSession, NotSupported
from kgqa.types import Completion, Json, Message, Prompt, ToolCall

CHOICES = {"auto": "auto", "any": "required", "none": "none"}  # Anthropic's names → OpenAI's
Blocks = str | list[dict[str, Json]]


class AnthropicMessage(BaseModel):
    role: Literal["user", "assistant"]
    content: Blocks

    def messages(self) -> Iterator[Message]:
        """Yield the results of tools as messages of their own, before the text."""
        blocks = (
            [{"type": "text", "text": self.content}]
            if isinstance(self.content, str)
            else self.content
        )
        calls = []
        for block in blocks:
            if block.get("type") == "tool_result":
                yield Message(
                    "tool",
                    join_text(block.get("content")),
                    answers=str(block.get("tool_use_id", "")),
                )
            elif block.get("type") == "tool_use":
                calls.append(
                    ToolCall(
                        str(block["id"]), str(block["name"]), json.dumps(block.get("input", {}))
                    )
                )
        content = [
            block
            for block in blocks
            if block.get("type") not in ("tool_result", "tool_use", "thinking")
        ]
        if content or calls:
            yield Message(self.role, join_text(content), tuple(calls))


class AnthropicTool(BaseModel):
    name: str
    description: str = ""
    input_schema: dict[str, Json]

    def json_form(self) -> Json:
        """Return the tool in OpenAI's form."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.input_schema,
        }
        return {"type": "function", "function": function}


class MessagesRequest(BaseModel):
    model: str = ""
    max_tokens: PositiveInt
    messages: Annotated[list[AnthropicMessage], Field(min_length=1)]
    system: Blocks | None = None
    stop_sequences: list[str] | None = None
    temperature: NonNegativeFloat | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    stream: bool = False
    tools: list[AnthropicTool] | None = None
    tool_choice: dict[str, Json] | None = None

    def call(self, session: AgentSession) -> Generate:
        """Return the call of the request. A last message of the assistant is the start of the reply."""
        system = [Message("system", join_text(self.system))] if self.system else []
        messages = [*system, *(message for each in self.messages for message in each.messages())]
        prefill = ""
        if self.messages[-1].role == "assistant":
            check_prefill(session)
            prefill = messages.pop().content
        tools, choice = read_tools(
            [tool.json_form() for tool in self.tools or ()], self._choice(), session
        )
        temperature = session.limits.temperature if self.temperature is None else self.temperature
        return Generate(
            Prompt("agent/messages", tuple(messages), prefill),
            self.max_tokens,
            tuple(filter(None, self.stop_sequences or ())),
            temperature,
            1.0 if self.top_p is None else self.top_p,
            role=self.model if self.model in session.abilities.roles else "reader",
            tools=tools,
            tool_choice=choice,
        )

    def _choice(self) -> Json:
        """Return the choice among tools in OpenAI's form."""
        choice = self.tool_choice or {}
        kind = choice.get("type", "auto")
        if kind == "tool":
            return {"type": "function", "function": {"name": choice.get("name")}}
        if kind not in CHOICES:
            raise NotSupported(f"tool_choice={kind!r}: expected auto, any, tool or none")
        return CHOICES[kind]


async def create_message(body: Mapping[str, Json], session: AgentSession) -> ServedReply:
    """Answer a request of `/v1/messages`, see `openai_api.chat`."""
    check_model(body, session)
    request = MessagesRequest.model_validate(body)
    call = request.call(session)
    reply = await session.call(call)
    content: list[dict[str, Json]] = [{"type": "text", "text": reply.text}] if reply.text else []
    content += [
        {"type": "tool_use", "id": each.id, "name": each.name, "input": _read_arguments(each)}
        for each in reply.tool_calls
    ]
    response = {
        "id": request_id("msg", call),
        "type": "message",
        "role": "assistant",
        "model": session.abilities.model,
        "content": content,
        "stop_reason": _stop_reason(reply),
        "stop_sequence": reply.stopped_by or None,
        "usage": {
            "input_tokens": reply.usage.prompt_tokens,
            "output_tokens": reply.usage.output_tokens,
            "cache_read_input_tokens": reply.usage.cached_tokens,
        },
    }
    return ServedReply(response, stream(response) if request.stream else None)


def _stop_reason(reply: Completion) -> str:
    if reply.tool_calls:
        return "tool_use"
    if reply.finish == "length":
        return "max_tokens"
    return "stop_sequence" if reply.stopped_by else "end_turn"


def _read_arguments(call: ToolCall) -> Json:
    """Return the arguments of a call. What is no JSON object is in the key `arguments`."""
    try:
        value = json.loads(call.arguments or "{}")
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"arguments": call.arguments}


def stream(response: Mapping[str, Any]) -> Iterator[str]:
    """Yield a response as server-sent events."""
    start = {**response, "content": [], "stop_reason": None, "stop_sequence": None}
    yield _event("message_start", message=start)
    for index, block in enumerate(response["content"]):
        if block["type"] == "text":
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield _event("content_block_start", index=index, content_block=empty)
        yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    end = {key: response[key] for key in ("stop_reason", "stop_sequence")}
    yield _event(
        "message_delta", delta=end, usage={"output_tokens": response["usage"]["output_tokens"]}
    )
    yield _event("message_stop")


def _event(kind: str, **data: Json) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data}, ensure_ascii=False)}\n\n"
