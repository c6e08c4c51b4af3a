"""Any server that speaks OpenAI's protocol: a hosted model, vLLM, SGLang, llama.cpp's own server.

What a server cannot do as asked is flagged on the reply and counted in the report, never passed over. What no client
can know: a hosted model may change behind its name, and another program may take over an address. Where the server
lists its models that is compared once, before the first call; `engine.deployment` names what is served in your words.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, ClassVar, Literal

from kgqa.artifacts.adapter import Adapter
from kgqa.calls import Generate, ModelCall, ModelReply
from kgqa.engines.adapted import AdaptedStream
from kgqa.engines.openai import extra as extras
from kgqa.engines.openai.adapters import check_server
from kgqa.engines.openai.address import address, key
from kgqa.engines.openai.budget import Budget
from kgqa.engines.openai.client import TOKENS_SHOWN, Client, Endpoints
from kgqa.engines.openai.concurrency import Room
from kgqa.engines.openai.endpoint import Endpoint, Persistence
from kgqa.engines.openai.loop import Loop
from kgqa.engines.openai.option_logprobs import WAYS, Choosing, Way
from kgqa.engines.openai.payloads import SCHEMAS, Abilities, Server, completion, decoding, readable, trim_payload
from kgqa.engines.openai.reasoning import thoughtful
from kgqa.engines.thinking import NO_THINKING, Thinking
from kgqa.engines.weights import Model
from kgqa.errors import ConfigError, KgqaError, of_one_call
from kgqa.protocols import Deliver, Engine
from kgqa.types import Json
from kgqa.util.validators import Count, Natural, Seconds, Validator

ADAPTER = 2  # raise it when equal calls get other replies than before
BYTES_PER_TOKEN = 4  # of English text, where the server does not count
Dollars = Annotated[float, Validator("must be more than 0", lambda dollars: dollars > 0)]


@dataclass(frozen=True)
class OpenAI:
    """A model by its name at a server; conf/engine/openai.yaml says what each field means.

    Service times include the server's own queue. Batch composition at a server moves log-probabilities, so equal calls
    may get other replies on another day; the call cache keeps the first.
    """

    model: Model
    base_url: str | None
    api_key_env: str
    server: Server
    served_model: str | None
    deployment: str | None
    endpoints: Endpoints
    choose: Literal["auto", "logprobs", "prompt_logprobs", "groups", "parse"]
    top_logprobs: Count | None
    concurrency: Count | None
    timeout: Seconds
    retries: Natural
    backoff: Seconds
    patience: Seconds
    budget_tokens: Count | None
    budget_usd: Dollars | None
    extra: Mapping[str, Json] | None

    _views: dict[Adapter, AdaptedStream] = field(default_factory=dict, init=False, repr=False, compare=False)
    _clients: dict[Adapter | None, Client] = field(default_factory=dict, init=False, repr=False, compare=False)

    streaming: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.choose != "auto" and self.choose not in WAYS[self.server]:
            ways = ", ".join(WAYS[self.server])
            raise ConfigError(f"engine.choose={self.choose}: engine.server={self.server} can do auto, {ways}")
        if not re.fullmatch(r"[A-Z][A-Z0-9_]*", self.api_key_env):  # a key put here by mistake is not repeated
            raise ConfigError("engine.api_key_env: must be the NAME of an environment variable, in capitals")
        if self._thinking.budget and self.choose not in ("auto", "parse") and self.server == "hosted":
            raise ConfigError(
                f"engine.choose={self.choose}: a model that thinks names a label in words; set engine.choose=auto"
            )
        extras.check(self.extra or {}, self.server, self._thinking)
        _ = self._url, self._room, self._budget, self._loop

    def identity(self) -> Mapping[str, Json]:
        return {
            "engine": "openai",
            "adapter": ADAPTER,
            "model": self._find_served_model,
            "deployment": self.deployment or self._url,
            "server": self.server,
            "template": "the server's own",
            "endpoints": self.endpoints,
            "options": [self.choose, self.top_logprobs],
            "context": self.model.context,
            "tokens": "counted" if self.counts_tokens else f"estimated: bytes / {BYTES_PER_TOKEN}",
            **self._thinking.identity(),
            **({"extra": dict(self.extra)} if self.extra else {}),
        }

    @property
    def counts_tokens(self) -> bool:
        """Return whether `count_tokens` is right, not an estimate."""
        return self.server in TOKENS_SHOWN

    @property
    def places(self) -> int:
        return self._room.limit

    @property
    def counts_freely(self) -> bool:
        return not self.counts_tokens

    def render(self, call: ModelCall) -> str:
        """Return the messages; only the server knows the text it makes of them."""
        return readable(call.prompt)

    def count_tokens(self, text: str) -> int:
        if not self.counts_tokens:
            return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)
        return self._loop.result(self._count(text))

    @property
    def base(self) -> Engine:
        return self

    def with_adapter(self, adapter: Adapter) -> Engine:
        """Raise ConfigError: of these servers only vLLM's and llama.cpp's have adapters."""
        check_server(self.server)
        if adapter not in self._views:
            self._views[adapter] = AdaptedStream(self, adapter, differs=False)  # the server has the base, too
        return self._views[adapter]

    def submit(self, call: ModelCall, deliver: Deliver) -> None:
        self.submit_with(call, deliver, None)

    def submit_with(self, call: ModelCall, deliver: Deliver, adapter: Adapter | None) -> None:
        """As `submit`, through an adapter."""
        self._loop.begin(self._serve(call, deliver, adapter), lambda error: deliver(of_one_call(error)))

    def close(self) -> None:
        """Drop all calls and their connections."""
        self._loop.close(self._hang_up)

    async def _serve(self, call: ModelCall, deliver: Deliver, adapter: Adapter | None) -> None:
        await self._budget.enter()
        place, began, seconds, tokens = self._room.enter(), time.perf_counter(), None, 0
        try:
            outcome = await self._outcome(call, adapter)
            if not isinstance(outcome, Exception):
                seconds, tokens = time.perf_counter() - began, outcome.usage.output_tokens
            deliver(outcome)
        finally:
            self._room.leave(place, seconds, tokens)
            self._budget.leave()

    async def _outcome(self, call: ModelCall, adapter: Adapter | None) -> ModelReply | Exception:
        try:
            return await self._reply(call, self._client(adapter))
        except KgqaError as error:
            return error

    async def _reply(self, call: ModelCall, client: Client) -> ModelReply:
        await client.greet()
        thinks = client.thinks(call)
        if not isinstance(call, Generate):
            ways: tuple[Way, ...] = WAYS[self.server] if self.choose == "auto" else (self.choose,)
            return await Choosing(client, call, ("parse",) if thinks else ways).choice()
        if thinks and self.counts_tokens:
            reply = await thoughtful(client, call)
        else:
            settings = decoding(call, self.server, client.thinking if thinks else NO_THINKING)
            answered, undone = await client.ask(call, settings)
            reply = trim_payload(completion(answered, undone, thinks=thinks), call.stop, client.leaves_out(call))
        free = call.schema is not None and not set(SCHEMAS) & set(decoding(call, self.server))
        flags = {"unconstrained": free, "no_thinking": client.thinking.budget > 0 and not thinks}
        return replace(reply, flags=(*reply.flags, *(flag for flag, is_set in flags.items() if is_set)))

    async def _count(self, text: str) -> int:
        client = self._client(None)
        await client.greet()
        return len(await client.tokenize(text))

    async def _hang_up(self) -> None:
        if "_endpoint" in self.__dict__:
            await self._endpoint.close()

    @cached_property
    def _loop(self) -> Loop:
        return Loop()

    @cached_property
    def _endpoint(self) -> Endpoint:
        persistence = Persistence(self.timeout, self.retries, self.backoff, self.patience)
        return Endpoint(self._url, key(self.api_key_env, self._url), persistence, self._room.crowded)

    def _client(self, adapter: Adapter | None) -> Client:
        """Return the client of an adapter: each has its own model name. Use it only in the loop's thread."""
        if adapter not in self._clients:
            self._clients[adapter] = Client(
                self._endpoint,
                self.server,
                self._find_served_model,
                self.model.context,
                self.endpoints,
                self._budget,
                Abilities(longest_list=self.top_logprobs),
                self._thinking,
                self.extra or {},
                self._room,
                self._views,
                adapter,
            )
        return self._clients[adapter]

    @cached_property
    def _url(self) -> str:
        return address(self.base_url, self.api_key_env)

    @cached_property
    def _find_served_model(self) -> str:
        return self.served_model or (self.model.hub or self.model.name).partition(":")[0]

    @cached_property
    def _thinking(self) -> Thinking:
        return Thinking.of(self.model.thinking).fitting(self.model.context)

    @cached_property
    def _room(self) -> Room:
        return Room.of(self.concurrency)

    @cached_property
    def _budget(self) -> Budget:
        return Budget(self.budget_tokens, self.budget_usd, self.model.prices)
