"""Import classes of the user and of packages, list their files, and write the first files of new ones."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from traceback import extract_tb
from types import ModuleType

from kgqa.artifacts.manifest import Own
from kgqa.config.files import SECOND, Config, Node, config_file, config_files, flatten, groups, is_own, load_yaml
from kgqa.config.program_code import find_modules
from kgqa.errors import ConfigError, DataError, nearest
from kgqa.types import Json
from kgqa.util.fs import package_folder, sha256
from kgqa.util.plugins import ENTRY_POINTS, conf_folders, package_conf, packages, prompt_folders, user_conf, user_folder

_TARGET = re.compile(r"^(.*?)\b_target_: *([\w.]+)", re.MULTILINE)


def import_target(path: str, key: str) -> Callable[..., Json]:
    """Return the class that a `_target_` names. Nothing is called.

    Of kgqa only what conf/ names for the group can be built: its classes, and inside of them the readers of examples.

    Raises:
        ConfigError: naming `file:line` of the YAML, and what is wrong with the name or the module it names.
    """
    if not path:
        raise ConfigError(f"{key}: no _target_. Name the class there.")
    if path.startswith("kgqa."):
        _check_shipped(path, key, shipped_targets())
    module, _, name = path.rpartition(".")
    if not module:
        raise ConfigError(
            f"{key}._target_={path}: no module in this name. Write MODULE.CLASS. Only your modules "
            "and kgqa's are imported"
        )
    try:
        member: Callable[..., Json] = getattr(_import(module), name)
    except (_ImportRefusal, AttributeError) as error:
        raise ConfigError(f"{key}._target_={path}: {error}") from error
    if "." not in key and not isinstance(member, type):
        raise ConfigError(f"{key}._target_={path}: not a class. Name the class of a {key}.")
    return member


@dataclass(frozen=True)
class Targets:
    """What configuration files name as `_target_`: by group, and inside of other nodes."""

    groups: Mapping[str, frozenset[str]]
    inner: frozenset[str]


@cache
def shipped_targets() -> Targets:
    """Return what kgqa's own files name, and adapters, which have no file."""
    targets = _read_targets([package_conf()])
    return Targets({**targets.groups, "adapter": frozenset({"kgqa.artifacts.adapter.Adapter"})}, targets.inner)


def _read_targets(folders: Sequence[Path]) -> Targets:
    named: dict[str, set[str]] = {}
    for file in (file for folder in folders for file in folder.glob("*/*.yaml")):
        for indent, target in _TARGET.findall(file.read_text(encoding="utf-8", errors="replace")):
            named.setdefault("" if indent else file.parent.name, set()).add(target)
    return Targets({group: frozenset(own) for group, own in named.items()}, frozenset(named.get("", ())))


def _check_shipped(path: str, key: str, targets: Targets) -> None:
    """Raise a ConfigError if no configuration file names this `_target_` for the group, or inside of a component."""
    group, inner, _ = key.partition(".")
    known = targets.groups.get(SECOND.get(group, group), frozenset())
    if inner:  # a part of a retriever can be any retriever
        known = targets.inner.union(*targets.groups.values())
    if path not in known:
        hint = nearest(path, known) if known else "choose a preset"
        raise ConfigError(f"{key}._target_={path}: not a class of a {group}; {hint}")


def load_run_config(folder: Path) -> dict[str, Json]:
    """Return the configuration of a run's folder, which can be another person's.

    Raises:
        DataError: it is not a run's configuration, or names a class that no file of conf/ names for its group.
    """
    file = folder / "config.yaml"
    config = load_yaml(file)
    if not isinstance(config, Mapping) or not {"dataset", "model", "engine", "roles"} <= config.keys():
        raise DataError(f"{file}: not the configuration of a run; run the run's command again")
    targets = _read_targets(conf_folders())
    try:
        for path, value in flatten(config).items():
            key, _, name = path.rpartition(".")
            if name == "_target_":
                _check_shipped(str(value), key, targets)
    except ConfigError as error:
        raise DataError(f"{file}: {error}") from error
    return dict(config)


def find_target(group: str, target: str) -> str:
    """Return the location of a `_target_`, as `FILE:LINE`, in the user's files of a group; "" if none names it."""
    for name, file in config_files(group).items() if group in groups() and target else ():
        if is_own(group, name):
            for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
                if re.match(rf"_target_: *{re.escape(target)}\b", line):
                    return f"{file}:{number}"
    return ""


class _ImportRefusal(Exception):
    """The reason why a module cannot be used, for users."""


def _import(name: str) -> ModuleType:
    top, folder = name.partition(".")[0], user_folder().absolute()
    is_declared = top in ("kgqa", *(package.partition(".")[0] for package in packages()))
    if not is_declared and PathFinder.find_spec(top, [str(folder)]) is None:
        raise _ImportRefusal(
            f"no module {top!r} in {folder}, and no package declares it as {ENTRY_POINTS}. Only these and "
            "kgqa's own are imported"
        )
    search_path = list(sys.path)
    if not is_declared:
        sys.path.append(str(folder))  # behind installed modules: a folder `wandb/` must not hide the package
    try:
        module = import_module(name)
    except SyntaxError as error:
        raise _ImportRefusal(f"{error.filename}:{error.lineno}: {error.msg}") from error
    except Exception as error:
        last = extract_tb(error.__traceback__)[-1]
        is_inside = "importlib" not in last.filename and Path(last.filename) != Path(__file__)
        where = f"{last.filename}:{last.lineno}: " if is_inside else ""
        what = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise _ImportRefusal(f"cannot be imported ({where}{what})") from error
    finally:
        sys.path[:] = search_path
    paths = [module.__file__] if module.__file__ else list(module.__path__)
    if not is_declared and not any(folder.resolve() in Path(path).resolve().parents for path in paths):
        raise _ImportRefusal(f"{module.__name__} is {module.__file__}, not the one in {folder}; rename your module")
    return module


def find_user_parts(config: Config) -> Own | None:
    """Return the files of a configuration that are not kgqa's, or None."""
    chosen = {group: name for group, name in config["choices"].items() if name and is_own(group, name)}
    choices = {f"{group}={name}": str(config_file(group, name)) for group, name in chosen.items()}
    files = hash_user_code(config)
    return Own(choices=choices, files=files) if choices or files else None


def hash_user_code(config: Config) -> dict[str, str]:
    """Return the sha256 of every module and template outside kgqa that this configuration can use."""
    code = {file for path in _targets(config) for file in _code_files(path)}
    templates = {file for folder in prompt_folders()[:-1] for file in folder.rglob("*.j2")}
    return {_display_path(file): sha256(file) for file in sorted(code | templates)}


def _code_files(path: str) -> list[Path]:
    """Return the files of the module or package of a `_target_`; none for kgqa's own."""
    top = path.partition(".")[0]
    if top == "kgqa":
        return []
    folders = [folder for package, folder in packages().items() if package.partition(".")[0] == top]
    spec = PathFinder.find_spec(top, [str(user_folder())])
    if spec and not folders:
        folders = [Path(path) for path in spec.submodule_search_locations or ()]
    if folders:
        return sorted(file for folder in folders for file in folder.rglob("*.py"))
    return sorted(file for name, file in find_modules(path.rpartition(".")[0]) if not name.startswith("kgqa."))


def _targets(node: Node) -> Iterator[str]:
    for key, value in node.items():
        if key == "_target_":
            yield str(value)
        elif isinstance(value, dict):
            yield from _targets(value)


def _display_path(file: Path) -> str:
    """Return a relative path if possible, so that equal files in another folder are equal."""
    here = Path.cwd()
    return str(file.absolute().relative_to(here)) if here in file.absolute().parents else str(file)


def write_scaffold(group: str, name: str, source: str = "") -> list[Path]:
    """Write the files next to and into the user's conf/, and return their paths.

    source: of a model, its name or page on the hub, or a path.

    Raises:
        ConfigError: the name is taken or no name for a module, or one of the files is there. Nothing is written then.
    """
    if user_conf().resolve() == package_conf().resolve():
        raise ConfigError(f"{user_folder().resolve()} is kgqa's own folder. Change to a folder of your own.")
    _check_name(group, name)
    texts = {
        _target_path(group, file, name): _rename(group, file.read_text(encoding="utf-8"), name)
        for file in _scaffold_files(group)
    }
    for path in texts:
        if path.exists():
            raise ConfigError(f"{path}: this file exists. Choose another name.")
    if source:
        texts = {path: _set_source(text, source) for path, text in texts.items()}
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(texts)


def _set_source(text: str, source: str) -> str:
    """Set where the weights of a model's file are."""
    page = re.fullmatch(r"https://huggingface\.co/([^/]+/[^/]+?)(?:/(?:blob|resolve)/[^/]+/(.+)|/.*)?", source)
    if page:
        source = f"{page[1]}:{page[2]}" if page[2] else page[1]
    elif "://" in source:
        raise ConfigError(f"{source}: no page of https://huggingface.co. A model on a server needs no file.")
    is_hub = bool(page) or (bool(re.fullmatch(r"[\w.-]+/[\w.-]+(?::.+)?", source)) and not Path(source).exists())
    text = re.sub(r"(?m)^hub: \S+", f"hub: {source if is_hub else 'null'}", text)
    return re.sub(r"(?m)^path: \S+", f"path: {'null' if is_hub else Path(source).expanduser().absolute()}", text)


def _check_name(group: str, name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or iskeyword(name):
        raise ConfigError(f"{name}: use small letters, digits and underscores only, e.g. my_{group}")
    if name in groups()[group]:
        raise ConfigError(f"{group}={name}: this name exists. Choose another name.")
    if group != "model" and not (user_folder() / f"{name}.py").exists() and find_spec(name) is not None:
        raise ConfigError(f"{name}: an installed module has this name and would be imported. Choose another name.")


def _scaffold_files(group: str) -> list[Path]:
    return sorted(file for file in (package_folder() / "scaffold" / group).rglob("*") if file.is_file())


def _target_path(group: str, file: Path, name: str) -> Path:
    """Return the path of a new file. Python is packaged as .py.txt, so that tools ignore it."""
    within = Path(
        _rename(group, file.relative_to(package_folder() / "scaffold" / group).as_posix(), name).removesuffix(".txt")
    )
    return user_conf() / within.relative_to("conf") if within.parts[0] == "conf" else user_folder() / within


def _rename(group: str, text: str, name: str) -> str:
    """Replace `my_method`, `MyMethod` and "My method" by the new name in its three forms."""
    title_words = f"My {group}"
    words = name.split("_")
    camel, sentence = "".join(word.capitalize() for word in words), " ".join(words).capitalize()
    return (
        text.replace(f"my_{group}", name)
        .replace(title_words.title().replace(" ", ""), camel)
        .replace(title_words, sentence)
    )
