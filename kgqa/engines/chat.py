"""A model's own chat template, rendered as transformers renders it but without importing it.

A run that is answered from the cache needs every prompt's text for its keys and must not load torch for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kgqa.calls import Generate, ModelCall
from kgqa.engines.gguf_header import read_header
from kgqa.engines.thinking import NO_THINKING, Thinking, opening
from kgqa.engines.weights import is_gguf
from kgqa.errors import ConfigError, EngineError
from kgqa.prompting import to_json
from kgqa.types import Json, Message
from kgqa.util.jsonio import decode_json

if TYPE_CHECKING:
    from jinja2 import Template

TODAY = datetime(2024, 7, 26)  # the date Llama 3 templates fall back to; a real one would change every prompt daily


@dataclass(frozen=True)
class ChatTemplate:
    """A model's chat template, and the tokens that it puts before plain text."""

    source: str | None  # None: the weights bring no template, see `render`
    bos: str
    eos: str
    completion_bos: bool  # whether a completion's text gets the BOS token in front
    thinking: Thinking = NO_THINKING

    @classmethod
    def of(cls, weights: Path, thinking: Thinking = NO_THINKING) -> ChatTemplate:
        """Return the template that comes with a .gguf file or a transformers folder."""
        return replace(_of_gguf(weights) if is_gguf(weights) else _of_folder(weights), thinking=thinking)

    def render(self, call: ModelCall) -> str:
        """Return the text the model is given; special tokens, BOS among them, are part of it.

        Where the model thinks first, it ends where the thought begins; the prefill comes behind the thought.
        A model without a template, such as the base models that TRACE reads with, gets a conversation as plain text:
        its messages, a blank line between two, and the beginning of the reply on a line of its own; see `flags`.
        Where the template refuses or leaves out a system message (Mistral-7B-Instruct-v0.1, Gemma 2), the first message
        of the user begins with it.

        Raises:
            EngineError: the model's template refuses these messages.
        """
        prompt = call.prompt
        if prompt.form == "chat" and self.source is not None:
            thinks = self.thinks(call)
            messages = _join(prompt.messages) if self._unheard(call) else prompt.messages
            turn = self._chat(self.source, messages, thinks)
            return turn + opening(turn, thinks=thinks) + ("" if thinks else prompt.prefill)
        text = "\n\n".join(message.content for message in prompt.messages)
        if prompt.form == "chat":
            text = f"{text}\n{prompt.prefill}"
        return (self.bos if self.completion_bos else "") + text

    def flags(self, call: ModelCall) -> tuple[str, ...]:
        """Return the flags for the reply: "no_template" where a conversation had to be given as plain text, which
        lets nobody think;
        "no_system" where the user's message begins with the system's."""
        plain = ("no_template",) if call.prompt.form == "chat" and self.source is None else ()
        joined = ("no_system",) if self._unheard(call) else ()
        thoughtless = self.thinking.budget and isinstance(call, Generate) and not self.thinks(call)
        return (*plain, *joined, *(("no_thinking",) if thoughtless else ()))

    def thinks(self, call: ModelCall) -> bool:
        """Return whether a thought comes before the reply: behind a turn of a conversation, never before a choice."""
        asked = self.thinking.budget > 0 and isinstance(call, Generate)
        return asked and call.prompt.form == "chat" and self.source is not None

    def _unheard(self, call: ModelCall) -> bool:
        """Return whether the conversation opens with a system message that the template has no place for."""
        prompt = call.prompt
        opens = prompt.form == "chat" and [message.role for message in prompt.messages[:2]] == ["system", "user"]
        return opens and self.source is not None and not _hears_system(self.source, self.bos, self.eos)

    def _chat(self, source: str, messages: Sequence[Message], thinks: bool) -> str:
        from jinja2 import TemplateError

        try:
            return _compile(source).render(
                messages=[{"role": message.role, "content": message.content} for message in messages],
                add_generation_prompt=True,
                bos_token=self.bos,
                eos_token=self.eos,
                **self.thinking.template(thinks=thinks),
            )
        except TemplateError as error:
            raise EngineError(f"the model's chat template refuses the prompt: {error}") from error


def _join(messages: Sequence[Message]) -> tuple[Message, ...]:
    system, user, *rest = messages
    return (replace(user, content=f"{system.content}\n\n{user.content}"), *rest)


@cache
def _hears_system(source: str, bos: str, eos: str) -> bool:
    """Return whether the template accepts a system message. One that rejects the user's message, too, reports it
    itself.
    """
    from jinja2 import TemplateError

    tokens = {"add_generation_prompt": True, "bos_token": bos, "eos_token": eos}
    user = {"role": "user", "content": "Hello"}
    try:
        return "aquamarine" in _compile(source).render(
            messages=[{"role": "system", "content": "aquamarine"}, user], **tokens
        )
    except TemplateError:
        pass
    try:
        _compile(source).render(messages=[user], **tokens)
    except TemplateError:
        return True
    return False


def _of_gguf(file: Path) -> ChatTemplate:
    header = read_header(file)
    template, bos, eos = (header.get(key) for key in ("tokenizer.chat_template", "bos_token", "eos_token"))
    # llama.cpp's rule: the file's own flag, else SentencePiece vocabularies start with BOS and BPE ones do not
    adds_bos = header.get("tokenizer.ggml.add_bos_token", header.get("tokenizer.ggml.model") == "llama")
    return ChatTemplate(str(template) if template else None, str(bos or ""), str(eos or ""), bool(adds_bos and bos))


def _of_folder(folder: Path) -> ChatTemplate:
    settings = _json(folder / "tokenizer_config.json")
    template = settings.get("chat_template")
    if (folder / "chat_template.jinja").is_file():
        template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    elif isinstance(template, list):  # several named templates, as some tool-using models have
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    bos, eos = (_token(settings.get(key)) for key in ("bos_token", "eos_token"))
    return ChatTemplate(template, bos, eos, bool(bos) and _starts_with(folder / "tokenizer.json", bos))


def _starts_with(tokenizer: Path, bos: str) -> bool:
    """Return whether the folder's tokenizer puts BOS before a text."""
    from tokenizers import Tokenizer

    if not tokenizer.is_file():
        raise ConfigError(f"{tokenizer.parent}: no tokenizer.json; save the model with a fast tokenizer")
    return bool(Tokenizer.from_file(str(tokenizer)).encode("a").tokens[0] == bos)


def _token(value: Json) -> str:
    """Return older folders write a token as an object."""
    return str(value["content"] if isinstance(value, dict) else value or "")


def _json(file: Path) -> dict[str, Json]:
    try:
        loaded: dict[str, Json] = decode_json(file.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ConfigError(f"{file}: not JSON ({error}); get the model's folder again") from error
    return loaded


@cache
def _compile(source: str) -> Template:
    """Return the environment of transformers' apply_chat_template, except for the fixed date."""
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = TODAY.strftime
    return environment.from_string(source)


def _refuse(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)
