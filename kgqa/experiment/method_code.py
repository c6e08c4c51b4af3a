"""Hash a method's program: its code, its templates and its few-shot examples.

A changed method is another method. Its runs get their own folders and never replace earlier answers. Comments,
docstrings and layout change no answer, so they do not count.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, is_dataclass
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from kgqa.prompting import has_template, template_hash
from kgqa.util.fs import text_digest

_TEMPLATE = re.compile(r"[\w.-]+/[\w.-]+")
# what every program is written with, and what answers its calls, which has its own identity
_SHARED = ("kgqa.types", "kgqa.errors", "kgqa.calls", "kgqa.protocols", "kgqa.prompting", "kgqa.util.validators")


def program_hash(program: object) -> str:
    """Return 12 hex digits of the modules, templates and values of a program (a method, an extractor)."""
    modules = {name: _parse(file, file.stat().st_mtime_ns) for name, file in _find_modules(type(program).__module__)}
    code, names = {}, set[str]()
    for module, tree in modules.items():
        code[module] = ast.unparse(tree)
        names |= {text for text in _constants(tree) if _TEMPLATE.fullmatch(text) and has_template(text)}
    values = asdict(program) if is_dataclass(program) and not isinstance(program, type) else type(program).__name__
    content = [code, {name: template_hash(name) for name in names}, values]
    return text_digest(json.dumps(content, default=_plain, sort_keys=True), 12)


def program_modules(start: str) -> list[str]:
    """Return the names of a program's modules."""
    return [name for name, _ in _find_modules(start)]


def _find_modules(start: str) -> Iterator[tuple[str, Path]]:
    """Yield a module and those that it imports, directly or not, with their files.

    Of kgqa these are the modules for methods, of a user's code those in the same folder or package.
    """
    folder = _folder(start, None)
    seen, waiting = set[str](), [start]
    while waiting:
        name = waiting.pop()
        if name in seen or not _is_own(start, name, folder):
            continue
        seen.add(name)
        if file := _file(name, folder):
            yield name, file
            waiting += _list_imports(_parse(file, file.stat().st_mtime_ns), name)


def _is_own(start: str, name: str, folder: Path | None) -> bool:
    if name.startswith("kgqa."):
        return not name.startswith(_SHARED)
    return name.partition(".")[0] == start.partition(".")[0] or _folder(name, folder) == folder


def _folder(name: str, near: Path | None) -> Path | None:
    """Return the folder of a module's top-level package or file."""
    file = _file(name.partition(".")[0], near)
    return file.parent if file else None


def _file(name: str, near: Path | None) -> Path | None:
    """Return the file of a module in Python. `near`: a folder that need not be on Python's path."""
    try:
        spec = find_spec(name) or (PathFinder.find_spec(name, [str(near)]) if near else None)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


@lru_cache(maxsize=256)
def _parse(file: Path, modified: int) -> ast.Module:  # noqa: ARG001 - a changed file is parsed again
    """Return a module's syntax without docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def _constants(tree: ast.Module) -> Iterator[str]:
    return (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str))


def _list_imports(tree: ast.Module, module: str) -> Iterator[str]:
    """Yield the names of imported modules; `from a import b` can mean the module a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".")[: -node.level] if node.level else []
            origin = ".".join([*package, *([node.module] if node.module else [])])
            yield from filter(None, (origin, *(f"{origin}.{alias.name}".lstrip(".") for alias in node.names)))


def _plain(value: object) -> object:
    """Return a value that is not JSON in an order that is the same in every process."""
    return sorted(map(repr, value)) if isinstance(value, set | frozenset) else type(value).__name__
