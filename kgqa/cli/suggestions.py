"""Suggest a command that works, if a word of the typed one means several runs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from kgqa.artifacts.predictions import PREDICTIONS, question_ids
from kgqa.artifacts.run import LAST, find_run
from kgqa.artifacts.sweep import find_row
from kgqa.cli.commands import find_command
from kgqa.errors import SeveralRunsError, UsageError
from kgqa.util.places import outputs

BASELINE = "baseline="


def suggest_command(error: SeveralRunsError, arguments: Sequence[str]) -> list[str]:
    """Return the command with the newest run for each word that means several, or an empty list without such a one."""
    command, words = find_command(arguments)
    args = command.parse(words)
    names = [
        *args.positionals,
        *(word.removeprefix(BASELINE) for word in words if word.startswith(BASELINE)),
    ]
    several, folders = {error.word: error}, list[Path]()
    for name in names:
        if name != error.word:
            try:
                # of several runs to compare, "last" is a run
                sweeps = name != LAST or len(names) == 1
                folders += find_row(name) or [find_run(name, sweeps=sweeps)]
            except SeveralRunsError as other:
                several[name] = other
            except UsageError:
                # the next error names it
                pass
    newest = _choose_newest(several, folders)
    if newest is None:
        return []
    folders += (outputs() / name for group in newest.values() for name in group)
    line = list(arguments[: len(arguments) - len(words)])
    for word in words:
        key = BASELINE if word.startswith(BASELINE) else ""
        line += (f"{key}{name}" for name in newest.get(word.removeprefix(key), [word[len(key) :]]))
    if command.name == "compare" and not args.common and _differ_in_questions(folders):
        line.append("--common")
    count = sum(map(len, newest.values()))
    title = error.title or ("the newest one" if count == 1 else f"the newest {count}")
    return [f"{title}: {shlex.join(['kgqa', *line])}"]


def _choose_newest(
    several: Mapping[str, SeveralRunsError], folders: Sequence[Path]
) -> dict[str, list[str]] | None:
    """Return the newest runs of each word that are not among the folders, of one dataset if possible. None: too few."""
    root, used = outputs().resolve(), {folder.resolve() for folder in folders}
    free = {
        word: [name for name in error.names if (root / name).resolve() not in used]
        for word, error in several.items()
    }
    # that of the named runs, then that of the newest run
    datasets = [place.relative_to(root).parts[0] for place in used if root in place.parents]
    datasets += [_dataset(name) for names in free.values() for name in names]
    for dataset in (*datasets, ""):
        newest, others = dict[str, list[str]](), set[str]()
        for word, error in several.items():
            names = [name for name in free[word] if dataset in ("", _dataset(name))]
            # two words can mean the same runs
            newest[word] = [name for name in names if name not in others][: error.needed]
            others.update(newest[word])
        if all(len(newest[word]) == error.needed for word, error in several.items()):
            return newest
    return None


def _dataset(name: str) -> str:
    return name.partition("/")[0]


def _differ_in_questions(folders: Sequence[Path]) -> bool:
    """Return whether these runs have answers to different questions."""
    questions = set[frozenset[str]]()
    for folder in folders:
        with suppress(UsageError):
            if (folder / PREDICTIONS).is_file():
                questions.add(frozenset(question_ids(folder)))
    return len(questions) > 1
