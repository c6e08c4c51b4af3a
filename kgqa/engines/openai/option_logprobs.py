"""The model's distribution over labels, from servers that differ in what they tell about probabilities.

Ways, best first; `choose=auto` goes down until one tells enough:
- "logprobs": the likeliest next tokens, as many as the server lists. vLLM lists any tokens that are named. Elsewhere
  labels too unlikely to be listed share what probability is left, at most the least listed: "bounded_choice". A label
  that is listed only with or only without a blank before it may lack as much, which is not flagged.
- "prompt_logprobs": labels put behind the prompt, and the probabilities of the prompt's tokens (vLLM, echo).
- "groups": as many labels at a time as are listed, raised by the same bias, joined on one that is in every group
  (llama.cpp).
- "parse": a label read in the model's words, all others nearly impossible: "parsed_choice"; "no_choice" where it
  names none. The only way where messages are all a server takes and its model thinks first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from kgqa.calls import Choose
from kgqa.engines.labels import BIAS, ROOT, Spelling, logsumexp
from kgqa.engines.openai.client import COMPLETIONS, TOKENS_SHOWN, Client
from kgqa.engines.openai.endpoint import Refused, ServerReply
from kgqa.engines.openai.payloads import EXTRAS, completion, first_choice, thinking_settings, usage
from kgqa.engines.thinking import NO_THINKING
from kgqa.errors import EngineError
from kgqa.types import Choice, Json, Usage

Way = Literal["logprobs", "prompt_logprobs", "groups", "parse"]

WAYS: Mapping[str, tuple[Way, ...]] = {
    "vllm": ("logprobs", "prompt_logprobs", "parse"),
    "llamacpp": ("groups", "logprobs", "parse"),  # its list rarely holds all labels, groups always do
    "sglang": ("logprobs", "parse"),
    "hosted": ("logprobs", "prompt_logprobs", "parse"),
}
TOKENS_ASKED = 128  # that vLLM gives probabilities for in one request
LISTED_BY_OLD_VLLM = 20  # its --max-logprobs
WHOLE_VOCABULARY = 1 << 20
PARSED_TOKENS = 8
UNCHOSEN = 1e-6  # probability of all labels together that a parsed reply does not name
GREEDY: Mapping[str, Json] = {"max_tokens": 1, "temperature": 0.0}


class Choosing:
    """One `Choose` at one server."""

    def __init__(self, client: Client, call: Choose, ways: Sequence[Way]) -> None:
        self._client, self._call, self._ways = client, call, ways
        self._usage = Usage()
        self._flags: tuple[str, ...] = ()

    async def choice(self) -> Choice:
        """Raise EngineError where no way that may be gone tells the probability of every label."""
        if not self._call.options:
            raise EngineError("a choice without options")
        exact = await (self._by_token() if self._client.server in TOKENS_SHOWN else self._by_text())
        if exact is not None:
            return exact
        if "parse" in self._ways:
            return await self._parse()
        raise EngineError(
            f"the server gives no log-probabilities for some of {len(self._call.options)} options by "
            f"{' or '.join(self._ways)}; set engine.choose=auto"
        )

    # Servers that show tokens: every token of every label, exact

    async def _by_token(self) -> Choice | None:
        spelling = await self._client.spelling(self._call.options)
        prompt = await self._client.prompt_tokens(self._call.prompt, spelling.longest)
        conditional: dict[int, float] = {}  # log p(next | place) by number of the pair
        for way in self._ways:
            for place in range(ROOT, len(spelling.tokens)):
                pairs = [n for n, (start, _) in enumerate(spelling.pairs) if start == place and n not in conditional]
                if not pairs or way == "parse":
                    continue
                so_far = [*prompt, *_path(spelling, place)]
                told = await self._report(way, so_far, [spelling.pairs[n][1] for n in pairs])
                conditional |= {n: told[token] for n in pairs if (token := spelling.pairs[n][1]) in told}
            if len(conditional) == len(spelling.pairs):
                logprobs, mass = spelling.score([conditional[n] for n in range(len(spelling.pairs))])
                return Choice(logprobs, mass, self._usage, self._flags)
        return None

    async def _report(self, way: Way, prompt: list[int], tokens: list[int]) -> Mapping[int, float]:
        """log p of those of the tokens that this way tells."""
        if way == "groups":
            return await self._group(prompt, tokens)
        if way == "prompt_logprobs":
            return await self._append_option(prompt, tokens)
        return await self._list_logprobs(prompt, tokens)

    async def _list_logprobs(self, prompt: list[int], tokens: list[int]) -> Mapping[int, float]:
        if self._client.server == "llamacpp":
            answered = await self._complete({"prompt": prompt, "logprobs": WHOLE_VOCABULARY, **GREEDY})
            return {entry["id"]: entry["logprob"] for entry in _first_token(answered)["top_logprobs"]}
        told: dict[int, float] = {}
        for start in range(0, len(tokens), TOKENS_ASKED):
            ids = tokens[start : start + TOKENS_ASKED]
            body = {"prompt": prompt, "logprob_token_ids": ids, "return_tokens_as_token_ids": True, **GREEDY}
            answered = await self._complete({**body, "logprobs": min(len(ids), LISTED_BY_OLD_VLLM)})
            told |= {int(name.rpartition(":")[2]): logprob for name, logprob in _plain_list(answered).items()}
        return told

    async def _append_option(self, prompt: list[int], tokens: list[int]) -> Mapping[int, float]:
        body = {"prompt": [[*prompt, token] for token in tokens], "prompt_logprobs": 0, **GREEDY}
        choices = (await self._complete(body)).json["choices"]
        told = {}
        for token, choice in zip(tokens, choices, strict=True):
            last = (choice.get("prompt_logprobs") or [None])[-1]
            if last and str(token) in last:
                told[token] = float(last[str(token)]["logprob"])
        return told

    async def _group(self, prompt: list[int], tokens: list[int]) -> Mapping[int, float]:
        """Return shares inside each group after raising it; the first token is in all of them and asked for its own
        share.
        """
        anchor, others = tokens[0], tokens[1:]
        size = max(2, self._client.abilities.longest_list or len(tokens)) - 1
        told = {anchor: 0.0}
        for start in range(0, len(others), size):
            group = [anchor, *others[start : start + size]]
            raised = {"prompt": prompt, "logit_bias": {str(token): BIAS for token in group}, "max_tokens": 1}
            drawn = {"temperature": 1.0, "samplers": ["temperature"], "post_sampling_probs": True, "seed": 0}
            answered = await self._complete({**raised, **drawn, "logprobs": len(group)})
            shares = {entry["id"]: entry["prob"] for entry in _first_token(answered).get("top_probs", ())}
            if not set(group) <= set(shares) or shares[anchor] <= 0:
                return {}
            told |= {token: _log(shares[token]) - _log(shares[anchor]) for token in group}
        alone = {"prompt": prompt, "logit_bias": {str(anchor): BIAS}, "logprobs": 1, **EXTRAS["llamacpp"], **GREEDY}
        own = float(_first_token(await self._complete(alone))["logprob"])  # as it was before it was raised
        return {token: share + own for token, share in told.items()}

    # Servers that show text only: labels that are one token

    async def _by_text(self) -> Choice | None:
        options = self._call.options
        if any(a != b and b.startswith(a) for a in options for b in options):
            return None  # a token "A" might go on to "AB"
        listed = await self._likeliest() if "logprobs" in self._ways else {}
        shares = {option: p for option in options if (p := _sum(listed, (option, f" {option}", f"▁{option}"))) > 0}
        missing = [option for option in options if option not in shares]
        text = self._client.plain_text(self._call)
        if missing and "prompt_logprobs" in self._ways and text is not None:
            shares |= await self._read_echo(text, missing)
            missing = [option for option in options if option not in shares]
        flags = self._flags
        if missing and shares and "logprobs" in self._ways:
            left = max(1.0 - sum(listed.values()), 1e-12) / len(missing)
            shares |= dict.fromkeys(missing, min(left, min(listed.values(), default=left)))
            flags = (*flags, "bounded_choice")
        if len(shares) < len(options):
            return None
        mass = sum(shares.values())
        known = None if "bounded_choice" in flags else min(mass, 1.0)
        return Choice(tuple(math.log(shares[option] / mass) for option in options), known, self._usage, flags)

    async def _likeliest(self) -> Mapping[str, float]:
        """Return probabilities of the likeliest next tokens by their text; empty where the server gives none."""
        most = 2 * len(self._call.options)
        plain = self._client.plain_text(self._call) is not None
        wanted = {"logprobs": most} if plain else {"logprobs": True, "top_logprobs": most}
        answered, flags = await self._client.ask(self._call, {**GREEDY, **wanted})
        self._count(usage(answered), flags)
        if plain:
            return {token: math.exp(logprob) for token, logprob in _plain_list(answered).items()}
        first = ((first_choice(answered).get("logprobs") or {}).get("content") or [{}])[0]
        return {entry["token"]: math.exp(entry["logprob"]) for entry in first.get("top_logprobs") or ()}

    async def _read_echo(self, text: str, options: Sequence[str]) -> dict[str, float]:
        """Return probabilities of labels put behind a plain prompt; empty where the server does not repeat prompts."""
        forms = [(option, form) for option in options for form in (option, f" {option}")]
        body = {"prompt": [text + form for _, form in forms], "echo": True, "logprobs": 1, **GREEDY}
        try:
            answered = await self._complete(body)
        except Refused:
            return {}
        by_option: dict[str, list[float]] = {}
        for (option, form), choice in zip(forms, answered.json["choices"], strict=True):
            told = choice.get("logprobs") or {}
            placed = zip(told.get("text_offset") or (), told.get("token_logprobs") or (), strict=True)
            inside = [(at, logprob) for at, logprob in placed if len(text) <= at < len(text) + len(form)]
            if inside and inside[0][0] == len(text):
                by_option.setdefault(option, []).append(sum(logprob for _, logprob in inside))
        return {option: math.exp(logsumexp(logprobs)) for option, logprobs in by_option.items() if len(logprobs) == 2}

    # Any server

    async def _parse(self) -> Choice:
        client, options = self._client, self._call.options
        thinking = client.thinking if client.thinks(self._call) else NO_THINKING
        settings = {"max_tokens": PARSED_TOKENS + thinking.budget, "temperature": 0.0, **EXTRAS[client.server]}
        answered, flags = await client.ask(self._call, {**settings, **thinking_settings(thinking)})
        reply = completion(answered, flags, thinks=thinking.budget > 0)
        self._count(reply.usage, reply.flags)
        named = label_in(reply.text, options)
        if named is None:
            even, flags = -math.log(len(options)), (*self._flags, "parsed_choice", "no_choice")
            return Choice((even,) * len(options), None, self._usage, flags, reply.thought)
        rest = UNCHOSEN / max(1, len(options) - 1)
        likely = math.log(1 - UNCHOSEN) if len(options) > 1 else 0.0
        logprobs = tuple(likely if option == named else math.log(rest) for option in options)
        return Choice(logprobs, None, self._usage, (*self._flags, "parsed_choice"), reply.thought)

    async def _complete(self, body: Mapping[str, Json]) -> ServerReply:
        answered, flags = await self._client.complete(COMPLETIONS, body)
        first_choice(answered)
        self._count(usage(answered), flags)
        return answered

    def _count(self, more: Usage, flags: tuple[str, ...]) -> None:
        so_far = self._usage
        self._usage = Usage(
            so_far.prompt_tokens + more.prompt_tokens,
            so_far.cached_tokens + more.cached_tokens,
            so_far.output_tokens + more.output_tokens,
            so_far.seconds + more.seconds,
            so_far.reasoning_tokens + more.reasoning_tokens,
        )
        self._flags = tuple(dict.fromkeys((*self._flags, *flags)))


def label_in(text: str, options: Sequence[str]) -> str | None:
    """Return the label a reply gives: what it starts with, else the only one that stands alone in it."""
    known = set(options)
    start = re.match(r"\W*(\w+)\W*($|\n|[.:,)\]*])", text)
    if start and start[1] in known:
        return start[1]
    alone = {word for word in re.findall(r"\w+", text) if word in known}
    return alone.pop() if len(alone) == 1 else None


def _path(spelling: Spelling, place: int) -> list[int]:
    return [spelling.tokens[step] for step in reversed(spelling.ancestry(place))]


def _first_token(answered: ServerReply) -> Mapping[str, Json]:
    """Return llama.cpp's list for the first token of a plain reply."""
    content = (first_choice(answered).get("logprobs") or {}).get("content")
    if not content:
        raise EngineError("llama.cpp's server gave no log-probabilities")
    first: Mapping[str, Json] = content[0]
    return first


def _plain_list(answered: ServerReply) -> Mapping[str, float]:
    """Return the first token's list of a plain reply, by the tokens' names; empty where there is none."""
    lists = (first_choice(answered).get("logprobs") or {}).get("top_logprobs") or [{}]
    return lists[0] or {}


def _sum(listed: Mapping[str, float], forms: Sequence[str]) -> float:
    return sum(listed.get(form, 0.0) for form in forms)


def _log(share: float) -> float:
    return math.log(max(share, 1e-45))
