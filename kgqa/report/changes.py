"""Name the prompts and files in which runs with equal settings differ, from their manifests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kgqa.artifacts.manifest import Manifest
from kgqa.config.prompt_runs import list_prompt_runs
from kgqa.errors import DataError

MOST_NAMES = 3
UNKNOWN = "code, prompts or data"
_PROMPTS = "prompts/"


def name_changes(folders: Sequence[Path], method: str) -> str:
    """Return the prompts, own modules and data files in which runs of a method differ, `UNKNOWN` if there are none."""
    try:
        runs = [_list_hashes(Manifest.read(folder)) for folder in folders]
    except DataError:
        return UNKNOWN
    shared = set.intersection(*map(set, runs))
    changes = sorted(name for name in shared if len({run[name] for run in runs}) > 1)
    # a change of another method's prompt made no other run
    names = [name for name in changes if _is_used(name, method)] or changes
    more = " …" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more if names else UNKNOWN


def _list_hashes(manifest: Manifest) -> dict[str, str]:
    own = manifest.own.files if manifest.own else {}
    return {
        **{name: sha256 for name, sha256 in own.items() if not name.startswith(_PROMPTS)},
        **{f"{_PROMPTS}{name}.j2": sha256 for name, sha256 in manifest.prompts.items()},
        manifest.dataset.file: manifest.dataset.sha256,
    }


def _is_used(name: str, method: str) -> bool:
    """Return whether a method can use a file. Own prompts and modules can be used by any."""
    template = name.removeprefix(_PROMPTS).removesuffix(".j2")
    runs = list_prompt_runs(template) if name.startswith(_PROMPTS) else ()
    return not runs or any(f"method={method}" in words.split() for words in runs)
