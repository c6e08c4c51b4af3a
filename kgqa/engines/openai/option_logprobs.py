"""Compute the model's distribution over labels, from servers that report probabilities in different ways.

- vLLM lists the log-probabilities of requested tokens: exact.
- llama.cpp lists the likeliest tokens after the same bias was added to all tokens of the labels: exact.
- Other servers list some of the likeliest next tokens. Labels that are not listed share the rest, each at most the
  smallest listed probability: flag "bounded_choice". The same error is not flagged for a label that is listed only with
  or only without a leading blank.
- Without log-probabilities, or if the model reasons first, the label is read from the text, and all others get almost
  0: flag "parsed_choice", and "no_choice" if the text names no label.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from kgqa.calls import Choose
from kgqa.engines.labels import BIAS
from kgqa.engines.openai.client import COMPLETIONS, TOKEN_SERVERS, Client
from kgqa.engines.openai.requests import DEFAULTS
from kgqa.engines.openai.responses import Logprobs, Response
from kgqa.engines.thinking import NO_THINKING, split_thought
from kgqa.errors import EngineError
from kgqa.types import Choice, Completion, Json, Usage

MAX_TOKEN_IDS = 128  # in one request to vLLM
MAX_LOGPROBS = 20  # of older vLLM servers
PARSED_TOKENS = 8
IMPOSSIBLE = 1e-40  # share of a label that a server lists with the lowest log-probability
UNCHOSEN = 1e-6  # probability of all labels that a parsed reply does not name
GREEDY: Mapping[str, Json] = {"max_tokens": 1, "temperature": 0.0}


class OptionScorer:
    """One `Choose` at one server."""

    def __init__(self, client: Client, call: Choose) -> None:
        self._client, self._call = client, call
        self._usage = Usage()
        self._flags: tuple[str, ...] = ()

    async def choose(self) -> Choice:
        """Return the distribution in the best way that this server supports."""
        if not self._call.options:
            raise EngineError("a choice without options")
        choice = None
        try:
            if not self._client.thinks(self._call):
                choice = await (self._score_tokens() if self._client.server in TOKEN_SERVERS else self._score_texts())
            return choice or await self._parse()
        except EngineError as error:
            error.charge(self._usage)
            raise

    async def _score_tokens(self) -> Choice | None:
        """Score every token of every label."""
        spelling = await self._client.spelling(self._call.options)
        prompt = await self._client.prompt_tokens(self._call, spelling.longest)
        list_logprobs = self._list_vllm if self._client.server == "vllm" else self._list_llamacpp
        conditional: dict[tuple[int, ...], float] = {}
        for path, tokens in spelling.following.items():
            listed = await list_logprobs([*prompt, *path], list(tokens))
            if not set(tokens) <= set(listed):
                return None
            conditional.update(((*path, token), listed[token]) for token in tokens)
        logprobs, mass = spelling.score(conditional)
        return Choice(logprobs, mass, self._usage, self._flags)

    async def _list_vllm(self, prompt: list[int], tokens: list[int]) -> Mapping[int, float]:
        listed: dict[int, float] = {}
        for start in range(0, len(tokens), MAX_TOKEN_IDS):
            ids = tokens[start : start + MAX_TOKEN_IDS]
            body = {"prompt": prompt, "logprob_token_ids": ids, "return_tokens_as_token_ids": True, **GREEDY}
            names = (await self._complete({**body, "logprobs": min(len(ids), MAX_LOGPROBS)})).first_by_name
            listed |= {int(name.rpartition(":")[2]): logprob for name, logprob in names.items()}
        return listed

    async def _list_llamacpp(self, prompt: list[int], tokens: list[int]) -> Mapping[int, float]:
        """Return log-probabilities: ratios of the raised tokens, and the first token's value from a second request."""
        raised = {"prompt": prompt, "logit_bias": {str(token): BIAS for token in tokens}, "max_tokens": 1}
        drawn = {"temperature": 1.0, "samplers": ["temperature"], "post_sampling_probs": True, "seed": 0}
        first = (await self._complete({**raised, **drawn, "logprobs": len(tokens)})).first
        shares = {entry.id: entry.prob or 0.0 for entry in first.top_probs or ()}
        anchor = tokens[0]
        if not set(tokens) <= set(shares) or shares[anchor] <= 0:
            return {}
        alone = {"prompt": prompt, "logit_bias": {str(anchor): BIAS}, "logprobs": 1, **DEFAULTS["llamacpp"], **GREEDY}
        own = (await self._complete(alone)).first
        if own.logprob is None:
            return {}
        log = {token: math.log(max(shares[token], 1e-45)) for token in tokens}
        return {token: log[token] - log[anchor] + own.logprob for token in tokens}

    async def _score_texts(self) -> Choice | None:
        """Score labels by the texts of the likeliest next tokens."""
        options = self._call.options
        if any(a != b and b.startswith(a) for a in options for b in options):
            return None  # a token "A" can continue to "AB"
        listed = await self._list_likeliest()
        forms = {option: (option, f" {option}", f"▁{option}") for option in options}
        shares = {option: sum(listed.get(form, 0.0) for form in forms[option]) for option in options}
        missing = [option for option in options if not shares[option]]
        if max(shares.values()) <= IMPOSSIBLE:
            return None
        if not missing:
            return self._choice(shares, min(sum(shares.values()), 1.0))
        left = max(1.0 - sum(listed.values()), 1e-12) / len(missing)
        return self._choice(shares | dict.fromkeys(missing, min(left, *listed.values())), None, "bounded_choice")

    async def _list_likeliest(self) -> Mapping[str, float]:
        """Return the probabilities of the likeliest next tokens by text, or {} if the server lists none."""
        most = 2 * len(self._call.options)
        is_plain = self._client.form(self._call) == "text"
        lists: dict[str, Json] = {"logprobs": most} if is_plain else {"logprobs": True, "top_logprobs": most}
        response = await self._client.request(self._call, {**GREEDY, **lists})
        self._count(response)
        if is_plain:
            return {token: math.exp(logprob) for token, logprob in response.logprobs.first_by_name.items()}
        entries = response.logprobs.first.top_logprobs or ()
        return {entry.token: math.exp(entry.logprob) for entry in entries if entry.logprob is not None}

    async def _parse(self) -> Choice:
        """Read the label from the model's text."""
        client, options = self._client, self._call.options
        thinking = client.thinking if client.thinks(self._call) else NO_THINKING
        settings = {"max_tokens": PARSED_TOKENS + thinking.budget, "temperature": 0.0, **DEFAULTS[client.server]}
        if thinking.effort:
            settings["reasoning_effort"] = thinking.effort
        response = await client.request(self._call, settings)
        reply = split_thought(response.reply, thinks=thinking.budget > 0)
        self._count(reply)
        label = find_label(reply.text, options)
        if label is None:
            even = dict.fromkeys(options, 1.0)
            return self._choice(even, None, "parsed_choice", "no_choice", thought=reply.thought)
        shares = dict.fromkeys(options, UNCHOSEN / max(1, len(options) - 1)) | {label: 1 - UNCHOSEN}
        return self._choice(shares, None, "parsed_choice", thought=reply.thought)

    def _choice(self, shares: Mapping[str, float], mass: float | None, *flags: str, thought: str = "") -> Choice:
        """Return the choice with the normalized shares of the options."""
        total = sum(shares.values())
        logprobs = tuple(math.log(shares[option] / total) for option in self._call.options)
        return Choice(logprobs, mass, self._usage, (*self._flags, *flags), thought)

    async def _complete(self, body: Mapping[str, Json]) -> Logprobs:
        response = await self._client.complete(COMPLETIONS, body)
        self._count(response)
        return response.logprobs

    def _count(self, reply: Response | Completion) -> None:
        self._usage += reply.usage
        self._flags = tuple(dict.fromkeys((*self._flags, *reply.flags)))


def find_label(text: str, options: Sequence[str]) -> str | None:
    """Return the label that a reply starts with, or the only one that is a word of it."""
    start = re.match(r"\W*(\w+)\W*($|\n|[.:,)\]*])", text)
    if start and start[1] in options:
        return start[1]
    words = set(re.findall(r"\w+", text)) & set(options)
    return words.pop() if len(words) == 1 else None
