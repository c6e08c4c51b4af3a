"""The runs and sweeps of a folder as rows of one table, with its columns, its order, and plots of its figures.

A run is read again when its files change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from kgqa.artifacts.evaluation import EVALUATION, read_judged_metrics
from kgqa.artifacts.metrics import METRICS
from kgqa.artifacts.run import (
    SCRIPTED,
    FinishedRun,
    RunEntry,
    list_runs,
    list_sweeps,
    read_settings,
)
from kgqa.artifacts.sweep import REPEAT, Sweep, questions_asked, row_key
from kgqa.artifacts.verdicts import VERDICTS
from kgqa.errors import DataError, nearest
from kgqa.report.changes import NamedRun, add_reasons
from kgqa.report.columns import (
    CORRECTED_ACCURACY,
    JUDGE_ACCURACY,
    SEPARATOR,
    Measured,
    choose_keys,
    columns,
    explain_names,
    find_differing,
    group_texts,
    join_names,
    name_by_settings,
    note_extraction,
    note_failed,
)
from kgqa.report.plots import Bar, BarPlot, Plot, Point, Series
from kgqa.report.section import FILES
from kgqa.report.shares import read_shares
from kgqa.report.sweep_rows import collect_shares, measure_repeats
from kgqa.report.warnings import find_wrong_scores
from kgqa.runtime.monitor import Heartbeat, read_heartbeats
from kgqa.scoring.questions import METRICS as SCORES
from kgqa.util.places import outputs
from kgqa.util.text import pluralize

# columns that are sorted from A to Z
TEXTS = ("name", "dataset", "method", "model", "status")
FIELDS = (*TEXTS, "questions", "written")  # columns without figures

# settings that other columns show, or that change no answer
_IN_COLUMNS = ("dataset", "model", "engine")
# settings in a title, and the most if fewer do not separate the runs
_CHANGES, _MOST = 3, 5
COSTS = ("USD / question", "tokens / question")
# scores with their intervals in the table. Other scores have theirs in a tooltip, so that the table fits a laptop
WITH_INTERVALS = ("EM", "F1", JUDGE_ACCURACY, CORRECTED_ACCURACY)
# costs per question and counts, which a narrow page shows below the scores
_SUFFIXES = (" / question", " questions")
NO_MODEL = "no model"
MEANS = (
    "Repeats of a cell have one row with their mean. Its interval contains the spread between runs."
)
FILTERS = (
    "Filter by words of a name, by a status such as failed, by key=value of a setting, "
    "or by sweep=NAME."
)
SELECTION = "selection"
SELECTIONS = (
    "selection 2: another selection of as many questions, such as with another sample= or seed=. "
    "Scores on different questions cannot be compared."
)


@dataclass(frozen=True)
class Row:
    """A run, a sweep, or the mean of repeats. `key`: its path below the folder. Of a mean: SWEEP/NUMBER of a cell.

    axes: the keys that a sweep varies, also in its cells. runs: the keys of its finished cells, or of the repeats.
    failed: of the other cells. means: the keys of the means of a sweep. repeats: the folders of the repeats of a mean.
    sweeps: the names of the sweeps that use a run. sweep: the one below which it is shown.
    mean: the mean below which a repeat is shown.
    title: the name next to the other rows, see `name_rows`.
    problems: why the other cells of a sweep have no run, or the warnings about the scores of a run.
    judge_warnings: about the judge, which many runs share.
    cost_notes: that costs are per answered question if some failed, and which calls they leave out.
    command: continues a run or sweep that was stopped, "" if unknown.
    """

    key: str
    folder: Path
    kind: str  # "run", "sweep" or "mean"
    name: str
    status: str  # "running", "done", "changed" or "not finished"
    written: float
    dataset: str = ""
    method: str = ""
    model: str = ""
    questions: int | None = None
    figures: Mapping[str, Measured] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    cells: str = ""
    axes: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    means: tuple[str, ...] = ()
    repeats: tuple[Path, ...] = ()
    sweeps: tuple[str, ...] = ()
    sweep: str = ""
    mean: str = ""
    title: str = ""
    problems: tuple[str, ...] = ()
    judge_warnings: tuple[str, ...] = ()
    cost_notes: tuple[str, ...] = ()
    trouble: str = ""
    command: str = ""
    is_simulated: bool = False

    def value(self, column: str) -> float | str | None:
        """Return the value of a field or figure, or None."""
        if column in self.figures:
            return self.figures[column].value
        value: float | str | None = getattr(self, column) if column in FIELDS else None
        return value

    def text(self, column: str) -> str:
        """Return the text of a cell. A score has its interval in brackets."""
        if column in self.figures:
            return str(self.figures[column])
        if column == "written":
            return f"{datetime.fromtimestamp(self.written):%Y-%m-%d %H:%M}"
        value = self.value(column)
        return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)

    @property
    def folders(self) -> Mapping[str, Path]:
        """Return the folder of a run, or those of the repeats of a mean, by key."""
        if self.kind == "mean":
            return dict(zip(self.runs, self.repeats, strict=True))
        return {self.key: self.folder}

    @property
    def note(self) -> str:
        """Return the name of a run's folder, or the keys that a sweep varies."""
        if self.kind != "sweep" or not self.axes:
            return "" if self.kind == "sweep" else self.name
        return f"by {' × '.join(axis.rpartition('.')[2] for axis in self.axes)}"

    @property
    def has_report(self) -> bool:
        return (self.folder / FILES["html"]).is_file()

    @property
    def mark(self) -> tuple[str, str]:
        """Return the text and the class of the status."""
        if self.trouble:
            return "! damaged", "wrong"
        if failed := self.figures.get("failed questions"):
            # a column has their number
            return f"! {'all' if failed.value == failed.of else 'some'} failed", "wrong"
        if self.kind == "sweep" and self.problems:
            return f"! {self.cells}, {len(self.problems):,} failed", "wrong"
        sign, kind = {
            "done": ("✓", "right"),
            "running": ("●", "working"),
            "changed": ("!", "wrong"),
        }.get(self.status, ("○", "hint"))
        return f"{sign} {self.cells or self.status}", kind


def read_rows(root: Path) -> list[Row]:
    """Return the runs, sweeps and means of repeats below a folder, newest first.

    A damaged one has its error in `trouble`.
    """
    runs = [_read_run(entry, _read_judge_times(entry.folder)) for entry in list_runs(root)]
    rows, by_key = list(runs), {run.key: run for run in runs}
    for entry in list_sweeps(root):
        sweep, groups = _read_sweep(entry, root)
        means = [
            _read_mean(f"{sweep.key}/{number}", [by_key[key] for key in keys])
            for number, keys in groups.items()
            if len(keys) > 1 and all(key in by_key for key in keys)
        ]
        rows += [replace(sweep, means=tuple(mean.key for mean in means)), *means]
    for beat in read_heartbeats(root):
        folder = _locate(beat.folder, root)
        rows = [_show_work(row, beat) if row.folder.resolve() == folder else row for row in rows]
    names: dict[str, list[str]] = {}
    for row in rows:
        for key in (*row.runs, *row.failed, *row.means) if row.kind == "sweep" else ():
            names.setdefault(key, []).append(row.name)
    rows = [replace(row, sweeps=tuple(names.get(row.key, ()))) for row in rows]
    return sorted(rows, key=lambda row: -row.written)


def _show_work(row: Row, beat: Heartbeat) -> Row:
    if beat.is_running:
        return replace(row, status="running")
    return replace(row, command=beat.command)


def find_row(root: Path, key: str) -> Row:
    """Return a finished run. Raises DataError: there is no such run, or it is a sweep or not finished."""
    row = next((row for row in read_rows(root) if row.key == key), None)
    if row is None:
        raise DataError(f"{key}: no run in {root}. It may have been removed: see kgqa runs")
    if row.questions is None:
        remedy = f"Continue with: {row.command}" if row.command else "Choose a finished run"
        raise DataError(row.trouble or f"{key}: a sweep or a run that is not finished. {remedy}")
    return row


def group_cells(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the cells of each sweep below it, and repeats below their mean.

    A cell of several sweeps is below each of them.
    """
    listed = {row.key: row for row in rows if row.kind != "sweep"}
    cells = {key for row in rows for key in (*row.runs, *row.failed, *row.means)}
    grouped = []
    for top in (row for row in rows if row.key not in cells):
        # a mean is at the top if a filter omits its sweep
        below = [top] if top.kind == "mean" else list_cells(top, listed)
        grouped += [] if top.kind == "mean" else [top]
        for cell in below:
            grouped += [cell, *(replace(run, mean=cell.key) for run in list_cells(cell, listed))]
        grouped += _choose_cells(top, top.failed, listed)
    return grouped


def list_cells(row: Row, listed: Mapping[str, Row]) -> list[Row]:
    """Return the finished cells of a sweep, with a mean instead of its repeats, or the repeats of a mean.

    Those that are not among the listed rows by key are omitted. A run has none.
    """
    means = {key: mean for mean in row.means if mean in listed for key in listed[mean].runs}
    keys = dict.fromkeys(means.get(key, key) for key in row.runs)
    return _choose_cells(row, keys, listed)


def expand_sweeps(rows: Sequence[Row], listed: Mapping[str, Row]) -> list[Row]:
    """Return the runs, and the finished cells of the sweeps instead of the sweeps, each once.

    A mean is listed instead of its repeats. A cell is named after what its sweep varies, see `name_rows`. Next to
    another run of the same method and dataset, both are named after what differs between them.
    """
    cells = {
        cell.key: cell
        for row in reversed(rows)
        for cell in _choose_cells(row, (*row.means, *row.runs, *row.failed), listed)
    }
    runs = {
        # the means of two sweeps can have the same repeats
        each.runs or each.key: cells.get(each.key, each)
        for row in rows
        for each in (list_cells(row, listed) if row.kind == "sweep" else [row])
    }
    for key in {key for run in runs.values() for key in run.runs}:
        runs.pop(key, None)
    sweeps: dict[tuple[str, str], set[str]] = {}
    for run in runs.values():
        sweeps.setdefault((run.method, run.dataset), set()).add(run.sweep)
    return [
        replace(run, sweep="", axes=()) if len(sweeps[run.method, run.dataset]) > 1 else run
        for run in runs.values()
    ]


def _choose_cells(sweep: Row, keys: Iterable[str], runs: Mapping[str, Row]) -> list[Row]:
    """Return the runs with these keys as cells of a sweep, or of the sweep of a mean."""
    place = sweep.key if sweep.kind == "sweep" else sweep.sweep
    return [replace(runs[key], sweep=place, axes=sweep.axes) for key in keys if key in runs]


# an entry has the time at which metrics.json was written, and the others are those of a later evaluation
@lru_cache(maxsize=10_000)
def _read_run(entry: RunEntry, _: Sequence[float]) -> Row:
    dataset, method, model, name = entry.parts
    status = "done" if entry.ended else "not finished"
    row = Row(entry.name, entry.folder, "run", name, status, entry.written, dataset, method, model)
    if not entry.ended:
        return row
    try:
        metrics, settings = read_judged_metrics(entry.folder), read_settings(entry.folder)
    except DataError as error:
        return replace(row, trouble=str(error))
    is_simulated = settings.get("engine") == SCRIPTED
    return replace(
        row,
        model=NO_MODEL if is_simulated else model,
        questions=metrics.questions,
        is_simulated=is_simulated,
        figures={
            column.label: figure for column in columns() if (figure := column.measure(metrics))
        },
        settings=settings,
        problems=tuple(find_wrong_scores(metrics)),
        judge_warnings=tuple(metrics.judge.warnings if metrics.judge else ()),
        cost_notes=tuple(filter(None, (note_failed(metrics), note_extraction(metrics)))),
    )


def _read_mean(key: str, runs: Sequence[Row]) -> Row:
    """Return the mean of repeats as a row, whose key names a cell of its sweep."""
    first = runs[0]
    settings = {
        name: value
        for name, value in first.settings.items()
        if all(run.settings.get(name) == value for run in runs)
    }
    mean = replace(
        first,
        key=key,
        kind="mean",
        name=f"mean of {len(runs)} repeats",
        written=max(run.written for run in runs),
        # without the examples that vary with the repeat
        settings={**settings, REPEAT: "mean"},
        runs=tuple(run.key for run in runs),
        repeats=tuple(run.folder for run in runs),
        problems=tuple(dict.fromkeys(problem for run in runs for problem in run.problems)),
        cost_notes=tuple(dict.fromkeys(note for run in runs for note in run.cost_notes)),
        judge_warnings=tuple(dict.fromkeys(text for run in runs for text in run.judge_warnings)),
        trouble=next(filter(None, (run.trouble for run in runs)), ""),
    )
    try:
        times = [(run.written, _read_judge_times(run.folder)) for run in runs]
        return replace(mean, figures=_measure_mean(mean.repeats, tuple(times)))
    except DataError as error:
        return replace(mean, trouble=str(error))


@lru_cache(maxsize=1_000)
def _measure_mean(folders: Sequence[Path], _: Sequence[object]) -> Mapping[str, Measured]:
    """Return the figures of repeats as in the report of their sweep. It scores the answers, which takes time."""
    runs = [FinishedRun.read(folder) for folder in folders]
    read = [read_shares(run) for run in runs]
    metrics = [run.metrics for run in runs]
    return {
        column.label: figure
        for column in columns()
        if (figure := measure_repeats(column, metrics, collect_shares(read, column.score)))
    }


def _read_sweep(entry: RunEntry, root: Path) -> tuple[Row, dict[int, list[str]]]:
    """Return a sweep, and the keys of the repeats of each row by the number of its first cell."""
    row = Row(entry.name, entry.folder, "sweep", entry.parts[-1], "not finished", entry.written)
    try:
        sweep = Sweep.read(entry.folder)
    except DataError as error:
        return replace(row, trouble=str(error)), {}
    finished = [cell for cell in sweep.cells if cell.status == "done" and cell.run]
    folders = [_locate(str(cell.run), root) for cell in finished]
    # another command changed the questions of their runs
    others = [
        cell
        for cell, run in zip(finished, folders, strict=True)
        if cell.asked and _read_question_set(run, _read_time(run / METRICS)) not in ("", cell.asked)
    ]
    status = "done" if entry.ended and len(folders) == len(sweep.cells) else "not finished"
    cells = f"{len(folders)} of {len(sweep.cells)} cells"
    failed = [cell for cell in sweep.cells if cell.status == "failed"]
    repeats = group_texts(
        (cell.number, row_key(cell, sweep.axes)) for cell in finished if cell not in others
    )
    keys = {
        cell.number: key
        for cell, folder in zip(finished, folders, strict=True)
        for key in _list_keys([folder], root)
    }
    groups = {
        numbers[0]: [keys[number] for number in numbers if number in keys]
        for numbers in repeats.values()
    }
    return replace(
        row,
        status="changed" if others else status,
        cells=f"{len(others)} of {len(sweep.cells)} cells changed" if others else cells,
        axes=tuple(sweep.axes),
        problems=tuple(cell.end for cell in failed),
        runs=_list_keys(folders, root),
        failed=_list_keys([_locate(str(cell.run), root) for cell in failed if cell.run], root),
    ), groups


def _list_keys(folders: Iterable[Path], root: Path) -> tuple[str, ...]:
    """Return the keys of the runs in these folders that are below the root."""
    base = root.resolve()
    return tuple(run.relative_to(base).as_posix() for run in folders if run.is_relative_to(base))


def _locate(saved: str, root: Path) -> Path:
    """Return the folder that a saved path names. Paths below outputs/ are below the root."""
    path = Path(saved)
    if path.parts[:1] == (outputs().name,):
        path = root.joinpath(*path.parts[1:])
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError):
        # a loop of links, or a null character in a damaged file
        return path.absolute()


def columns_of(rows: Sequence[Row]) -> list[str]:
    """Return the columns that are always shown: fields, and the figures that some row has."""
    figures = (
        column.label for column in columns() if any(column.label in row.figures for row in rows)
    )
    return ["dataset", "model", *figures, "questions", "status", "written"]


def list_scores() -> list[str]:
    """Return the columns that a narrow page shows first: tested scores, with those of your own metrics."""
    tested = [metric.label for metric in SCORES.values() if metric.tested]
    return [*tested, JUDGE_ACCURACY, CORRECTED_ACCURACY]


def shorten_name(column: str) -> str:
    """Return the head of a column."""
    for suffix in _SUFFIXES:
        column = column.removesuffix(suffix)
    # the unit s stays on the line of its word
    return f"{column[:-2]}\N{NO-BREAK SPACE}s" if column.endswith(" s") else column


def name_heads() -> Callable[[str], str]:
    """Return a function that names the head of a column, with an arrow if a lower value is better."""
    titles = {column.label: column.title for column in columns()}
    return lambda column: shorten_name(titles.get(column, column))


def name_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with titles that show what differs.

    A run has its method and the settings that differ among the runs of this method on this dataset. A cell below its
    sweep has the settings that the sweep varies. Equal names of different runs, also below different sweeps, have the
    other settings, prompts and files that differ.
    """
    # by their places, because rows cannot be hashed
    groups = group_texts(
        (number, (row.sweep, row.method, row.dataset)) for number, row in enumerate(rows)
    )
    alike = group_texts((number, (row.method, row.dataset)) for number, row in enumerate(rows))
    keys = {
        # a run without a sweep also differs from cells
        place: _choose_settings([rows[each] for each in group], rows[group[0]].axes)
        if place[0]
        else _choose_settings([rows[each] for each in alike[place[1:]]], ())
        for place, group in groups.items()
    }
    titles = [_title(row, *keys[row.sweep, row.method, row.dataset]) for row in rows]
    named = [
        # only finished runs have manifests
        NamedRun(title, row.method, row.folder, _find_place(row) if row.settings else row.key)
        for row, title in zip(rows, _add_settings(rows, titles), strict=True)
    ]
    titles = add_reasons(named, "differs in {}")
    return [replace(row, title=title) for row, title in zip(rows, titles, strict=True)]


def _add_settings(rows: Sequence[Row], titles: Sequence[str]) -> list[str]:
    """Return the titles. Equal ones have the settings by which their runs differ: sweeps vary others."""
    named = list(titles)
    places = [(_find_place(row), title) for row, title in zip(rows, titles, strict=True)]
    for numbers in group_texts(enumerate(places)).values():
        settings = [rows[each].settings for each in numbers if rows[each].settings]
        keys = [key for key in find_differing(settings) if not key.startswith(_IN_COLUMNS)]
        short = choose_keys(keys, settings, 1)[:_MOST]
        for number in numbers:
            values = {key: rows[number].settings[key] for key in short if rows[number].settings}
            named[number] = SEPARATOR.join(filter(None, (titles[number], name_by_settings(values))))
    return named


def _find_place(row: Row) -> tuple[str, str, str]:
    """Return what other columns show of a row, and its kind. A mean is marked, so that no run needs another name."""
    return row.dataset, row.model, row.kind


def _choose_settings(group: Sequence[Row], axes: Sequence[str]) -> tuple[list[str], bool]:
    """Return the keys in the titles of runs with the same method, and whether they differ in others, too.

    axes: the keys that their sweep varies.
    """
    settings = [row.settings for row in group if row.settings]
    is_named = bool(axes) and all(axis in run for run in settings for axis in axes)
    listed = list(axes) if is_named else find_differing(settings)
    keys = [key for key in listed if key != "method" and not key.startswith((*_IN_COLUMNS, REPEAT))]
    short = keys if is_named else choose_keys(keys, settings, _CHANGES)[:_MOST]
    # the last and always in a title, because repeats have no other difference
    return [*short, *([REPEAT] if REPEAT in listed else [])], len(keys) > len(short)


def _title(row: Row, keys: Sequence[str], has_more: bool) -> str:
    if row.kind == "sweep":
        return f"sweep {row.name}"
    values = {key: row.settings[key] for key in keys if key in row.settings}
    if row.kind == "mean":
        values.pop(REPEAT, None)
    return name_by_settings({"method": row.method, **values}) + f"{SEPARATOR}…" * has_more


def name_points(rows: Sequence[Row], *, marks_simulated: bool = False) -> list[str]:
    """Return a name of each row for a plot, which has no columns: with the model, and the run's name if two are equal.

    The model is first, because a plot shortens long names at their end.
    marks_simulated: name the model of runs without one, also if they are the only ones here.
    """
    has_models = len({row.model for row in rows}) > 1
    titles = [
        f"{row.model}{SEPARATOR}{row.title}"
        if has_models or (marks_simulated and row.is_simulated)
        else row.title
        for row in name_rows(rows)
    ]
    counts = Counter(titles)
    return [
        f"{title} ({row.name})" if counts[title] > 1 else title
        for row, title in zip(rows, titles, strict=True)
    ]


def sort_rows(rows: Iterable[Row], column: str) -> list[Row]:
    """Sort by a column: numbers by size, texts by the alphabet, missing values last. `-column` sorts descending."""
    name = column.removeprefix("-")
    with_value = [row for row in rows if row.value(name) is not None]
    missing = [row for row in rows if row.value(name) is None]

    def key(row: Row) -> Any:
        value = row.value(name)
        return value.lower() if isinstance(value, str) else value

    return [*sorted(with_value, key=key, reverse=column.startswith("-")), *missing]


def has_words(row: Row, text: str) -> bool:
    """Return whether a row has all words of a filter, such as `trace`, `failed`, `method=trace` or `sweep=rep`."""
    pairs = {pair.lower() for pair in _list_pairs(row)}
    names = f"{row.kind} {row.key} {row.status} {row.mark[0]}".lower()
    return all(word in pairs or word in names for word in text.lower().split())


def filter_rows(rows: Sequence[Row], text: str) -> list[Row]:
    """Return the rows with all words of a filter, and the cells of sweeps with these words in their names."""
    words = text.lower().split()
    keys = {row.key for row in rows if has_words(row, text)}
    for row in rows:
        if row.kind == "sweep" and all(word in row.name.lower() for word in words):
            keys.update((*row.runs, *row.failed, *row.means))
    return [row for row in rows if row.key in keys]


def _list_pairs(row: Row) -> list[str]:
    sweeps = (*row.sweeps, *([row.name] if row.kind == "sweep" else []))
    pairs = [*row.settings.items(), *(("sweep", name) for name in sweeps)]
    return [f"{key}={value}" for key, value in pairs]


def suggest_filter(rows: Iterable[Row]) -> str:
    """Return a filter that the newest finished run matches."""
    return next((f"method={row.method}" for row in rows if "method" in row.settings), "key=value")


def explain_no_match(rows: Sequence[Row], text: str) -> str:
    """Return why no row has all words of a filter, with close words of rows that have the others."""
    missing = [word for word in text.split() if not any(has_words(row, word) for row in rows)]
    if not missing:
        return f"No run has all of these words: {text}."
    word = missing[0]
    others = " ".join(each for each in text.split() if each not in missing)
    rows = [row for row in rows if has_words(row, others)] or rows
    if "=" in word:
        choices = {pair for row in rows for pair in _list_pairs(row)}
        # a misspelled value of a known key
        key = f"{word.partition('=')[0]}="
        choices = {pair for pair in choices if pair.startswith(key)} or choices
    else:
        choices = {name for row in rows for name in row.key.split("/")}
    if any(sign in word for sign in "<>"):
        return f"{word}: figures cannot be compared here. Click a column to sort by it. {FILTERS}"
    close = nearest(word, choices)
    return f"No run has {word}. {close if close.startswith('Did you mean') else FILTERS}"


def warn_of_simulation(rows: Sequence[Row]) -> list[str]:
    """Return a warning if no model was called in some of the runs."""
    # a cell of several sweeps is one run
    runs = {key: row.is_simulated for row in rows if row.figures for key in row.folders}
    count = sum(runs.values())
    if not count:
        return []
    if count == len(runs):
        return ["Scripted replies: no model was called. The scores are meaningless."]
    some = f"in {count:,} of {pluralize(len(runs), 'run')}, which are marked “{NO_MODEL}”"
    return [f"Scripted replies: no model was called {some}. Their scores are meaningless."]


def warn_of_judges(rows: Sequence[Row]) -> list[str]:
    """Return each warning about a judge once, with the number of its runs."""
    # repeats can be in the table below their mean, too
    runs = {key: row.judge_warnings for row in rows if row.figures for key in row.folders}
    counts = Counter(text for warnings in runs.values() for text in warnings)
    return [
        f"{count:,} of {pluralize(len(runs), 'run')}: {text}." for text, count in counts.items()
    ]


def count_rows(rows: Iterable[Row]) -> str:
    """Return the numbers of runs, means and sweeps. A run that is below several sweeps counts once."""
    counts = Counter(kind for kind, _ in {(row.kind, row.key) for row in rows})
    kinds = ("run", "mean", "sweep")
    return ", ".join(pluralize(counts[kind], kind) for kind in kinds if counts[kind])


def explain_rows(rows: Sequence[Row]) -> list[str]:
    """Return the meaning of words in titles, then what the costs in the table leave out, after the titles."""
    costs = join_names((row.title, note) for row in rows for note in row.cost_notes)
    return [*explain_means(rows), *explain_names(row.title for row in rows), *costs]


def explain_means(rows: Iterable[Row]) -> list[str]:
    """Return the meaning of the means of repeats, if there are any."""
    return [MEANS] if any(row.kind == "mean" for row in rows) else []


def name_groups(rows: Sequence[Row]) -> dict[str, str]:
    """Return by key a name for the questions of each run: its dataset, and their number if runs have different ones.

    Different selections of as many questions have numbers.
    """
    sets = {row.key: _read_question_set(row.folder, row.written) for row in rows}
    several = Counter(dataset for dataset, _ in {(row.dataset, sets[row.key]) for row in rows})
    counts = Counter[str]()
    names: dict[tuple[str, str], str] = {}
    for row in rows:
        place = (row.dataset, sets[row.key])
        if place in names:
            continue
        name = row.dataset
        if several[row.dataset] > 1:
            name += f", {pluralize(row.questions or 0, 'question')}"
            counts[name] += 1
            name += f" ({SELECTION} {counts[name]})" * (counts[name] > 1)
        names[place] = name
    return {row.key: names[row.dataset, sets[row.key]] for row in rows}


def explain_groups(names: Iterable[str]) -> list[str]:
    """Return the meaning of the number of a selection, if a name has one."""
    return [SELECTIONS] if any(f"({SELECTION} " in name for name in names) else []


def _read_judge_times(folder: Path) -> tuple[float, ...]:
    """Return when the files of `kgqa evaluate` were written that decide who judged a run."""
    return tuple(_read_time(folder / name) for name in (EVALUATION, VERDICTS))


def _read_time(file: Path) -> float:
    """Return when a file was written, 0 if there is none."""
    # a damaged path has characters that no path can have
    with suppress(OSError, ValueError):
        return file.stat().st_mtime
    return 0.0


@lru_cache(maxsize=10_000)
def _read_question_set(folder: Path, _: float) -> str:
    """Return a hash of the questions of a run, "" if they cannot be read."""
    try:
        return questions_asked(folder)
    except DataError:
        return ""


def draw_plots(
    rows: Sequence[Row], groups: Mapping[str, str], x: str, y: str
) -> dict[str, tuple[BarPlot, Plot]]:
    """Return `y` as bars, and as points against `x`, by the name of their questions in `groups`, see `name_groups`.

    Runs are named by what differs.
    """
    plots = {}
    some_simulated = not all(row.is_simulated for row in rows)
    for dataset in sorted({groups[row.key] for row in rows if y in row.figures}):
        group = [row for row in rows if groups[row.key] == dataset and y in row.figures]
        pairs = list(
            zip(
                name_points(group, marks_simulated=some_simulated),
                (row.figures for row in group),
                strict=True,
            )
        )
        bars = [
            Bar(title, (each := figures[y]).value, each.low, each.high) for title, figures in pairs
        ]
        points = [
            Point(figures[x].value, (each := figures[y]).value, each.low, each.high, title)
            for title, figures in pairs
            if x in figures
        ]
        series = [Series(dataset, points, 0, line=False)]
        plots[dataset] = (
            BarPlot(f"{y} on {dataset}", bars),
            Plot(f"{y} against {x}", x, y, series, x_is_cost=x in COSTS),
        )
    return plots
