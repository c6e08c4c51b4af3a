"""Name the folders of the package, of the user, of outputs and of caches.

The user's folder is the working directory, or the parent of `$KGQA_CONF`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path

from kgqa.errors import ConfigError

# the choice of prompts= for those of kgqa
SHIPPED = "shipped"
# prompts= of the run in this thread
_run_prompts: ContextVar[str | None] = ContextVar("prompts", default=None)


@cache
def package_folder() -> Path:
    """Return the folder of the package itself."""
    return Path(__file__).parents[1]


def conf_folders() -> tuple[Path, ...]:
    """Return the folders of configurations. The first one with a name wins; the last is kgqa's own."""
    own, ours = user_conf(), package_conf()
    return (own, ours) if own.is_dir() and not own.samefile(ours) else (ours,)


def prompt_folders() -> tuple[Path, ...]:
    """Return the folders of templates. The first one with a name wins."""
    return _prompt_folders(user_conf(), _run_prompts.get())


@cache  # each prompt of a run needs them
def _prompt_folders(conf: Path, choice: str | None) -> tuple[Path, ...]:
    own, shipped = conf.parent / "prompts", shipped_prompts()
    if choice is None:
        return own, shipped
    # own code has templates that kgqa lacks
    return (*([] if choice == SHIPPED else [Path(choice).expanduser()]), shipped, own)


def own_prompt_folders() -> tuple[Path, ...]:
    """Return the folders of templates without kgqa's."""
    return tuple(folder for folder in prompt_folders() if folder != shipped_prompts())


@cache
def shipped_prompts() -> Path:
    """Return the folder of kgqa's templates."""
    return package_folder() / "prompts"


def check_prompts(choice: str | None) -> None:
    """Raise ConfigError if the value of prompts= is no folder with templates."""
    if choice is None or choice == SHIPPED:
        return
    if not any(Path(choice).expanduser().glob("*/*.j2")):
        raise ConfigError(
            f"prompts={choice}: no folder with templates, such as {choice}/reader/answer.j2. "
            "Name such a folder, or prompts=shipped for those of kgqa"
        )


@contextmanager
def use_prompts(choice: str | None) -> Iterator[None]:
    """Search templates in a folder, in kgqa's and in the user's prompts/, in this order, while the block runs.

    choice: the folder. shipped: only the last two. None: the default, prompts/ before those of kgqa.

    Raises as `check_prompts`.
    """
    check_prompts(choice)
    before = _run_prompts.get()
    _run_prompts.set(choice)
    try:
        yield
    finally:
        # not `reset`, which fails if the block ends in another task
        _run_prompts.set(before)


@cache
def package_conf() -> Path:
    """Return `conf/` of the installed package or of the checkout."""
    packaged = package_folder() / "conf"
    return packaged if packaged.is_dir() else package_folder().parent / "conf"


def user_folder() -> Path:
    """Return the folder with the user's modules, prompts and conf/."""
    return user_conf().parent


def user_conf() -> Path:
    """Return the user's conf/ as the user writes it. Raise a ConfigError if `KGQA_CONF` names no folder."""
    return _user_conf(os.environ.get("KGQA_CONF"))


@cache
def _user_conf(named: str | None) -> Path:
    folder = Path(named or "conf").expanduser()
    if named and not folder.is_dir():
        raise ConfigError(
            f"KGQA_CONF={named}: no such folder. Name the folder with method/, dataset/, …"
        )
    return folder


def outputs() -> Path:
    """Return the folder of runs, triples and the call cache: `outputs/` of the working directory."""
    return Path("outputs")


def training_folder() -> Path:
    """Return `KGQA_TRAINED`, else the folder of trained models in the outputs, with NAME/HASH/ for each."""
    return Path(os.environ.get("KGQA_TRAINED") or outputs() / "trained").expanduser()


def call_cache() -> Path:
    """Return `KGQA_CACHE`, else a folder of the outputs."""
    return Path(os.environ.get("KGQA_CACHE") or outputs() / ".cache")


def shared_replies() -> Path | None:
    """Return `KGQA_REPLIES`, a folder that several machines share, or None."""
    return Path(named).expanduser() if (named := os.environ.get("KGQA_REPLIES")) else None


def home() -> Path:
    """Return `KGQA_HOME`, else `kgqa` in the user's cache: weights, hashes, logs."""
    if named := os.environ.get("KGQA_HOME"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "kgqa"
