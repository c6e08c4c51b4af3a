"""List the settings of a table's cells that differ from the paper's.

They come from the table's `settings` and `differs`, from the user's overrides, from choices that no paper made (with
`instead_of` in their YAML), and from values with a source that is not the paper. Only settings that a cell uses are
listed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from kgqa.artifacts.adapter import CONFIG
from kgqa.artifacts.manifest import MANIFEST
from kgqa.artifacts.trained import Trained
from kgqa.config.files import GroupChoice, config_files, flatten, groups, list_choices
from kgqa.config.keys import has_effect, list_keys, paper_choice
from kgqa.config.overrides import override_key, override_values, parse_override
from kgqa.config.short_forms import model_slug
from kgqa.datasets.sampling import TRACE_SAMPLE
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.experiment import Experiment
from kgqa.reproduce.cells import NEEDING, PlannedCell
from kgqa.reproduce.protocol import Protocol, protocol_of
from kgqa.reproduce.tables import PaperSetting, PublishedTable
from kgqa.reproduce.trained_models import TRAINED, find_model
from kgqa.types import Json
from kgqa.util.settings import Source
from kgqa.util.text import pluralize

Row = tuple[str, str, str]  # setting, the paper's value, ours
CHOSEN = ("model", "kg", "retriever", "graph", "ranker", "reranker")  # groups that decide answers
# groups with sources of their values
VALUED = ("method", "kg", "retriever", "graph", "collection", "experiment")


def list_differences(
    table: PublishedTable,
    protocol: Protocol | None,
    overrides: Sequence[str],
    planned: Sequence[PlannedCell],
) -> list[Row]:
    """Return the settings that differ from the paper's."""
    rows = list_setting_differences(table, planned, overrides)
    if protocol:
        decided = {setting.name for setting in table.settings if setting.key in protocol.decides()}
        rows = [row for row in rows if row[0] not in decided]
    if theirs := protocol_of(table.id):
        short = f"short: {theirs.short()} (protocol=paper follows the paper)"
        here = f"{protocol.describe()}, and we sampled the questions" if protocol else short
        rows.insert(0, ("protocol", theirs.describe(), here))
    running = [cell.overrides for cell in planned if cell.state == "run"]
    if len(distinct := set(running)) < len(running):
        rows.append(
            (
                "experiments",
                f"{len(running)} cells",
                f"{len(distinct)}: cells with equal settings share a run",
            )
        )
    return rows


def count_questions(
    table: PublishedTable, protocol: Protocol | None, planned: Sequence[PlannedCell]
) -> Iterator[Row]:
    """Yield the number of questions that were answered, if any were."""
    if counts := {
        run.figures["questions"] for cell in planned for run in cell.tests if run.figures
    }:
        fewest = min(counts)
        span = " to ".join(f"{count:,}" for count in sorted({fewest, max(counts)}))
        limit = next(
            (setting.theirs for setting in table.settings if setting.key == "limit"), "not reported"
        )
        is_few = protocol is not None and protocol.test is not None and fewest < protocol.test
        yield (
            "questions answered",
            limit,
            f"{span} per cell{', the files here have no more' if is_few else ''}",
        )


def list_setting_differences(
    table: PublishedTable, cells: Sequence[PlannedCell], overrides: Sequence[str]
) -> list[Row]:
    """Return the differences of the cells that can run, each once.

    If none can run, they are those of the cells that lack weights or data.
    """
    running = [cell for cell in cells if cell.state == "run"] or compose_waiting(cells)
    # which questions are answered is a setting of its own
    listed = {"limit", "sample", "ids", *(setting.key for setting in table.settings)}
    here = (
        (setting, dict.fromkeys(_here(cell, setting) for cell in running))
        for setting in table.settings
    )
    rows = [
        (setting.name, setting.theirs, "; ".join(filter(None, texts)))
        for setting, texts in here
        if any(texts)
    ]
    rows += _list_overrides(running or cells, overrides, listed)
    rows += dict.fromkeys(
        (name, *texts) for cell in running for name, texts in cell.published.differs.items()
    )
    listed |= {override_key(override) for override in overrides}
    return [*rows, *_list_choices(running, listed), *_list_values(running, listed)]


def compose_waiting(cells: Sequence[PlannedCell]) -> list[PlannedCell]:
    """Return the cells that lack weights or data, with their experiments."""
    waiting = [cell for cell in cells if cell.state in NEEDING]
    distinct = {cell.overrides: compose_experiment(cell.overrides) for cell in waiting}
    return [replace(cell, waiting=distinct[cell.overrides]) for cell in waiting]


def list_parts(experiment: Experiment) -> Iterator[tuple[str, str, bool]]:
    """Yield each choice that its answers come from, by part, and whether the overrides, the method or an experiment
    made it. Choices within others have a part as in ranker@graph.encoder.
    """
    named, choices = override_values(experiment.overrides), experiment.config["choices"]
    parts = {
        choice.group
        for group in ("method", "experiment")
        if choices.get(group)
        for choice in _list_brought(group, choices[group])
    }
    for group, name in experiment.choices.items():
        if group in CHOSEN:
            yield group, name, group in named or group in parts or group == "kg"
            yield from _list_inner(group, group, name, named)


def _list_inner(
    group: str, part: str, name: str, named: Mapping[str, str]
) -> Iterator[tuple[str, str, bool]]:
    for choice in _list_brought(group, name):
        inner = f"{choice.group}@{part}.{choice.part}"
        if choice.part:
            picked = named.get(inner, choice.name)
            yield inner, picked, True
            yield from _list_inner(choice.group, f"{part}.{choice.part}", picked, named)


@cache
def _list_brought(group: str, name: str) -> tuple[GroupChoice, ...]:
    """Return the choices that a choice makes; none if it does not exist any more."""
    return tuple(list_choices(group, name)) if name in groups()[group] else ()


def _here(cell: PlannedCell, setting: PaperSetting) -> str:
    """Return our value if the cell uses the setting and it is not the paper's, else ""."""
    experiment, key, now = (
        cell.experiment,
        setting.key,
        override_values(cell.overrides).get(setting.key),
    )
    if experiment:
        if not _uses(experiment, key):
            return ""
        if key == "limit":
            return _describe_questions(experiment)
        served = experiment.config["engine"].get("served_model") if key == "model" else None
        if served and experiment.name("model") == model_slug(served) != now:
            return f"{served} at the server, given as model={now}"
    elif key == "limit":
        return ""
    if now is not None and now != override_values(cell.published.overrides).get(key):
        return f"{key}={now}"
    if setting.ours or now is not None or experiment is None:
        return setting.ours
    values = {**flatten(experiment.config), **experiment.choices}
    return f"{key}={_format(values[key])}" if key in values else ""


def _uses(experiment: Experiment, key: str) -> bool:
    """Return whether a key can change what an experiment answers; True for keys of no group."""
    group = key.partition("@")[0].partition(".")[0]
    if group == "method" and "." in key:
        return any(name == key or name.startswith(f"{key}.") for name in flatten(experiment.config))
    return group not in CHOSEN or group in experiment.choices


def _describe_questions(experiment: Experiment) -> str:
    """Return which questions are answered, "" if they are the paper's."""
    settings, split = experiment.settings, experiment.config["dataset"].get("split", "dev")
    limit = "" if settings.limit is None else f"the first {settings.limit:,} of "
    if settings.ids is not None:
        return f"{limit}{len(settings.ids):,} questions of the {split} split, by id"
    if settings.sample == TRACE_SAMPLE:  # the paper's
        return f"{limit}these" if limit else ""
    if settings.sample is not None:
        balance = f", balanced by {settings.sample_by}" if settings.sample_by else ""
        return f"{limit}{settings.sample:,} questions of the {split} split, sampled with seed={settings.seed}{balance}"
    return f"{limit}all questions of the {split} split"


def _list_overrides(
    cells: Sequence[PlannedCell], overrides: Sequence[str], listed: set[str]
) -> Iterator[Row]:
    experiments = [cell.experiment for cell in cells if cell.experiment]
    for override in overrides:
        key = override_key(override)
        if experiments and not any(_uses(experiment, key) for experiment in experiments):
            continue
        if key.startswith(TRAINED):
            yield from _list_trained(key, parse_override(override).value)
        elif key not in listed:
            theirs = (
                override_values(cell.published.overrides).get(key, "not named") for cell in cells
            )
            yield key, "; ".join(dict.fromkeys(theirs)), override


def _list_trained(key: str, path: str) -> Iterator[Row]:
    """Yield a trained model, those of its settings that a user chose, and its examples."""
    yield key, find_model(key.removeprefix(TRAINED)).what, path
    if not (Path(path) / MANIFEST).is_file() or (Path(path) / CONFIG).is_file():
        return
    trained = Trained.read(Path(path))
    for name, value, source in trained.settings:
        if source.startswith("set on the command line"):
            yield f"{key}: {name}", source.partition("; ")[2] or "not given", value
    examples = trained.examples
    made_of = f" of {', '.join(examples.made_of)}" if examples.made_of else ""
    count = f"{examples.count:,} from {pluralize(examples.questions, 'question')}{made_of}"
    yield f"{key}: examples", "as above", count


def _list_choices(cells: Sequence[PlannedCell], listed: set[str]) -> Iterator[Row]:
    """Yield choices that no paper made, and kgqa's defaults where a cell names none."""
    by_row = defaultdict[Row, dict[str, None]](dict)  # the rows of each
    for cell in cells:
        for part, name, node in list_parts(cell.experiment) if cell.experiment else ():
            theirs = paper_choice(part.partition("@")[0], name) or ("" if node else "not named")
            if theirs and part not in listed:
                default = "" if node or part in override_values(cell.overrides) else ", the default"
                by_row[part, theirs, f"{part}={name}{default}"][cell.published.row] = None
    count = len({cell.published.row for cell in cells if cell.experiment})
    for (part, theirs, ours), rows in by_row.items():
        yield part, theirs, ours if len(rows) == count else f"{ours} ({', '.join(rows)})"


def _list_values(cells: Sequence[PlannedCell], listed: set[str]) -> Iterator[Row]:
    """Yield values that no paper gives and that answers depend on.

    They are one row per choice and origin, and one row per value of the released program that differs from ours.
    """
    by_row = defaultdict[tuple[str, str], dict[str, None]](dict)  # the values of each
    for cell in cells:
        if experiment := cell.experiment:
            flat, named = flatten(experiment.config), {*override_values(cell.overrides), *listed}
            released = released_values(experiment.choices.get("method", ""))
            for key, (choice, source) in _find_sources(experiment).items():
                is_named = any(other == key or other.startswith(f"{key}.") for other in named)
                if source.is_not_in_paper and not is_named:
                    text = (
                        f"{key}={_format(flat[key])}" if key in flat else f"{key} ({source.text})"
                    )
                    is_other = key in released and released[key] != flat.get(key)
                    name = f"{key} of {choice}" if is_other else f"values of {choice}"
                    by_row[name, _describe_program(key, source, released, is_other=is_other)][
                        text
                    ] = None
    for (name, theirs), values in by_row.items():
        yield name, theirs, ", ".join(values)


@cache
def released_values(method: str) -> Mapping[str, Json]:
    """Return the values that the released program of a method has, by key, and none if no experiment sets them."""
    for name in config_files("experiment"):
        is_of_method = any(
            (each.group, each.name) == ("method", method)
            for each in _list_brought("experiment", name)
        )
        if name.endswith("_released") and is_of_method:
            return {key.name: key.value for key in list_keys("experiment", name)}
    return {}


def _describe_program(
    key: str, source: Source, released: Mapping[str, Json], *, is_other: bool
) -> str:
    """Return the column of the paper for a value that the paper does not give: what the released program has."""
    if is_other:
        return f"not given, released program: {_format(released[key])}"
    if key in released or source.code:
        return "not given, released program: as here"
    return "not given"


def _find_sources(experiment: Experiment) -> dict[str, tuple[str, Source]]:
    """Return the choice and the source of each key with an effect. An experiment's key replaces another file's."""
    sources: dict[str, tuple[str, Source]] = {}
    values = flatten(experiment.config)
    for group in VALUED:
        if name := experiment.choices.get(group):
            part = "" if group == "experiment" else f"{group}."
            for key in list_keys(group, name):
                if has_effect(key, group, values):
                    sources[f"{part}{key.name}"] = f"{group}={name}", key.source
    return sources


def _format(value: object) -> str:
    return "null" if value is None else str(value)
