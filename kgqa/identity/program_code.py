"""Hash the code of a method or another component, its templates, its few-shot examples and the files it reads.

A changed method is another method. Its runs get their own folders and never replace earlier answers. Comments,
docstrings and layout change no answer, so they do not count.
"""

from __future__ import annotations

import ast
import fnmatch
import json
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import asdict, is_dataclass
from functools import lru_cache
from pathlib import Path

from kgqa.errors import ConfigError
from kgqa.prompting import has_template, template_hash, template_names
from kgqa.util.digests import text_digest
from kgqa.util.fs import quick_sha256
from kgqa.util.opened_files import list_opened_files
from kgqa.util.places import outputs, package_folder, shipped_prompts, user_folder
from kgqa.util.plugins import module_root
from kgqa.util.settings import declared_fields

_TEMPLATE = re.compile(r"[\w.-]+/[\w.-]+")
_PATTERN = re.compile(r"[\w.-]+/([\w.-]+|[\w.-]*\*)")
_PATH = re.compile(r"[\w ./-]{1,200}")
# modules that every program uses, or that answer its calls and have their own identity
_SHARED = (
    "kgqa.types", "kgqa.errors", "kgqa.calls", "kgqa.protocols", "kgqa.prompting", "kgqa.util.validators",
    "kgqa.util.settings",
)  # fmt: skip
# of fields: their texts change no answer
_DESCRIPTIONS = ("Setting", "NotIdentity", "AddedLater")
# two threads that parse at once get a SystemError in Python 3.11.4 to 3.11.8 (python/cpython#106905)
_parser_lock = threading.Lock()


def program_hash(program: object) -> str:
    """Return 12 hex digits of the modules, templates and values of a program (a method, an extractor, a judge)."""
    values: object = type(program).__name__
    if is_dataclass(program) and not isinstance(program, type):
        fields = declared_fields(type(program))
        values = {
            name: value
            for name, value in asdict(program).items()
            if name not in fields or fields[name].is_in_identity(value)
        }
    content = [*_code_and_templates(type(program).__module__), values]
    texts = (
        [value for value in values.values() if isinstance(value, str)]
        if isinstance(values, dict)
        else []
    )
    if named := [text for text in texts if _TEMPLATE.fullmatch(text) and has_template(text)]:
        content.append({name: template_hash(name) for name in named})
    return text_digest(json.dumps(content, default=_plain, sort_keys=True), 12)


def list_templates(program: object) -> list[str]:
    """Return the names of the templates that a program can render."""
    return sorted(_code_and_templates(type(program).__module__)[1])


def user_code(module: str) -> str | None:
    """Return the hash of a user's module and templates, or None for kgqa's own: these components have versions."""
    if module.partition(".")[0] == "kgqa":
        return None
    code, templates = _code_and_templates(module)
    own = {name: text for name, text in code.items() if not name.startswith("kgqa.")}
    return text_digest(json.dumps([own, templates], sort_keys=True), 12)


def _code_and_templates(start: str) -> tuple[dict[str, str], dict[str, str]]:
    trees = {name: _parse(file, file.stat().st_ctime_ns) for name, file in find_modules(start)}
    shipped, patterns = (
        template_names(),
        {pattern for tree in trees.values() for pattern in _list_template_patterns(tree)},
    )
    names = {name for pattern in patterns for name in fnmatch.filter(shipped, pattern)}
    code = {name: _unparse(tree) for name, tree in trees.items()}
    # it can compose names in any way, but names kgqa's prompts as its methods do
    if start.partition(".")[0] != "kgqa":
        names |= {name for name in shipped if not (shipped_prompts() / f"{name}.j2").is_file()}
        code |= {
            os.path.relpath(file, user_folder()): quick_sha256(file)
            for file in find_data_files(start)
        }
    return code, {name: template_hash(name) for name in names}


def find_data_files(start: str) -> list[Path]:
    """Return the files that a user's modules open at import or name in strings, such as a list of words.

    A string names a file in the module's folder, in the user's folder, or in a folder there that a string names.
    """
    files = set[Path]()
    for name, module in find_modules(start):
        if name.partition(".")[0] == "kgqa":
            continue
        files |= {file for file in list_opened_files(name) if file.is_file()}
        paths = _list_paths(_parse(module, module.stat().st_ctime_ns))
        folders = [module.parent, user_folder()]
        folders += [
            folder / path for folder in folders for path in paths if (folder / path).is_dir()
        ]
        files |= {
            folder / path for folder in folders for path in paths if (folder / path).is_file()
        }
    output_folder = outputs().absolute()
    readable = {file.absolute() for file in files if os.access(file, os.R_OK)}
    return sorted(file for file in readable if output_folder not in file.parents)


def find_modules(start: str) -> Iterator[tuple[str, Path]]:
    """Yield a module and those that it imports, directly or not, with their files.

    Of kgqa these are the modules for methods. Of a user's code those in the user's folder, also in packages there.
    """
    is_ours = start.partition(".")[0] == "kgqa"
    modules, waiting = set[str](), [start]
    while waiting:
        name = waiting.pop()
        in_kgqa = name.partition(".")[0] == "kgqa"
        if name in modules or name.startswith(_SHARED) or (is_ours and not in_kgqa):
            continue
        modules.add(name)
        root = package_folder().parent if in_kgqa else module_root(name) or user_folder()
        if file := _file(name, root):
            yield name, file
            waiting += _list_imports(_parse(file, file.stat().st_ctime_ns), name)


def _file(name: str, folder: Path) -> Path | None:
    """Return the file of a module below a folder."""
    path = folder.joinpath(*name.split("."))
    files = (path.with_name(f"{path.name}.py"), path / "__init__.py")
    return next((file for file in files if file.is_file()), None)


@lru_cache(maxsize=256)
def _parse(file: Path, modified: int) -> ast.Module:  # noqa: ARG001 - a changed file is parsed again
    """Return a module's syntax without docstrings, and without the texts that describe settings."""
    try:
        with _parser_lock:
            tree = ast.parse(file.read_bytes())
    except SyntaxError as error:
        raise ConfigError(f"{file}:{error.lineno}: {error.msg}") from error
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in _DESCRIPTIONS
        ):
            node.args, node.keywords = [], []
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree


_unparse = lru_cache(maxsize=256)(ast.unparse)


@lru_cache(maxsize=256)
def _list_template_patterns(tree: ast.Module) -> list[str]:
    """Return the strings of a module that can be a template's name, and `mine/*` for an f-string that starts so."""
    texts = list[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            texts.append(str(node.value))
        elif isinstance(node, ast.JoinedStr) and isinstance(start := node.values[0], ast.Constant):
            texts.append(str(start.value) + "*")
    return [text for text in texts if _PATTERN.fullmatch(text)]


@lru_cache(maxsize=256)
def _list_paths(tree: ast.Module) -> list[str]:
    """Return the strings of a module that can be the path of a file or folder."""
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return [text for text in texts if _PATH.fullmatch(text) and text.strip(" ./")]


@lru_cache(maxsize=256)
def _list_imports(tree: ast.Module, module: str) -> list[str]:
    """Return the names of imported modules. `from a import b` can mean the module a.b."""
    names = list[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".")[: -node.level] if node.level else []
            origin = ".".join([*package, *([node.module] if node.module else [])])
            names += filter(
                None, (origin, *(f"{origin}.{alias.name}".lstrip(".") for alias in node.names))
            )
    return names


def _plain(value: object) -> object:
    """Return a value that is not JSON in an order that is the same in every process."""
    return sorted(map(repr, value)) if isinstance(value, set | frozenset) else type(value).__name__
