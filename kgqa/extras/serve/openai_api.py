"""OpenAI's `/v1/chat/completions` and `/v1/completions` as calls of a session."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Annotated, Literal

from pydantic import BaseModel, Field, NonNegativeFloat, PositiveInt

from kgqa.calls import Generate
from kgqa.extras.serve.session import AgentSession, NotSupported
from kgqa.types import Completion, Json, Message, Prompt, ToolCall, Usage

MOST_REPLIES = 128  # of one request
# the likeliest tokens at a place; OpenAI's limit
ListLength = Annotated[int, Field(ge=0, le=20)]
# keys that would change a reply, with the value at which they do not
WITHOUT_EFFECT: Mapping[str, Json] = {
    "presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1, "logit_bias": None, "top_k": -1,
    "min_p": 0, "best_of": None, "echo": False, "suffix": None, "functions": None,
}  # fmt: skip
ROLES: Mapping[str, Literal["system", "user", "assistant", "tool"]] = {
    "system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool",
}  # fmt: skip
Role = Literal["system", "developer", "user", "assistant", "tool"]


class Sampling(BaseModel):
    """The keys that both endpoints share. Further ones are ignored, except those of `WITHOUT_EFFECT`."""

    model: str = ""
    max_tokens: PositiveInt | None = None
    temperature: NonNegativeFloat | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    n: Annotated[int, Field(ge=1, le=MOST_REPLIES)] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    stream: bool | None = None
    stream_options: dict[str, Json] | None = None
    include_stop_str_in_output: bool = False  # vLLM's
    # vLLM's, together with logprobs
    return_token_ids: bool = False

    def generate(self, prompt: Prompt, session: AgentSession, max_tokens: int | None) -> Generate:
        """Return the call of a request."""
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        temperature, limits = self.temperature, session.limits
        return Generate(
            prompt,
            max_tokens=max_tokens or limits.max_tokens,
            stop=tuple(filter(None, stop)),
            temperature=limits.temperature if temperature is None else temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            seed=self.seed,
            role=self.model if self.model in session.abilities.roles else "reader",
        )


class FunctionCall(BaseModel):
    name: str
    arguments: str = "{}"


class RequestedCall(BaseModel):
    id: str = ""
    function: FunctionCall


class ChatMessage(BaseModel):
    role: Role
    content: str | list[dict[str, Json]] | None = None
    tool_calls: list[RequestedCall] | None = None
    tool_call_id: str = ""

    def message(self) -> Message:
        calls = (
            ToolCall(each.id, each.function.name, each.function.arguments)
            for each in self.tool_calls or ()
        )
        return Message(ROLES[self.role], join_text(self.content), tuple(calls), self.tool_call_id)


class ChatRequest(Sampling):
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: PositiveInt | None = None
    tools: list[dict[str, Json]] | None = None
    tool_choice: str | dict[str, Json] | None = None
    response_format: dict[str, Json] | None = None
    # vLLM's: the last message is the start of the reply
    continue_final_message: bool = False
    logprobs: bool | None = None
    top_logprobs: ListLength | None = None


class CompletionRequest(Sampling):
    prompt: str | list[str]
    logprobs: ListLength | None = None


@dataclass(frozen=True)
class ServedReply:
    """A response, and its events if the request wants a stream."""

    response: Mapping[str, Json]
    events: Iterator[str] | None = None


async def chat(body: Mapping[str, Json], session: AgentSession) -> ServedReply:
    """Answer a request of `/v1/chat/completions`.

    Raises:
        ValidationError: a key has a wrong value.
        NotSupported: a key cannot be followed.
    """
    check_model(body, session)
    request = ChatRequest.model_validate(body)
    logprobs = (request.top_logprobs or 0) if request.logprobs else None
    check_logprobs(logprobs, request, session)
    *before, last = messages = [each.message() for each in request.messages]
    prefill = ""
    if request.continue_final_message and last.role == "assistant":
        check_prefill(session)
        messages, prefill = before, last.content
    prompt = Prompt("agent/chat", tuple(messages), prefill)
    call = request.generate(prompt, session, request.max_completion_tokens or request.max_tokens)
    tools, choice = read_tools(request.tools, request.tool_choice, session)
    schema = read_schema(request.response_format)
    call = replace(call, tools=tools, tool_choice=choice, schema=schema, logprobs=logprobs)
    replies = await gather_replies([call], request.n or 1, session)
    choices = []
    for index, reply in enumerate(replies):
        message: dict[str, Json] = {"role": "assistant", "content": reply_text(reply, request)}
        if reply.thought:
            message["reasoning_content"] = reply.thought
        if reply.tool_calls:
            message["content"] = reply.text or None
            message["tool_calls"] = [
                {
                    "id": each.id,
                    "type": "function",
                    "function": {"name": each.name, "arguments": each.arguments},
                }
                for each in reply.tool_calls
            ]
        finish = "tool_calls" if reply.tool_calls else reply.finish
        listed = None if logprobs is None else chat_logprobs(reply)
        ids = token_ids(reply, request)
        end = {"finish_reason": finish, "stop_reason": reply.stopped_by}
        choices.append({"index": index, "message": message, **end, "logprobs": listed, **ids})
    response = envelope("chat.completion", "chatcmpl", call, choices, replies, session)
    if request.return_token_ids:
        response["prompt_token_ids"] = list(replies[0].prompt_ids)
    return ServedReply(response, stream(response, request) if request.stream else None)


async def complete(body: Mapping[str, Json], session: AgentSession) -> ServedReply:
    """Answer a request of `/v1/completions`, see `chat`."""
    check_model(body, session)
    request = CompletionRequest.model_validate(body)
    check_logprobs(request.logprobs, request, session)
    texts = [request.prompt] if isinstance(request.prompt, str) else request.prompt
    prompts = [
        Prompt("agent/completion", (Message("user", text),), form="completion") for text in texts
    ]
    max_tokens = request.max_tokens or 16  # the protocol's default
    calls = [
        replace(
            request.generate(prompt, session, max_tokens),
            thoughts="keep",
            logprobs=request.logprobs,
        )
        for prompt in prompts
    ]
    if not calls:
        raise NotSupported("prompt: give a text")
    replies = await gather_replies(calls, request.n or 1, session)
    choices = [
        {
            "index": index,
            "text": reply_text(reply, request),
            "finish_reason": reply.finish,
            "stop_reason": reply.stopped_by,
            "logprobs": None if request.logprobs is None else text_logprobs(reply),
            **({"prompt_token_ids": list(reply.prompt_ids)} if request.return_token_ids else {}),
            **token_ids(reply, request),
        }
        for index, reply in enumerate(replies)
    ]
    response = envelope("text_completion", "cmpl", calls[0], choices, replies, session)
    return ServedReply(response, stream(response, request) if request.stream else None)


def check_model(body: Mapping[str, Json], session: AgentSession) -> None:
    """Raise NotSupported if there is no model, or a key would change the reply and cannot be followed."""
    if not session.abilities.model:
        raise NotSupported("there is no model here. Set model=NAME or server=URL")
    for key, neutral in WITHOUT_EFFECT.items():
        if body.get(key) not in (neutral, None, {}, []):
            raise NotSupported(f"{key}={body[key]!r}: kgqa cannot follow this key. Leave it out")


def check_logprobs(logprobs: int | None, request: Sampling, session: AgentSession) -> None:
    """Raise NotSupported if the request needs log-probabilities or token ids that there are not."""
    if logprobs is not None and not session.abilities.logprobs:
        raise NotSupported(
            "logprobs: this engine does not list the log-probabilities of generated tokens"
        )
    if logprobs is None and request.return_token_ids:
        raise NotSupported("return_token_ids: request logprobs, too")


def check_prefill(session: AgentSession) -> None:
    """Raise NotSupported if the engine cannot continue the start of a reply."""
    if not session.abilities.prefill:
        raise NotSupported(
            "prefill: this engine cannot continue the start of a reply. End with a message of the user"
        )


def chat_logprobs(reply: Completion) -> Json:
    def entry(text: str, logprob: float) -> dict[str, Json]:
        return {
            "token": text,
            "logprob": logprob,
            "bytes": list(text.encode("utf-8", "surrogatepass")),
        }

    content = [
        {**entry(each.text, each.logprob), "top_logprobs": [entry(*other) for other in each.top]}
        for each in reply.tokens
    ]
    return {"content": content, "refusal": None}


def text_logprobs(reply: Completion) -> Json:
    texts = [each.text for each in reply.tokens]
    return {
        "tokens": texts,
        "token_logprobs": [each.logprob for each in reply.tokens],
        "top_logprobs": [dict(each.top) for each in reply.tokens],
        "text_offset": [0, *accumulate(map(len, texts))][: len(texts)],
    }


def token_ids(reply: Completion, request: Sampling) -> dict[str, Json]:
    """Return the ids of the reply in vLLM's form. Raise NotSupported if the engine does not know them."""
    if not request.return_token_ids:
        return {}
    ids = [each.id for each in reply.tokens]
    if None in ids or not reply.prompt_ids:
        raise NotSupported("return_token_ids: this engine does not list the ids of tokens")
    return {"token_ids": ids}


def read_tools(tools: Json, choice: Json, session: AgentSession) -> tuple[str | None, str | None]:
    """Return tools and the choice among them as `Generate` has them."""
    if not tools or choice == "none":
        return None, None
    if not session.abilities.functions:
        raise NotSupported(
            "tools: this engine has no function calls. Use engine=openai, or describe tools in a prompt"
        )
    decides = choice in (None, "auto")
    return json.dumps(tools, ensure_ascii=False), None if decides else json.dumps(
        choice, ensure_ascii=False
    )


def read_schema(response_format: Mapping[str, Json] | None) -> str | None:
    """Return the JSON schema that a reply must follow, or None."""
    kind = (response_format or {}).get("type", "text")
    if response_format is None or kind == "text":
        return None
    if kind == "json_object":
        return json.dumps({"type": "object"})
    schema = (response_format.get("json_schema") or {}).get("schema")
    if kind != "json_schema" or not isinstance(schema, dict):
        raise NotSupported("response_format: give text, json_object, or json_schema with a schema")
    return json.dumps(schema)


async def gather_replies(
    calls: Sequence[Generate], n: int, session: AgentSession
) -> list[Completion]:
    """Return `n` replies to each call. Those with the caller's seed count on from it."""
    varied = [
        call if call.seed is None or number == 0 else replace(call, seed=call.seed + number)
        for call in calls
        for number in range(n)
    ]
    return await asyncio.gather(*(session.call(call) for call in varied))


def join_text(content: str | Iterable[Mapping[str, Json]] | None) -> str:
    """Return the text of a message. Raise NotSupported for images and other parts."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = []
    for part in content:
        if part.get("type") not in ("text", "input_text", "output_text"):
            raise NotSupported(
                f"content of type {part.get('type')!r}: kgqa's models read text only"
            )
        parts.append(str(part.get("text", "")))
    return "".join(parts)


def reply_text(reply: Completion, request: Sampling) -> str:
    return reply.text + (reply.stopped_by or "") * request.include_stop_str_in_output


def envelope(
    kind: str,
    prefix: str,
    call: Generate,
    choices: list[Json],
    replies: Sequence[Completion],
    session: AgentSession,
) -> dict[str, Json]:
    return {
        "id": request_id(prefix, call),
        "object": kind,
        "created": int(time.time()),
        "model": session.abilities.model,
        "choices": choices,
        "usage": usage_json(sum((reply.usage for reply in replies), Usage())),
    }


def request_id(prefix: str, call: Generate) -> str:
    """Return an id that depends on the request only, so that a resumed agent sees the same one."""
    return (
        f"{prefix}-{hashlib.sha256(repr(call).encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"
    )


def usage_json(usage: Usage) -> dict[str, Json]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def stream(response: Mapping[str, Json], request: Sampling) -> Iterator[str]:
    """Yield a response as server-sent events. kgqa has the complete reply before the first one."""
    is_chat = response["object"] == "chat.completion"
    head = {key: response[key] for key in ("id", "created", "model")}
    head["object"] = "chat.completion.chunk" if is_chat else "text_completion"
    # in the first event only, as vLLM sends them
    prompt_ids = {key: response[key] for key in ("prompt_token_ids",) if key in response}
    for choice in response["choices"]:
        for part in _chat_parts(choice) if is_chat else [choice]:
            yield _event({**head, "choices": [part], **prompt_ids})
            prompt_ids = {}
    if (request.stream_options or {}).get("include_usage"):
        yield _event({**head, "choices": [], "usage": response["usage"]})
    yield "data: [DONE]\n\n"


def _chat_parts(choice: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
    message = {key: value for key, value in choice["message"].items() if value is not None}
    for index, call in enumerate(message.get("tool_calls", ())):
        call["index"] = index
    yield {
        "index": choice["index"],
        "delta": message,
        "logprobs": choice["logprobs"],
        "finish_reason": None,
        **{key: choice[key] for key in ("token_ids",) if key in choice},
    }
    yield {"index": choice["index"], "delta": {}, "finish_reason": choice["finish_reason"]}


def _event(data: Mapping[str, Json]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"
