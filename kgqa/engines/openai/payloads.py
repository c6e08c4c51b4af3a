"""Build requests to an OpenAI-compatible server, and validate and read its responses. No I/O.

An invalid response is a failed attempt, whatever its status: servers and the proxies before them put errors into it,
omit the text or count nonsense, and a model must not be scored for that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError, model_validator

from kgqa.calls import Generate
from kgqa.engines.grammar import bound_schema
from kgqa.engines.openai.transport import Refused
from kgqa.engines.thinking import NO_THINKING, TAGS, Thinking, split_thought
from kgqa.errors import ConfigError, EngineError, PromptTooLong
from kgqa.types import Completion, Json, Prompt, Usage

Server = Literal["hosted", "vllm", "sglang", "llamacpp"]

# vLLM and SGLang take missing settings from the model's generation_config.json, repetition penalties included
NEUTRAL: Mapping[str, Json] = {
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
DEFAULTS: Mapping[Server, Mapping[str, Json]] = {
    "hosted": {},
    "vllm": NEUTRAL,
    "sglang": NEUTRAL,
    "llamacpp": {"samplers": ["temperature", "top_p"], "cache_prompt": True},  # transformers' order
}
MAX_STOPS = 4  # of a hosted server; the reply is cut at all of them in any case
LISTS = ("logprobs", "top_logprobs")  # the first is a length or, in chats, a bool
SCHEMAS = ("response_format", "json_schema")
# Keys that a call can omit when a server rejects them, and the flag for it; "" if kgqa makes up for it
OPTIONAL = {
    **dict.fromkeys(SCHEMAS, "unconstrained"),
    "temperature": "fixed_temperature",
    "top_p": "fixed_top_p",
    "seed": "no_seed",
    "stop": "",
    "reasoning_effort": "no_effort",
    **dict.fromkeys(LISTS, "no_logprobs"),
}
MAXIMUM = re.compile(r"max|at most|up to|less|greater|between|exceed|<=|≤", re.IGNORECASE)
TOO_LONG = re.compile(r"context (length|size|window)|too many (input )?tokens", re.IGNORECASE)
UNKNOWN_PARAMETER = re.compile(r"un(supported|recognized|known|expected)|not (support|allowed)|extra", re.IGNORECASE)
RESERVED = frozenset(  # keys of requests that kgqa sets, or that change the form of responses
    {
        *("model", "messages", "prompt", "max_tokens", "max_completion_tokens", "temperature", "top_p", "seed", "stop"),
        *("stop_token_ids", "response_format", "json_schema", "logit_bias", "logprobs", "top_logprobs", "echo"),
        *("logprob_token_ids", "prompt_logprobs", "post_sampling_probs", "return_tokens_as_token_ids"),
        *("continue_final_message", "add_generation_prompt", "skip_special_tokens", "preserved_tokens"),
        *("n", "best_of", "stream"),
    }
)
SECRET = re.compile(r"api_?key|secret|password|authorization|access_token", re.IGNORECASE)
FAILED = frozenset({"error", "abort", "cancelled", "failed"})  # reasons to finish: OpenRouter; vLLM, SGLang; others
CUT_OFF = frozenset({"length", "content_filter"})  # reasons for which there can be no text at all
MAX_TOKENS = 10**12  # of one response

Logprob = Annotated[float, Field(strict=True, le=1e-3, allow_inf_nan=False)]  # rounded
Share = Annotated[float, Field(strict=True, ge=0, le=1 + 1e-3, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=MAX_TOKENS)]


class Part(BaseModel):
    """A part of a message: Mistral's reasoning models answer in parts."""

    type: Literal["text", "thinking", "reasoning", "refusal"]
    text: str = ""
    thinking: str | list[Part] = ""

    def read(self, kind: str) -> str:
        """Return the text of this part if it is of that kind."""
        content = self.text if kind == "text" else self.thinking
        if self.type != kind:
            return ""
        return content if isinstance(content, str) else "".join(part.read("text") for part in content)


class Message(BaseModel):
    content: str | list[Part] | None = None
    refusal: str | None = None
    reasoning: Any = None  # vLLM, Ollama, OpenRouter
    reasoning_content: Any = None  # DeepSeek

    def read(self, kind: str) -> str:
        """Return the text, or the parts of one kind."""
        if isinstance(self.content, list):
            return "".join(part.read(kind) for part in self.content)
        return self.content or "" if kind == "text" else ""


class Token(BaseModel):
    """A listed token. llama.cpp has ids, and probabilities after sampling instead of log-probabilities."""

    id: int | None = None
    token: str = ""
    logprob: Logprob | None = None
    prob: Share | None = None
    top_logprobs: list[Token] | None = None
    top_probs: list[Token] | None = None

    @model_validator(mode="after")
    def _check(self) -> Token:
        if self.logprob is None and self.prob is None:
            raise ValueError("a token without probability")
        return self


class Logprobs(BaseModel):
    """The listed tokens of chats and of llama.cpp, and of plain completions by their names."""

    content: list[Token] | None = None
    top_logprobs: list[dict[str, Logprob] | None] | None = None


class ServerChoice(BaseModel):
    finish_reason: str | None = None
    text: str | None = None
    message: Message | None = None
    logprobs: Any = None
    error: Any = None

    @property
    def reasoning(self) -> str:
        """Return the reasoning text that the server separates from the answer."""
        if self.message is None:
            return ""
        text = self.message.reasoning_content or self.message.reasoning
        return (text if isinstance(text, str) else self.message.read("thinking")).strip()

    @property
    def first_token(self) -> Token | None:
        """Return the listed first token of a chat, or of llama.cpp."""
        listed = Logprobs.model_validate(self.logprobs or {}).content
        return listed[0] if listed else None

    @property
    def first_logprobs(self) -> Mapping[str, float]:
        """Return the log-probabilities of the first token of a plain completion, by the tokens' names."""
        return (Logprobs.model_validate(self.logprobs or {}).top_logprobs or [{}])[0] or {}


class ServerUsage(BaseModel):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    total_tokens: Any = None
    prompt_tokens_details: Any = None
    completion_tokens_details: Any = None

    def read(self, seconds: float) -> Usage:
        """Return the tokens as the server counts and charges them. xAI counts reasoning in addition to the answer."""
        prompt, output = self.prompt_tokens or 0, self.completion_tokens or 0
        reasoning = _detail(self.completion_tokens_details, "reasoning_tokens")
        if reasoning and self.total_tokens == prompt + output + reasoning:
            output += reasoning
        return Usage(prompt, _detail(self.prompt_tokens_details, "cached_tokens"), output, seconds, reasoning)


class Response(BaseModel):
    model: Any = None
    choices: list[ServerChoice] = Field(min_length=1)
    usage: ServerUsage | None = None
    seconds: float = Field(default=0.0, exclude=True)

    def read_usage(self) -> Usage:
        if self.usage is None:
            raise EngineError("the server's answer does not say how many tokens it used (usage)")
        return self.usage.read(self.seconds)


def validate_response(answer: Json, *, has_logprobs: bool) -> Response:
    """Return the response. Raise ValueError with the reason if it is no reply of a model."""
    try:
        response = Response.model_validate(answer)
        choice = response.choices[0]
        if has_logprobs and choice.logprobs:
            Logprobs.model_validate(choice.logprobs)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if choice.error:
        raise ValueError("an error in the place of a reply")
    if choice.finish_reason in FAILED:
        raise ValueError(f"a reply that ended with {choice.finish_reason!r}")
    message = choice.message
    if has_logprobs and choice.logprobs:
        return response
    if message is None and choice.text is None:
        raise ValueError("a choice without text")
    if message is not None and not message.content and message.content != "":
        details = response.usage.completion_tokens_details if response.usage else None
        reasoned = message.reasoning or message.reasoning_content or _detail(details, "reasoning_tokens")
        if not (message.refusal or choice.finish_reason in CUT_OFF or reasoned):
            raise ValueError("a message without content")
    return response


def _detail(details: Json, key: str) -> int:
    """Return 0 if the server reports no such number."""
    number = details.get(key) if isinstance(details, dict) else 0
    return int(number) if isinstance(number, (int, float)) and 0 <= number <= MAX_TOKENS else 0


@dataclass
class Abilities:
    """The features of a server, as learned from rejected requests until the engine is closed."""

    rejected: set[str] = field(default_factory=set)  # keys of requests; of schemas each one, as not all are rejected
    max_logprobs: int | None = None  # for one token
    renamed: bool = False  # it wants max_completion_tokens instead of max_tokens

    def fit(self, body: Mapping[str, Json]) -> dict[str, Json]:
        """Return the request in the form that this server accepts."""
        fitted = {key: value for key, value in body.items() if _feature(key, value) not in self.rejected}
        if self.renamed and "max_tokens" in fitted:
            fitted["max_completion_tokens"] = fitted.pop("max_tokens")
        key = "top_logprobs" if "top_logprobs" in fitted else "logprobs"
        if self.max_logprobs is not None and type(fitted.get(key)) is int:
            fitted[key] = min(fitted[key], self.max_logprobs)
        return fitted

    def learn(self, refused: Refused, body: Mapping[str, Json]) -> bool:
        """Return True if the request can be fitted better now than the one that was rejected."""
        if "max_tokens" in body and "max_completion_tokens" in refused.message:
            self.renamed = True
            return True
        key = _find_key(refused, body)
        if key in LISTS:
            self._learn_max_logprobs(refused.message, body)
        elif key in OPTIONAL:
            self.rejected.add(_feature(key, body[key]))
        return key in OPTIONAL

    def _learn_max_logprobs(self, message: str, body: Mapping[str, Json]) -> None:
        """Learn how long a list can be, if the server says so; otherwise that there is none."""
        longest = max((value for key in LISTS if type(value := body.get(key)) is int), default=1)
        numbers = [number for number in map(int, re.findall(r"\d+", message)) if 0 < number < longest]
        if numbers and MAXIMUM.search(message):
            self.max_logprobs = max(numbers)
        else:
            self.rejected.update(LISTS)

    def flags(self, body: Mapping[str, Json]) -> tuple[str, ...]:
        """Return flags for the parts of this request that the server does not support."""
        missing = [key for key, value in body.items() if _feature(key, value) in self.rejected]
        return tuple(dict.fromkeys(OPTIONAL[key] for key in missing if OPTIONAL[key]))


def _feature(key: str, value: Json) -> str:
    return f"{key}={json.dumps(value, sort_keys=True)}" if key in SCHEMAS else key


def _find_key(refused: Refused, body: Mapping[str, Json]) -> str:
    """Return the key of the request that the server rejects; "" if it does not say."""
    path = re.split(r"[.\[]", str(refused.error.get("param") or ""))[0]
    if path in body:
        return path
    quoted = re.findall(r"['\"`](\w+)['\"`]|\b([a-z]+_[a-z_]+|logprobs)\b", refused.message)
    named = [str(word) for words in quoted for word in words if word in body]
    if named and (UNKNOWN_PARAMETER.search(refused.message) or "logprobs" in refused.message):
        return named[0]
    if "reasoning_effort" in body and re.search("think|reasoning", refused.message, re.IGNORECASE):
        return "reasoning_effort"
    about_schema = re.search("schema|grammar", refused.message, re.IGNORECASE)
    return next((key for key in SCHEMAS if key in body and about_schema), "")


def find_length_error(refused: Refused, limit: int) -> PromptTooLong | None:
    """Return the error for a prompt that is too long; None if the refusal has another reason."""
    tokens = refused.error.get("n_prompt_tokens")  # llama.cpp
    if not (tokens or refused.error.get("code") == "context_length_exceeded" or TOO_LONG.search(refused.message)):
        return None
    numbers = [int(number) for number in re.findall(r"\d+", refused.message)]
    return PromptTooLong(int(tokens or max(numbers[1:], default=0)), int(refused.error.get("n_ctx") or limit))


def check_extra(extra: Mapping[str, Json], server: Server, thinking: Thinking) -> None:
    """Raise ConfigError for a value that JSON cannot express, a key that kgqa sets, or a secret."""
    try:
        json.dumps(dict(extra), allow_nan=False)
    except ValueError:
        raise ConfigError("engine.extra_body: holds nan or inf, which JSON cannot say; give a number") from None
    effort = {"reasoning_effort"} if thinking.effort else set()
    template = set() if server == "hosted" else {"chat_template_kwargs"}
    for key in extra:
        if SECRET.search(key):
            raise ConfigError(
                f"engine.extra_body.{key}: would stand in the run's files; engine.api_key_env names a key"
            )
        if key in RESERVED | DEFAULTS[server].keys() | effort | template:
            raise ConfigError(f"engine.extra_body.{key}: kgqa sets {key} itself; leave it out")


def generation_settings(call: Generate, server: Server, thinking: Thinking = NO_THINKING) -> dict[str, Json]:
    """Return the call's settings, so that none of the server's defaults apply.

    `thinking`: the reasoning before the answer. The server then gets no stop strings, as it would find them
    in the reasoning (vLLM does, issue 52393). The answer is cut at them here.
    """
    limit = call.max_tokens + thinking.budget
    body = {"max_tokens": limit, "temperature": call.temperature, "top_p": call.top_p, **DEFAULTS[server]}
    if thinking.effort:
        body["reasoning_effort"] = thinking.effort
    if call.temperature > 0:
        body["seed"] = call.seed or 0
    if call.stop and not thinking.budget:
        body["stop"] = list(call.stop[:MAX_STOPS] if server == "hosted" else call.stop)
    if call.schema is not None:
        body |= _schema_settings(call.schema, server)
    return body


def _schema_settings(schema: str, server: Server) -> dict[str, Json]:
    """Return the schema's settings, or nothing if it cannot be followed: servers drop those without a word."""
    grammar = bound_schema(schema)
    if grammar is None:
        return {}
    if server == "llamacpp":  # its completions know no response_format
        return {"json_schema": grammar}
    named = {"name": "reply", "strict": True, "schema": json.loads(schema)}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def build_messages(prompt: Prompt) -> list[Json]:
    return [{"role": message.role, "content": message.content} for message in prompt.messages]


def build_chat(prompt: Prompt, server: Server, thinking: Thinking = NO_THINKING) -> dict[str, Json]:
    """Return the messages. If the server can continue one and does not reason first, the last one is the prefill."""
    body: dict[str, Json] = {"messages": build_messages(prompt)}
    if server != "sglang":
        return body
    body["chat_template_kwargs"] = dict(thinking.template(thinks=thinking.budget > 0))
    if prompt.prefill and not thinking.budget:
        body["messages"].append({"role": "assistant", "content": prompt.prefill})
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    return body


def read_completion(response: Response, flags: Iterable[str], *, thinks: bool) -> Completion:
    """Return the reply with its reasoning separated.

    `thinks`: the model reasons first, so that a reply which was cut off before any answer is all reasoning.
    """
    choice = response.choices[0]
    refusal = (choice.message.refusal if choice.message else None) or ""
    text = choice.message.read("text") or refusal if choice.message else choice.text or ""
    finish: Literal["stop", "length"] = "length" if choice.finish_reason == "length" else "stop"
    filtered = ("filtered",) if refusal or choice.finish_reason == "content_filter" else ()
    whole = Completion(text, finish, response.read_usage(), (*flags, *filtered))
    reply = split_thought(whole, choice.reasoning)
    if thinks and finish == "length" and text and not (reply.thought or reply.usage.reasoning_tokens):
        return split_thought(replace(whole, text=TAGS.begin + text))  # the prompt opened the tag, nothing closed it
    return reply


def cut_reply(reply: Completion, stops: Sequence[str], omitted_prefill: str) -> Completion:
    """Return the reply up to the first stop string, without a prefill that the model had to write itself."""
    text = reply.text
    if omitted_prefill and text.lstrip().startswith(omitted_prefill):
        text = text.lstrip()[len(omitted_prefill) :]
    cuts = [cut for stop in stops if (cut := text.find(stop)) >= 0]
    return replace(reply, text=text[: min(cuts, default=None)], finish="stop" if cuts else reply.finish)
