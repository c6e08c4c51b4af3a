"""One server as the engine sees it: its address, what it turned out to be able to do, what it has cost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kgqa.calls import ModelCall
from kgqa.engines.chat import HARMONY_ANSWER, HARMONY_TURN, ChatTemplate
from kgqa.engines.labels import Spelling, continuation, spell
from kgqa.engines.openai.budget import Budget
from kgqa.engines.openai.endpoint import Endpoint, Refused, ServerReply, Unknown
from kgqa.engines.openai.requests import NO_THINKING, Abilities, Server, chat, too_long, usage
from kgqa.engines.tokens import END_TOKENS
from kgqa.errors import ConfigError, EngineError, PromptTooLong
from kgqa.types import Json, Prompt

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
    model: str  # its name at the server
    context: int
    endpoints: Endpoints
    budget: Budget
    abilities: Abilities
    _greeted: bool = False
    _greeting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ends: Mapping[str, Json] = field(default_factory=dict)  # where a reply ends, whatever generation_config forgets
    _known: dict[str, list[int]] = field(default_factory=dict)  # tokens of labels and prefills
    _opening: list[int] | None = None  # tokens that make vLLM's reply begin in the part that answers
    _spellings: dict[tuple[str, ...], Spelling] = field(default_factory=dict)

    async def ask(self, call: ModelCall, settings: Mapping[str, Json]) -> tuple[ServerReply, tuple[str, ...]]:
        """One reply, and flags for what the server did not do.

        Raises:
            PromptTooLong, EngineError, and what `Endpoint.post` raises.
        """
        if self.server in TOKENS_SHOWN:
            tokens = await self.prompt_tokens(call.prompt, reply=int(settings["max_tokens"]))
            return await self.complete(COMPLETIONS, {"prompt": tokens, **settings, **self._ends})
        text = self.plain_text(call)
        if text is None:
            answered, flags = await self.complete("/chat/completions", {**chat(call.prompt, self.server), **settings})
            undone = {"no_prefill": self.leaves_out(call), "as_chat": call.prompt.form == "completion"}
            return answered, (*flags, *(flag for flag, is_set in undone.items() if is_set))
        answered, flags = await self.complete(COMPLETIONS, {"prompt": text, **settings})
        return answered, (*flags, *UNTEMPLATED.flags(call)) if call.prompt.form == "chat" else flags

    def plain_text(self, call: ModelCall) -> str | None:
        """The text that goes to the completions endpoint; None where messages go to the chat endpoint."""
        goes_as_text = self.endpoints != "chat" if call.prompt.form == "completion" else self.endpoints == "completions"
        return UNTEMPLATED.render(call) if goes_as_text else None

    def leaves_out(self, call: ModelCall) -> str:
        """The prefill, where this server cannot go on with one."""
        return call.prompt.prefill if self.server == "hosted" and self.plain_text(call) is None else ""

    async def complete(self, path: str, body: Mapping[str, Json]) -> tuple[ServerReply, tuple[str, ...]]:
        """One request, fitted to what the server takes."""
        request = {"model": self.model, **body}
        while True:
            fitted = self.abilities.fit(request)
            try:
                answered = await self.endpoint.post(path, fitted)
            except Refused as refused:
                if self.abilities.learn(refused, fitted):
                    continue
                raise too_long(refused, self.context) or refused from refused
            self.budget.spend(usage(answered))
            return answered, self.abilities.flags(request)

    async def greet(self) -> None:
        """Before the first call: is this the server, and the model, that the configuration says? Asked once.

        Raises:
            ConfigError: it says that it is something else.
        """
        async with self._greeting:
            if not self._greeted:
                await self._compare()
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
        if len(models) == 1 and not named:  # llama.cpp answers to whatever name
            raise ConfigError(
                f"{self.endpoint.url} serves {models[0].get('id')!r}, not {self.model!r}; set engine.served_model"
            )
        for model in named:
            limits = (model.get("max_model_len"), (model.get("meta") or {}).get("n_ctx"))
            self.context = min([self.context, *(limit for limit in limits if isinstance(limit, int))])

    async def prompt_tokens(self, prompt: Prompt, reply: int) -> list[int]:
        """The prompt under the server's own chat template, the prefill at its end.

        Raises:
            PromptTooLong: with a reply of so many tokens it exceeds the context.
        """
        tokens = await self._prompt_tokens(prompt)
        if not tokens:
            raise EngineError("the prompt is empty")
        if len(tokens) + reply > self.context:
            raise PromptTooLong(len(tokens), self.context - reply)
        return tokens

    async def _prompt_tokens(self, prompt: Prompt) -> list[int]:
        if prompt.form == "completion":
            return await self.tokenize(prompt.messages[0].content, special=True)
        messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
        conversation = {"model": self.model, "messages": messages, "chat_template_kwargs": NO_THINKING}
        if self.server == "llamacpp":
            text = str(await self._told("../apply-template", conversation, "prompt"))
            text += HARMONY_ANSWER if text.endswith(HARMONY_TURN) else ""
            return await self.tokenize(text + prompt.prefill, special=True)  # it leaves the BOS token to this step
        tokens: list[int] = list(await self._told("../tokenize", conversation, "tokens"))
        if self._opening is None:  # every conversation ends alike, so one look is enough
            last = {"model": self.model, "tokens": tokens[-8:]}
            thinks = str(await self._told("../detokenize", last, "prompt")).endswith(HARMONY_TURN)
            self._opening = await self.tokenize(HARMONY_ANSWER) if thinks else []
        prefill = (await self._continuations([prompt.prefill]))[prompt.prefill] if prompt.prefill else []
        return [*tokens, *self._opening, *prefill]

    async def spelling(self, options: tuple[str, ...]) -> Spelling:
        """How the options are written in the server's tokens."""
        if options not in self._spellings:
            forms = [form for option in options for form in (option, f" {option}")]
            self._spellings[options] = spell(options, (await self._continuations(forms)).__getitem__)
        return self._spellings[options]

    async def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Tokens of a text in which special tokens are written out. `special`: those every text starts with, too."""
        if self.server == "vllm":
            body: dict[str, Json] = {"model": self.model, "prompt": text, "add_special_tokens": special}
        else:
            body = {"content": text, "add_special": special, "parse_special": True}
        return list(await self._told("../tokenize", body, "tokens"))

    async def _continuations(self, texts: Iterable[str]) -> dict[str, list[int]]:
        """The tokens of each text inside a line."""
        texts = list(texts)
        for form in ("\n", *texts, *(f"\n{text}" for text in texts)):  # one by one: they are few, and kept
            if form not in self._known:
                self._known[form] = await self.tokenize(form)
        tokenize = continuation(self._known.__getitem__)
        return {text: tokenize(text) for text in texts}

    async def _told(self, path: str, body: Mapping[str, Json], key: str) -> Any:
        """A value of an answer that is no reply of the model."""
        answered = await self.endpoint.post(path, body)
        if key not in answered.json:
            raise EngineError(f"{path[2:]} of engine.server={self.server} gave no {key}")
        return answered.json[key]
