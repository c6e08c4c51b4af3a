"""Write the first files of a user's components, and copy templates to change."""

from __future__ import annotations

import re
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path

from kgqa.config.files import config_files
from kgqa.config.prompt_runs import list_prompt_runs
from kgqa.errors import ConfigError, nearest
from kgqa.util.hub import HUB_NAME
from kgqa.util.places import (
    own_prompt_folders,
    package_conf,
    package_folder,
    shipped_prompts,
    user_conf,
    user_folder,
)


def write_scaffold(group: str, name: str, source: str = "") -> list[Path]:
    """Write the files next to and into the user's conf/, and return their paths.

    source: of a model, its name on the hub or a path.

    Raises:
        ConfigError: the name is taken or no name for a module, or one of the files is there. Nothing is written then.
    """
    if user_conf().resolve() == package_conf().resolve():
        raise ConfigError(
            f"{user_folder().resolve()} is kgqa's own folder. Change to your own folder."
        )
    _check_name(group, name)
    scaffold = package_folder() / "scaffold" / group
    texts = {}
    for file in sorted(file for file in scaffold.rglob("*") if file.is_file()):
        # Python is packaged as .py.txt, so that tools ignore it
        within = Path(
            _rename(group, file.relative_to(scaffold).as_posix(), name).removesuffix(".txt")
        )
        path = (
            user_conf() / within.relative_to("conf")
            if within.parts[0] == "conf"
            else user_folder() / within
        )
        texts[path] = _rename(group, file.read_text(encoding="utf-8"), name)
    for path in texts:
        if path.exists():
            raise ConfigError(f"{path}: this file exists. Choose another name.")
    if source:
        texts = {path: _set_source(text, source) for path, text in texts.items()}
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(texts)


def copy_prompt(name: str) -> Path:
    """Copy one of kgqa's templates into the user's prompts/, where it replaces the original. Return the copy's path.

    Raises:
        ConfigError: kgqa has no template of this name, or the copy exists.
    """
    own, shipped = own_prompt_folders()[-1], shipped_prompts()
    original, copied = shipped / f"{name}.j2", own / f"{name}.j2"
    names = shipped_templates()
    if name not in names:
        method = name.partition("/")[0]
        choices = [
            each
            for each in names
            if each.startswith(f"{method}/")
            or any(f"method={method}" in words.split() for words in list_prompt_runs(each))
        ]
        # all names would be a long list
        hint = f"{nearest(name, choices or names)} "
        hint = hint if choices or hint.startswith("Did") else ""
        raise ConfigError(
            f"{name}: kgqa has no template of this name. {hint}List all: kgqa new prompt"
        )
    if copied.exists():
        raise ConfigError(f"{copied}: this file exists. Edit it.")
    copied.parent.mkdir(parents=True, exist_ok=True)
    copied.write_text(original.read_text(encoding="utf-8"), encoding="utf-8")
    return copied


def shipped_templates() -> list[str]:
    """Return the names of kgqa's templates, such as trace/select."""
    folder = shipped_prompts()
    return sorted(
        file.relative_to(folder).with_suffix("").as_posix() for file in folder.rglob("*.j2")
    )


def find_unused_templates() -> dict[Path, str]:
    """Return the user's files next to kgqa's templates that no method renders, each with a hint.

    The user's own code and configurations can name such a template.
    """
    own = own_prompt_folders()[0]
    if not own.is_dir() or own.resolve() == shipped_prompts().resolve():
        return {}
    names = shipped_templates()
    unused = {}
    for file in sorted(file for file in own.rglob("*.*") if file.is_file()):
        name = file.relative_to(own).with_suffix("").as_posix()
        siblings = [each for each in names if each.rpartition("/")[0] == name.rpartition("/")[0]]
        if file.suffix != ".j2":
            # not of a note or of a backup
            if name in names and not file.with_suffix(".j2").exists():
                unused[file] = f"Rename it to {file.stem}.j2"
        elif siblings and name not in names and not _is_named(name):
            unused[file] = nearest(name, siblings)
    return unused


def _is_named(template: str) -> bool:
    """Return whether a module or a configuration of the user contains the name of a template."""
    files = [*user_folder().glob("*.py"), *user_conf().rglob("*.yaml")]
    texts = (file.read_text("utf-8", "replace") for file in files if file.is_file())
    return any(template in text for text in texts)


def _set_source(text: str, source: str) -> str:
    """Set where the weights of a model's file are."""
    is_hub = bool(HUB_NAME.fullmatch(source)) and not Path(source).exists()
    text = re.sub(r"(?m)^hub: \S+", f"hub: {source if is_hub else 'null'}", text)
    return re.sub(
        r"(?m)^path: \S+",
        f"path: {'null' if is_hub else Path(source).expanduser().absolute()}",
        text,
    )


def _check_name(group: str, name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or iskeyword(name):
        raise ConfigError(
            f"kgqa new {group} {name or 'NAME'}: use small letters, digits and underscores only in the name, "
            f"e.g. my_{group}"
        )
    if name in config_files(group):
        raise ConfigError(f"{group}={name}: this name exists. Choose another name.")
    if (
        group != "model"
        and not (user_folder() / f"{name}.py").exists()
        and find_spec(name) is not None
    ):
        raise ConfigError(
            f"{name}: an installed module has this name and would be imported. Choose another name."
        )


def _rename(group: str, text: str, name: str) -> str:
    """Replace `my_method`, `MyMethod` and "My method" by the new name in its three forms."""
    for form in (
        str,
        lambda words: words.title().replace("_", ""),
        lambda words: words.replace("_", " ").capitalize(),
    ):
        text = text.replace(form(f"my_{group}"), form(name))
    return text
