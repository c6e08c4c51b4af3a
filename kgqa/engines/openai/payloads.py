"""Build requests to an OpenAI-compatible server, and validate and read its responses. No I/O.

An invalid response is never scored, even with status 200: servers and proxies put errors into it, or omit the text.
`check_envelope` finds responses without a reply: the server has failed. `read_response` finds replies that cannot be
read: they were charged, and only this call has failed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator

from kgqa.calls import Generate
from kgqa.engines.grammar import bound_schema
from kgqa.engines.openai.messages import find_lengths
from kgqa.engines.openai.transport import Refused
from kgqa.engines.thinking import NO_THINKING, TAGS, Thinking, split_thought
from kgqa.errors import ConfigError, PromptTooLong
from kgqa.types import Completion, Json, Prompt, ToolCall, Usage

Server = Literal["hosted", "vllm", "sglang", "llamacpp"]

# Otherwise vLLM and SGLang use the model's generation_config.json, with its repetition penalties
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
MAX_STOPS = 4  # of a hosted server; the reply is cut at all of them later
LISTS = ("logprobs", "top_logprobs")  # the first is a length or, in chats, a bool
SCHEMAS = ("response_format", "json_schema")
# Keys that a call can omit when a server rejects them, with the flag for it; "" if kgqa does it instead
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
UNKNOWN_PARAMETER = re.compile(r"un(supported|recognized|known|expected)|not (support|allowed)|extra", re.IGNORECASE)
RESERVED = frozenset(  # keys of requests that kgqa sets, or that change the form of responses
    {
        *("model", "messages", "prompt", "max_tokens", "max_completion_tokens", "temperature", "top_p", "seed", "stop"),
        *("stop_token_ids", "response_format", "json_schema", "logit_bias", "logprobs", "top_logprobs", "echo"),
        *("logprob_token_ids", "prompt_logprobs", "post_sampling_probs", "return_tokens_as_token_ids"),
        *("continue_final_message", "add_generation_prompt", "skip_special_tokens", "preserved_tokens"),
        *("n", "best_of", "stream", "tools", "tool_choice"),
    }
)
SECRET = re.compile(r"api_?key|secret|password|authorization|access_token", re.IGNORECASE)
FAILED = frozenset({"error", "abort", "cancelled", "failed"})  # reasons to finish: OpenRouter; vLLM, SGLang; others
CUT_OFF = frozenset({"length", "content_filter"})  # reasons for which there can be no text at all
MAX_TOKENS = 10**12  # of one response
BYTES_PER_TOKEN = 4  # of English text, if the server does not count
MOST_PER_TOKEN = 8  # characters of a prompt; with more the server has cut the prompt
LONG = 2_000  # characters of a prompt that is long enough for this rule
SHORTENED = 0.9  # of a prompt that is too long, if the server sends no numbers
LOWEST = -100.0  # log-probability; servers write -9999, -inf or null for less


def _raise_to_lowest(logprob: object) -> object:
    if logprob is None:
        return LOWEST
    return max(logprob, LOWEST) if type(logprob) is float or type(logprob) is int else logprob


Logprob = Annotated[float, BeforeValidator(_raise_to_lowest), Field(strict=True, le=1e-3, allow_inf_nan=False)]
Share = Annotated[float, Field(strict=True, ge=0, le=1 + 1e-3, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=MAX_TOKENS)]


class Part(BaseModel):
    """A part of a message: Mistral's reasoning models answer in parts."""

    type: Literal["text", "thinking", "reasoning", "refusal"]
    text: str = ""
    thinking: str | list[Part] = ""

    def read(self, kind: str) -> str:
        """Return the text of this part if it has this kind."""
        if self.type != kind:
            return ""
        content = self.text if kind == "text" else self.thinking
        return content if isinstance(content, str) else "".join(part.read("text") for part in content)


class CalledTool(BaseModel):
    id: str | None = None
    function: dict[str, Any]

    def read(self, number: int) -> ToolCall:
        arguments = self.function.get("arguments", "")  # some servers send JSON values, not text
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return ToolCall(self.id or f"call_{number}", str(self.function.get("name", "")), text)


class Message(BaseModel):
    content: str | list[Part] | None = None
    tool_calls: list[CalledTool] | None = None
    refusal: str | None = None
    reasoning: Any = None  # vLLM, Ollama, OpenRouter
    reasoning_content: Any = None  # DeepSeek

    def read(self, kind: str) -> str:
        """Return the text, or the parts of one kind."""
        if isinstance(self.content, list):
            return "".join(part.read(kind) for part in self.content)
        return self.content or "" if kind == "text" else ""


class Token(BaseModel):
    """A listed token. llama.cpp sends ids, and probabilities after sampling instead of log-probabilities."""

    id: int | None = None
    token: str = ""
    logprob: Logprob | None = None
    prob: Share | None = None
    top_logprobs: list[Token] | None = None
    top_probs: list[Token] | None = None

    @model_validator(mode="after")
    def _check(self) -> Token:
        if self.logprob is None and self.prob is None:
            if "logprob" not in self.model_fields_set:
                raise ValueError("a token without probability")
            self.logprob = LOWEST
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
    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Any = None
    prompt_tokens_details: Any = None
    completion_tokens_details: Any = None

    def read(self) -> Usage:
        """Return the charged tokens. xAI does not include reasoning in the completion's tokens."""
        prompt, output = self.prompt_tokens, self.completion_tokens
        reasoning = _detail(self.completion_tokens_details, "reasoning_tokens")
        if reasoning and self.total_tokens == prompt + output + reasoning:
            output += reasoning
        return Usage(prompt, _detail(self.prompt_tokens_details, "cached_tokens"), output, 0.0, reasoning)


class Response(BaseModel):
    model: Any = None
    choices: list[ServerChoice] = Field(min_length=1)
    charged: Usage = Usage()  # for this response and earlier ones that could not be read; the client sets it


def check_envelope(answer: Json) -> dict[str, Json]:
    """Return an answer with a choice. Raise ValueError if the server has failed to make one."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict) or not choices[0]:
        raise ValueError("an answer without choices")
    if choices[0].get("error"):
        raise ValueError("an error instead of a reply")
    if choices[0].get("finish_reason") in FAILED:
        raise ValueError(f"a reply that ended with {choices[0]['finish_reason']!r}")
    return dict(answer)


def measure_usage(answer: Mapping[str, Json], request: Mapping[str, Json]) -> tuple[Usage, tuple[str, ...]]:
    """Return the tokens of a request and its answer, and flags.

    estimated_usage: the server does not count tokens, so they are estimated. cut_prompt: it has read far fewer tokens
    than the prompt has.
    """
    prompt = request.get("prompt")
    if isinstance(prompt, list):
        estimated, characters = len(prompt), 0
    else:
        contents = [prompt] if prompt is not None else [message["content"] for message in request.get("messages", ())]
        texts = [str(content or "") for content in contents]
        estimated, characters = sum(map(estimate_tokens, texts)), sum(map(len, texts))
    try:
        usage = ServerUsage.model_validate(answer.get("usage")).read()
    except ValidationError:
        choice = answer["choices"][0] if answer["choices"] else {}
        message = choice["message"] if isinstance(choice.get("message"), dict) else {"text": choice.get("text")}
        written = sum(estimate_tokens(str(value)) for key, value in message.items() if value and key != "role")
        return Usage(estimated, 0, written), ("estimated_usage",)
    is_cut = characters >= LONG and MOST_PER_TOKEN * usage.prompt_tokens < characters
    return usage, (("cut_prompt",) if is_cut else ())


def estimate_tokens(text: str) -> int:
    """Return a rough number of tokens, for servers that do not count."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def read_response(answer: Json, *, has_logprobs: bool) -> Response:
    """Return the response. Raise ValueError with the reason if it is not a model's reply."""
    try:
        response = Response.model_validate(answer)
        choice = response.choices[0]
        if has_logprobs and choice.logprobs:
            Logprobs.model_validate(choice.logprobs)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    message = choice.message
    if has_logprobs and choice.logprobs:
        return response
    if message is None and choice.text is None:
        raise ValueError("a choice without text")
    if message is not None and not message.content and message.content != "":
        usage = answer.get("usage")
        details = usage.get("completion_tokens_details") if isinstance(usage, dict) else None
        reasoned = message.reasoning or message.reasoning_content or _detail(details, "reasoning_tokens")
        if not (message.refusal or message.tool_calls or choice.finish_reason in CUT_OFF or reasoned):
            raise ValueError("a message without content")
    return response


def _detail(details: Json, key: str) -> int:
    """Return 0 if the server reports no such number."""
    number = details.get(key) if isinstance(details, dict) else 0
    return int(number) if isinstance(number, (int, float)) and 0 <= number <= MAX_TOKENS else 0


@dataclass(frozen=True)
class Abilities:
    """The features of a server, learned from requests that succeeded without a rejected key."""

    rejected: frozenset[str] = frozenset()  # keys of requests, and single schemas
    max_logprobs: int | None = None  # for one token
    renamed: bool = False  # max_completion_tokens instead of max_tokens

    def fit(self, body: Mapping[str, Json]) -> dict[str, Json]:
        """Return the request in the form that this server accepts."""
        fitted = {key: value for key, value in body.items() if _feature(key, value) not in self.rejected}
        if self.renamed and "max_tokens" in fitted:
            fitted["max_completion_tokens"] = fitted.pop("max_tokens")
        key = "top_logprobs" if "top_logprobs" in fitted else "logprobs"
        if self.max_logprobs is not None and type(fitted.get(key)) is int:
            fitted[key] = min(fitted[key], self.max_logprobs)
        return fitted

    def __or__(self, other: Abilities) -> Abilities:
        """Return what both have learned."""
        limits = [limit for limit in (self.max_logprobs, other.max_logprobs) if limit is not None]
        return Abilities(self.rejected | other.rejected, min(limits, default=None), self.renamed or other.renamed)

    def without(self, refused: Refused, body: Mapping[str, Json]) -> Abilities | None:
        """Return abilities without the key that the server rejects, or None if there is no such key.

        Use them for later requests only if this request succeeds.
        """
        if "max_tokens" in body and "max_completion_tokens" in refused.message:
            return replace(self, renamed=True)
        key = find_rejected_key(refused, body)
        if key in LISTS:
            return self._limit_logprobs(refused.message, body)
        return replace(self, rejected=self.rejected | {_feature(key, body[key])}) if key in OPTIONAL else None

    def _limit_logprobs(self, message: str, body: Mapping[str, Json]) -> Abilities:
        """Limit the list to the number in the message. Without a number, reject lists."""
        longest = max((value for key in LISTS if type(value := body.get(key)) is int), default=1)
        numbers = [number for number in map(int, re.findall(r"\b\d{1,6}\b", message)) if 0 < number < longest]
        if numbers and MAXIMUM.search(message):
            return replace(self, max_logprobs=max(numbers))
        return replace(self, rejected=self.rejected | set(LISTS))

    def flags(self, body: Mapping[str, Json]) -> tuple[str, ...]:
        """Return flags for the parts of this request that the server does not support."""
        missing = [key for key, value in body.items() if _feature(key, value) in self.rejected]
        return tuple(dict.fromkeys(OPTIONAL[key] for key in missing if OPTIONAL[key]))


def _feature(key: str, value: Json) -> str:
    return f"{key}={json.dumps(value, sort_keys=True)}" if key in SCHEMAS else key


def find_rejected_key(refused: Refused, body: Mapping[str, Json]) -> str:
    """Return the key of the request that the server rejects, or "" if the error does not name it."""
    path = re.split(r"[.\[]", str(refused.error.get("param") or ""))[0]
    if path in body:
        return path
    quoted = re.findall(r"['\"`](\w+)['\"`]|\b([a-z]+_[a-z_]+|logprobs)\b", refused.message)
    named = [str(word) for words in quoted for word in words if word in body]
    if named and (UNKNOWN_PARAMETER.search(refused.message) or "logprobs" in refused.message):
        return named[0]
    about_effort = re.search("think|reasoning", refused.message, re.IGNORECASE)
    if "reasoning_effort" in body and about_effort and UNKNOWN_PARAMETER.search(refused.message):
        return "reasoning_effort"
    about_schema = re.search("schema|grammar", refused.message, re.IGNORECASE)
    return next((key for key in SCHEMAS if key in body and about_schema), "")


def too_long(refused: Refused, request: Mapping[str, Json]) -> PromptTooLong:
    """Return the error for a prompt that is too long. Without numbers, its limit is a bit less than the prompt."""
    tokens, limit = find_lengths(refused.error) or (0, 0)
    if not tokens:
        tokens = max(1, measure_usage({"choices": []}, request)[0].prompt_tokens)
        limit = int(SHORTENED * tokens)
    return PromptTooLong(tokens, limit, f"the server rejected the prompt as too long: {refused.message}")


def check_extra(extra: Mapping[str, Json], server: Server, thinking: Thinking) -> None:
    """Raise ConfigError for a value that JSON cannot express, a key that kgqa sets, or a secret."""
    try:
        json.dumps(dict(extra), allow_nan=False)
    except ValueError:
        raise ConfigError("engine.extra_body: contains nan or inf, which JSON cannot express. Set a number.") from None
    effort = {"reasoning_effort"} if thinking.effort else set()
    template = set() if server == "hosted" else {"chat_template_kwargs"}
    for key in extra:
        if SECRET.search(key):
            raise ConfigError(
                f"engine.extra_body.{key}: would be saved with the run. Name the key's variable in engine.api_key_env."
            )
        if key in RESERVED | DEFAULTS[server].keys() | effort | template:
            raise ConfigError(f"engine.extra_body.{key}: kgqa sets {key} itself. Remove it.")


def generation_settings(call: Generate, server: Server, thinking: Thinking = NO_THINKING) -> dict[str, Json]:
    """Return the call's settings, so that no defaults of the server apply.

    With reasoning the server gets no stop strings, because vLLM also finds them in the reasoning (its issue 52393).
    `cut_reply` cuts the answer.
    """
    limit = call.max_tokens + thinking.budget
    body = {"max_tokens": limit, "temperature": call.temperature, "top_p": call.top_p, **DEFAULTS[server]}
    if thinking.effort:
        body["reasoning_effort"] = thinking.effort
    if call.temperature > 0:
        body["seed"] = call.seed or 0
    if call.stop and not thinking.budget:
        body["stop"] = list(call.stop[:MAX_STOPS] if server == "hosted" else call.stop)
    # servers would drop a schema that cannot be followed without an error
    if call.schema is not None and (grammar := bound_schema(call.schema)) is not None:
        named = {"name": "reply", "strict": True, "schema": json.loads(call.schema)}
        response_format = {"response_format": {"type": "json_schema", "json_schema": named}}
        body |= {"json_schema": grammar} if server == "llamacpp" else response_format  # its completions know no other
    if call.tools is not None:
        body["tools"] = json.loads(call.tools)
    return body


def build_messages(prompt: Prompt) -> list[Json]:
    """Return the messages in OpenAI's form."""
    built = []
    for message in prompt.messages:
        entry: dict[str, Json] = {"role": message.role, "content": message.content}
        if message.tool_calls:
            entry["content"] = message.content or None
            entry["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in message.tool_calls
            ]
        if message.role == "tool":
            entry["tool_call_id"] = message.answers
        built.append(entry)
    return built


def build_chat(prompt: Prompt, server: Server, thinking: Thinking = NO_THINKING) -> dict[str, Json]:
    """Return the messages. If the server can continue a message and does not reason, the last one is the prefill."""
    body: dict[str, Json] = {"messages": build_messages(prompt)}
    if server == "hosted":
        return body
    body["chat_template_kwargs"] = dict(thinking.template(thinks=thinking.budget > 0))
    if prompt.prefill and not thinking.budget:
        body["messages"].append({"role": "assistant", "content": prompt.prefill})
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    return body


def small_request(request: Mapping[str, Json]) -> dict[str, Json]:
    """Return a request in the same form that every working server answers."""
    text = {"messages": [{"role": "user", "content": "Hello"}]} if "messages" in request else {"prompt": "Hello"}
    limit = "max_completion_tokens" if "max_completion_tokens" in request else "max_tokens"
    return {"model": request["model"], **text, limit: 16}


def read_completion(response: Response, flags: Iterable[str], *, thinks: bool) -> Completion:
    """Return the reply with its reasoning separated.

    thinks: the model reasons first, so a reply that was truncated before an answer is reasoning.
    """
    whole = _read_text(response, flags)
    reply = split_thought(whole, response.choices[0].reasoning)
    cut_off = whole.finish == "length" and whole.text and not (reply.thought or reply.usage.reasoning_tokens)
    if thinks and cut_off:
        return split_thought(replace(whole, text=TAGS.begin + whole.text))  # only the prompt has the opening tag
    return reply


def join_text(response: Response, flags: Iterable[str]) -> Completion:
    """Return the reply as the model wrote it, with its reasoning in tags."""
    reply, reasoning = _read_text(response, flags), response.choices[0].reasoning
    return replace(reply, text=f"{TAGS.begin}{reasoning}{TAGS.answer}{reply.text}") if reasoning else reply


def _read_text(response: Response, flags: Iterable[str]) -> Completion:
    choice = response.choices[0]
    refusal = (choice.message.refusal if choice.message else None) or ""
    text = choice.message.read("text") or refusal if choice.message else choice.text or ""
    called = (choice.message and choice.message.tool_calls) or ()
    calls = tuple(tool.read(number) for number, tool in enumerate(called, start=1))
    filtered = ("filtered",) if refusal or choice.finish_reason == "content_filter" else ()
    return Completion(text, read_finish(response), response.charged, (*flags, *filtered), tool_calls=calls)


def read_finish(response: Response) -> Literal["stop", "length"]:
    return "length" if response.choices[0].finish_reason == "length" else "stop"


def cut_reply(reply: Completion, stops: Sequence[str], omitted_prefill: str) -> Completion:
    """Return the reply up to the first stop string, without a prefill that the model has repeated."""
    text = reply.text
    if omitted_prefill and text.lstrip().startswith(omitted_prefill):
        text = text.lstrip()[len(omitted_prefill) :]
    cuts = [cut for stop in stops if (cut := text.find(stop)) >= 0]
    return replace(reply, text=text[: min(cuts, default=None)], finish="stop" if cuts else reply.finish)
