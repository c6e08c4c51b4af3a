"""Calls as tokens, to the completions endpoint of vLLM or llama.cpp."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kgqa.calls import Choose, Generate, ModelCall
from kgqa.engines.control_text import CallT
from kgqa.engines.labels import BIAS
from kgqa.engines.openai.connection import Connection
from kgqa.engines.openai.option_logprobs import GREEDY, ChoiceCosts
from kgqa.engines.openai.protocol import ServerProtocol
from kgqa.engines.openai.requests import DEFAULTS, generation_settings
from kgqa.engines.openai.responses import Response, finish_reply
from kgqa.engines.openai.text_protocol import COMPLETIONS
from kgqa.engines.openai.token_prompts import TokenPrompts
from kgqa.engines.thinking import NO_THINKING, Thinking, join_thought, leading, marks, thinking_call
from kgqa.errors import EngineError
from kgqa.types import Choice, Completion, Json

MAX_TOKEN_IDS = 128  # in one request to vLLM
MAX_LOGPROBS = 20  # of older vLLM servers


@dataclass
class TokenProtocol(ServerProtocol):
    """The prompt is rendered before the request, so that it is the same as with the model's own tokenizer."""

    prompts: TokenPrompts

    def thinks(self, call: ModelCall) -> bool:
        """Return whether reasoning comes before the reply: after a turn of a conversation, never before a choice."""
        if not isinstance(call, Generate) or call.thoughts == "keep":
            return False
        return self.thinking.budget > 0 and call.prompt.form == "chat"

    async def mask(self, call: CallT) -> CallT:
        return await self.prompts.mask(call)

    async def generate(self, call: Generate) -> Completion:
        """Return the reply to a call. Reasoning is a request of its own, so the server reads the prompt twice."""
        if not self.thinks(call):
            return await super().generate(call)
        prompt, begin = await self.prompts.turn(call, thinks=True)

        async def close(thought: str) -> list[int]:
            """Return the tokens of the thought and of the start of the answer."""
            return await self.prompts.continuation(leading(begin, thought, call)[len(begin) :])

        self.connection.check_length(
            len(prompt) + len(await close("")), self.thinking.budget + call.max_tokens
        )
        server = self.connection.server
        first = generation_settings(thinking_call(call, self.thinking.budget, begin), server)
        first |= self.prompts.show_special(marks(begin).end)
        thought = (await self._continue(prompt, first)).reply
        settings = generation_settings(call, server)
        try:
            response = await self._continue([*prompt, *await close(thought.text)], settings)
        except EngineError as error:
            error.charge(thought.usage)
            raise
        return join_thought(
            thought, finish_reply(response, call, settings, thinks=False), is_read_twice=True
        )

    async def send(
        self,
        call: ModelCall,
        settings: Mapping[str, Json],
        thinking: Thinking = NO_THINKING,  # noqa: ARG002 - this endpoint has no reasoning of its own
    ) -> Response:
        """Return the response. Raise PromptTooLong if the reply does not fit."""
        room = int(settings["max_tokens"])
        prompt = self.prompts.as_text(call, room) or await self._write_prompt(call, room)
        response = await self._continue(prompt, settings)
        if isinstance(prompt, list):
            response.prompt_ids = tuple(prompt)
        return response

    async def score(self, call: Choose, costs: ChoiceCosts) -> Choice | None:
        """Return the distribution by the scores of every token of every label."""
        spelling = await self.prompts.spelling(call.options)
        prompt = await self._write_prompt(call, spelling.longest)
        list_logprobs = self._list_vllm if self.connection.server == "vllm" else self._list_llamacpp
        conditional: dict[tuple[int, ...], float] = {}
        for path, tokens in spelling.following.items():
            listed = await list_logprobs([*prompt, *path], list(tokens), costs)
            if not set(tokens) <= set(listed):
                return None
            conditional.update(((*path, token), listed[token]) for token in tokens)
        logprobs, mass = spelling.score(conditional)
        return Choice(logprobs, mass, costs.usage, costs.flags)

    async def _write_prompt(self, call: ModelCall, reply: int) -> list[int]:
        """Return the prompt with the prefill. Raise PromptTooLong if a reply of `reply` tokens does not fit."""
        tokens, _ = await self.prompts.turn(call, thinks=False)
        if not tokens:
            raise EngineError("the prompt is empty")
        self.connection.check_length(len(tokens), reply)
        return tokens

    async def _continue(self, prompt: list[int] | str, settings: Mapping[str, Json]) -> Response:
        """Return what the server writes after these tokens, or this text."""
        stops = await self.prompts.find_stops()
        return await self.connection.complete(COMPLETIONS, {"prompt": prompt, **settings, **stops})

    async def _list_vllm(
        self, prompt: list[int], tokens: Sequence[int], costs: ChoiceCosts
    ) -> Mapping[int, float]:
        return await list_vllm(self.connection, prompt, tokens, costs)

    async def _list_llamacpp(
        self, prompt: list[int], tokens: Sequence[int], costs: ChoiceCosts
    ) -> Mapping[int, float]:
        """Return log-probabilities: ratios of the raised tokens, and the first token's value from a second request."""
        raised = {
            "prompt": prompt,
            "logit_bias": {str(token): BIAS for token in tokens},
            "max_tokens": 1,
        }
        sampling = {
            "temperature": 1.0,
            "samplers": ["temperature"],
            "post_sampling_probs": True,
            "seed": 0,
        }
        body = {**raised, **sampling, "logprobs": len(tokens)}
        first = costs.add(await self.connection.complete(COMPLETIONS, body)).logprobs.first
        shares = {entry.id: entry.prob or 0.0 for entry in first.top_probs or ()}
        anchor = tokens[0]
        if not set(tokens) <= set(shares) or shares[anchor] <= 0:
            return {}
        alone = {
            "prompt": prompt,
            "logit_bias": {str(anchor): BIAS},
            "logprobs": 1,
            **DEFAULTS["llamacpp"],
            **GREEDY,
        }
        own = costs.add(await self.connection.complete(COMPLETIONS, alone)).logprobs.first
        if own.logprob is None:
            return {}
        log = {token: math.log(max(shares[token], 1e-45)) for token in tokens}
        return {token: log[token] - log[anchor] + own.logprob for token in tokens}


async def list_vllm(
    connection: Connection, prompt: Sequence[int], tokens: Sequence[int], costs: ChoiceCosts
) -> Mapping[int, float]:
    """Return the log-probabilities of these tokens after the prompt, from a server of vLLM."""
    parts = [
        list(tokens[start : start + MAX_TOKEN_IDS])
        for start in range(0, len(tokens), MAX_TOKEN_IDS)
    ]
    shared = {"prompt": list(prompt), "return_tokens_as_token_ids": True, **GREEDY}
    # vLLM requires `logprobs` here, and then uses only the other list
    bodies = (
        {**shared, "logprob_token_ids": ids, "logprobs": min(len(ids), MAX_LOGPROBS)}
        for ids in parts
    )
    responses = await asyncio.gather(*(connection.complete(COMPLETIONS, body) for body in bodies))
    names = [costs.add(response).logprobs.first_by_name for response in responses]
    return {
        int(name.rpartition(":")[2]): logprob for each in names for name, logprob in each.items()
    }
