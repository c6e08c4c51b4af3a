"""Name the prompts, files and other parts of the identity in which runs with equal settings differ."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kgqa.artifacts.evaluation import read_judged_metrics
from kgqa.artifacts.manifest import Manifest
from kgqa.artifacts.metrics import JudgeMetrics, Metrics
from kgqa.artifacts.run import read_identity
from kgqa.artifacts.sweep import questions_asked
from kgqa.config.files import flatten
from kgqa.config.overrides import format_value
from kgqa.config.prompt_runs import list_prompt_runs
from kgqa.config.targets import load_run_config
from kgqa.errors import DataError
from kgqa.prompting import template_hash, template_names
from kgqa.report.columns import SEPARATOR, group_texts, name_by_settings, shorten_address
from kgqa.types import Json
from kgqa.util.digests import text_digest
from kgqa.util.places import SHIPPED
from kgqa.util.settings import CLASS

MOST_NAMES = 3
# characters of a value of the identity
_MOST = 40
_PROMPT, _OWN_PROMPTS = "prompt ", "prompts/"
_HASHED_PROMPT = re.compile(r"prompts/(\S+)\.j2 [0-9a-f]{6}\b")
_HASH = re.compile(r"[0-9a-f]{12,64}")
# values of a setting that is not set, such as sample=null and engine.rules=[]
_UNSET: tuple[Json, ...] = (None, "", [], {})
# of a hash
_DIGITS = 6


@dataclass(frozen=True)
class NamedRun:
    """A run with its name among others.

    place: the part of a table in which names must differ. minor: the settings that change no answer and differ.
    """

    name: str
    method: str
    folder: Path
    place: Hashable = None
    minor: str = ""


def add_changes(runs: Iterable[NamedRun]) -> list[str]:
    """Return the names of runs. Equal ones have what `name_changes` finds, or else their settings without effect."""
    rows = list(runs)
    names = [run.name for run in rows]
    _extend_equal(rows, names, _name_twins)
    _extend_equal(rows, names, lambda twins: [twin.minor for twin in twins])
    return names


def _name_twins(runs: Sequence[NamedRun]) -> list[str]:
    return name_changes([run.folder for run in runs], runs[0].method)


def add_reasons(runs: Iterable[NamedRun], text: str = "{}") -> list[str]:
    """Return the names of `add_changes`. Those that are still equal have the kind of difference of their runs.

    text: what is added to a name, with {} for "questions", or for what an unreadable identity leaves unknown.
    """
    rows = list(runs)
    names = add_changes(rows)

    def explain(twins: Sequence[NamedRun]) -> list[str]:
        # a cell of two sweeps is one run
        folders = {twin.folder for twin in twins}
        if not all(map(_read_identity, folders)):
            reason = text.format("unknown settings")
        else:
            reason = text.format("questions") if _have_other_questions(folders) else ""
        return [reason if len(folders) > 1 else ""] * len(twins)

    _extend_equal(rows, names, explain)
    return names


def _extend_equal(
    runs: Sequence[NamedRun],
    names: list[str],
    describe: Callable[[Sequence[NamedRun]], Sequence[str]],
) -> None:
    """Add to equal names in a place what describes each of their runs."""
    twins = group_texts((number, (run.place, names[number])) for number, run in enumerate(runs))
    for numbers in twins.values():
        if len(numbers) > 1:
            texts = describe([runs[number] for number in numbers])
            for number, text in zip(numbers, texts, strict=True):
                names[number] = SEPARATOR.join(filter(None, (names[number], text)))


def _have_other_questions(folders: Iterable[Path]) -> bool:
    try:
        return len({questions_asked(folder) for folder in folders}) > 1
    except DataError:
        return False


def _read_identity(folder: Path) -> Mapping[str, Json]:
    """Return what identifies a run by dotted key, or {}: copied runs can lack the file."""
    with suppress(DataError):
        return flatten(read_identity(folder))
    return {}


def name_changes(folders: Sequence[Path], method: str) -> list[str]:
    """Return for each run of a method what identifies it and not the others.

    These are prompts, own modules and data files, such as "prompt reader/answer of kgqa" and
    "prompts/reader/answer.j2". Runs of prompts=FOLDER have the value of this key, such as "prompts shipped". If several
    runs have different ones of the same name, each has the start of its hash.
    After them come other keys of the identity, such as "server 127.0.0.1:8000". The texts are empty if there are no
    differences.
    """
    files = _name_files(folders, method)
    keys = _name_keys(folders, method, has_files=any(any(names) for names in files))
    runs = [[*names, *others] for names, others in zip(files, keys, strict=True)]
    return [
        SEPARATOR.join(filter(None, [*listed[:MOST_NAMES], *["…"] * (len(listed) > MOST_NAMES)]))
        for listed in runs
    ]


def _name_files(folders: Sequence[Path], method: str) -> list[list[str]]:
    try:
        runs = [_list_hashes(folder) for folder in folders]
    except DataError:
        return [[] for _ in folders]
    shared = set.intersection(*map(set, runs))
    changes = sorted(name for name in shared if len({run[name] for run in runs}) > 1)
    # a change of another method's prompt made no other run
    names = [name for name in changes if _is_used(name, method)] or changes
    hashes = group_texts((run[name][1], run[name][0]) for run in runs for name in names)
    files = [{name: _name_file(*run[name], hashes) for name in names} for run in runs]
    values = [{name: _find_value(name, file) for name, file in row.items()} for row in files]
    # without prompts=FOLDER, the names of the files are clearer
    if any(value not in (None, SHIPPED) for row in values for value in row.values()):
        files = [
            {
                name: file if value is None else name_by_settings({"prompts": value})
                for (name, file), value in zip(row.items(), chosen.values(), strict=True)
            }
            for row, chosen in zip(files, values, strict=True)
        ]
    return [list(dict.fromkeys(row.values())) for row in files]


def _find_value(name: str, file: str) -> str | None:
    """Return the value of prompts= that selects a file of `_name_file`, None for prompts/ and other files."""
    if not name.startswith(_PROMPT):
        return None
    if file == f"{name} of kgqa":
        return SHIPPED
    folder = file.removesuffix(f"/{name.removeprefix(_PROMPT)}.j2")
    # a name with a hash has no such end
    return None if folder in (file, "prompts") else folder


def _name_keys(folders: Sequence[Path], method: str, *, has_files: bool) -> list[list[str]]:
    """Return the other keys of the identity in which runs differ. has_files: names of files explain hashes of code."""
    runs = [_read_identity(folder) for folder in folders]
    if not all(runs):
        return [[] for _ in folders]
    values = {key: [repr(run.get(key)) for run in runs] for run in runs for key in run}
    several = [key for key, each in values.items() if len(set(each)) > 1]
    parts = [key.removesuffix(CLASS) for key in several if key.endswith(f".{CLASS}")]
    explained = {
        key
        for key in several
        # components of different classes have different settings
        if any(key.startswith(part) and key != part + CLASS for part in parts)
        or (has_files and ("code" in key.split(".") or key == "dataset.sha256"))
    }
    # roles with the same engine differ in the same
    keys = {repr(values[key]): key for key in reversed(several) if key not in explained}
    return [
        [
            f"{_name_key(key, method)} {_show_value(run[key])}"
            for key in reversed(keys.values())
            if run.get(key) not in _UNSET
        ]
        for run in runs
    ]


def _name_key(key: str, method: str) -> str:
    """Return a name of a key of the identity, such as "code of method ircot" or "server"."""
    match [name.replace("_", " ") for name in key.split(".") if name != CLASS]:
        case ["code", "method"]:
            return f"code of method {method}"
        case ["code", part]:
            return f"code of {part}"
        case ["answering", "default", "deployment"]:
            return "server"
        case ["answering", role, "deployment"]:
            return f"{role} server"
        case ["answering", "default", "model", *names]:
            return " ".join(["model", *names])
        case ["answering", "default", *names]:
            return " ".join(["engine", *names])
        case ["answering", *names] | names:
            return " ".join(names)


def _show_value(value: Json) -> str:
    """Return a value of the identity, the start of a hash, or the hash of a long value."""
    text = shorten_address(value) if isinstance(value, str) else format_value(value)
    if _HASH.fullmatch(text):
        return text[:_DIGITS]
    return text if len(text) <= _MOST else text_digest(text, _DIGITS)


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
    manifest, judge = Manifest.read(folder), _find_replaced_judge(folder)
    own = manifest.own.files if manifest.own else {}
    prompts = {}
    for name in manifest.prompts.keys() - (judge.prompts.keys() if judge else ()):
        # in prompts/ or in the folder of prompts=
        file = next((each for each in own if each.endswith(f"/{name}.j2")), None)
        prompts[f"{_PROMPT}{name}"] = (
            file or f"{_PROMPT}{name} of kgqa",
            manifest.prompts[name],
        )
    package = _find_judge_package(folder) if judge else ""
    modules = {
        name: (name, sha256)
        for name, sha256 in own.items()
        if not name.endswith(".j2")
        and not (name.endswith(".py") and package in (Path(name).stem, *Path(name).parts))
    }
    return {
        **modules,
        **prompts,
        manifest.dataset.file: (manifest.dataset.file, manifest.dataset.sha256),
    }


def _find_replaced_judge(folder: Path) -> JudgeMetrics | None:
    """Return the judge of a run if a later `kgqa evaluate` replaced its verdicts."""
    before, now = Metrics.read(folder).judge, read_judged_metrics(folder).judge
    return before if before and now and before.identity != now.identity else None


def _find_judge_package(folder: Path) -> str:
    """Return the module or package of the judge of a run, or "" if the run uses it for something else, too."""
    targets = {
        key: str(value).partition(".")[0]
        for key, value in flatten(load_run_config(folder)).items()
        if key.endswith("_target_")
    }
    package = targets.pop("judge._target_", "")
    return "" if package in targets.values() else package


def _is_used(name: str, method: str) -> bool:
    """Return whether a method can use a file. Own prompts and modules can be used by any."""
    template = name.removeprefix(_PROMPT)
    runs = list_prompt_runs(template) if name.startswith(_PROMPT) else ()
    return not runs or any(f"method={method}" in words.split() for words in runs)
