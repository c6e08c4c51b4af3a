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
from dataclasses import dataclass, field

from kgqa.engines.openai.requests import DEFAULTS, Server
from kgqa.engines.openai.responses import Response
from kgqa.engines.thinking import Thinking, split_thought
from kgqa.types import Choice, Json, Usage

PARSED_TOKENS = 8
# share of a label that a server lists with the lowest log-probability
IMPOSSIBLE = 1e-40
# probability of all labels that a parsed reply does not name
UNCHOSEN = 1e-6
GREEDY: Mapping[str, Json] = {"max_tokens": 1, "temperature": 0.0}


@dataclass
class ChoiceCosts:
    """The usage and the flags of all requests for one choice."""

    usage: Usage = field(default_factory=Usage)
    flags: tuple[str, ...] = ()

    def add(self, response: Response) -> Response:
        """Count a response, and return it."""
        self.usage += response.reply.usage
        self.flags = tuple(dict.fromkeys((*self.flags, *response.reply.flags)))
        return response

    def choose(
        self,
        options: Sequence[str],
        shares: Mapping[str, float],
        mass: float | None,
        *flags: str,
        thought: str = "",
    ) -> Choice:
        """Return the choice with the normalized shares of the options."""
        total = sum(shares.values())
        logprobs = tuple(math.log(shares[option] / total) for option in options)
        return Choice(logprobs, mass, self.usage, (*self.flags, *flags), thought)


def is_distinct(options: Sequence[str]) -> bool:
    """Return whether no option starts with another one. Otherwise a token "A" can continue to "AB"."""
    return not any(a != b and b.startswith(a) for a in options for b in options)


def score_texts(
    options: Sequence[str], listed: Mapping[str, float], costs: ChoiceCosts
) -> Choice | None:
    """Return the choice by the probabilities of the likeliest next tokens by text, or None if they say nothing."""
    forms = {option: (option, f" {option}", f"▁{option}") for option in options}
    shares = {option: sum(listed.get(form, 0.0) for form in forms[option]) for option in options}
    missing = [option for option in options if not shares[option]]
    if max(shares.values()) <= IMPOSSIBLE:
        return None
    if not missing:
        return costs.choose(options, shares, min(sum(shares.values()), 1.0))
    left = max(1.0 - sum(listed.values()), 1e-12) / len(missing)
    bounded = shares | dict.fromkeys(missing, min(left, *listed.values()))
    return costs.choose(options, bounded, None, "bounded_choice")


def parse_settings(server: Server, thinking: Thinking) -> dict[str, Json]:
    """Return the settings of a request for a label as text."""
    settings = {
        "max_tokens": PARSED_TOKENS + thinking.budget,
        "temperature": 0.0,
        **DEFAULTS[server],
    }
    if thinking.effort:
        settings["reasoning_effort"] = thinking.effort
    return settings


def choose_parsed(
    options: Sequence[str], response: Response, costs: ChoiceCosts, *, thinks: bool
) -> Choice:
    """Return the choice by the label in the model's text. thinks: it reasons first."""
    response.reply = reply = split_thought(response.reply, thinks=thinks)
    costs.add(response)
    label = find_label(reply.text, options)
    if label is None:
        even = dict.fromkeys(options, 1.0)
        return costs.choose(
            options, even, None, "parsed_choice", "no_choice", thought=reply.thought
        )
    shares = dict.fromkeys(options, UNCHOSEN / max(1, len(options) - 1)) | {label: 1 - UNCHOSEN}
    return costs.choose(options, shares, None, "parsed_choice", thought=reply.thought)


def find_label(text: str, options: Sequence[str]) -> str | None:
    """Return the label that a reply starts with, or the only one that is a word of it."""
    start = re.match(r"\W*(\w+)\W*($|\n|[.:,)\]*])", text)
    if start and start[1] in options:
        return start[1]
    words = set(re.findall(r"\w+", text)) & set(options)
    return words.pop() if len(words) == 1 else None
