"""Render prompts with a model's own chat template, and turn them into its tokens.

Templates are rendered as transformers does, but without importing it: a run that is answered from the cache needs every
prompt's text for its keys and must not load torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kgqa.calls import Generate, ModelCall
from kgqa.engines.control_text import END_TOKENS, CallT, find_candidates, mask, split_masks
from kgqa.engines.labels import Spelling, continuation, spell
from kgqa.engines.thinking import NO_THINKING, Thinking, leading, opening
from kgqa.engines.weights import convert_weights, is_gguf, read_header, read_settings
from kgqa.errors import ConfigError, EngineError, PromptTooLong
from kgqa.prompting import to_json
from kgqa.types import Json, Message

if TYPE_CHECKING:
    from jinja2 import Template
    from tokenizers import Tokenizer

# the date Llama 3 templates fall back to; a real one would change every prompt daily
TODAY = datetime(2024, 7, 26)


@dataclass(frozen=True)
class ChatTemplate:
    """A model's chat template, and the tokens before plain text."""

    # None: the weights contain no template, see `render`
    source: str | None
    bos: str
    eos: str
    # whether a completion's text gets the BOS token in front
    completion_bos: bool
    thinking: Thinking = NO_THINKING

    @classmethod
    def of(cls, weights: Path, thinking: Thinking = NO_THINKING) -> ChatTemplate:
        """Return the template that comes with a .gguf file or a transformers folder."""
        return replace(
            _of_gguf(weights) if is_gguf(weights) else _of_folder(weights), thinking=thinking
        )

    def render(self, call: ModelCall) -> str:
        """Return the text that the model reads, with its special tokens.

        - If the model reasons first, the text ends where the reasoning starts. The prefill comes after the reasoning.
        - A model without a template gets the messages as plain text, separated by blank lines, and then the prefill.
        - If the template rejects or omits system messages (Mistral-7B-Instruct-v0.1, Gemma 2), the user's first message
          starts with the system message.

        Raises:
            EngineError: the model's template rejects these messages.
        """
        from jinja2 import TemplateError

        reject_tools(call)
        prompt = call.prompt
        if prompt.form == "chat" and self.source is not None:
            thinks = self.thinks(call)
            messages = prompt.messages
            if self._drops_system(call):
                system, user, *rest = messages
                messages = (replace(user, content=f"{system.content}\n\n{user.content}"), *rest)
            settings = {
                "bos_token": self.bos,
                "eos_token": self.eos,
                **self.thinking.template(thinks=thinks),
            }
            try:
                turn = _render(self.source, messages, **settings)
            except TemplateError as error:
                raise EngineError(
                    f"the model's chat template rejects the prompt: {error}"
                ) from error
            return turn + opening(turn, thinks=thinks) + ("" if thinks else prompt.prefill)
        text = "\n\n".join(message.content for message in prompt.messages)
        if prompt.form == "chat":
            text = f"{text}\n{prompt.prefill}"
        return (self.bos if self.completion_bos else "") + text

    def flags(self, call: ModelCall) -> tuple[str, ...]:
        """Return flags: "no_template" (messages as plain text), "no_system" (the user's message starts with the system
        message), "no_thinking" (the model cannot reason as configured).
        """
        flags = {
            "no_template": call.prompt.form == "chat" and self.source is None,
            "no_system": self._drops_system(call),
            "no_thinking": self.thinking.budget > 0
            and isinstance(call, Generate)
            and not self.thinks(call),
        }
        return tuple(flag for flag, is_set in flags.items() if is_set)

    def thinks(self, call: ModelCall) -> bool:
        """Return whether the model reasons before the reply: after a turn of a conversation, never before a choice."""
        chats = call.prompt.form == "chat" and self.source is not None
        return (
            chats
            and self.thinking.budget > 0
            and isinstance(call, Generate)
            and call.thoughts == "split"
        )

    def _drops_system(self, call: ModelCall) -> bool:
        """Return whether the template cannot express the system message of this conversation."""
        prompt = call.prompt
        starts = prompt.form == "chat" and [message.role for message in prompt.messages[:2]] == [
            "system",
            "user",
        ]
        return (
            starts and self.source is not None and not _has_system(self.source, self.bos, self.eos)
        )


def reject_tools(call: ModelCall) -> None:
    """Raise a ConfigError if the call has tools: only the chat endpoint of a server has function calls."""
    if isinstance(call, Generate) and call.tools is not None:
        raise ConfigError(
            "Function calls need engine=openai and its chat endpoint. Set method.protocol=text."
        )


def _render(source: str, messages: Sequence[Message], **values: Json) -> str:
    rows = [{"role": message.role, "content": message.content} for message in messages]
    return _compile(source).render(messages=rows, add_generation_prompt=True, **values)


class Tokens:
    """Tokenizes prompts with the tokenizer of the weights. Thread-safe. limit: tokens of prompt and reply together."""

    def __init__(self, template: ChatTemplate, weights: Path, limit: int) -> None:
        self._template, self._weights, self._limit = template, weights, limit
        self._spellings: dict[tuple[str, ...], Spelling] = {}

    def prompt(self, call: ModelCall, text: str | None = None) -> list[int]:
        """Return the tokens of the prompt, or of `text` if an engine renders the call differently.

        Raises:
            EngineError: the template rejects the prompt, it is empty, or two options are the same tokens.
            PromptTooLong: there is no room for the reply.
        """
        text = self._template.render(call) if text is None else text
        tokens = self.encode(text)
        if not tokens:
            raise EngineError("the prompt is empty")
        room = self._limit - (
            call.max_tokens if isinstance(call, Generate) else self.spelling(call.options).longest
        )
        length = len(tokens)
        if self._template.thinks(call):
            length, room = (
                len(self.encode(leading(text, "", call))),
                room - self._template.thinking.budget,
            )
        if length > room:
            raise PromptTooLong(length, room)
        return tokens

    def spelling(self, options: tuple[str, ...]) -> Spelling:
        """Return how the options are written in tokens."""
        if options not in self._spellings:
            self._spellings[options] = spell(options, continuation(self.encode))
        return self._spellings[options]

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text that contains all its special tokens. Masks become plain text."""
        ids: list[int] = []
        for part, is_plain in split_masks(text):
            tokenizer = self._plain_tokenizer if is_plain else self.tokenizer
            ids += tokenizer.encode(part, add_special_tokens=False).ids
        return ids

    def mask(self, call: CallT) -> CallT:
        """Return the call with the special tokens of its messages masked, see `control_text`."""
        return mask(call, find_candidates(call.prompt) & self._special_tokens)

    def decode(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """Return the text of tokens, with special tokens or without."""
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=not special)
        return text

    @cached_property
    def end_tokens(self) -> tuple[int, ...]:
        """Return the usual end tokens in this vocabulary."""
        ids = (self.tokenizer.token_to_id(token) for token in END_TOKENS)
        return tuple(token for token in ids if token is not None)

    @cached_property
    def folder(self) -> Path:
        """Return the weights as a transformers folder."""
        return convert_weights(self._weights) if is_gguf(self._weights) else self._weights

    @cached_property
    def tokenizer(self) -> Tokenizer:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(self.folder / "tokenizer.json"))

    @cached_property
    def _special_tokens(self) -> frozenset[str]:
        added = self.tokenizer.get_added_tokens_decoder().values()
        return frozenset(token.content for token in added if token.special)

    @cached_property
    def _plain_tokenizer(self) -> Tokenizer:
        """Return a tokenizer for which special tokens are plain text."""
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        tokenizer.encode_special_tokens = True
        return tokenizer


@cache
def _has_system(source: str, bos: str, eos: str) -> bool:
    """Return whether the template uses system messages. If it rejects any message, its own error is reported later."""
    from jinja2 import TemplateError

    system, user = Message("system", "aquamarine"), Message("user", "Hello")
    try:
        return "aquamarine" in _render(source, (system, user), bos_token=bos, eos_token=eos)
    except TemplateError:
        pass
    try:
        _render(source, (user,), bos_token=bos, eos_token=eos)
    except TemplateError:
        return True
    return False


def _of_gguf(file: Path) -> ChatTemplate:
    header = read_header(file)
    template, bos, eos = (
        str(header.get(key) or "") for key in ("tokenizer.chat_template", "bos_token", "eos_token")
    )
    # llama.cpp's rule: the file's own flag, else SentencePiece vocabularies start with BOS and BPE ones do not
    adds_bos = header.get(
        "tokenizer.ggml.add_bos_token", header.get("tokenizer.ggml.model") == "llama"
    )
    return ChatTemplate(template or None, bos, eos, bool(adds_bos and bos))


def _of_folder(folder: Path) -> ChatTemplate:
    settings = read_settings(folder / "tokenizer_config.json")
    template = settings.get("chat_template")
    if (folder / "chat_template.jinja").is_file():
        template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    elif isinstance(template, list):
        # several named templates, as some tool-using models have
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    tokens = (settings.get(key) or "" for key in ("bos_token", "eos_token"))
    bos, eos = (
        str(token["content"] if isinstance(token, dict) else token) for token in tokens
    )  # older: an object
    return ChatTemplate(
        template, bos, eos, bool(bos) and _starts_with(folder / "tokenizer.json", bos)
    )


def _starts_with(tokenizer: Path, bos: str) -> bool:
    """Return whether the folder's tokenizer puts BOS before a text."""
    from tokenizers import Tokenizer

    if not tokenizer.is_file():
        raise ConfigError(
            f"{tokenizer.parent}: no tokenizer.json. Save the model with a fast tokenizer."
        )
    return bool(Tokenizer.from_file(str(tokenizer)).encode("a").tokens[0] == bos)


@cache
def _compile(source: str) -> Template:
    """Compile a template in the environment of transformers' apply_chat_template, except for the fixed date."""
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = TODAY.strftime
    return environment.from_string(source)


def _refuse(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)
