"""Hash a method's program: its syntax, its templates and its few-shot examples.

A changed method is another method: its runs get folders of their own and never replace what the method answered before.
Comments, docstrings and layout decide no answer, so they are left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from kgqa.prompting import has_template, template_hash
from kgqa.util.fs import text_digest

_TEMPLATE = re.compile(r"[\w.-]+/[\w.-]+")
# what a program is made of and what answers its calls: these have identities, keys and versions of their own
_VOCABULARY = ("kgqa.types", "kgqa.errors", "kgqa.calls", "kgqa.protocols", "kgqa.prompting", "kgqa.util.validators")


def program_hash(program: object) -> str:
    """Return 12 hex digits of the modules, templates and values that a program (a method, an extractor) is made of.

    The same under every Python: the names of nodes and what they hold, not the text that a version prints for them.
    """
    modules = program_modules(type(program).__module__)
    texts = {text for file in modules.values() for text in _read(file).texts}
    templates = {name: template_hash(name) for name in texts if _TEMPLATE.fullmatch(name) and has_template(name)}
    syntax = {name: _read(file).syntax for name, file in modules.items()}
    return text_digest(repr((sorted(syntax.items()), sorted(templates.items()), _value(program))), 12)


def program_modules(start: str) -> dict[str, Path]:
    """Return the module and those of its package that it imports, directly or not, with their files.

    Of kgqa those that methods are written in; of a person's own code those of the same folder or package.
    """
    modules: dict[str, Path] = {}
    waiting = [start]
    folder = _folder(start, None)
    while waiting:
        name = waiting.pop()
        if name in modules or not _same_code(start, name, folder):
            continue
        if file := _file(name, folder):
            modules[name] = file
            waiting += _list_imports(file, name)
    return modules


def _same_code(start: str, name: str, folder: Path | None) -> bool:
    if name.startswith("kgqa."):
        return not name.startswith(_VOCABULARY)
    return name.partition(".")[0] == start.partition(".")[0] or _folder(name, folder) == folder


def _folder(name: str, near: Path | None) -> Path | None:
    """Return the folder of the file or package that a top-level name stands for."""
    file = _file(name.partition(".")[0], near)
    return file.parent if file else None


def _file(name: str, near: Path | None) -> Path | None:
    """Return the file of a module written in Python; `near`: a folder to look into that need not be on Python's
    path.
    """
    try:
        spec = find_spec(name) or (PathFinder.find_spec(name, [str(near)]) if near else None)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


def _list_imports(file: Path, module: str) -> Iterator[str]:
    """Yield the modules whose names stand after `import` and `from`; `from a import b` may mean the module a.b."""
    for level, source, names in _read(file).imports:
        package = module.split(".")[:-level] if level else []
        origin = ".".join([*package, *([source] if source else [])])
        yield from filter(None, (origin, *(f"{origin}.{name}" if origin else name for name in names)))


@dataclass(frozen=True)
class _Source:
    syntax: object
    texts: tuple[str, ...]  # its constants
    imports: tuple[tuple[int, str, tuple[str, ...]], ...]  # dots, what stands after `from`, names after `import`


def _read(file: Path) -> _Source:
    return _parse(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=256)
def _parse(file: Path, modified: int) -> _Source:
    """Once for all cells of a sweep."""
    del modified  # part of the key only
    tree = ast.parse(file.read_text(encoding="utf-8"))
    texts, imports = [], []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append(node.value)
        elif isinstance(node, ast.Import):
            imports.append((0, "", tuple(alias.name for alias in node.names)))
        elif isinstance(node, ast.ImportFrom):
            imports.append((node.level, node.module or "", tuple(alias.name for alias in node.names)))
    return _Source(_node(tree), tuple(texts), tuple(imports))


def _node(node: object) -> object:
    """Return type and fields; what is empty is left out, since versions of Python add fields."""
    if isinstance(node, list):
        return [_node(member) for member in node]
    if not isinstance(node, ast.AST):
        return node
    kept = {
        name: value for name, value in ast.iter_fields(node) if value not in (None, []) and name not in ("kind", "ctx")
    }
    if _has_docstring(node):
        kept["body"] = kept["body"][1:]
    return type(node).__name__, [(name, _node(value)) for name, value in sorted(kept.items())]


def _has_docstring(node: ast.AST) -> bool:
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return ast.get_docstring(node, clean=False) is not None


def _value(value: object) -> object:
    """Return what a part holds, in an order that every process gives."""
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__, [(field.name, _value(getattr(value, field.name))) for field in fields(value)]
    if isinstance(value, Mapping):
        return sorted((str(key), _value(member)) for key, member in value.items())
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, list | tuple):
        return [_value(member) for member in value]
    return value if isinstance(value, str | int | float | bool | None) else type(value).__name__
