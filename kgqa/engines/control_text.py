"""Keep texts from becoming control tokens: a passage can contain `<|im_end|>`, which would end the user's turn.

Before a prompt is rendered, such texts are masked. The tokenizer reads a mask as plain text. A prompt without control
tokens in its messages stays the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TypeVar

from kgqa.calls import ModelCall
from kgqa.types import Prompt

CallT = TypeVar("CallT", bound=ModelCall)
# The usual tokens that end or start turns, for servers that fill in the template themselves
END_TOKENS = (
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>", "<|return|>",
    "<end_of_turn>", "<eos>", "</s>", "<EOT>", "<end_of_utterance>",
)  # fmt: skip
START_TOKENS = (
    "<|im_start|>",
    "<|start_header_id|>",
    "<|begin_of_text|>",
    "<start_of_turn>",
    "<|start|>",
    "[INST]",
)
# of a reply: a message contains such a token, and the server decides what it is
FLAG = "control_text"
# two, because Python looks for the first character of one pattern six times faster than for those of both
_CANDIDATES = (re.compile(r"<[^\s<>;,]{1,60}>"), re.compile(r"\[/?[A-Z_]{2,30}\]"))
_BEGIN, _END = "\ufdd0", "\ufdd1"  # characters that no text contains
_MASK = re.compile(f"{_BEGIN}([^{_END}]*){_END}")
# to private characters, which templates do not change
_SHIFT = 0xF0000


def find_candidates(prompt: Prompt) -> set[str]:
    """Return the texts in messages and prefill that can be control tokens of some model."""
    texts = [*(message.content for message in prompt.messages), prompt.prefill]
    return {match for text in texts for each in _CANDIDATES for match in each.findall(text)}


def mask(call: CallT, controls: Collection[str]) -> CallT:
    """Return the call with these texts masked in its messages and its prefill."""
    if not controls:
        return call
    pattern = re.compile("|".join(map(re.escape, sorted(controls, key=len, reverse=True))))

    def hide(text: str) -> str:
        return pattern.sub(lambda match: as_plain(match[0]), text)

    prompt = call.prompt
    messages = tuple(replace(message, content=hide(message.content)) for message in prompt.messages)
    return replace(call, prompt=replace(prompt, messages=messages, prefill=hide(prompt.prefill)))


def as_plain(text: str) -> str:
    """Return the mask of a text."""
    return f"{_BEGIN}{_shift(text, _SHIFT)}{_END}"


def split_masks(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a rendered text, and whether each is plain text that must not become a control token."""
    for number, part in enumerate(_MASK.split(text)):
        if part:
            yield (_shift(part, -_SHIFT), True) if number % 2 else (part, False)


def _shift(text: str, distance: int) -> str:
    return "".join(
        chr(code + distance) if 0 <= code + distance < 0x110000 else chr(code)
        for code in map(ord, text)
    )
