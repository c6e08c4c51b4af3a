"""Render prompts: Jinja templates `<method>/<name>.j2` in kgqa's `prompts/` or in the user's own `prompts/`.

A chat template has the block `user` and optionally `system` and `prefill`. A completion template has the block
`completion`. Blocks instead of markers in the text make sure that no passage can forge a message. A template with a
reply that decides the next step also has the block `imagined`: the reply that a dry run uses.

Blank lines at the ends of blocks are removed. An empty block `exact` keeps them, for the prompts of trained policies.
"""

from __future__ import annotations

import json
import os
import re
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kgqa.errors import NoMessage, PromptError, UnknownValue, nearest
from kgqa.types import Json, Message, Prompt
from kgqa.util.digests import text_digest
from kgqa.util.places import own_prompt_folders, package_conf, prompt_folders, shipped_prompts

# values that choose a wording, and those of the reply of a dry run: a prompt can do without
_OPTIONAL = {"again", "swapped", "number", "prefill"}

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from jinja2.nodes import Node
    from jinja2.nodes import Template as ParsedTemplate
    from jinja2.runtime import Context


def render(name: str, /, **values: object) -> Prompt:
    """Render the template `name`, e.g. "trace/select".

    Raises PromptError: there is no such template, its syntax is wrong, it has no block for a message, or it uses a
    missing value.
    """
    template = load_template(name)
    context = template.new_context(values)
    if "completion" in template.blocks:
        return Prompt(
            name, (Message("user", _block(template, "completion", context)),), form="completion"
        )
    messages = [Message("user", _block(template, "user", context))]
    if "system" in template.blocks:
        messages.insert(0, Message("system", _block(template, "system", context)))
    prefill = _block(template, "prefill", context) if "prefill" in template.blocks else ""
    return Prompt(name, tuple(messages), prefill)


def load_template(name: str) -> Template:
    """Return the template in its current state on disk.

    Raises PromptError: there is no such template, its syntax is wrong, or it has no block for a message.
    """
    template = compile_template(name)
    if not {"completion", "user"} & template.blocks.keys():
        raise NoMessage(
            f"{template.filename}: no {{% block user %}}. Write the prompt between {{% block user %}} and "
            "{% endblock %}"
        )
    return template


def render_dry_run_reply(prompt: Prompt, number: int) -> str:
    """Return the reply of a dry run to a prompt: one after which the method continues.

    Its template has the values `prefill`, and `number`, which differs between calls, because some methods stop at a
    repeated reply. The default reply is "unknown".
    """
    template = compile_template(prompt.name)
    context = template.new_context({"number": number, "prefill": prompt.prefill})
    return _block(template, "imagined", context) if "imagined" in template.blocks else "unknown"


def has_template(name: str) -> bool:
    """Return whether there is a template of this name."""
    from jinja2 import TemplateNotFound

    try:
        template_hash(name)
    except TemplateNotFound:
        return False
    return True


def template_hash(name: str) -> str:
    """Return the hash of a template's source, for the manifest."""
    environment = _environment(prompt_folders())
    assert environment.loader is not None
    source, _, _ = environment.loader.get_source(environment, f"{name}.j2")
    return text_digest(source, 16)


def template_names() -> list[str]:
    """Return the names of all templates, kgqa's and the user's."""
    return sorted(
        name.removesuffix(".j2") for name in _environment(prompt_folders()).list_templates(["j2"])
    )


def find_missing_values(
    needs: Mapping[str, Collection[str]] | None = None, names: Collection[str] | None = None
) -> dict[Path, list[str]]:
    """Return the user's templates that do not show all values they should, with these values.

    Copies of kgqa's templates should show the values of the original, and others those of `needs`, by template.
    names: only these templates.
    """
    from jinja2 import TemplateSyntaxError, meta

    gaps = {}
    for folder, file in _list_own_files():
        name = file.relative_to(folder).with_suffix("").as_posix()
        if names is not None and name not in names:
            continue
        original = shipped_prompts() / f"{name}.j2"
        expected = set((needs or {}).get(name, ()))
        if original.is_file():
            expected = meta.find_undeclared_variables(_parse(original)) - _OPTIONAL
        # a broken template is reported when it is rendered
        with suppress(TemplateSyntaxError):
            tree = _parse(file)
            includes = any(meta.find_referenced_templates(tree))
            missing = sorted(expected - meta.find_undeclared_variables(tree))
            # an included template can use every value
            if missing and not includes:
                gaps[file] = missing
    return gaps


def find_unsent_text() -> dict[Path, tuple[str, str]]:
    """Return the user's templates of messages with text or values outside of all blocks.

    Each with the first such line, and the block of the message.
    """
    from jinja2 import TemplateSyntaxError

    texts = {}
    for _, file in _list_own_files():
        # a broken template is reported when it is rendered
        with suppress(TemplateSyntaxError):
            nodes = _parse(file).body
            text = _find_text_outside(nodes)
            if text is not None:
                is_completion = any(getattr(node, "name", "") == "completion" for node in nodes)
                texts[file] = text, "completion" if is_completion else "user"
    return texts


def _list_own_files() -> Iterator[tuple[Path, Path]]:
    """Yield the user's templates that are in use, each with its folder."""
    folders = prompt_folders()
    for folder in own_prompt_folders():
        before = folders[: folders.index(folder)]
        for file in sorted(folder.rglob("*.j2")):
            name = file.relative_to(folder)
            if file.is_file() and not any((other / name).is_file() for other in before):
                yield folder, file


def list_own_templates() -> list[Path]:
    """Return the files of the user's templates that are in use."""
    return [file for _, file in _list_own_files()]


def _find_text_outside(nodes: Sequence[Node]) -> str | None:
    """Return the first line of text or value outside of the blocks, if there are blocks."""
    from jinja2 import nodes as kinds

    if not any(isinstance(node, kinds.Block) for node in nodes):
        # other templates include it
        return None
    outside = (part for node in nodes if isinstance(node, kinds.Output) for part in node.nodes)
    for part in outside:
        if not isinstance(part, kinds.TemplateData):
            return "{{ … }}"
        if text := part.data.strip():
            return text.splitlines()[0]
    return None


def _parse(file: Path) -> ParsedTemplate:
    """Return the syntax tree of a template. Raises TemplateSyntaxError."""
    text = file.read_text(encoding="utf-8", errors="replace")
    return _environment(prompt_folders()).parse(text)


def to_json(value: Json, indent: int | None = None) -> str:
    """Format JSON for the filter `tojson`. Jinja's own filter is for HTML: it sorts keys and escapes quotes."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def compile_template(name: str) -> Template:
    """Return the template in its current state on disk. Others can include it, so it needs no block.

    Raises PromptError: there is no such template, or its syntax is wrong.
    """
    from jinja2 import TemplateNotFound, TemplateSyntaxError

    folders = prompt_folders()
    try:
        return _environment(folders).get_template(f"{name}.j2")
    except TemplateNotFound as error:
        searched = ", ".join(map(str, own_prompt_folders()))
        raise PromptError(
            f"{name}.j2: no such template in {searched}, nor among kgqa's. {_suggest(name)}"
        ) from error
    except TemplateSyntaxError as error:
        raise PromptError(
            f"{error.filename}:{error.lineno}: {_shorten_syntax(str(error.message))}"
        ) from error


def _shorten_syntax(message: str) -> str:
    """Return what Jinja says about the syntax of a template, in one sentence if a tag is not closed."""
    tag = re.search(r"innermost block that needs to be closed is '(\w+)'", message)
    return f"{{% {tag[1]} %}} is not closed. Add {{% end{tag[1]} %}}" if tag else message


def _suggest(name: str) -> str:
    """Return how to get a missing template: by another name, by a download, or by writing it."""
    # imported for an error only
    import yaml

    program = name.partition("/")[0]
    if siblings := [each for each in template_names() if each.startswith(f"{program}/")]:
        return nearest(name, siblings)
    released = program.removesuffix("_released")
    if released in yaml.safe_load((package_conf() / "downloads.yaml").read_text(encoding="utf-8")):
        return f"For the prompts of a released program: kgqa data download {released}"
    return f"Create {own_prompt_folders()[-1] / name}.j2"


def _block(template: Template, block: str, context: Context) -> str:
    try:
        text = "".join(template.blocks[block](context))
    except Exception as error:
        raise _explain(error, template, context) from error
    return text if "exact" in template.blocks else text.strip("\n")


def _explain(error: Exception, template: Template, context: Context) -> PromptError:
    """Return the error of a template with its file, its line, and the value that was meant."""
    from jinja2 import UndefinedError

    environment = template.environment
    try:
        # replaces the lines of compiled code in the traceback by those of the template
        environment.handle_exception()
    except Exception:  # noqa: BLE001 - the same error
        frames = traceback.extract_tb(error.__traceback__)
    line = next((each for each in reversed(frames) if each.filename.endswith(".j2")), None)
    place = f"{line.filename}:{line.lineno}" if line else str(template.filename)
    if not isinstance(error, UndefinedError):
        return PromptError(f"{place}: {type(error).__name__}: {error}")
    if attribute := re.fullmatch(r"'str object' has no attribute '(\w+)'", str(error)):
        return UnknownValue(
            f"{place}: no value .{attribute[1]} of a text. Write the name of the text alone, e.g. {{{{ question }}}}"
        )
    message, name = f"{place}: {error}", re.fullmatch(r"'(\w+)' is undefined", str(error))
    if name is None:
        return PromptError(message)
    values = context.parent.keys() - environment.globals.keys()
    return UnknownValue(f"{message}. {nearest(name[1], values)}")


@cache
def _environment(folders: tuple[Path, ...]) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    class Loader(FileSystemLoader):
        """A loader that also notices a file that is added to an earlier folder, or removed from it."""

        def get_source(
            self, environment: Environment, template: str
        ) -> tuple[str, str, Callable[[], bool]]:
            paths = [os.path.join(folder, template) for folder in folders]
            # before the file is read, so that a change meanwhile is noticed
            state = _find_file(paths)
            source, file, _ = super().get_source(environment, template)
            return source, file, lambda: _find_file(paths) == state

    environment = Environment(
        loader=Loader(folders),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        autoescape=False,
    )
    environment.filters["tojson"] = to_json
    return environment


def _find_file(paths: Sequence[str]) -> tuple[str, float] | None:
    """Return the first file that exists, and when it was changed. Each render of a prompt calls this."""
    for path in paths:
        with suppress(OSError):
            return path, os.stat(path).st_mtime
    return None
