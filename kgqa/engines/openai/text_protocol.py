"""Calls as plain text, to the completions endpoint of a server that does not accept tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kgqa.calls import Choose, ModelCall
from kgqa.engines.chat import ChatTemplate
from kgqa.engines.openai.option_logprobs import GREEDY, ChoiceCosts, is_distinct, score_texts
from kgqa.engines.openai.protocol import ServerProtocol
from kgqa.engines.openai.responses import Response
from kgqa.engines.openai.transport import UNKNOWN
from kgqa.engines.thinking import NO_THINKING, Thinking
from kgqa.errors import ConfigError
from kgqa.types import Choice, Json

COMPLETIONS = "/completions"
UNTEMPLATED = ChatTemplate(
    None, "", "", completion_bos=False
)  # conversations as plain text, flagged
WITHOUT_COMPLETIONS = "The request went to /completions. If there is only the chat endpoint, add engine.endpoints=chat."


class TextProtocol(ServerProtocol):
    """The server continues the text. There is no reasoning."""

    def thinks(self, call: ModelCall) -> bool:  # noqa: ARG002 - no call has a turn of its own here
        return False

    async def send(
        self,
        call: ModelCall,
        settings: Mapping[str, Json],
        thinking: Thinking = NO_THINKING,  # noqa: ARG002 - this endpoint has no reasoning of its own
    ) -> Response:
        """Return the response. Flag: "no_template" (a conversation)."""
        try:
            response = await self.connection.complete(
                COMPLETIONS, {"prompt": UNTEMPLATED.render(call), **settings}
            )
        except ConfigError as error:
            # the run stops at its first call
            if UNKNOWN not in str(error):
                raise
            raise ConfigError(f"{error}. {WITHOUT_COMPLETIONS}") from error
        response.add_flags(*UNTEMPLATED.flags(call))
        return response

    async def score(self, call: Choose, costs: ChoiceCosts) -> Choice | None:
        """Return the distribution by the texts of the likeliest next tokens."""
        if not is_distinct(call.options):
            return None
        response = costs.add(await self.send(call, {**GREEDY, "logprobs": 2 * len(call.options)}))
        listed = {
            token: math.exp(logprob) for token, logprob in response.logprobs.first_by_name.items()
        }
        return score_texts(call.options, listed, costs)
