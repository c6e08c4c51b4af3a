"""Validate responses of a server: size, required fields, impossible values. No I/O.

An answer that is none is an attempt that failed, whatever its status says: servers and the proxies before them put
errors into it, leave the text out or count without sense, and a model is not to be scored for that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from kgqa.types import Json

SHORTEST_LIMIT = 4 << 20  # bytes, for lists of models and whatever else comes beside a reply
LONGEST_LIMIT = 256 << 20
PER_TOKEN = 256  # bytes of JSON, with those escaped that are no ASCII; of a listed log-probability, too
PER_BYTE_SENT = 64  # where each token of the prompt comes back with its log-probability
FAILED = frozenset({"error", "abort", "cancelled", "failed"})  # reasons to finish: OpenRouter; vLLM, SGLang; others
SAID_NOTHING = frozenset({"length", "content_filter"})  # reasons for which there may be no text at all
SLACK = 1e-3  # by which a rounded probability may exceed 1
MOST_TOKENS = 10**12  # that one answer may say it used
PARTS = frozenset({"text", "thinking", "reasoning", "refusal"})  # of a message's text as a list
COUNTS = ("prompt_tokens", "completion_tokens")


def longest(asked: Mapping[str, Json] | None, sent: int) -> int:
    """Return the largest accepted size, in bytes, of the reply to a request of `sent` bytes."""
    asked = asked or {}
    tokens = asked.get("max_tokens") or asked.get("max_completion_tokens") or 0
    listed = max(int(asked.get(key) or 0) for key in ("logprobs", "top_logprobs"))
    most = SHORTEST_LIMIT + PER_BYTE_SENT * sent + PER_TOKEN * tokens * (1 + listed) * _prompts(asked)
    return int(min(most, LONGEST_LIMIT))


def lacking(answer: Mapping[str, Json], asked: Mapping[str, Json]) -> str:
    """Return why this is no answer to the request; "" where it is one."""
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, dict) for choice in choices):
        return "no choices in it"
    if len(choices) != (wanted := _prompts(asked)) and wanted > 1:
        return f"{len(choices)} choices for {wanted} prompts"
    listed = bool(asked.get("logprobs") or "prompt_logprobs" in asked)
    reasons = (_failure(choice) or _mistold(choice, answer, listed=listed) for choice in choices)
    return next(filter(None, reasons), "") or _has_wrong_counts(answer.get("usage"))


def texts(answer: Mapping[str, Json]) -> Iterator[str]:
    """Yield what the model says in it, and what else may be written down; no lists of tokens."""
    stack: list[Json] = [answer.get("model"), answer.get("choices")]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            stack += value
        elif isinstance(value, dict):
            stack += [each for key, each in value.items() if key not in ("logprobs", "prompt_logprobs")]


def _prompts(asked: Mapping[str, Json]) -> int:
    """Return several texts, or several lists of tokens, in one request."""
    prompt = asked.get("prompt")
    return len(prompt) if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else 1


def _failure(choice: Mapping[str, Json]) -> str:
    if choice.get("error"):
        return "an error in the place of a reply"
    reason = choice.get("finish_reason")
    return f"a reply that ended with {reason!r}" if isinstance(reason, str) and reason in FAILED else ""


def _mistold(choice: Mapping[str, Json], answer: Mapping[str, Json], *, listed: bool) -> str:
    """Return what is wrong with its text or its log-probabilities, whichever the request was for."""
    told = choice.get("logprobs") or choice.get("prompt_logprobs")
    if listed and told:
        return _improbable(choice)
    message = choice.get("message")
    if message is None:
        return "" if isinstance(choice.get("text"), str) else "a choice without text"
    if not isinstance(message, dict):
        return "a message of an unknown form"
    content = message.get("content")
    if isinstance(content, str):
        return ""
    if isinstance(content, list) and content and all(map(_is_part, content)):
        return ""
    if content:
        return "a message whose content is neither text nor parts of it"
    return "" if _explain(choice, message, answer) else "a message without content"


def _is_part(part: Json) -> bool:
    kind = part.get("type") if isinstance(part, dict) else None
    return kind in PARTS and isinstance(part.get(kind), str if kind == "text" else (str, list))


def _explain(choice: Mapping[str, Json], message: Mapping[str, Json], answer: Mapping[str, Json]) -> bool:
    """Return whether there is no text because the model thought all the time, refused, or was cut off."""
    if message.get("refusal") or choice.get("finish_reason") in SAID_NOTHING:
        return True
    used = answer.get("usage")
    details = used.get("completion_tokens_details") if isinstance(used, dict) else None
    thought = details.get("reasoning_tokens") if isinstance(details, dict) else None
    return bool(message.get("reasoning_content") or message.get("reasoning") or thought)


def _improbable(choice: Mapping[str, Json]) -> str:
    try:
        wrong = [value for value in _logprobs(choice) if not _possible(value)]
    except (AttributeError, KeyError, TypeError, ValueError):
        return "log-probabilities in an unknown form"
    return f"a log-probability of {wrong[0]!r:.20}" if wrong else ""


def _possible(value: Json) -> bool:
    return isinstance(value, (int, float)) and -math.inf < value <= SLACK  # a NaN is in no order


def _logprobs(choice: Mapping[str, Json]) -> Iterator[Json]:
    """Yield all of a choice, in each of the forms that servers have. The first token of a prompt has none."""
    told = choice.get("logprobs") or {}
    for entry in told.get("content") or ():
        for listed in (entry, *(entry.get("top_logprobs") or ())):
            yield listed["logprob"] if "prob" not in listed else math.log(listed["prob"] or 1)
        for listed in entry.get("top_probs") or ():
            yield math.log(listed["prob"] or 1)
    yield from (value for value in (told.get("token_logprobs") or ())[1:])
    for tokens in told.get("top_logprobs") or ():
        yield from (tokens or {}).values()
    for tokens in choice.get("prompt_logprobs") or ():
        yield from (listed["logprob"] for listed in (tokens or {}).values())


def _has_wrong_counts(usage: Json) -> str:
    """Return tokens are paid for and stand in the report. None at all is what a server may not be able to tell."""
    counts: Sequence[Json] = [usage.get(key) for key in COUNTS] if isinstance(usage, dict) else ()
    wrong = [count for count in counts if count is not None and not _countable(count)]
    return f"a usage of {repr(wrong[0])[:20]} tokens" if wrong else ""


def _countable(count: Json) -> bool:
    return isinstance(count, (int, float)) and 0 <= count <= MOST_TOKENS and count == int(count)
