"""Write templates from the prompts in authors' programs, which kgqa downloads and does not contain.

A prompt in a Python file is the string that starts in a given line of a pinned commit. The file is parsed, not run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from kgqa.errors import DataError
from kgqa.util.fs import replace_file

BLOCKS = ("system", "user", "completion", "imagined")
# in the authors' text it starts no expression
JINJA = re.compile(r"\{(?=[{%#])")
# a text in Jinja, or the lines where the strings start
Part = str | tuple[int, ...]


class AuthorsTemplate(BaseModel):
    """A template: its blocks, and what replaces the program's expressions, in Jinja.

    A block is a text, or lines of the file. No lines mean the complete file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    system: Part | None = None
    user: Part | None = None
    completion: Part | None = None
    imagined: Part | None = None
    values: Mapping[str, str] = {}


def write_templates(
    file: Path, templates: Mapping[str, AuthorsTemplate], folder: Path
) -> list[Path]:
    """Write the templates of a program's file into a folder of templates, and return their paths.

    Raises DataError: the file has no such string, or an expression without a value.
    """
    source = file.read_text(encoding="utf-8") if templates else ""
    files = []
    for name, template in templates.items():
        target = folder / f"{name}.j2"
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, _format(template, source, file))
        files.append(target)
    return files


def _format(template: AuthorsTemplate, source: str, file: Path) -> str:
    blocks = []
    for name in BLOCKS:
        part = getattr(template, name)
        if isinstance(part, tuple):
            texts = [read_string(source, line, file) for line in part] if part else [source]
            part = _to_jinja("".join(texts), template.values, file)
        if part is not None:
            # Jinja drops the first line break of a block
            start = "\n" if part.startswith("\n") else ""
            blocks.append(f"{{% block {name} %}}{start}{part}{{% endblock %}}\n")
    return "".join([*blocks, "{% block exact %}{% endblock %}\n"])


def read_string(source: str, line: int, file: Path) -> str:
    """Return the longest string that starts in this line, with each expression of an f-string in braces."""
    strings = [
        _text_of(node)
        for node in ast.walk(ast.parse(source))
        if getattr(node, "lineno", None) == line
        and (
            isinstance(node, ast.JoinedStr)
            or (isinstance(node, ast.Constant) and isinstance(node.value, str))
        )
    ]
    if not strings:
        raise DataError(
            f"{file}:{line}: no string starts here. It is not the expected version of the file"
        )
    return max(strings, key=len)


def _text_of(node: ast.expr) -> str:
    match node:
        case ast.Constant():
            return str(node.value)
        case ast.JoinedStr():
            return "".join(map(_text_of, node.values))
        case ast.FormattedValue():
            return f"{{{ast.unparse(node.value)}}}"
    raise TypeError(node)


def _to_jinja(text: str, values: Mapping[str, str], file: Path) -> str:
    """Return a program's text as Jinja, with the values instead of the expressions in braces."""
    expressions = "|".join(re.escape(f"{{{expression}}}") for expression in values)
    if missing := [expression for expression in values if f"{{{expression}}}" not in text]:
        raise DataError(
            f"{file}: no {{{missing[0]}}} in this text. It is not the expected version of the file"
        )
    parts = re.split(f"({expressions})", text) if expressions else [text]
    parts[::2] = [JINJA.sub("{{ '{' }}", part) for part in parts[::2]]
    parts[1::2] = [values[part[1:-1]] for part in parts[1::2]]
    # Jinja drops the line break after a tag, but not after an expression
    return "".join(part + "{{ '' }}" * part.endswith("%}") for part in parts)
