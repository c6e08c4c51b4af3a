"""Reasoning before an answer: its budget, how a model starts and ends it, and how it is separated from a reply.

An engine that renders prompts itself generates in two steps: a thought of at most `budget` tokens, and then the answer
with its own `max_tokens`, stop strings, schema and prefill. An unfinished thought is closed: budget forcing (s1, arXiv
2501.19393 §3, and Qwen3, arXiv 2505.09388 §4.3). For servers that accept only messages, the budget is added to
`max_tokens`, and the reply is split here.

A `Choose` never reasons: it needs the distribution over the labels as the next text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from kgqa.calls import Generate, ModelCall
from kgqa.errors import ConfigError
from kgqa.types import Completion, Json
from kgqa.util.validators import Validator

# Maximum tokens of a thought: Google's values for OpenAI's words (ai.google.dev/gemini-api/docs/openai#thinking). The
# last one, with an answer, is the 25,000 that OpenAI's guide to reasoning models advises.
BUDGETS = {"low": 1024, "medium": 8192, "high": 24576}
OFF = "off"
HARMONY_TURN, HARMONY_ANSWER = "<|start|>assistant", "<|channel|>final<|message|>"
_BLOCK = re.compile(r"<think>(.*?)(?:</think>\s*|\Z)", re.DOTALL)
_CONTENT = r"(.*?)(?=<\|(?:end|return|call|start|channel)\|>|\Z)"
_CHANNEL = re.compile(r"<\|channel\|>(\w+)[^<]*<\|message\|>" + _CONTENT, re.DOTALL)
_BARE_CHANNELS = re.compile(
    r"\s*analysis(.*?)(?:assistantfinal(.*)|\Z)", re.DOTALL
)  # without their special tokens


def _is_setting(setting: int | str) -> bool:
    if isinstance(setting, str):
        return setting in (OFF, *BUDGETS)
    return setting is not True and setting >= 0


# bool: YAML reads a bare `off` as false
Effort = Annotated[
    bool | int | str, Validator("must be off, low, medium, high or a number of tokens", _is_setting)
]


def is_off(setting: Json) -> bool:
    """Return whether `model.thinking` is off, in any form of YAML."""
    return setting in (OFF, 0)


@dataclass(frozen=True)
class Thinking:
    """The reasoning budget of a model. budget: maximum tokens, 0 for none. effort: the word for it, if one is set."""

    budget: int = 0
    effort: str | None = None

    @classmethod
    def of(cls, setting: int | str) -> Thinking:
        if is_off(setting):
            return cls()
        return cls(BUDGETS[setting], setting) if isinstance(setting, str) else cls(setting)

    def check_fits(self, limit: int) -> Thinking:
        """Return these settings. Raise ConfigError if they do not fit into a context of `limit` tokens."""
        if self.budget >= limit:
            raise ConfigError(
                f"model.thinking={self.effort or self.budget}: {self.budget:,} reasoning tokens leave no room in a "
                f"context of {limit:,}. Increase engine.max_model_len, or use fewer"
            )
        return self

    def template(self, *, thinks: bool) -> Mapping[str, Json]:
        """Return the variables for chat templates (Qwen3 and GLM, DeepSeek and Granite, gpt-oss)."""
        if not thinks:
            return {"enable_thinking": False}
        effort = {"reasoning_effort": self.effort} if self.effort else {}
        return {"enable_thinking": True, "thinking": True, **effort}


NO_THINKING = Thinking()


@dataclass(frozen=True)
class Marks:
    """The markers of a model's reasoning: its start, its end, and the text before the answer."""

    begin: str
    end: str
    answer: str


TAGS = Marks("<think>\n", "</think>", "\n</think>\n\n")
HARMONY = Marks(
    "<|channel|>analysis<|message|>", "<|end|>", f"<|end|>{HARMONY_TURN}{HARMONY_ANSWER}"
)


def opening(turn: str, *, thinks: bool) -> str:
    """Return the text after a rendered turn that starts a thought, or the answer.

    Some templates always open the tag. Without reasoning it is closed again.
    """
    if turn.endswith(HARMONY_TURN):
        return HARMONY.begin if thinks else HARMONY_ANSWER
    opened = turn.rstrip().endswith("<think>")
    if thinks:
        return "" if opened else TAGS.begin
    return TAGS.answer if opened else ""


def marks(prompt: str) -> Marks:
    """Return the marks of a prompt that ends where the thought starts."""
    return HARMONY if prompt.endswith(HARMONY.begin) else TAGS


def leading(prompt: str, thought: str, call: ModelCall) -> str:
    """Return the text before the answer."""
    return f"{prompt}{thought.rstrip()}{marks(prompt).answer}{call.prompt.prefill}"


def thinking_call(call: Generate, budget: int, prompt: str) -> Generate:
    """Return the call that generates the thought."""
    return replace(call, max_tokens=budget, stop=(marks(prompt).end,), schema=None, logprobs=None)


def join_thought(
    thought: Completion, answer: Completion, *, is_read_twice: bool = False
) -> Completion:
    """Return both steps as one reply. The prompt counts once, unless the engine has read it twice."""
    first, last = thought.usage, answer.usage
    both = replace(
        first + last
        if is_read_twice
        else replace(first, output_tokens=first.output_tokens + last.output_tokens),
        seconds=first.seconds + last.seconds,
        reasoning_tokens=first.output_tokens + last.reasoning_tokens,
    )
    return split_thought(replace(answer, usage=both), thought.text, cut=thought.finish == "length")


def read_reply(call: Generate, reply: Completion, *, thinks: bool = False) -> Completion:
    """Return the reply with its thoughts separated, or in tags if the call keeps them. thinks: see `split_thought`."""
    if call.thoughts == "split":
        return split_thought(reply, thinks=thinks)
    if not reply.thought:
        return reply
    return replace(reply, text=f"{TAGS.begin}{reply.thought}{TAGS.answer}{reply.text}", thought="")


def split_thought(
    reply: Completion, thought: str = "", *, cut: bool = False, thinks: bool = False
) -> Completion:
    """Return the reply with the thoughts of its text appended to `thought` and to its separated thoughts.

    Flags: "thought_out" (a thought is truncated or has no answer), "estimated_thought" (its tokens are estimated by its
    share of the characters).

    Args:
        cut: `thought` is truncated.
        thinks: the model reasons first, so a reply that was truncated before an answer is reasoning.
    """
    answer, inside, unclosed = _part(reply.text)
    tokens = reply.usage.reasoning_tokens
    if (
        thinks
        and reply.finish == "length"
        and answer == reply.text
        and not (reply.thought or tokens)
    ):
        # only the prompt has the opening tag
        answer, inside, unclosed = "", answer, True
    whole = "\n".join(part for part in (thought.rstrip(), reply.thought, inside.strip()) if part)
    if not (whole or inside or tokens):
        return reply if answer == reply.text else replace(reply, text=answer)
    flags = list(reply.flags)
    if cut or unclosed or not (answer.strip() or reply.tool_calls):
        flags.append("thought_out")
    if not tokens and whole:
        tokens = round(reply.usage.output_tokens * len(whole) / (len(whole) + len(answer)))
        flags.append("estimated_thought")
    usage = replace(reply.usage, reasoning_tokens=tokens)
    return replace(
        reply, text=answer, thought=whole, usage=usage, flags=tuple(dict.fromkeys(flags))
    )


def _part(text: str) -> tuple[str, str, bool]:
    """Return the answer, the thoughts, and whether the last thought has no end."""
    channels = [(name, content) for name, content in _CHANNEL.findall(text)]
    if not channels and (bare := _BARE_CHANNELS.match(text)) and bare[2] is not None:
        channels = [("analysis", bare[1]), ("final", bare[2])]
    if channels:
        answers = [content for name, content in channels if name == "final"]
        return (
            "".join(answers),
            "\n".join(content for name, content in channels if name != "final"),
            not answers,
        )
    closed, opened = text.find("</think>"), text.find("<think>")
    if closed >= 0 and not 0 <= opened < closed:  # the prompt opened it
        text = f"<think>{text}"
    thoughts = _BLOCK.findall(text)
    if not thoughts:
        return text, "", False
    return (
        _BLOCK.sub("", text).lstrip(),
        "\n".join(thoughts),
        text.rfind("<think>") > text.rfind("</think>"),
    )
