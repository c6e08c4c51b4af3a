"""Build requests to an OpenAI-compatible server, and leave out what it rejects. No I/O."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kgqa.calls import Generate
from kgqa.engines.grammar import bound_schema
from kgqa.engines.openai.messages import find_lengths
from kgqa.engines.openai.responses import SCHEMAS, Flags, estimate_prompt
from kgqa.engines.openai.transport import Refused
from kgqa.engines.thinking import NO_THINKING, Thinking
from kgqa.errors import ConfigError, PromptTooLong
from kgqa.types import Json, Prompt

Server = Literal["hosted", "vllm", "sglang", "llamacpp"]

# Otherwise vLLM and SGLang use the model's generation_config.json, with its repetition penalties
NEUTRAL: Mapping[str, Json] = {
    "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
}  # fmt: skip
DEFAULTS: Mapping[Server, Mapping[str, Json]] = {
    "hosted": {},
    "vllm": NEUTRAL,
    "sglang": NEUTRAL,
    "llamacpp": {"samplers": ["temperature", "top_p"], "cache_prompt": True},  # transformers' order
}
# of a hosted server; the reply is cut at all of them later
MAX_STOPS = 4
# the first is a length or, in chats, a bool
LISTS = ("logprobs", "top_logprobs")
RENAMED, NEW_NAME = "max_tokens", "max_completion_tokens"  # OpenAI has renamed it
# Keys that a call can omit when a server rejects them, with the flag for it; "" if kgqa does it instead
OPTIONAL = {
    "temperature": "fixed_temperature", "top_p": "fixed_top_p", "seed": "no_seed", "stop": "",
    "reasoning_effort": "no_effort", **dict.fromkeys(SCHEMAS, "unconstrained"), **dict.fromkeys(LISTS, "no_logprobs"),
}  # fmt: skip
NUMBER = re.compile(r"\b\d{1,6}\b")
MAXIMUM = re.compile(r"max|at most|up to|less|greater|between|exceed|<=|≤", re.IGNORECASE)
UNKNOWN_PARAMETER = re.compile(
    r"un(supported|recognized|known|expected)|not (support|allowed)|extra", re.IGNORECASE
)
# keys of requests that kgqa sets, or that change the form of responses
RESERVED = frozenset(
    {
        *(
            "model",
            "messages",
            "prompt",
            "max_tokens",
            "max_completion_tokens",
            "temperature",
            "top_p",
            "seed",
            "stop",
        ),
        *(
            "stop_token_ids",
            "response_format",
            "json_schema",
            "logit_bias",
            "logprobs",
            "top_logprobs",
            "echo",
        ),
        *(
            "logprob_token_ids",
            "return_token_ids",
            "prompt_logprobs",
            "post_sampling_probs",
            "return_tokens_as_token_ids",
        ),
        *(
            "continue_final_message",
            "add_generation_prompt",
            "skip_special_tokens",
            "preserved_tokens",
        ),
        *("n", "best_of", "stream", "tools", "tool_choice"),
    }
)
# narrower than `is_secret` for variables: prompt_cache_key and allowed_token_ids are parameters
SECRET = re.compile(
    r"(api|access|auth|private)[-_ ]?(key|token)|secret|passw|passphrase|authorization|credential",
    re.IGNORECASE,
)
CONTINUE = (
    "You have already written the start of your reply, which is below. It can contain results that were inserted for "
    "you. Write only what comes next, and do not repeat the start."
)
# of a prompt that is too long, if the server sends no numbers
SHORTENED = 0.9


@dataclass(frozen=True)
class Abilities:
    """The features of a server, learned from requests that succeeded without a rejected key."""

    # keys of requests, and single schemas
    rejected: frozenset[str] = frozenset()
    max_logprobs: int = sys.maxsize  # for one token

    def fit(self, body: Mapping[str, Json]) -> tuple[dict[str, Json], Flags]:
        """Return the request in the form that this server accepts, and flags for its missing parts."""
        missing = [key for key, value in body.items() if _feature(key, value) in self.rejected]
        fitted = {key: value for key, value in body.items() if key not in missing}
        if RENAMED in body and RENAMED not in fitted:
            fitted[NEW_NAME] = body[RENAMED]
        for key in LISTS:
            if type(fitted.get(key)) is int:
                fitted[key] = min(fitted[key], self.max_logprobs)
        flags = dict.fromkeys(flag for key in missing if (flag := OPTIONAL.get(key)))
        return fitted, tuple(flags)

    def __or__(self, other: Abilities) -> Abilities:
        """Return what both have learned."""
        return Abilities(self.rejected | other.rejected, min(self.max_logprobs, other.max_logprobs))

    def learn(self, refused: Refused, body: Mapping[str, Json]) -> Abilities:
        """Return abilities without what the server rejects. Raise the call's error if nothing can be omitted.

        Use them for later requests only if this request succeeds.
        """
        if refused.meaning == "too_long":
            raise too_long(refused, body) from refused
        is_renamed = RENAMED in body and NEW_NAME in refused.message
        key = RENAMED if is_renamed else find_rejected_key(refused, body)
        if refused.meaning or not (is_renamed or key in OPTIONAL):
            raise refused
        if key in LISTS:
            longest = max(
                (value for each in LISTS if type(value := body.get(each)) is int), default=1
            )
            numbers = [
                number
                for number in map(int, NUMBER.findall(refused.message))
                if 0 < number < longest
            ]
            if numbers and MAXIMUM.search(refused.message):
                return replace(self, max_logprobs=max(numbers))
        features = LISTS if key in LISTS else [_feature(key, body[key])]
        return replace(self, rejected=self.rejected.union(features))


def _feature(key: str, value: Json) -> str:
    return f"{key}={json.dumps(value, sort_keys=True)}" if key in SCHEMAS else key


def find_rejected_key(refused: Refused, body: Mapping[str, Json]) -> str:
    """Return the key of the request that the server rejects, or "" if the error does not name it."""
    path = re.split(r"[.\[]", str(refused.error.get("param") or ""))[0]
    if path in body:
        return path
    message = refused.message
    is_unknown = UNKNOWN_PARAMETER.search(message)
    named = [
        word
        for word in re.findall(r"\w+", message)
        if word in body and (word in OPTIONAL or word == "tools")
    ]
    if named and (is_unknown or "logprobs" in message):
        return str(named[0])
    is_about_effort = is_unknown and re.search("think|reasoning", message, re.IGNORECASE)
    is_about_schema = re.search("schema|grammar", message, re.IGNORECASE)
    hints = {"reasoning_effort": is_about_effort, **dict.fromkeys(SCHEMAS, is_about_schema)}
    return next((key for key, is_meant in hints.items() if is_meant and key in body), "")


def too_long(refused: Refused, request: Mapping[str, Json]) -> PromptTooLong:
    """Return the error for a prompt that is too long. Without numbers, its limit is a bit less than the prompt."""
    tokens, limit = find_lengths(refused.error) or (0, 0)
    if not tokens:
        tokens = max(1, estimate_prompt(request)[0])
        limit = int(SHORTENED * tokens)
    return PromptTooLong(
        tokens, limit, f"the server rejected the prompt as too long: {refused.message}"
    )


def check_extra(extra: Mapping[str, Json], server: Server, thinking: Thinking) -> None:
    """Raise ConfigError for a value that JSON cannot express, a key that kgqa sets, or a secret."""
    try:
        json.dumps(dict(extra), allow_nan=False)
    except ValueError:
        raise ConfigError(
            "engine.extra_body: contains nan or inf, which JSON cannot express. Set a number."
        ) from None
    effort = {"reasoning_effort"} if thinking.effort else set()
    template = set() if server == "hosted" else {"chat_template_kwargs"}
    for key in _list_keys(extra):
        if SECRET.search(key):
            raise ConfigError(
                f"engine.extra_body.{key}: would be saved with the run. Name the key's variable in engine.api_key_env."
            )
    for key in extra:
        if key in RESERVED | DEFAULTS[server].keys() | effort | template:
            raise ConfigError(f"engine.extra_body.{key}: kgqa sets {key} itself. Remove it.")


def _list_keys(value: Json) -> Iterator[str]:
    """Yield the dotted keys of all mappings in a value."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from (f"{key}.{below}" for below in _list_keys(inner))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for inner in value:
            yield from _list_keys(inner)


def generation_settings(
    call: Generate, server: Server, thinking: Thinking = NO_THINKING
) -> dict[str, Json]:
    """Return the call's settings, so that no defaults of the server apply.

    With reasoning the server gets no stop strings, because vLLM also finds them in the reasoning (its issue 52393).
    `finish_reply` cuts the answer.
    """
    limit = call.max_tokens + thinking.budget
    body = {
        "max_tokens": limit,
        "temperature": call.temperature,
        "top_p": call.top_p,
        **DEFAULTS[server],
    }
    if thinking.effort:
        body["reasoning_effort"] = thinking.effort
    if call.temperature > 0:
        body["seed"] = call.seed or 0
    if call.stop and not thinking.budget:
        body["stop"] = list(call.stop[:MAX_STOPS] if server == "hosted" else call.stop)
        # reports the stop string that ended the reply
        if server == "llamacpp":
            body["verbose"] = True
    # servers would drop a schema that cannot be followed without an error
    if call.schema is not None and (grammar := bound_schema(call.schema)) is not None:
        named = {"name": "reply", "strict": True, "schema": json.loads(call.schema)}
        response_format = {"response_format": {"type": "json_schema", "json_schema": named}}
        body |= (
            {"json_schema": grammar} if server == "llamacpp" else response_format
        )  # its completions know no other
    if call.logprobs is not None:
        body |= list_tokens(call.logprobs, server)
    if call.tools is not None:
        body["tools"] = json.loads(call.tools)
    if call.tool_choice is not None:
        body["tool_choice"] = json.loads(call.tool_choice)
    return body


def list_tokens(count: int, server: Server) -> dict[str, Json]:
    """Return the settings with which a completion lists its tokens, and `count` likeliest tokens per place."""
    if server == "llamacpp":
        # it lists no tokens for 0
        return {"logprobs": max(count, 1)}
    return {"logprobs": count, **({"return_token_ids": True} if server == "vllm" else {})}


def build_chat(prompt: Prompt, server: Server, thinking: Thinking = NO_THINKING) -> dict[str, Json]:
    """Return the messages in OpenAI's form, with the prefill.

    If the server can continue a message and does not reason, the last one is the prefill. For other servers the user's
    last message ends with a prefill that has a transcript. A label is omitted.
    """
    messages = []
    for message in prompt.messages:
        entry: dict[str, Json] = {"role": message.role, "content": message.content}
        if message.tool_calls:
            entry["content"] = message.content or None
            entry["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in message.tool_calls
            ]
        if message.role == "tool":
            entry["tool_call_id"] = message.answers
        messages.append(entry)
    is_continued = server != "hosted" and not thinking.budget
    if prompt.has_transcript and not is_continued:
        # in the last message, because many chat templates reject two messages of the user in a row
        messages[-1]["content"] += f"\n\n{CONTINUE}\n\n{prompt.prefill}"
    body: dict[str, Json] = {"messages": messages}
    if server == "hosted":
        return body
    body["chat_template_kwargs"] = dict(thinking.template(thinks=thinking.budget > 0))
    if prompt.prefill and is_continued:
        messages.append({"role": "assistant", "content": prompt.prefill})
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    return body


def small_request(request: Mapping[str, Json]) -> dict[str, Json]:
    """Return a request in the same form that every working server answers."""
    text = (
        {"messages": [{"role": "user", "content": "Hello"}]}
        if "messages" in request
        else {"prompt": "Hello"}
    )
    limit = "max_completion_tokens" if "max_completion_tokens" in request else "max_tokens"
    return {"model": request["model"], **text, limit: 16}
