"""One server as the engine sees it: its model, its features, prompts in its tokens, its adapters."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Literal

from kgqa.artifacts.adapter import Adapter
from kgqa.artifacts.metrics import ANSWERED_BY
from kgqa.calls import Generate, ModelCall
from kgqa.engines.chat import ChatTemplate
from kgqa.engines.control_text import (
    END_TOKENS,
    FLAG,
    START_TOKENS,
    CallT,
    as_plain,
    find_candidates,
    mask,
    split_masks,
)
from kgqa.engines.labels import Spelling, spell
from kgqa.engines.openai.detection import OWNERS, is_same_model, is_snapshot, read_models
from kgqa.engines.openai.limits import AdaptiveLimiter, Budget
from kgqa.engines.openai.requests import (
    SCHEMAS,
    Abilities,
    Server,
    build_chat,
    build_messages,
    find_rejected_key,
    generation_settings,
    small_request,
)
from kgqa.engines.openai.responses import Flags, Response, cut_reply, read_response
from kgqa.engines.openai.transport import UNKNOWN, Refused, Transport
from kgqa.engines.thinking import (
    NO_THINKING,
    TAGS,
    Thinking,
    join_thought,
    leading,
    marks,
    opening,
    read_reply,
    thinking_call,
)
from kgqa.errors import ConfigError, EngineError, PromptTooLong
from kgqa.types import Completion, Json, Usage

log = logging.getLogger(__name__)

Form = Literal["tokens", "text", "messages"]
TOKEN_SERVERS: tuple[Server, ...] = ("vllm", "llamacpp")  # they tokenize texts and accept prompts as tokens
UNTEMPLATED = ChatTemplate(None, "", "", completion_bos=False)  # conversations as plain text, flagged
Endpoints = Literal["both", "chat", "completions"]  # what a server without tokens has for the model
COMPLETIONS, CHAT = "/completions", "/chat/completions"
MAX_CACHED = 64  # characters of a text that the server tokenizes once: labels and prefills
SNAPSHOT = "snapshot:"  # a reply's flag: the dated version of the requested model that answered
NAME_LENGTH = 80  # of a model in flags
WITHOUT_COMPLETIONS = "If the model has only the chat endpoint, set engine.endpoints=chat."
WITHOUT_TOOLS = "The server or its model has no function calls here. Set engine.tools=text."


@dataclass
class Client:
    """A server through one adapter, or none. It belongs to one event loop."""

    transport: Transport
    server: Server
    served: str  # the model's name at the server
    context: int  # tokens of prompt and reply; lowered to the server's limit
    thinking: Thinking
    adapter: Adapter | None
    endpoints: Endpoints = "both"
    budget: Budget = field(default_factory=Budget)
    extra: Mapping[str, Json] = field(default_factory=dict)  # more keys for every request for a reply
    limiter: AdaptiveLimiter = field(default_factory=AdaptiveLimiter)
    _abilities: Abilities = field(default_factory=Abilities)
    _connected: bool = False
    _connecting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _stops: Mapping[str, Json] = field(default_factory=dict)  # end tokens that generation_config can lack
    _tokens: dict[tuple[str, bool], list[int]] = field(default_factory=dict)
    _openings: dict[bool, str] = field(default_factory=dict)  # text between vLLM's turns and a thought, or an answer

    @property
    def model(self) -> str:
        """Return the model's name for requests: vLLM serves adapters as models."""
        if self.adapter is None or self.server != "vllm":
            return self.served
        return self.adapter.served_name or self.adapter.name

    async def connect(self) -> None:
        """Check once that the server and its model are the configured ones. Raise ConfigError if not."""
        async with self._connecting:
            if self._connected:
                return
            await self._check_models()
            if self.server == "llamacpp":
                properties = await self.transport.get("../props")  # a server can hide them
                if isinstance(properties, dict):
                    self.limiter.set_slots(properties.get("total_slots"))
                if await self.transport.get("../lora-adapters"):
                    raise ConfigError(f"{self.transport.url} applies adapters. Start it without --lora.")
            if self.server == "vllm":  # llama.cpp knows the usual ones
                known = [await self.tokenize(token) for token in END_TOKENS]
                self._stops = {"stop_token_ids": [tokens[0] for tokens in known if len(tokens) == 1]}
            self._connected = True

    async def _check_models(self) -> None:
        listed, url = await self.transport.list_models() or [], self.transport.url
        contexts, names = read_models(listed)
        kinds = {str(model.get("owned_by")) for model in listed} & OWNERS.keys()
        # every server can be used as a hosted one: behind a proxy, only /v1 is there
        if kinds and self.server not in {"hosted", *kinds}:
            raise ConfigError(
                f"engine.server={self.server}: the server at {url} is {kinds.pop()}. Set engine.server to that."
            )
        is_listed = self.model in contexts or self.model in names
        if listed and not is_listed and self.model != self.served:
            raise ConfigError(
                f"{url} serves no adapter {self.model!r}. Start it with --lora-modules {self.model}=FOLDER, "
                "or set its name there as served_name in conf/adapter."
            )
        if len(listed) == 1 and not is_listed:  # llama.cpp answers to any name
            raise ConfigError(f"{url} serves {listed[0]['id']!r}, not {self.model!r}. Set engine.served_model.")
        base = names.get(self.model, self.model)
        self.context = min(self.context, contexts.get(base) or contexts.get(self.served) or self.context)

    # Requests for a reply

    def thinks(self, call: ModelCall) -> bool:
        """Return whether reasoning comes before the reply. Before a choice only if nothing can turn it off."""
        if not self.thinking.budget or (isinstance(call, Generate) and call.thoughts == "keep"):
            return False
        form = self.form(call)
        if form == "tokens":
            return isinstance(call, Generate) and call.prompt.form == "chat"
        return form == "messages" and (isinstance(call, Generate) or self.server == "hosted")

    def form(self, call: ModelCall) -> Form:
        """Return how the prompt is sent: as tokens or text to the completions endpoint, or to the chat endpoint.

        Only the chat endpoint has tools.
        """
        if self.server in TOKEN_SERVERS and not (isinstance(call, Generate) and call.tools):
            return "tokens"
        is_text = self.endpoints != "chat" if call.prompt.form == "completion" else self.endpoints == "completions"
        return "text" if is_text else "messages"

    async def generate(self, call: Generate) -> Completion:
        """Return the reply to a call."""
        call = await self._mask(call)
        thinks = self.thinks(call)
        if thinks and self.form(call) == "tokens":
            return await self._generate_with_reasoning(call)
        settings = generation_settings(call, self.server, self.thinking if thinks else NO_THINKING)
        return self._finish(await self.request(call, settings), call, settings, thinks=thinks)

    async def request(self, call: ModelCall, settings: Mapping[str, Json]) -> Response:
        """Return the response to a prompt with these settings, with flags for what the server does not support."""
        form = self.form(call)
        if form == "tokens":
            response = await self._continue(await self.prompt_tokens(call, int(settings["max_tokens"])), settings)
            response.flags += self._flag_control_text(call)
            return response
        if form == "text":
            try:
                response = await self.complete(COMPLETIONS, {"prompt": UNTEMPLATED.render(call), **settings})
            except ConfigError as error:  # the run stops at its first call
                if UNKNOWN not in str(error):
                    raise
                raise ConfigError(f"{error}. {WITHOUT_COMPLETIONS}") from error
            response.flags += (*UNTEMPLATED.flags(call), *self._flag_control_text(call))
            return response
        thinking = self.thinking if self.thinks(call) else NO_THINKING
        body = build_chat(call.prompt, self.server, thinking)
        response = await self.complete(CHAT, {**body, **settings})
        if call.prompt.prefill and "continue_final_message" not in body:
            response.flags += ("transcript_as_message" if call.prompt.has_transcript else "no_prefill",)
        if call.prompt.form == "completion":
            response.flags += ("as_chat",)
        response.flags += self._flag_control_text(call)
        return response

    async def complete(self, path: str, body: Mapping[str, Json]) -> Response:
        """Return the response to a request, with all that the server has charged for it.

        If a reply cannot be read, repeat the request: once if the model would write the same again, otherwise `retries`
        times.
        """
        request = {"model": self.model, **self.extra, **body}
        retries = self.transport.policy.retries if request.get("temperature") else 1
        charged, attempts = Usage(), 0
        while True:
            try:
                response = await self._send(path, request, self._abilities)
            except EngineError as error:
                error.charge(charged)
                raise
            charged += response.usage
            attempts += 1
            if not response.invalid:
                response.usage = charged
                return response
            if attempts > retries:
                unread = EngineError(f"the server sent {attempts} replies that cannot be read: {response.invalid}")
                unread.charge(charged)
                raise unread

    async def _send(self, path: str, request: Mapping[str, Json], abilities: Abilities) -> Response:
        """Return the response to a request in the form that the server accepts."""
        fitted = abilities.fit(request)
        read = partial(read_response, request=fitted)
        try:
            response, seconds = await self.transport.post(path, fitted, read, small_request(fitted))
        except Refused as refused:
            if "tools" in fitted and "tools" in (refused.meaning, find_rejected_key(refused, fitted)):
                raise ConfigError(f"{self.transport.url}: {refused.message}. {WITHOUT_TOOLS}") from refused
            return await self._send(path, request, abilities.learn(refused, fitted))
        self._abilities |= abilities
        response.usage = replace(response.usage, seconds=seconds)
        response.flags = (*abilities.flags(request), *response.flags, *self._flag_model(response.model))
        self.budget.spend(response.usage)
        return response

    def _finish(self, response: Response, call: Generate, settings: Mapping[str, Json], *, thinks: bool) -> Completion:
        """Return the reply to a call without its reasoning, up to the first stop string."""
        if call.schema is not None and not set(SCHEMAS) & set(settings):
            response.flags += ("unconstrained",)
        reply = read_reply(call, response.reply, thinks=thinks)
        is_omitted = {"no_prefill", "transcript_as_message"}.intersection(reply.flags)
        return cut_reply(reply, call, call.prompt.prefill if is_omitted else "")

    async def _continue(self, tokens: list[int], settings: Mapping[str, Json]) -> Response:
        """Return what a server that accepts tokens writes after them."""
        return await self.complete(COMPLETIONS, {"prompt": tokens, **settings, **self._stops})

    async def _generate_with_reasoning(self, call: Generate) -> Completion:
        """Generate the reasoning and then the answer, as two requests. The server reads the prompt twice."""
        prompt, begin = await self._turn(call, thinks=True)

        async def close(thought: str) -> list[int]:
            """Return the tokens of the thought and of the start of the answer."""
            return await self._continuation(leading(begin, thought, call)[len(begin) :])

        self._check_length(len(prompt) + len(await close("")), self.thinking.budget + call.max_tokens)
        first = generation_settings(thinking_call(call, self.thinking.budget, begin), self.server)
        shown = {"preserved_tokens": [marks(begin).end]}  # llama.cpp's way to show special tokens
        first |= {"skip_special_tokens": False} if self.server == "vllm" else shown
        thought = (await self._continue(prompt, first)).reply
        settings = generation_settings(call, self.server)
        try:
            response = await self._continue([*prompt, *await close(thought.text)], settings)
        except EngineError as error:
            error.charge(thought.usage)
            raise
        return join_thought(thought, self._finish(response, call, settings, thinks=False), is_read_twice=True)

    def _flag_model(self, name: Json) -> Flags:
        """Return the flag of a reply from a model with another name."""
        if not isinstance(name, str) or is_same_model(name, self.model):
            return ()
        shown = " ".join(name.split())[:NAME_LENGTH]
        if is_snapshot(name, self.model):
            return (f"{SNAPSHOT}{shown}",)
        _warn_of_model(self.transport.url, shown, self.model)
        return (f"{ANSWERED_BY}{shown}",)

    # Prompts in the server's tokens

    async def _mask(self, call: CallT) -> CallT:
        """Return the call with the control tokens of its messages masked, if kgqa tokenizes its rendered text."""
        if self.server != "llamacpp" or self.form(call) != "tokens":
            return call
        controls = set()
        for text in find_candidates(call.prompt):
            tokens = await self.tokenize(text)
            if len(tokens) == 1 and tokens != await self.tokenize(as_plain(text)):
                controls.add(text)
        return mask(call, controls)

    def _flag_control_text(self, call: ModelCall) -> Flags:
        """Return the flag of a call whose control tokens in messages reach the server."""
        is_found = find_candidates(call.prompt).intersection((*END_TOKENS, *START_TOKENS))
        return (FLAG,) if is_found else ()

    async def prompt_tokens(self, call: ModelCall, reply: int) -> list[int]:
        """Return the prompt with the prefill. Raise PromptTooLong if a reply of `reply` tokens does not fit."""
        call = await self._mask(call)
        tokens, _ = await self._turn(call, thinks=False)
        if not tokens:
            raise EngineError("the prompt is empty")
        self._check_length(len(tokens), reply)
        return tokens

    async def spelling(self, options: tuple[str, ...]) -> Spelling:
        """Return how the options are written in the server's tokens."""
        forms = [form for option in options for form in (option, f" {option}")]
        tokens = {form: await self._continuation(form) for form in forms}
        return spell(options, tokens.__getitem__)

    async def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Return the tokens of a text with its special tokens. `special`: with those that start every text."""
        if (text, special) in self._tokens:
            return self._tokens[text, special]
        tokens = list[int]()
        for number, (part, is_plain) in enumerate([*split_masks(text)] or [("", False)]):
            starts = special and not number
            if self.server == "vllm":
                body: dict[str, Json] = {"model": self.model, "prompt": part, "add_special_tokens": starts}
            else:
                body = {"content": part, "add_special": starts, "parse_special": not is_plain}
            tokens += await self._call("../tokenize", body, "tokens")
        if len(text) <= MAX_CACHED:
            self._tokens[text, special] = tokens
        return tokens

    async def _continuation(self, text: str) -> list[int]:
        """Return the tokens of a text inside a line, see `labels.continuation`."""
        line, both = await self.tokenize("\n"), await self.tokenize(f"\n{text}")
        return both[len(line) :] if both[: len(line)] == line else await self.tokenize(text)

    async def _turn(self, call: ModelCall, *, thinks: bool) -> tuple[list[int], str]:
        """Return a prompt up to the reply or to the reasoning before it, and the text that starts a thought."""
        prompt = call.prompt
        if prompt.form == "completion":
            return await self.tokenize(prompt.messages[0].content, special=True), ""
        settings = self.thinking.template(thinks=thinks)
        body = {"model": self.model, "messages": build_messages(prompt), "chat_template_kwargs": settings}
        prefill = "" if thinks else prompt.prefill
        if self.server == "llamacpp":
            text = str(await self._call("../apply-template", body, "prompt"))
            begin = opening(text, thinks=thinks)
            tokens = await self.tokenize(text + begin + prefill, special=True)  # the template leaves BOS to this step
            return tokens, begin or TAGS.begin
        tokens = list(await self._call("../tokenize", body, "tokens"))
        if thinks not in self._openings:  # every conversation ends alike
            last = {"model": self.model, "tokens": tokens[-8:]}
            self._openings[thinks] = opening(str(await self._call("../detokenize", last, "prompt")), thinks=thinks)
        begin = self._openings[thinks]
        for part in (begin, prefill):
            tokens += await self._continuation(part) if part else []
        return tokens, begin or TAGS.begin

    def _check_length(self, prompt: int, reply: int) -> None:
        if prompt + reply > self.context:
            raise PromptTooLong(prompt, self.context - reply)

    async def _call(self, path: str, body: Mapping[str, Json], key: str) -> Any:
        """Return a value of a response that is no reply of the model."""
        answer = await self.transport.fetch(path, body)
        if not isinstance(answer, dict) or key not in answer:
            raise EngineError(f"{path[2:]} of engine.server={self.server} returned no {key}")
        return answer[key]


@cache
def _warn_of_model(url: str, name: str, requested: str) -> None:
    """Warn once of a server that answers as another model."""
    log.warning("warning: %s answers as model %r, but model %r was requested", url, name, requested)
