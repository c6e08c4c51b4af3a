"""Any server with OpenAI's protocol: hosted models, vLLM, SGLang, llama.cpp's server.

Missing features of a server are flagged on replies and counted in the report. If the server lists its models, they are
checked once before the first call. A client cannot notice that a hosted model changes behind its name: set
`engine.deployment` to a name for what is served.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, ClassVar, Literal

from kgqa.artifacts.adapter import Adapter
from kgqa.calls import ModelCall, ModelReply
from kgqa.engines.base import BaseEngine
from kgqa.engines.batches import MOST_REQUESTS, WAIT
from kgqa.engines.event_loop import EventLoopThread
from kgqa.engines.openai.access import REACHING, ServerAccess
from kgqa.engines.openai.batch_transport import BatchTransport
from kgqa.engines.openai.client import TOKEN_SERVERS, Client, Endpoints
from kgqa.engines.openai.connection import Connection
from kgqa.engines.openai.limits import (
    INITIAL_LIMIT,
    QUEUING_LIMIT,
    AdaptiveLimiter,
    ServerBudget,
)
from kgqa.engines.openai.requests import Server, check_extra
from kgqa.engines.openai.transport import Transport
from kgqa.engines.thinking import Thinking
from kgqa.errors import BudgetSpent, ConfigError
from kgqa.protocols import Deliver
from kgqa.types import Json, JsonObject
from kgqa.util.settings import NotIdentity, Setting
from kgqa.util.text import estimate_tokens
from kgqa.util.validators import Count, Seconds, Validator

# raise it when equal calls get other replies than before
PROTOCOL_VERSION = 2
# if neither preset nor server sets it; the server rejects longer prompts
UNKNOWN_CONTEXT = 131_072
Dollars = Annotated[float, Validator("must be more than 0", lambda dollars: dollars > 0)]


def name_at_server(name: str, hub: str | None) -> str:
    """Return the name that a server has for a model, unless `engine.served_model` is set."""
    return hub.partition(":")[0] if hub else name


@dataclass(frozen=True)
class OpenAI(ServerAccess, BaseEngine):
    """A model by its name at a server.

    Service times include the server's queue. A server's batches change log-probabilities, so equal calls can get
    different replies. The call cache stores the first one.
    """

    server: Annotated[
        Server | None,
        Setting("Vllm, sglang, llamacpp, or hosted for any other server. null: detected."),
        NotIdentity("what it loads has the kind of server"),
    ] = None
    served_model: Annotated[
        str | None,
        Setting("Name of the model on the server. null: the same name, or the only model."),
        NotIdentity("what it loads has the name of the model"),
    ] = None
    deployment: Annotated[
        str | None,
        Setting(
            'Name of the server in a run\'s ID and in the call cache, e.g. "vllm 0.32 bf16". With it, a server can '
            "move to another host or port. null: its address."
        ),
        NotIdentity("what it loads has it, or else the address"),
    ] = None
    endpoints: Annotated[
        Endpoints,
        Setting(
            "Endpoints of a hosted server for the model: both, chat (plain prompts go as a message, flagged "
            "as_chat), or completions (conversations go as plain text, flagged no_template)"
        ),
    ] = "both"
    tools: Annotated[
        Literal["functions", "text"],
        Setting(
            "How methods with tools (tool_agent) call them: functions, the server's function calls | text, for a "
            "server without them."
        ),
        NotIdentity("method.protocol has it"),
    ] = "functions"
    concurrency: Annotated[
        Count | None,
        Setting(
            "Maximum number of parallel calls. null: the slots that llama.cpp reports, 128 at vLLM and SGLang, "
            "otherwise 32. kgqa increases the last two up to 1,024 while replies are fast, and decreases them "
            "after too many requests (429)"
        ),
        REACHING,
    ] = None
    budget_tokens: Annotated[
        Count | None,
        Setting(
            "Maximum number of new prompt and generated tokens. At the limit the run stops and can be resumed."
        ),
        REACHING,
    ] = None
    budget_usd: Annotated[
        Dollars | None, Setting("Maximum cost in US dollars, by the preset's prices."), REACHING
    ] = None
    extra_body: Annotated[
        Mapping[str, Json] | None,
        Setting(
            "Additional keys of every request, e.g. {service_tier: flex}. Part of the run's ID."
        ),
    ] = None
    batch: Annotated[
        bool,
        Setting(
            "true: send calls in waves through OpenAI's Batch API, for half the price and within a day. For methods "
            "with few steps."
        ),
        NotIdentity("the same model answers, at another time"),
    ] = False
    batch_wait: Annotated[
        Seconds,
        Setting("Seconds without a new call, after which the calls so far are sent as a batch."),
        REACHING,
    ] = WAIT

    _clients: dict[Adapter | None, Client] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    streaming: ClassVar[bool] = True
    group: ClassVar[str] = "engine"

    # raise it when equal settings give other results
    version: ClassVar[int] = PROTOCOL_VERSION

    def __post_init__(self) -> None:
        # report wrong settings before the first call
        self.find_address()
        check_extra(self.extra_body or {}, self._kind, self._thinking)
        if self.batch and self._kind != "hosted":
            raise ConfigError(
                f"engine.batch=true: engine.server={self._kind} has no Batch API. Remove it."
            )
        _ = self._limiter, self._budget, self._loop

    def loads(self) -> JsonObject:
        """Return what is known of the server and of the model behind it. Its weights are not."""
        return {
            "model_name": self._model_name,
            "deployment": self.deployment or self.find_address(),
            "server": self._kind,
        }

    @property
    def calls_functions(self) -> bool:
        """Return whether calls can have tools, which only the chat endpoint accepts."""
        return self.endpoints != "completions"

    @property
    def lists_logprobs(self) -> bool:
        """Return whether calls can have `logprobs`. A server that does not list them rejects the call."""
        return True

    @property
    def reports_stops(self) -> bool:
        """Return whether replies tell which stop string ended them (`Completion.stopped_by`)."""
        return self._kind != "hosted"

    @property
    def estimates_tokens(self) -> bool:
        """Return whether `count_tokens` is an estimate."""
        return self._kind not in TOKEN_SERVERS

    @property
    def max_concurrency(self) -> int:
        return self._limiter.limit

    def render(self, call: ModelCall) -> str:
        """Return the prompt for users. Only the server knows the rendered text."""
        prompt = call.prompt
        if prompt.form == "completion":
            return prompt.messages[0].content
        parts = [f"[{message.role}]\n{message.content}" for message in prompt.messages]
        return "\n\n".join([*parts, f"[assistant]\n{prompt.prefill}"])

    def check_server(self) -> None:
        """Check that the server has the model, as before the first call."""
        self._loop.submit(self._connect()).result()

    def count_tokens(self, text: str) -> int:
        if self.estimates_tokens:
            return estimate_tokens(text)
        return self._loop.submit(self._count(text)).result()

    def submit(self, call: ModelCall, deliver: Deliver, adapter: Adapter | None = None) -> None:
        """Submit a call, with an adapter if there is one."""
        self._loop.submit(self._serve(call, adapter)).add_done_callback(
            lambda future: self._deliver(future, deliver)
        )

    def close(self) -> None:
        """Drop all calls and their connections."""
        self._closing.set()
        self._loop.close(lambda: self._transport.close())  # noqa: PLW0108 - without a key there is none

    def _check_adapter(self, adapter: Adapter) -> bool:
        if self._kind != "vllm":
            raise ConfigError(
                f"engine.server={self._kind} accepts no adapters. Serve the model with vLLM."
            )
        return super()._check_adapter(adapter)

    async def _serve(self, call: ModelCall, adapter: Adapter | None) -> ModelReply:
        if reason := self._budget.explain_spent():
            # calls in progress are paid, so they are finished and saved first
            await self._limiter.drain()
            raise BudgetSpent(reason)
        limit = self._limiter.acquire()
        started, seconds, tokens = time.perf_counter(), None, 0
        try:
            reply = await self._reply(call, self._client(adapter))
            seconds, tokens = time.perf_counter() - started, reply.usage.output_tokens
            return reply
        finally:
            self._limiter.release(limit, seconds, tokens)

    async def _reply(self, call: ModelCall, client: Client) -> ModelReply:
        await client.connection.connect()
        return await client.find_protocol(call).answer(call)

    async def _connect(self) -> None:
        await self._client(None).connection.connect()

    async def _count(self, text: str) -> int:
        client = self._client(None)
        assert client.tokens is not None
        await client.connection.connect()
        return await client.tokens.prompts.count(text)

    def _client(self, adapter: Adapter | None) -> Client:
        """Return the client of an adapter, which has its own model name. Use it in the loop's thread only."""
        if adapter not in self._clients:
            connection = Connection(
                self._transport,
                self._kind,
                self._model_name,
                self._context,
                adapter,
                self._budget,
                self.extra_body or {},
                self._limiter,
            )
            self._clients[adapter] = Client.of(connection, self._thinking, self.endpoints)
        return self._clients[adapter]

    @property
    def _model_name(self) -> str:
        return self.served_model or name_at_server(self.model.name, self.model.hub)

    @property
    def _kind(self) -> Server:
        return self.server or "hosted"

    @property
    def _context(self) -> int:
        return self.model.context or UNKNOWN_CONTEXT

    @cached_property
    def _loop(self) -> EventLoopThread:
        return EventLoopThread("openai")

    @cached_property
    def _transport(self) -> Transport:
        if not self.batch:
            return self.open_transport(self._limiter.on_rate_limited)
        transport = self.open_transport(self._limiter.on_rate_limited, BatchTransport)
        assert isinstance(transport, BatchTransport)
        transport.wait = self.batch_wait
        return transport

    @cached_property
    def _thinking(self) -> Thinking:
        return Thinking.of(self.model.thinking).check_fits(self._context)

    @cached_property
    def _limiter(self) -> AdaptiveLimiter:
        initial = QUEUING_LIMIT if self._kind in ("vllm", "sglang") else INITIAL_LIMIT
        return AdaptiveLimiter.of(MOST_REQUESTS if self.batch else self.concurrency, initial)

    @cached_property
    def _budget(self) -> ServerBudget:
        return ServerBudget(
            self.budget_tokens, self.budget_usd, self.model.find_prices(is_batch=self.batch)
        )
