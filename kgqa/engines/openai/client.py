"""One server as the engine sees it: its address, what it turned out to be able to do, what it has cost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from kgqa.artifacts.adapter import Adapter
from kgqa.calls import Generate, ModelCall
from kgqa.engines.chat import ChatTemplate
from kgqa.engines.labels import Spelling, continuation, spell
from kgqa.engines.openai.adapters import find_served_name, scales
from kgqa.engines.openai.answers import lacking
from kgqa.engines.openai.budget import Budget
from kgqa.engines.openai.concurrency import Room
from kgqa.engines.openai.endpoint import Endpoint, Refused, ServerReply, Unknown
from kgqa.engines.openai.payloads import Abilities, Server, chat, too_long, usage
from kgqa.engines.thinking import NO_THINKING, TAGS, Thinking, opening
from kgqa.engines.tokens import END_TOKENS
from kgqa.errors import ConfigError, EngineError, PromptTooLong
from kgqa.types import Json, Prompt

log = logging.getLogger(__name__)

TOKENS_SHOWN: tuple[Server, ...] = ("vllm", "llamacpp")  # they tell a text's tokens and take prompts as tokens
UNTEMPLATED = ChatTemplate(None, "", "", completion_bos=False)  # conversations as plain text, flagged
Endpoints = Literal["both", "chat", "completions"]  # what a server that shows no tokens has for the model
KINDS = {"vllm", "sglang", "llamacpp"}  # how they call themselves in /models
COMPLETIONS = "/completions"


@dataclass
class Client:
    """Belongs to one event loop. `context`: tokens of prompt and reply; lowered to what the server says."""

    endpoint: Endpoint
    server: Server
    served: str  # the model's name at the server
    context: int
    endpoints: Endpoints
    budget: Budget
    abilities: Abilities
    thinking: Thinking
    extra: Mapping[str, Json]  # further keys of every request for a reply
    room: Room
    adapters: Collection[Adapter]  # all of the run's
    adapter: Adapter | None = None  # the one of them that answers
    _greeted: bool = False
    _greeting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ends: Mapping[str, Json] = field(default_factory=dict)  # where a reply ends, whatever generation_config forgets
    _known: dict[str, list[int]] = field(default_factory=dict)  # tokens of labels and prefills
    _openings: dict[bool, str] = field(default_factory=dict)  # what vLLM's turns lack to a thought, or an answer
    _spellings: dict[tuple[str, ...], Spelling] = field(default_factory=dict)
    _scales: list[Json] | None = None
    _seen: set[str] = field(default_factory=set)  # names under which it has answered

    async def ask(self, call: ModelCall, settings: Mapping[str, Json]) -> tuple[ServerReply, tuple[str, ...]]:
        """Return one reply, and flags for what the server did not do.

        Raises:
            PromptTooLong, EngineError, and what `Endpoint.post` raises.
        """
        if self.server in TOKENS_SHOWN:
            tokens = await self.prompt_tokens(call.prompt, reply=int(settings["max_tokens"]))
            return await self.go_on(tokens, settings)
        text = self.plain_text(call)
        if text is None:
            thinking = self.thinking if self.thinks(call) else NO_THINKING
            body = {**chat(call.prompt, self.server, thinking), **settings}
            answered, flags = await self.complete("/chat/completions", body)
            undone = {"no_prefill": self.leaves_out(call), "as_chat": call.prompt.form == "completion"}
            return answered, (*flags, *(flag for flag, is_set in undone.items() if is_set))
        answered, flags = await self.complete(COMPLETIONS, {"prompt": text, **settings})
        return answered, (*flags, *UNTEMPLATED.flags(call)) if call.prompt.form == "chat" else flags

    async def go_on(self, tokens: list[int], settings: Mapping[str, Json]) -> tuple[ServerReply, tuple[str, ...]]:
        """Return what a server that takes tokens writes behind them."""
        return await self.complete(COMPLETIONS, {"prompt": tokens, **settings, **self._ends})

    def thinks(self, call: ModelCall) -> bool:
        """Return whether a thought comes before the reply. Before a choice only where nothing can keep the model from
        it.
        """
        if not self.thinking.budget:
            return False
        if self.server in TOKENS_SHOWN:
            return isinstance(call, Generate) and call.prompt.form == "chat"
        return self.plain_text(call) is None and (isinstance(call, Generate) or self.server == "hosted")

    def plain_text(self, call: ModelCall) -> str | None:
        """Return the text that goes to the completions endpoint; None where messages go to the chat endpoint."""
        goes_as_text = self.endpoints != "chat" if call.prompt.form == "completion" else self.endpoints == "completions"
        return UNTEMPLATED.render(call) if goes_as_text else None

    def leaves_out(self, call: ModelCall) -> str:
        """Return the prefill, where this server cannot go on with one, or would not think then."""
        takes_messages = self.server not in TOKENS_SHOWN and self.plain_text(call) is None
        return call.prompt.prefill if takes_messages and (self.server == "hosted" or self.thinks(call)) else ""

    async def complete(self, path: str, body: Mapping[str, Json]) -> tuple[ServerReply, tuple[str, ...]]:
        """Return one request, fitted to what the server takes."""
        request = {"model": self.model, **self.extra, **body, **await self._scale()}
        while True:
            fitted = self.abilities.fit(request)
            try:
                answered = await self.endpoint.post(path, fitted, lacking)
            except Refused as refused:
                if self.abilities.learn(refused, fitted):
                    continue
                raise too_long(refused, self.context) or refused from refused
            self.budget.spend(usage(answered))
            self._tell_of_another_model(answered.json.get("model"))
            return answered, self.abilities.flags(request)

    @property
    def model(self) -> str:
        """Return the name to ask for: vLLM serves adapters as models."""
        return self.served if self.adapter is None or self.server != "vllm" else find_served_name(self.adapter)

    async def _scale(self) -> Mapping[str, Json]:
        """Return what a llama.cpp server is told of its adapters, for else all of them answer together.

        What it knows of a prompt it finds by the tokens alone, whichever adapter made it, so that is not used.
        """
        if self.server != "llamacpp" or not self.adapters:
            return {}
        if self._scales is None:
            self._scales = scales((await self.endpoint.get("../lora-adapters")).get("data"), self.adapter)
        return {"lora": self._scales, "cache_prompt": False}

    async def greet(self) -> None:
        """Before the first call: is this the server, and the model, that the configuration says? Asked once.

        Raises:
            ConfigError: it says that it is something else.
        """
        if self._greeted:
            return
        async with self._greeting:
            if not self._greeted:
                await self._compare()
                if self.server == "llamacpp":
                    await self._ask_for_slots()
                if self.server == "vllm":  # llama.cpp knows the usual ones by itself
                    known = [await self.tokenize(token) for token in END_TOKENS]
                    self._ends = {"stop_token_ids": [tokens[0] for tokens in known if len(tokens) == 1]}
                self._greeted = True

    async def _compare(self) -> None:
        try:
            listed = (await self.endpoint.get("/models")).get("data")
        except (Unknown, Refused):  # not every server lists its models
            return
        models = [model for model in listed if isinstance(model, dict)] if isinstance(listed, list) else []
        kinds = {str(model.get("owned_by")) for model in models} & KINDS
        if kinds and self.server not in kinds:
            raise ConfigError(
                f"engine.server={self.server}: {self.endpoint.url} says it is {kinds.pop()}; set engine.server to that"
            )
        named = [model for model in models if self.model in (model.get("id"), *(model.get("aliases") or ()))]
        if models and not named and self.model != self.served:
            raise ConfigError(
                f"{self.endpoint.url} serves no adapter {self.model!r}; start it with --lora-modules "
                f"{self.model}=FOLDER, or say what it is called there by served_name in conf/adapter"
            )
        if len(models) == 1 and not named:  # llama.cpp answers to whatever name
            raise ConfigError(
                f"{self.endpoint.url} serves {models[0].get('id')!r}, not {self.model!r}; set engine.served_model"
            )
        for model in (*named, *(model for model in models if model.get("id") == self.served)):
            limits = (model.get("max_model_len"), (model.get("meta") or {}).get("n_ctx"))
            self.context = min([self.context, *(limit for limit in limits if isinstance(limit, int))])

    async def _ask_for_slots(self) -> None:
        with suppress(Unknown, Refused):  # a server may be told to keep its properties to itself
            self.room.told((await self.endpoint.get("../props")).get("total_slots"))

    async def prompt_tokens(self, prompt: Prompt, reply: int) -> list[int]:
        """Return the prompt under the server's own chat template, the prefill at its end.

        Raises:
            PromptTooLong: with a reply of so many tokens it exceeds the context.
        """
        if prompt.form == "completion":
            tokens = await self.tokenize(prompt.messages[0].content, special=True)
        else:
            tokens, _ = await self.turn(prompt, thinks=False)
        if not tokens:
            raise EngineError("the prompt is empty")
        self.check_length(len(tokens), reply)
        return tokens

    def check_length(self, prompt: int, reply: int) -> None:
        """Raise PromptTooLong if the prompt and the reply do not fit into the context."""
        if prompt + reply > self.context:
            raise PromptTooLong(prompt, self.context - reply)

    async def turn(self, prompt: Prompt, *, thinks: bool) -> tuple[list[int], str]:
        """Return a conversation up to the reply, or to the thought before it; and what the thought was made to begin
        with.
        """
        messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
        told = self.thinking.template(thinks=thinks)
        conversation = {"model": self.model, "messages": messages, "chat_template_kwargs": told}
        prefill = "" if thinks else prompt.prefill
        if self.server == "llamacpp":
            text = str(await self._report("../apply-template", conversation, "prompt"))
            begin = opening(text, thinks=thinks)
            tokens = await self.tokenize(text + begin + prefill, special=True)  # it leaves the BOS token to this step
            return tokens, begin or TAGS.begin
        tokens = list(await self._report("../tokenize", conversation, "tokens"))
        if thinks not in self._openings:  # every conversation ends alike, so one look is enough
            last = {"model": self.model, "tokens": tokens[-8:]}
            self._openings[thinks] = opening(str(await self._report("../detokenize", last, "prompt")), thinks=thinks)
        begin = self._openings[thinks]
        parts = await self._continuations(part for part in (begin, prefill) if part)
        return [*tokens, *parts.get(begin, ()), *parts.get(prefill, ())], begin or TAGS.begin

    async def continuation(self, text: str) -> list[int]:
        """Return the tokens of a text that goes on behind others; not kept, as most are long and come once."""
        forms = {form: await self.tokenize(form) for form in ("\n", text, f"\n{text}")}
        return list(continuation(forms.__getitem__)(text))

    async def spelling(self, options: tuple[str, ...]) -> Spelling:
        """Return how the options are written in the server's tokens."""
        if options not in self._spellings:
            forms = [form for option in options for form in (option, f" {option}")]
            self._spellings[options] = spell(options, (await self._continuations(forms)).__getitem__)
        return self._spellings[options]

    async def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Return tokens of a text in which special tokens are written out. `special`: those every text starts with,
        too.
        """
        if self.server == "vllm":
            body: dict[str, Json] = {"model": self.model, "prompt": text, "add_special_tokens": special}
        else:
            body = {"content": text, "add_special": special, "parse_special": True}
        return list(await self._report("../tokenize", body, "tokens"))

    async def _continuations(self, texts: Iterable[str]) -> dict[str, list[int]]:
        """Return the tokens of each text inside a line."""
        texts = list(texts)
        for form in ("\n", *texts, *(f"\n{text}" for text in texts)):  # one by one: they are few, and kept
            if form not in self._known:
                self._known[form] = await self.tokenize(form)
        tokenize = continuation(self._known.__getitem__)
        return {text: tokenize(text) for text in texts}

    async def _report(self, path: str, body: Mapping[str, Json], key: str) -> Any:
        """Return a value of an answer that is no reply of the model."""
        answered = await self.endpoint.post(path, body)
        if key not in answered.json:
            raise EngineError(f"{path[2:]} of engine.server={self.server} gave no {key}")
        return answered.json[key]

    def _tell_of_another_model(self, name: Json) -> None:
        """Once for each name. A longer or shorter one is the same model's: of a version, or behind a provider's."""
        if not isinstance(name, str) or name in self._seen:
            return
        self._seen.add(name)
        one, other = name.casefold(), self.model.casefold()
        if one and one not in other and other not in one:
            log.warning(
                "warning: %s answers as model %.80r, not %r, which it was asked for",
                self.endpoint.url,
                name,
                self.model,
            )
