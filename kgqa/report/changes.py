"""Name the prompts and files in which runs with equal settings differ, from their manifests."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kgqa.artifacts.evaluation import EVALUATION, read_evaluation
from kgqa.artifacts.manifest import Manifest
from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.run import IDENTITY
from kgqa.config.prompt_runs import list_prompt_runs
from kgqa.errors import DataError
from kgqa.prompting import template_hash, template_names
from kgqa.report.columns import SEPARATOR, group_texts

MOST_NAMES = 3
_PROMPT, _OWN_PROMPTS = "prompt ", "prompts/"
_HASHED_PROMPT = re.compile(r"prompts/(\S+)\.j2 [0-9a-f]{6}\b")
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


def add_reasons(runs: Iterable[NamedRun], text: str = "{}") -> list[str]:
    """Return the names of `add_changes`. Those that are still equal have the kind of difference of their runs.

    text: what is added to a name, with {} for "questions", or for what else identifies a run.
    """
    rows = list(runs)
    names = add_changes(rows)
    twins = group_texts((number, (rows[number].place, name)) for number, name in enumerate(names))
    for numbers in twins.values():
        identities = {rows[each].folder: _read_identity(rows[each].folder) for each in numbers}
        # a cell of two sweeps is one run
        if len(identities) > 1:
            is_same = len({*identities.values()}) == 1
            reason = text.format("questions" if is_same else "code, prompts or data")
            for number in numbers:
                names[number] = SEPARATOR.join(filter(None, (names[number], reason)))
    return names


def _read_identity(folder: Path) -> bytes:
    """Return the file with what identifies a run. Copied runs can lack it."""
    with suppress(OSError):
        return (folder / IDENTITY).read_bytes()
    return b""


def name_changes(folders: Sequence[Path], method: str) -> list[str]:
    """Return for each run of a method its prompts, own modules and data files in which the runs differ.

    Such as "prompt reader/answer of kgqa" and "prompts/reader/answer.j2". If several runs have different ones of the
    same name, each has the start of its hash. The texts are empty if there are no differences.
    """
    try:
        runs = [_list_hashes(folder) for folder in folders]
    except DataError:
        return [""] * len(folders)
    shared = set.intersection(*map(set, runs))
    changes = sorted(name for name in shared if len({run[name] for run in runs}) > 1)
    # a change of another method's prompt made no other run
    names = [name for name in changes if _is_used(name, method)] or changes
    hashes = group_texts((run[name][1], run[name][0]) for run in runs for name in names)
    more = [] if len(names) <= MOST_NAMES else ["…"]
    texts = [[_name_file(*run[name], hashes) for name in names[:MOST_NAMES]] for run in runs]
    return [SEPARATOR.join([*listed, *more]) for listed in texts]


def _name_file(name: str, sha256: str, hashes: Mapping[str, Sequence[str]]) -> str:
    """Return the name of a file, with the start of its hash unless a template is the only one of its name."""
    is_template = name.startswith(_PROMPT) or name.endswith(".j2")
    is_only = is_template and len(set(hashes[name])) == 1
    return name if is_only else f"{name} {sha256[:_DIGITS]}"


def list_present_prompts(texts: Iterable[str]) -> list[str]:
    """Return a line for each own prompt that `name_changes` shows with a hash: which one the file has now."""
    names = dict.fromkeys(name for text in texts for name in _HASHED_PROMPT.findall(text))
    present = set(template_names()) if names else set()
    return [
        f"{_OWN_PROMPTS}{name}.j2 is {template_hash(name)[:_DIGITS]} now"
        for name in names
        if name in present
    ]


def _list_hashes(folder: Path) -> dict[str, tuple[str, str]]:
    """Return the shown name and the hash of each prompt, own module and data file of a run."""
    manifest, replaced = Manifest.read(folder), _list_replaced_prompts(folder)
    own = manifest.own.files if manifest.own else {}
    prompts = {}
    for name in manifest.prompts.keys() - replaced:
        # in prompts/ or in the folder of prompts=
        file = next((each for each in own if each.endswith(f"/{name}.j2")), None)
        prompts[f"{_PROMPT}{name}"] = (
            file or f"{_PROMPT}{name} of kgqa",
            manifest.prompts[name],
        )
    modules = {name: (name, sha256) for name, sha256 in own.items() if not name.endswith(".j2")}
    return {
        **modules,
        **prompts,
        manifest.dataset.file: (manifest.dataset.file, manifest.dataset.sha256),
    }


def _list_replaced_prompts(folder: Path) -> Set[str]:
    """Return the prompts of the judge of a run if a later `kgqa evaluate` replaced its verdicts."""
    if not (folder / EVALUATION).is_file():
        return frozenset()
    metrics = Metrics.read(folder)
    evaluation = read_evaluation(folder, metrics)
    is_replaced = evaluation is not None and evaluation.judge is not None
    return metrics.judge.prompts.keys() if metrics.judge and is_replaced else frozenset()


def _is_used(name: str, method: str) -> bool:
    """Return whether a method can use a file. Own prompts and modules can be used by any."""
    template = name.removeprefix(_PROMPT)
    runs = list_prompt_runs(template) if name.startswith(_PROMPT) else ()
    return not runs or any(f"method={method}" in words.split() for words in runs)
