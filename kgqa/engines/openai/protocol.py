"""The base of the protocols of a server: tokens, plain text and chat.

Each protocol has the same three methods: `thinks`, `send` and `score`. From these follow `generate` and `choose`, and
from them `answer`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kgqa.calls import Choose, Generate, ModelCall, ModelReply
from kgqa.engines.control_text import END_TOKENS, FLAG, START_TOKENS, CallT, find_candidates
from kgqa.engines.openai.connection import Connection
from kgqa.engines.openai.option_logprobs import ChoiceCosts, choose_parsed, parse_settings
from kgqa.engines.openai.requests import generation_settings
from kgqa.engines.openai.responses import Response, finish_reply
from kgqa.engines.thinking import NO_THINKING, Thinking
from kgqa.errors import EngineError
from kgqa.types import Choice, Completion, Json


@dataclass
class ServerProtocol(ABC):
    """One form of requests to one model."""

    connection: Connection
    thinking: Thinking

    @abstractmethod
    def thinks(self, call: ModelCall) -> bool:
        """Return whether reasoning comes before the reply."""

    @abstractmethod
    async def send(
        self, call: ModelCall, settings: Mapping[str, Json], thinking: Thinking = NO_THINKING
    ) -> Response:
        """Return the response to a prompt with these settings, with flags for what the server does not support.

        thinking: what comes before the reply.
        """

    @abstractmethod
    async def score(self, call: Choose, costs: ChoiceCosts) -> Choice | None:
        """Return the distribution by the server's log-probabilities, or None if it does not list them."""

    async def mask(self, call: CallT) -> CallT:
        """Return the call without control tokens in its messages, if kgqa writes the prompt's tokens."""
        return call

    async def answer(self, call: ModelCall) -> ModelReply:
        """Return the reply to a call. Flag: "control_text" (control tokens in messages reach the server)."""
        call = await self.mask(call)
        reply = await (self.generate(call) if isinstance(call, Generate) else self.choose(call))
        is_found = find_candidates(call.prompt).intersection((*END_TOKENS, *START_TOKENS))
        return replace(reply, flags=(*reply.flags, FLAG)) if is_found else reply

    async def generate(self, call: Generate) -> Completion:
        """Return the reply to a call."""
        thinks = self.thinks(call)
        thinking = self.thinking if thinks else NO_THINKING
        settings = generation_settings(call, self.connection.server, thinking)
        self.connection.check_lists(call)
        response = await self.send(call, settings, thinking)
        reply = finish_reply(response, call, settings, thinks=thinks)
        return (
            replace(reply, flags=(*reply.flags, "no_thinking"))
            if self.thinking.budget and not thinks
            else reply
        )

    async def choose(self, call: Choose) -> Choice:
        """Return the distribution over the options in the best way that this server supports."""
        if not call.options:
            raise EngineError("a choice without options")
        costs, thinks = ChoiceCosts(), self.thinks(call)
        try:
            choice = None if thinks else await self.score(call, costs)
            if choice is not None:
                return choice
            thinking = self.thinking if thinks else NO_THINKING
            response = await self.send(
                call, parse_settings(self.connection.server, thinking), thinking
            )
        except EngineError as error:
            error.charge(costs.usage)
            raise
        return choose_parsed(call.options, response, costs, thinks=thinks)
