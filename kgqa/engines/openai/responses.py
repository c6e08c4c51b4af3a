"""Read the responses of an OpenAI-compatible server to requests for a reply. No I/O.

An invalid response is never scored, even with status 200: servers and proxies put errors into it, or omit the text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from typing_extensions import Self

from kgqa.calls import Generate
from kgqa.engines.thinking import read_reply
from kgqa.errors import EngineError
from kgqa.types import Completion, GeneratedToken, Json, ToolCall, Usage
from kgqa.util.text import estimate_tokens

# reasons to finish: OpenRouter; vLLM, SGLang; others
FAILED = frozenset({"error", "abort", "cancelled", "failed"})
# reasons for which there can be no text at all
CUT_OFF = frozenset({"length", "content_filter"})
MAX_TOKENS = 10**12  # of one response
# characters of a prompt; with more the server has cut the prompt
MOST_PER_TOKEN = 8
# characters of a prompt that is long enough for this rule
LONG = 2_000
# keys of a request with a schema
SCHEMAS = ("response_format", "json_schema")
Flags = tuple[str, ...]
_IDS = TypeAdapter(tuple[int, ...])
NO_LOGPROBS = "logprobs: the server does not list the log-probabilities of generated tokens"
# log-probability; servers write -9999, -inf or null for less
LOWEST = -100.0


def _raise_to_lowest(logprob: object) -> object:
    if logprob is None:
        return LOWEST
    return max(logprob, LOWEST) if type(logprob) is float or type(logprob) is int else logprob


Logprob = Annotated[
    float, BeforeValidator(_raise_to_lowest), Field(strict=True, le=1e-3, allow_inf_nan=False)
]
Share = Annotated[float, Field(strict=True, ge=0, le=1 + 1e-3, allow_inf_nan=False)]


class Part(BaseModel):
    """A part of a message: Mistral's reasoning models answer in parts."""

    type: Literal["text", "thinking", "reasoning", "refusal"]
    text: str = ""
    thinking: str | list[Part] = ""


class CalledTool(BaseModel):
    id: str | None = None
    function: dict[str, Any]

    def read(self, number: int) -> ToolCall:
        # some servers send JSON values, not text
        arguments = self.function.get("arguments", "")
        text = (
            arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        )
        return ToolCall(self.id or f"call_{number}", str(self.function.get("name", "")), text)


class ReplyMessage(BaseModel):
    content: str | list[Part] | None = None
    tool_calls: list[CalledTool] | None = None
    refusal: str | None = None
    reasoning: Any = None  # vLLM, Ollama, OpenRouter
    reasoning_content: Any = None  # DeepSeek


class Token(BaseModel):
    """A listed token. llama.cpp sends ids, and probabilities after sampling instead of log-probabilities."""

    id: int | None = None
    token: str = ""
    # None: not sent. null is the lowest
    logprob: Annotated[Logprob | None, BeforeValidator(_raise_to_lowest)] = None
    prob: Share | None = None
    top_logprobs: list[Token] | None = None
    top_probs: list[Token] | None = None


class Logprobs(BaseModel):
    """The listed tokens of chats and of llama.cpp, and of plain completions by their names."""

    content: list[Token] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[Logprob] | None = None
    top_logprobs: list[dict[str, Logprob] | None] | None = None

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        names, values, lists = (
            len(each or ()) for each in (self.tokens, self.token_logprobs, self.top_logprobs)
        )
        if names != values or (self.tokens is not None and lists > names):
            raise ValueError("tokens and their log-probabilities have different numbers")
        return self

    @property
    def first(self) -> Token:
        return self.content[0] if self.content else Token()

    @property
    def first_by_name(self) -> Mapping[str, float]:
        return (self.top_logprobs or [{}])[0] or {}

    def read_tokens(self, ids: Sequence[int], count: int) -> Iterator[GeneratedToken]:
        """Yield the tokens of a reply, with the `count` likeliest tokens at their places."""
        if self.content is not None:
            for each, number in zip_longest(self.content, ids[: len(self.content)]):
                top = [(other.token, _value(other)) for other in each.top_logprobs or ()]
                yield GeneratedToken(
                    each.token,
                    _value(each),
                    number if each.id is None else each.id,
                    _top(top, count),
                )
            return
        names, values, lists = self.tokens or [], self.token_logprobs or [], self.top_logprobs or []
        for name, value, listed, number in zip_longest(names, values, lists, ids[: len(names)]):
            yield GeneratedToken(name, value, number, _top((listed or {}).items(), count))


def _value(token: Token) -> float:
    return LOWEST if token.logprob is None else token.logprob


def _top(listed: Iterable[tuple[str, float]], count: int) -> tuple[tuple[str, float], ...]:
    return tuple(sorted(listed, key=lambda each: -each[1])[:count])


@dataclass
class Response:
    """A server's answer to one request.

    reply: the text, with the reasoning that the server separates from it, and the charged tokens. invalid: why it
    cannot be read, or "". It was charged, and only this call has failed.
    """

    reply: Completion
    model: Json = None
    logprobs: Logprobs = field(default_factory=Logprobs)
    token_ids: tuple[int, ...] = ()
    prompt_ids: tuple[int, ...] = ()
    invalid: str = ""

    def add_flags(self, *flags: str) -> None:
        self.reply = replace(self.reply, flags=(*self.reply.flags, *flags))


def read_response(answer: Json, request: Mapping[str, Json]) -> Response:
    """Return the response to a request. Raise ValueError if the server has failed to make one.

    Flags: "estimated_usage" (the server does not count tokens, so they are estimated), "cut_prompt" (it has read far
    fewer tokens than the prompt has), "filtered".
    """
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if (
        not isinstance(choices, list)
        or not choices
        or not isinstance(choices[0], dict)
        or not choices[0]
    ):
        raise ValueError("an answer without choices")
    choice, finish = choices[0], str(choices[0].get("finish_reason"))
    if choice.get("error"):
        raise ValueError("an error instead of a reply")
    if finish in FAILED:
        raise ValueError(f"a reply that ended with {finish!r}")
    usage, flags = _measure_usage(answer.get("usage"), choice, request)
    end: Literal["stop", "length"] = "length" if finish == "length" else "stop"
    reply = Completion("", end, usage, flags, stopped_by=_read_stop(answer, request))
    response = Response(reply, answer.get("model"))
    try:
        if request.get("logprobs", False) is not False and choice.get("logprobs"):
            response.logprobs = Logprobs.model_validate(choice["logprobs"])
            response.token_ids, response.prompt_ids = _read_ids(answer, choice)
        message = (
            {"content": choice.get("text")} if choice.get("message") is None else choice["message"]
        )
        _read_message(ReplyMessage.model_validate(message), finish, response)
    except ValidationError as error:
        first = error.errors()[0]
        response.invalid = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return response


def _read_stop(answer: Mapping[str, Json], request: Mapping[str, Json]) -> str | None:
    """Return the stop string that ended a reply, "" if none did, or None if the server does not report it.

    vLLM and SGLang send it with the choice, or the id of an end token. llama.cpp sends it with `verbose`.
    """
    if not request.get("stop"):
        return None
    choice = answer["choices"][0]
    if choice.get("finish_reason") == "length":
        return ""
    details = answer.get("__verbose")
    reports = [
        each[key]
        for each, key in (
            (choice, "stop_reason"),
            (choice, "matched_stop"),
            (details, "stopping_word"),
        )
        if isinstance(each, dict) and key in each
    ]
    if not reports:
        return None
    return reports[0] if reports[0] in request["stop"] else ""


def _read_message(message: ReplyMessage, finish: str, response: Response) -> None:
    reasoning = message.reasoning_content or message.reasoning
    is_listed = response.logprobs != Logprobs()
    is_explained = (
        message.refusal or message.tool_calls or reasoning or response.reply.usage.reasoning_tokens
    )
    is_explained = is_explained or is_listed
    if not message.content and message.content != "" and not is_explained and finish not in CUT_OFF:
        response.invalid = "a message without content"
    text = _join_parts(message.content, "text") or message.refusal or ""
    thought = reasoning if isinstance(reasoning, str) else _join_parts(message.content, "thinking")
    tool_calls = tuple(
        call.read(number) for number, call in enumerate(message.tool_calls or (), start=1)
    )
    response.reply = replace(
        response.reply, text=text, thought=thought.strip(), tool_calls=tool_calls
    )
    if message.refusal or finish == "content_filter":
        response.add_flags("filtered")


def _read_ids(
    answer: Mapping[str, Json], choice: Mapping[str, Json]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids of the tokens of a reply and of its prompt, which only vLLM sends."""
    prompt = choice.get("prompt_token_ids") or answer.get("prompt_token_ids")
    return _IDS.validate_python(choice.get("token_ids") or ()), _IDS.validate_python(prompt or ())


def _join_parts(content: str | list[Part] | None, kind: Literal["text", "thinking"]) -> str:
    """Return the text of all parts of one kind."""
    if not isinstance(content, list):
        return (content or "") if kind == "text" else ""
    texts = (
        part.text if kind == "text" else _join_parts(part.thinking, "text")
        for part in content
        if part.type == kind
    )
    return "".join(texts)


def _measure_usage(
    usage: Json, choice: Mapping[str, Json], request: Mapping[str, Json]
) -> tuple[Usage, Flags]:
    """Return the charged tokens, as the server counts them or estimated, and flags."""
    estimated, characters = estimate_prompt(request)
    prompt, output = _read_count(usage, "prompt_tokens"), _read_count(usage, "completion_tokens")
    if prompt is None or output is None:
        message = (
            choice["message"]
            if isinstance(choice.get("message"), dict)
            else {"text": choice.get("text")}
        )
        estimate = sum(
            estimate_tokens(str(value)) for key, value in message.items() if value and key != "role"
        )
        return Usage(estimated, 0, estimate), ("estimated_usage",)
    reasoning = _read_count(usage.get("completion_tokens_details"), "reasoning_tokens") or 0
    cached = _read_count(usage.get("prompt_tokens_details"), "cached_tokens") or 0
    if (
        reasoning and usage.get("total_tokens") == prompt + output + reasoning
    ):  # xAI counts it in addition
        output += reasoning
    is_cut = characters >= LONG and MOST_PER_TOKEN * prompt < characters
    return Usage(prompt, cached, output, 0.0, reasoning), (("cut_prompt",) if is_cut else ())


def _read_count(usage: Json, key: str) -> int | None:
    """Return a number of tokens, or None if the server does not report a valid one."""
    number = usage.get(key) if isinstance(usage, dict) else None
    return int(number) if isinstance(number, (int, float)) and 0 <= number <= MAX_TOKENS else None


def add_tokens(response: Response, count: int) -> Completion:
    """Return the reply with its tokens. Raise EngineError if the server does not list them."""
    tokens = tuple(response.logprobs.read_tokens(response.token_ids, count))
    if response.reply.text and not tokens:
        error = EngineError(NO_LOGPROBS)
        error.charge(response.reply.usage)
        raise error
    ids = response.prompt_ids if tokens and tokens[0].id is not None else ()
    return replace(response.reply, tokens=tokens, prompt_ids=ids)


def estimate_prompt(request: Mapping[str, Json]) -> tuple[int, int]:
    """Return the rough number of tokens of a request's prompt, and its characters (0 if it consists of tokens)."""
    prompt = request.get("prompt")
    if isinstance(prompt, list):
        return len(prompt), 0
    contents = (
        [prompt]
        if prompt is not None
        else [message["content"] for message in request.get("messages", ())]
    )
    texts = [str(content or "") for content in contents]
    return sum(map(estimate_tokens, texts)), sum(map(len, texts))


def finish_reply(
    response: Response, call: Generate, settings: Mapping[str, Json], *, thinks: bool
) -> Completion:
    """Return the reply without its reasoning, cut by `cut_reply`.

    Flag: "unconstrained" (the request has no schema, because the server would drop it).
    """
    if call.schema is not None and not set(SCHEMAS) & set(settings):
        response.add_flags("unconstrained")
    if call.logprobs is not None:
        response.reply = add_tokens(response, call.logprobs)
    return cut_reply(call, read_reply(call, response.reply, thinks=thinks))


def cut_reply(call: Generate, reply: Completion) -> Completion:
    """Return the reply up to the first stop string, without a prefill that the server got in no or in another form."""
    text, prefill = reply.text, call.prompt.prefill
    is_omitted = {"no_prefill", "transcript_as_message"}.intersection(reply.flags)
    # first: a prefill can contain stop strings
    if is_omitted and text.lstrip().startswith(prefill):
        text = text.lstrip()[len(prefill) :]
    text, stop = call.split_at_stop(text)
    if not stop:
        return replace(reply, text=text)
    return replace(reply, text=text, finish="stop", stopped_by=stop)
