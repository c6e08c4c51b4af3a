"""Find the files of a dataset."""

from __future__ import annotations

import os
from importlib.resources import files as package_files
from pathlib import Path

from kgqa.errors import DataError
from kgqa.util.plugins import package_conf

TO_ELSEWHERE = "make room, or name another folder: to=FOLDER"  # where the disk refuses
PACKAGED = "pkg://"  # Hydra's notation for what ships in a package: pkg://kgqa.datasets/demo.jsonl


def find(dataset: str, path: str | None, names: tuple[str, ...]) -> Path:
    """Return the data file: at `path`, a file or a folder; else below `$KGQA_DATA`; else below `data/`.

    Below means: in `<dataset>/`, in `questions/` or in the folder itself. `names` are tried in order, each
    plain and with ".gz". An earlier name in a later folder wins over a later name in an earlier folder.

    Raises:
        DataError: naming everything that was looked for.
    """
    if path is not None and not (named := given(path)).is_dir():
        if not named.exists():
            raise DataError(f"dataset.path={path}: no such file; name an existing file, or run: {_prepare(dataset)}")
        return named
    folders = _folders(dataset) if path is None else [given(path)]
    for name in names:
        for folder in folders:
            for candidate in (folder / name, folder / f"{name}.gz"):
                if candidate.is_file():
                    return candidate
    places = ", ".join(map(str, folders))
    raise DataError(
        f"dataset={dataset}: no {' or '.join(names)} (plain or .gz) in {places}; "
        f"run: {_prepare(dataset, names)}, or give dataset.path=FILE, or point KGQA_DATA to the folder that has it"
    )


def find_corpus(dataset: str, path: str) -> Path:
    """Return a corpus file: `path` itself, else below `$KGQA_DATA`, else below `data/`; there also in `corpora/`.

    Raises:
        DataError: naming everything that was looked for.
    """
    return _find_named(dataset, "corpus", path, _folders(dataset, "corpora"), "name an existing file")


def find_aliases(dataset: str, path: str, questions: Path) -> Path:
    """Return a file of answers' other names: `path` itself, else beside the questions, else where those are looked for.

    Raises:
        DataError: naming everything that was looked for.
    """
    folders = [questions.parent, *_folders(dataset)]
    return _find_named(dataset, "aliases", path, folders, "score without other names by dataset.aliases=null")


def _find_named(dataset: str, key: str, path: str, folders: list[Path], remedy: str) -> Path:
    named = given(path, key)
    below = [] if named.is_absolute() else list(dict.fromkeys(folders))
    for folder in (Path(""), *below):
        if (folder / named).is_file():
            return folder / named
    places = ", ".join(map(str, below))
    raise DataError(
        f"dataset.{key}={path}: no such file{f', nor in {places}' if places else ''}; "
        f"{remedy}, or run: {_prepare(dataset)}"
    )


def roots() -> list[Path]:
    """Return folders that hold data sets: `$KGQA_DATA` if it is set, then `data`."""
    environment = os.environ.get("KGQA_DATA")
    return [Path(environment).expanduser(), Path("data")] if environment else [Path("data")]


def given(path: str, key: str = "path") -> Path:
    """Return what `dataset.<key>` names: a path, or a place in a package.

    Raises:
        DataError: there is no such package.
    """
    if not path.startswith(PACKAGED):
        return Path(path).expanduser()
    package, _, name = path.removeprefix(PACKAGED).partition("/")
    try:
        return Path(str(package_files(package))) / name
    except ModuleNotFoundError:
        raise DataError(f"dataset.{key}={path}: no package {package}; write {PACKAGED}PACKAGE/FILE") from None


def _folders(dataset: str, kind: str = "questions") -> list[Path]:
    return [root / below for root in roots() for below in (dataset, kind, "")]


def _prepare(dataset: str, names: tuple[str, ...] = ()) -> str:
    """Return the command that brings one of these files, which may be of a source with a name of its own."""
    import yaml

    listed = yaml.safe_load((package_conf() / "downloads.yaml").read_text(encoding="utf-8"))
    for source, entry in listed.items():
        made, folder = entry.get("members") or [entry["file"]], entry["folder"]
        places = [*(made if folder == dataset else ()), *(f"{folder}/{file}" for file in made)]
        if set(names).intersection(places):
            return f"kgqa data download dataset={source}"
    return f"kgqa data download dataset={dataset}"
