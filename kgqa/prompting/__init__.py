"""Prompts are Jinja templates, `<method>/<name>.j2` in kgqa's `prompts/` or in that of another of the `places`.

A chat template has the blocks `user` and, if it likes, `system` and `prefill`; a completion template has
the one block `completion`. Blocks, not markers in the text, so that no passage can forge a message. A template whose
reply decides how far its method goes also has the block `imagined`, the reply that a dry run takes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kgqa.errors import ConfigError, nearest
from kgqa.places import prompt_folders
from kgqa.storage import text_digest
from kgqa.types import Json, Message, Prompt

if TYPE_CHECKING:
    from jinja2 import Environment, Template


def render(name: str, /, **values: object) -> Prompt:
    """Render the template `name`, e.g. "trace/select".

    Blank lines at the ends of each block are dropped; a value the template uses and is not given is an error.

    Raises:
        ConfigError: there is no such template, or it is no Jinja.
    """
    template = _template(name)
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
    template = _template(name)
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
    environment = _environment(prompt_folders())
    assert environment.loader is not None
    source, _, _ = environment.loader.get_source(environment, f"{name}.j2")
    return text_digest(source, 16)


def template_names() -> list[str]:
    """All there are, kgqa's own and others."""
    return sorted(name.removesuffix(".j2") for name in _environment(prompt_folders()).list_templates(["j2"]))


def to_json(value: Json, indent: int | None = None) -> str:
    """The filter `tojson` of templates: as people write it. Jinja's own is for HTML, sorts keys and escapes quotes."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _template(name: str) -> Template:
    """As its file has it now."""
    own = os.environ.get("KGQA_CONF")
    template = _found(name, own)
    if not template.is_up_to_date:
        _found.cache_clear()
        template = _found(name, own)
    return template


@cache
def _found(name: str, own: str | None) -> Template:
    """`own`: where a person's own templates lie, for `prompt_folders`; asking that costs more than a rendering."""
    del own  # part of the key only
    from jinja2 import TemplateNotFound, TemplateSyntaxError

    folders = prompt_folders()
    try:
        return _environment(folders).get_template(f"{name}.j2")
    except TemplateNotFound as error:
        places = ", ".join(map(str, folders[:-1]))
        hint = nearest(name, template_names())
        raise ConfigError(f"{name}.j2: no such template in {places}, nor among kgqa's; {hint}") from error
    except TemplateSyntaxError as error:
        raise ConfigError(f"{error.filename}:{error.lineno}: {error.message}") from error


def _block(template: Template, block: str, values: Mapping[str, object]) -> str:
    environment = template.environment
    names = {**environment.globals, **values}  # as `template.new_context` has them, in a seventh of the time
    context = environment.context_class(environment, names, template.name, template.blocks)
    return "".join(template.blocks[block](context)).strip("\n")


@cache
def _environment(folders: tuple[Path, ...]) -> Environment:
    from jinja2 import FileSystemLoader, StrictUndefined

    from kgqa.prompting.loops import KeepingEnvironment, KeptLoops  # which needs jinja2, as few commands do

    environment = KeepingEnvironment(
        loader=FileSystemLoader(folders),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        autoescape=False,
        extensions=[KeptLoops],
    )
    environment.filters["tojson"] = to_json
    return environment
