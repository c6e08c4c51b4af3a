"""One model at one server: what is served there, what the server rejects, and what its replies cost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from kgqa.artifacts.adapter import Adapter
from kgqa.artifacts.metrics import ANSWERED_BY
from kgqa.calls import Generate
from kgqa.engines.openai.detection import OWNERS, is_same_model, is_snapshot, read_models
from kgqa.engines.openai.limits import AdaptiveLimiter, ServerBudget
from kgqa.engines.openai.requests import Abilities, Server, find_rejected_key, small_request
from kgqa.engines.openai.responses import NO_LOGPROBS, Flags, Response, read_response
from kgqa.engines.openai.transport import Refused, Transport
from kgqa.errors import ConfigError, EngineError, PromptTooLong
from kgqa.types import Json, Usage

log = logging.getLogger(__name__)

# a reply's flag: the dated version of the requested model that answered
SNAPSHOT = "snapshot:"
NAME_LENGTH = 80  # of a model in flags
WITHOUT_TOOLS = "The server or its model has no function calls here. Set engine.tools=text."


@dataclass
class Connection:
    """A model at a server, with an adapter or without. It belongs to one event loop.

    context: tokens of prompt and reply, which `connect` lowers to the server's limit. extra: more keys for every
    request for a reply. names_model: replies contain the requested name of the model.
    """

    transport: Transport
    server: Server
    # the model's name at the server
    served: str
    context: int
    adapter: Adapter | None = None
    budget: ServerBudget = field(default_factory=ServerBudget)
    extra: Mapping[str, Json] = field(default_factory=dict)
    limiter: AdaptiveLimiter = field(default_factory=AdaptiveLimiter)
    names_model: bool = True
    _abilities: Abilities = field(default_factory=Abilities)
    _is_checked: bool = False
    _checking: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def model(self) -> str:
        """Return the model's name for requests: vLLM serves adapters as models."""
        if self.adapter is None or self.server != "vllm":
            return self.served
        return self.adapter.served_name or self.adapter.name

    async def connect(self) -> None:
        """Check once that the server and its model are the configured ones. Raise ConfigError if not."""
        async with self._checking:
            if self._is_checked:
                return
            await self._check_models()
            if self.server == "llamacpp":
                properties = await self.transport.get("../props")  # a server can hide them
                if isinstance(properties, dict):
                    self.limiter.set_slots(properties.get("total_slots"))
                if await self.transport.get("../lora-adapters"):
                    raise ConfigError(
                        f"{self.transport.url} applies adapters. Start it without --lora."
                    )
            self._is_checked = True

    async def complete(self, path: str, body: Mapping[str, Json]) -> Response:
        """Return the response to a request in the form that the server accepts, with all that it has charged.

        If a reply cannot be read, repeat the request: once if the model would write the same again, otherwise `retries`
        times.
        """
        request = {"model": self.model, **self.extra, **body}
        retries = self.transport.policy.retries if request.get("temperature") else 1
        abilities, charged, attempts = self._abilities, Usage(), 0
        while True:
            fitted, missing = abilities.fit(request)
            read = partial(read_response, request=fitted)
            dropped_seed = "" if "seed" in fitted else str(request.get("seed", ""))
            salt = dropped_seed + "+" * attempts
            try:
                response, seconds = await self.transport.post(
                    path, fitted, read, partial(small_request, fitted), salt
                )
            except EngineError as error:
                error.charge(charged)
                abilities = self._learn(abilities, error, fitted)
                continue
            self._abilities |= abilities
            charged += replace(response.reply.usage, seconds=seconds)
            self.budget.spend(response.reply.usage)
            attempts += 1
            if not response.invalid:
                flags = (*missing, *response.reply.flags)
                if (
                    self.names_model
                    and isinstance(response.model, str)
                    and response.model != self.model
                ):
                    flags += self._flag_other_name(response.model)
                response.reply = replace(response.reply, usage=charged, flags=flags)
                return response
            if attempts > retries:
                unread = EngineError(
                    f"the server sent {attempts} replies that cannot be read: {response.invalid}"
                )
                unread.charge(charged)
                raise unread

    async def call(self, path: str, body: Mapping[str, Json], key: str) -> Any:
        """Return a value of a response that is no reply of the model."""
        answer = await self.transport.fetch(path, body)
        if not isinstance(answer, dict) or key not in answer:
            raise EngineError(f"{path[2:]} of engine.server={self.server} returned no {key}")
        return answer[key]

    def check_length(self, prompt: int, reply: int) -> None:
        """Raise PromptTooLong if a prompt and a reply of so many tokens do not fit."""
        if prompt + reply > self.context:
            raise PromptTooLong(prompt, self.context - reply)

    def check_lists(self, call: Generate) -> None:
        """Raise EngineError if the call needs log-probabilities that the server has rejected before."""
        if call.logprobs is not None and "logprobs" in self._abilities.rejected:
            raise EngineError(NO_LOGPROBS)

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
            raise ConfigError(
                f"{url} serves {listed[0]['id']!r}, not {self.model!r}. Set engine.served_model."
            )
        base = names.get(self.model, self.model)
        self.context = min(
            self.context, contexts.get(base) or contexts.get(self.served) or self.context
        )

    def _learn(
        self, abilities: Abilities, error: EngineError, request: Mapping[str, Json]
    ) -> Abilities:
        """Return abilities without what the server rejects. Raise the error if nothing can be omitted."""
        if not isinstance(error, Refused):
            raise error
        if "tools" in request and "tools" in (error.meaning, find_rejected_key(error, request)):
            raise ConfigError(f"{self.transport.url}: {error.message}. {WITHOUT_TOOLS}") from error
        return abilities.learn(error, request)

    def _flag_other_name(self, name: str) -> Flags:
        """Return the flag of a reply from another model. Some servers write the name of a model in two ways."""
        if is_same_model(name, self.model):
            return ()
        label = " ".join(name.split())[:NAME_LENGTH]
        if is_snapshot(name, self.model):
            return (f"{SNAPSHOT}{label}",)
        _warn_of_model(self.transport.url, label, self.model)
        return (f"{ANSWERED_BY}{label}",)


@cache
def _warn_of_model(url: str, name: str, requested: str) -> None:
    """Warn once of a server that answers as another model."""
    log.warning("warning: %s answers as model %r, but model %r was requested", url, name, requested)
