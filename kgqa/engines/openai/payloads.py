"""Build requests to an OpenAI-compatible server and read its responses. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from kgqa.calls import Generate
from kgqa.engines.grammar import bound_schema
from kgqa.engines.openai.answers import MOST_TOKENS
from kgqa.engines.openai.endpoint import Refused, ServerReply
from kgqa.engines.thinking import NO_THINKING, TAGS, Thinking, split_thought
from kgqa.errors import EngineError, PromptTooLong
from kgqa.types import Completion, Json, Prompt, Usage

Server = Literal["hosted", "vllm", "sglang", "llamacpp"]

# vLLM and SGLang take what a call leaves open from the model's generation_config.json, repetition penalties included
NEUTRAL: Mapping[str, Json] = {
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
EXTRAS: Mapping[Server, Mapping[str, Json]] = {
    "hosted": {},
    "vllm": NEUTRAL,
    "sglang": NEUTRAL,
    "llamacpp": {"samplers": ["temperature", "top_p"], "cache_prompt": True},  # transformers' order
}
MOST_STOPS = 4  # of a hosted server; the reply is cut here at all of them in any case
# What a call can do without when a server refuses it, and the flag that says so; "" where we make up for it ourselves
LISTS = ("logprobs", "top_logprobs")  # the first is a length or, in chats, whether there is one
SCHEMAS = ("response_format", "json_schema")
DISPENSABLE = {
    **dict.fromkeys(SCHEMAS, "unconstrained"),
    "temperature": "fixed_temperature",
    "top_p": "fixed_top_p",
    "seed": "no_seed",
    "stop": "",
    "reasoning_effort": "no_effort",
    **dict.fromkeys(LISTS, "no_logprobs"),
}
LIMIT = re.compile(r"max|at most|up to|less|greater|between|exceed|<=|≤", re.IGNORECASE)
TOO_LONG = re.compile(r"context (length|size|window)|too many (input )?tokens", re.IGNORECASE)
UNKNOWN_PARAMETER = re.compile(r"un(supported|recognized|known|expected)|not (support|allowed)|extra", re.IGNORECASE)


@dataclass
class Abilities:
    """The features of a server, as learned from rejected requests until the engine is closed."""

    refused: set[str] = field(default_factory=set)  # keys of requests; of schemas each one, as not all are refused
    longest_list: int | None = None  # the most log-probabilities it lists for one token
    renamed: bool = False  # it wants max_completion_tokens for max_tokens

    def fit(self, body: Mapping[str, Json]) -> dict[str, Json]:
        """Return the request as this server takes it."""
        fitted = {key: value for key, value in body.items() if _part(key, value) not in self.refused}
        if self.renamed and "max_tokens" in fitted:
            fitted["max_completion_tokens"] = fitted.pop("max_tokens")
        key = "top_logprobs" if "top_logprobs" in fitted else "logprobs"
        if self.longest_list is not None and type(fitted.get(key)) is int:
            fitted[key] = min(fitted[key], self.longest_list)
        return fitted

    def learn(self, refused: Refused, body: Mapping[str, Json]) -> bool:
        """Return true where the request can be fitted better now than the one that was refused."""
        if "max_tokens" in body and "max_completion_tokens" in refused.message:
            self.renamed = True
            return True
        key = _set_model(refused, body)
        if key in LISTS:
            self._learn_about_lists(refused.message, body)
        elif key in DISPENSABLE:
            self.refused.add(_part(key, body[key]))
        return key in DISPENSABLE

    def _learn_about_lists(self, message: str, body: Mapping[str, Json]) -> None:
        """How long a list may be, if the server says so or refuses a long one; else that there is none."""
        lengths = [value for key in LISTS if type(value := body.get(key)) is int]  # True asks for the top alone
        longest = max(lengths, default=1)
        named = [number for number in map(int, re.findall(r"\d+", message)) if 0 < number < longest]
        if named and LIMIT.search(message):
            self.longest_list = max(named)
        else:
            self.refused.update(LISTS)

    def flags(self, body: Mapping[str, Json]) -> tuple[str, ...]:
        """Return what of this request the server does not do."""
        left_out = [key for key, value in body.items() if _part(key, value) in self.refused]
        return tuple(dict.fromkeys(DISPENSABLE[key] for key in left_out if DISPENSABLE[key]))


def _part(key: str, value: Json) -> str:
    return f"{key}={json.dumps(value, sort_keys=True)}" if key in SCHEMAS else key


def _set_model(refused: Refused, body: Mapping[str, Json]) -> str:
    """Return the key of the request that the server objects to; "" where it does not say."""
    path = str(re.split(r"[.\[]", refused.parameter)[0])
    if path in body:
        return path
    quoted = re.findall(r"['\"`](\w+)['\"`]|\b([a-z]+_[a-z_]+|logprobs)\b", refused.message)
    named = [word for words in quoted for word in words if word in body]
    if named and (UNKNOWN_PARAMETER.search(refused.message) or "logprobs" in refused.message):
        return str(named[0])
    if "reasoning_effort" in body and re.search("think|reasoning", refused.message, re.IGNORECASE):
        return "reasoning_effort"
    about_schema = re.search("schema|grammar", refused.message, re.IGNORECASE)
    return next((key for key in SCHEMAS if key in body and about_schema), "")


def thinking_settings(thinking: Thinking) -> dict[str, Json]:
    """Return the thinking settings of a reply that may begin with a thought, beside its `max_tokens`."""
    return {"reasoning_effort": thinking.effort} if thinking.effort else {}


def decoding(call: Generate, server: Server, thinking: Thinking = NO_THINKING) -> dict[str, Json]:
    """Return the call's own settings, and nothing of the server's.

    `thinking`: what the reply may hold before its answer. The server then gets no stop strings, as it would find them
    in the thought (vLLM does, issue 52393); the answer is cut at them here.
    """
    limit = call.max_tokens + thinking.budget
    body = {"max_tokens": limit, "temperature": call.temperature, "top_p": call.top_p, **EXTRAS[server]}
    body |= thinking_settings(thinking)
    if call.temperature > 0:
        body["seed"] = call.seed or 0
    if call.stop and not thinking.budget:
        body["stop"] = list(call.stop[:MOST_STOPS] if server == "hosted" else call.stop)
    if call.schema is not None:
        body |= _schema(call.schema, server)
    return body


def _schema(schema: str, server: Server) -> dict[str, Json]:
    """Return empty where the schema cannot be followed: servers tend to drop, without a word, what they cannot
    express.
    """
    grammar = bound_schema(schema)
    if grammar is None:
        return {}
    if server == "llamacpp":  # its completions know no response_format
        return {"json_schema": grammar}
    named = {"name": "reply", "strict": True, "schema": json.loads(schema)}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def chat(prompt: Prompt, server: Server, thinking: Thinking = NO_THINKING) -> dict[str, Json]:
    """Return messages, the prefill as the beginning of the assistant's where the server can go on with one.

    None can where it has to think first.
    """
    messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
    if server != "sglang":
        return {"messages": messages}
    told = thinking.template(thinks=thinking.budget > 0)
    body: dict[str, Json] = {"messages": messages, "chat_template_kwargs": dict(told)}
    if prompt.prefill and not thinking.budget:
        messages.append({"role": "assistant", "content": prompt.prefill})
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    return body


def readable(prompt: Prompt) -> str:
    """Return a prompt as a person can read it; the server puts it into its own template."""
    if prompt.form == "completion":
        return prompt.messages[0].content
    parts = [f"[{message.role}]\n{message.content}" for message in prompt.messages]
    return "\n\n".join([*parts, f"[assistant]\n{prompt.prefill}"])


def completion(answered: ServerReply, flags: Iterable[str], *, thinks: bool) -> Completion:
    """Return the reply, its thought put apart. `thinks`: a reply that was cut short before any answer is all
    thought.
    """
    choice = first_choice(answered)
    text, refusal = read_text(choice)
    finish: Literal["stop", "length"] = "length" if choice.get("finish_reason") == "length" else "stop"
    filtered = ("filtered",) if refusal or choice.get("finish_reason") == "content_filter" else ()
    whole = Completion(text, finish, usage(answered), (*flags, *filtered))
    reply = split_thought(whole, read_thought(choice))
    if thinks and finish == "length" and text and not (reply.thought or reply.usage.reasoning_tokens):
        return split_thought(replace(whole, text=TAGS.begin + text))  # the prompt opened it, and nobody closed it
    return reply


def trim_payload(reply: Completion, stops: Sequence[str], prefill_left_out: str) -> Completion:
    """Return up to the first stop string; a prefill that could not be given is dropped where the model wrote it by
    itself.
    """
    text = reply.text
    if prefill_left_out and text.lstrip().startswith(prefill_left_out):
        text = text.lstrip()[len(prefill_left_out) :]
    cuts = [cut for stop in stops if (cut := text.find(stop)) >= 0]
    return replace(reply, text=text[: min(cuts, default=None)], finish="stop" if cuts else reply.finish)


def first_choice(answered: ServerReply) -> Mapping[str, Json]:
    choices = answered.json.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise EngineError(f"the server's answer holds no choices: {json.dumps(answered.json)[:200]}")
    first: Mapping[str, Json] = choices[0]
    return first


def read_text(choice: Mapping[str, Json]) -> tuple[str, bool]:
    """Return the text of a chat or a plain reply, and whether it is the model's refusal."""
    message = choice.get("message")
    if isinstance(message, dict):
        content = _read_message(message.get("content"), "text")
        return content or str(message.get("refusal") or ""), bool(message.get("refusal"))
    return str(choice.get("text") or ""), False


def read_thought(choice: Mapping[str, Json]) -> str:
    """Return what the server tells of it: reasoning_content, reasoning (vLLM, Ollama, OpenRouter), or Mistral's
    parts.
    """
    message = choice.get("message") or choice
    told = message.get("reasoning_content") or message.get("reasoning")
    return (told if isinstance(told, str) else _read_message(message.get("content"), "thinking")).strip()


def _read_message(content: Json, kind: str) -> str:
    """Return a message's text, or its parts of one kind: Mistral's thinking models answer in parts."""
    if not isinstance(content, list):
        return str(content or "") if kind == "text" else ""
    parts = [part for part in content if isinstance(part, dict) and part.get("type") == kind]
    return "".join(part[kind] if isinstance(part[kind], str) else _read_message(part[kind], "text") for part in parts)


def usage(answered: ServerReply) -> Usage:
    """Return tokens as the server counts (and charges) them; some, as xAI, count thoughts beside the answer, most
    within.
    """
    counts = answered.json.get("usage")
    if not isinstance(counts, dict):
        raise EngineError("the server's answer does not say how many tokens it used (usage)")
    prompt, output = (_number(counts, f"{part}_tokens") for part in ("prompt", "completion"))
    reasoning = _number(counts.get("completion_tokens_details"), "reasoning_tokens")
    if reasoning and counts.get("total_tokens") == prompt + output + reasoning:
        output += reasoning
    cached = _number(counts.get("prompt_tokens_details"), "cached_tokens")
    return Usage(prompt, cached, output, answered.seconds, reasoning)


def _number(counts: Json, key: str) -> int:
    """Return 0 where the server does not say, or not in a number."""
    number = counts.get(key) if isinstance(counts, dict) else 0
    return int(number) if isinstance(number, (int, float)) and 0 <= number <= MOST_TOKENS else 0


def too_long(refused: Refused, limit: int) -> PromptTooLong | None:
    """Return the refusal as what it says about the prompt's length, None where it is about something else."""
    tokens = refused.error.get("n_prompt_tokens")  # llama.cpp
    if not (tokens or refused.error.get("code") == "context_length_exceeded" or TOO_LONG.search(refused.message)):
        return None
    numbers = [int(number) for number in re.findall(r"\d+", refused.message)]
    return PromptTooLong(int(tokens or max(numbers[1:], default=0)), int(refused.error.get("n_ctx") or limit))
