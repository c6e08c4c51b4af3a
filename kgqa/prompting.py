"""Prompts are Jinja templates under `kgqa/prompts/<method>/<name>.j2`.

A chat template has the blocks `user` and, if it likes, `system` and `prefill`; a completion template has
the one block `completion`. Blocks, not markers in the text, so that no passage can forge a message. A template whose
reply decides how far its method goes also has the block `imagined`, the reply that a dry run takes.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from kgqa.storage import text_digest
from kgqa.types import Message, Prompt

if TYPE_CHECKING:
    from jinja2 import Environment, Template


def render(name: str, /, **values: object) -> Prompt:
    """Render the template `name`, e.g. "trace/select".

    Blank lines at the ends of each block are dropped; a value the template uses and is not given is an error.
    """
    template = _environment().get_template(f"{name}.j2")
    if "completion" in template.blocks:
        return Prompt(name, (Message("user", _block(template, "completion", values)),), form="completion")
    messages = [Message("user", _block(template, "user", values))]
    if "system" in template.blocks:
        messages.insert(0, Message("system", _block(template, "system", values)))
    prefill = _block(template, "prefill", values) if "prefill" in template.blocks else ""
    return Prompt(name, tuple(messages), prefill)


def imagined_reply(name: str, number: int) -> str:
    """What a dry run takes for a reply to the template `name`: one after which the method goes on.

    `number` is another one each time, as some methods stop when they read the same again. A template that does not say
    is answered "unknown".
    """
    template = _environment().get_template(f"{name}.j2")
    return _block(template, "imagined", {"number": number}) if "imagined" in template.blocks else "unknown"


def has_template(name: str) -> bool:
    """Whether there is a template of this name."""
    from jinja2 import TemplateNotFound

    try:
        template_hash(name)
    except TemplateNotFound:
        return False
    return True


def template_hash(name: str) -> str:
    """Hash of a template's source, for the manifest."""
    environment = _environment()
    assert environment.loader is not None
    source, _, _ = environment.loader.get_source(environment, f"{name}.j2")
    return text_digest(source, 16)


def _block(template: Template, block: str, values: dict[str, object]) -> str:
    return "".join(template.blocks[block](template.new_context(dict(values)))).strip("\n")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("kgqa", "prompts"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        autoescape=False,
    )
