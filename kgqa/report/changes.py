"""Name the prompts and files in which runs with equal settings differ, from their manifests."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kgqa.artifacts.manifest import Manifest
from kgqa.config.prompt_runs import list_prompt_runs
from kgqa.errors import DataError
from kgqa.report.columns import SEPARATOR, group_texts

MOST_NAMES = 3
_PROMPT = "prompt "
# of a hash
_DIGITS = 6


@dataclass(frozen=True)
class NamedRun:
    """A run with its name among others. place: the part of a table in which names must differ."""

    name: str
    method: str
    folder: Path
    place: Hashable = None


def add_changes(runs: Iterable[NamedRun]) -> list[str]:
    """Return the names of runs. Equal ones have the prompts, own modules and data files in which their runs differ."""
    rows = list(runs)
    names = [run.name for run in rows]
    twins = group_texts((number, (run.place, run.name)) for number, run in enumerate(rows))
    for numbers in twins.values():
        if len(numbers) > 1:
            changes = name_changes([rows[each].folder for each in numbers], rows[numbers[0]].method)
            for number, text in zip(numbers, changes, strict=True):
                names[number] = SEPARATOR.join(filter(None, (names[number], text)))
    return names


def name_changes(folders: Sequence[Path], method: str) -> list[str]:
    """Return for each run of a method its prompts, own modules and data files in which the runs differ.

    Each has the start of its hash, such as "prompt reader/answer 2296ab". The texts are empty if there are none.
    """
    try:
        runs = [_list_hashes(Manifest.read(folder)) for folder in folders]
    except DataError:
        return [""] * len(folders)
    shared = set.intersection(*map(set, runs))
    changes = sorted(name for name in shared if len({run[name] for run in runs}) > 1)
    # a change of another method's prompt made no other run
    names = [name for name in changes if _is_used(name, method)] or changes
    more = [] if len(names) <= MOST_NAMES else ["…"]
    return [
        SEPARATOR.join([*(f"{name} {run[name][:_DIGITS]}" for name in names[:MOST_NAMES]), *more])
        for run in runs
    ]


def _list_hashes(manifest: Manifest) -> dict[str, str]:
    own = manifest.own.files if manifest.own else {}
    return {
        **{name: sha256 for name, sha256 in own.items() if not name.startswith("prompts/")},
        **{f"{_PROMPT}{name}": sha256 for name, sha256 in manifest.prompts.items()},
        manifest.dataset.file: manifest.dataset.sha256,
    }


def _is_used(name: str, method: str) -> bool:
    """Return whether a method can use a file. Own prompts and modules can be used by any."""
    template = name.removeprefix(_PROMPT)
    runs = list_prompt_runs(template) if name.startswith(_PROMPT) else ()
    return not runs or any(f"method={method}" in words.split() for words in runs)
