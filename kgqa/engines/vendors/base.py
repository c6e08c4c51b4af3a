"""The common parts of engines that use a vendor's own client: keys, limits, errors, and what no vendor can do."""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar

from kgqa.artifacts.adapter import Adapter
from kgqa.calls import Choose, Generate, ModelCall, ModelReply
from kgqa.engines.base import BaseEngine
from kgqa.engines.batches import MOST_REQUESTS
from kgqa.engines.event_loop import EventLoopThread
from kgqa.engines.openai.access import REACHING
from kgqa.engines.openai.engine import UNKNOWN_CONTEXT, Dollars, name_at_server
from kgqa.engines.openai.limits import AdaptiveLimiter, ServerBudget
from kgqa.engines.openai.messages import find_lengths, find_meaning
from kgqa.engines.openai.option_logprobs import PARSED_TOKENS, ChoiceCosts, choose_parsed
from kgqa.engines.openai.requests import build_chat, too_long
from kgqa.engines.openai.responses import Response, cut_reply
from kgqa.engines.openai.transport import BUSY, Refused
from kgqa.engines.thinking import NO_THINKING, Thinking, read_reply
from kgqa.errors import (
    BudgetSpent,
    ConfigError,
    EngineError,
    KgqaError,
    PromptTooLong,
    ServerLost,
    UsageError,
)
from kgqa.protocols import Deliver
from kgqa.types import Choice, Completion, Json, JsonObject
from kgqa.util.optional_deps import require_packages
from kgqa.util.redaction import ApiKey
from kgqa.util.settings import NotIdentity, Setting
from kgqa.util.text import estimate_tokens
from kgqa.util.validators import Count, Natural, Seconds


@dataclass(frozen=True)
class VendorEngine(BaseEngine):
    """A model by its name at a vendor. It lists no log-probabilities, and does not continue the start of a reply.

    A choice is read from the text of a reply, flagged `parsed_choice`. A prefill is left out, flagged `no_prefill`, or
    in the user's message if it has a transcript, flagged `transcript_as_message`.
    """

    served_model: Annotated[
        str | None,
        Setting("Name of the model at the vendor. null: the same name."),
        NotIdentity("what it loads has it"),
    ] = None
    base_url: Annotated[
        str | None,
        Setting("Address of a proxy. null: the vendor's."),
        NotIdentity("what it loads has it"),
    ] = None
    timeout: Annotated[Seconds, Setting("Timeout of one attempt in seconds."), REACHING] = 300.0
    retries: Annotated[Natural, Setting("Retries by the vendor's client."), REACHING] = 8
    concurrency: Annotated[
        Count | None,
        Setting(
            "Maximum number of parallel calls. null: 32, and up to 1,024 while replies are fast."
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
        Setting("Keys that replace those of every request. Part of the run's ID."),
    ] = None

    streaming: ClassVar[bool] = True
    estimates_tokens: ClassVar[bool] = True
    calls_functions: ClassVar[bool] = False  # see `Generate.tools`
    lists_logprobs: ClassVar[bool] = False
    continues_messages: ClassVar[bool] = False
    # the extra and the package of the client
    package: ClassVar[tuple[str, str]]
    # the variable with the key
    key_variable: ClassVar[str]

    def __post_init__(self) -> None:
        # report wrong settings before the first call
        _ = self._limiter, self._budget, self._thinking

    def loads(self) -> JsonObject:
        """Return what is known of the model. Its weights are not."""
        return {
            "model_name": self._name,
            **({"deployment": self.base_url} if self.base_url else {}),
        }

    @property
    def max_concurrency(self) -> int:
        return self._limiter.limit

    @property
    def sends_batches(self) -> bool:
        """Return whether calls are sent in batches, for half the price."""
        return False

    def find_key(self) -> str:
        """Return the key. Raises ConfigError: it or the package is missing."""
        require_packages(*self.package)
        key = os.environ.get(self.key_variable, "").strip()
        if not key or not key.isascii() or not key.isprintable():
            raise ConfigError(
                f"${self.key_variable} has no valid key. Set it: export {self.key_variable}=…"
            )
        return key

    def render(self, call: ModelCall) -> str:
        """Return the prompt for users. Only the vendor knows the rendered text."""
        return "\n\n".join(
            f"[{each['role']}]\n{each['content']}"
            for each in build_chat(call.prompt, "hosted")["messages"]
        )

    def find_thinking(self, call: Generate) -> Thinking:
        """Return the reasoning before the reply. There is none if the call keeps what the model writes."""
        return NO_THINKING if call.thoughts == "keep" else self._thinking

    def count_tokens(self, text: str) -> int:
        return estimate_tokens(text)

    def submit(self, call: ModelCall, deliver: Deliver, adapter: Adapter | None = None) -> None:  # noqa: ARG002
        self._loop.submit(self._serve(call)).add_done_callback(
            lambda future: self._deliver(future, deliver)
        )

    def close(self) -> None:
        """Drop all calls and their connections."""
        self._closing.set()
        self._loop.close(self._close_client)

    @abstractmethod
    async def send(self, call: Generate) -> Completion:
        """Return the reply to a call, with its reasoning separated."""

    @abstractmethod
    def open_client(self) -> Any:
        """Return the vendor's client."""

    @abstractmethod
    def read_error(self, error: Exception) -> tuple[int, Mapping[str, Json]] | None:
        """Return the status and the object of an error of the vendor; status 0: there was no answer."""

    async def _close_client(self) -> None:
        """Close the connections, if there are any."""

    def _check_adapter(self, adapter: Adapter) -> bool:
        raise ConfigError(
            f"adapter {adapter.name}: vendors accept no adapters. Choose an engine with weights."
        )

    async def _serve(self, call: ModelCall) -> ModelReply:
        if reason := self._budget.explain_spent():
            await self._limiter.drain()
            raise BudgetSpent(reason)
        limit = self._limiter.acquire()
        started, seconds, tokens = time.perf_counter(), None, 0
        try:
            reply = await self._reply(call)
        except KgqaError:
            raise
        except Exception as error:
            if (answer := self.read_error(error)) is None:
                raise
            raise self._explain(*answer, call) from error
        else:
            seconds, tokens = time.perf_counter() - started, reply.usage.output_tokens
            self._budget.spend(reply.usage)
            return reply
        finally:
            self._limiter.release(limit, seconds, tokens)

    async def _reply(self, call: ModelCall) -> Completion | Choice:
        if isinstance(call, Choose):
            parsed = Generate(call.prompt, PARSED_TOKENS, role=call.role)
            reply = await self._measure(parsed)
            return choose_parsed(call.options, Response(reply), ChoiceCosts(), thinks=False)
        if call.logprobs is not None:
            raise EngineError(
                "logprobs: this vendor does not list log-probabilities. Use another engine"
            )
        return cut_reply(call, read_reply(call, await self._measure(call)))

    async def _measure(self, call: Generate) -> Completion:
        """Return the reply to a call with its seconds, which are unknown in a batch, and its flags."""
        started = time.perf_counter()
        reply = await self.send(call)
        seconds = 0.0 if self.sends_batches else time.perf_counter() - started
        usage = replace(reply.usage, seconds=seconds)
        return replace(reply, usage=usage, flags=self._flag(call, reply))

    def _flag(self, call: Generate, reply: Completion) -> tuple[str, ...]:
        """Return the flags of a reply, with those for what the vendor does not support."""
        flags = {
            "no_prefill": bool(call.prompt.prefill) and not call.prompt.has_transcript,
            "transcript_as_message": call.prompt.has_transcript,
            "as_chat": call.prompt.form == "completion",
            "no_thinking": self._thinking != self.find_thinking(call),
        }
        return (*reply.flags, *(flag for flag, is_set in flags.items() if is_set))

    def _explain(self, status: int, error: Mapping[str, Json], call: ModelCall) -> KgqaError:
        """Return the error of kgqa for an error of the vendor, without the key."""
        redacted = ApiKey(os.environ.get(self.key_variable, "").strip()).redact_json(dict(error))
        meaning = find_meaning(status, redacted)
        refused = Refused(status, redacted, meaning)
        if not status:
            return ServerLost(f"the vendor cannot be reached: {refused.message}")
        if meaning == "too_long":
            lengths = find_lengths(redacted)
            return (
                PromptTooLong(*lengths, str(refused))
                if lengths
                else too_long(refused, build_chat(call.prompt, "hosted"))
            )
        if status == 402 or meaning == "used_up":
            return UsageError(
                f"the account is used up: {refused.message}. All replies so far are saved."
            )
        if status in (401, 403) or meaning == "key":
            return ConfigError(
                f"the vendor does not accept the key of ${self.key_variable}: {refused.message}"
            )
        if status == 404:
            return ConfigError(
                f"the vendor does not know the model {self._name}: {refused.message}"
            )
        if status in BUSY:
            return ServerLost(
                f"the vendor is overloaded after {self.retries} retries: {refused.message}"
            )
        return refused

    @property
    def _name(self) -> str:
        return self.served_model or name_at_server(self.model.name, self.model.hub)

    @cached_property
    def _client(self) -> Any:
        return self.open_client()

    @cached_property
    def _loop(self) -> EventLoopThread:
        return EventLoopThread("vendor")

    @cached_property
    def _thinking(self) -> Thinking:
        return Thinking.of(self.model.thinking).check_fits(self.model.context or UNKNOWN_CONTEXT)

    @cached_property
    def _limiter(self) -> AdaptiveLimiter:
        return AdaptiveLimiter.of(MOST_REQUESTS if self.sends_batches else self.concurrency)

    @cached_property
    def _budget(self) -> ServerBudget:
        return ServerBudget(
            self.budget_tokens, self.budget_usd, self.model.find_prices(is_batch=self.sends_batches)
        )
