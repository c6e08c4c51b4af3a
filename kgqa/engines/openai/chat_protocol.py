"""Calls as conversations, to the chat endpoint. Only this endpoint has tools."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kgqa.calls import Choose, Generate, ModelCall
from kgqa.engines.openai.option_logprobs import GREEDY, ChoiceCosts, is_distinct, score_texts
from kgqa.engines.openai.protocol import ServerProtocol
from kgqa.engines.openai.requests import build_chat
from kgqa.engines.openai.responses import Response
from kgqa.engines.thinking import NO_THINKING, Thinking
from kgqa.types import Choice, Json

CHAT = "/chat/completions"


class ChatProtocol(ServerProtocol):
    """The server fills in the chat template."""

    def thinks(self, call: ModelCall) -> bool:
        """Return whether reasoning comes before the reply. Before a choice only if nothing can turn it off."""
        if not self.thinking.budget:
            return False
        return (
            call.thoughts == "split"
            if isinstance(call, Generate)
            else self.connection.server == "hosted"
        )

    async def send(
        self, call: ModelCall, settings: Mapping[str, Json], thinking: Thinking = NO_THINKING
    ) -> Response:
        """Return the response. Flags: "no_prefill" or "transcript_as_message", "as_chat" (a plain prompt)."""
        body = build_chat(call.prompt, self.connection.server, thinking)
        if isinstance(call, Generate) and call.logprobs is not None:
            settings = {**settings, "logprobs": True, "top_logprobs": call.logprobs}
        response = await self.connection.complete(CHAT, {**body, **settings})
        if call.prompt.prefill and "continue_final_message" not in body:
            response.add_flags(
                "transcript_as_message" if call.prompt.has_transcript else "no_prefill"
            )
        if call.prompt.form == "completion":
            response.add_flags("as_chat")
        return response

    async def score(self, call: Choose, costs: ChoiceCosts) -> Choice | None:
        """Return the distribution by the texts of the likeliest next tokens."""
        if not is_distinct(call.options):
            return None
        lists = {"logprobs": True, "top_logprobs": 2 * len(call.options)}
        response = costs.add(await self.send(call, {**GREEDY, **lists}))
        entries = response.logprobs.first.top_logprobs or ()
        listed = {
            entry.token: math.exp(entry.logprob) for entry in entries if entry.logprob is not None
        }
        return score_texts(call.options, listed, costs)
