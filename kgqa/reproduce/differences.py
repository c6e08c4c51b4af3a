"""List the settings of a table's cells that differ from the paper's.

From four places: the table's `settings` and `differs`; what a person gave; choices that no paper made, by override or
by default (their YAML says "Not in the paper" or "Stands in for …"); values whose comment says that no paper has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from kgqa.artifacts.adapter import CONFIG
from kgqa.artifacts.manifest import MANIFEST
from kgqa.artifacts.trained import Trained
from kgqa.config.files import flatten, groups
from kgqa.config.overrides import override_key, override_values, parse_override
from kgqa.config.yaml_docs import Choice, describe_choice, find_sources, list_choices, list_keys
from kgqa.experiment.session.experiment import Experiment
from kgqa.reproduce.artifacts import TRAINED, artefact
from kgqa.reproduce.cells import PlannedCell
from kgqa.reproduce.published import PublishedTable, Setting
from kgqa.util.text import pluralize

Row = tuple[str, str, str]  # setting, the paper's value, what stands here
Experiments = Mapping[tuple[str, ...], Experiment]  # by the overrides of a cell
CHOSEN = (
    "model",
    "kg",
    "retriever",
    "graph",
    "ranker",
    "reranker",
)  # groups that decide answers, if a method uses them
# groups whose values are compared with their comments
VALUED = ("method", "kg", "graph", "collection", "verify", "experiment")
NOT_GIVEN = re.compile(r"not in (?:the|a) paper|\bours\b", re.IGNORECASE)
STANDS_IN = re.compile(r"Stands in for ([^.;:]+)")


def differing(
    table: PublishedTable, cells: Sequence[PlannedCell], given: Sequence[str], experiments: Experiments
) -> list[Row]:
    """Return the differing of the cells that can run, each difference once."""
    running = [cell for cell in cells if cell.state == "run"]
    named = {"limit", *(setting.key for setting in table.settings)}  # how many were asked is told by itself
    rows = [row for setting in table.settings for row in _compare(setting, running, experiments)]
    rows += _list_overrides(running or cells, given, named)
    rows += dict.fromkeys(row for cell in running for row in cell.published.differs)
    told = {override_key(override) for override in given} | named
    known = [cell for cell in running if cell.overrides in experiments]
    rows += _list_choices(known, experiments, told)
    return [*rows, *_format_value(known, experiments, told)]


def parts(experiment: Experiment) -> Iterator[tuple[str, str, bool]]:
    """Yield each choice that its answers come from, by place, and whether the overrides, the method or an experiment
    made it.

    Choices within others have a place as in ranker@graph.encoder.
    """
    named, chosen = override_values(experiment.overrides), experiment.config["choices"]
    made = {
        c.group for group in ("method", "experiment") if chosen.get(group) for c in _list_brought(group, chosen[group])
    }
    for group, name in experiment.choices.items():
        if group in CHOSEN:
            yield group, name, group in named or group in made or group == "kg"
            yield from _within(group, group, name, named)


@cache
def of_no_paper(place: str, name: str) -> str:
    """Return what stands in the paper for a choice that none has made, "not in the paper" where nothing does; "": it
    has.
    """
    group = place.partition("@")[0]
    if name not in groups()[group]:
        return ""
    text = describe_choice(group, name)
    weights = next((key.source for key in list_keys(group, name) if key.name == "model"), "")
    if stands := STANDS_IN.search(text):
        return stands[1]
    return "not in the paper" if NOT_GIVEN.search(text) or NOT_GIVEN.match(weights) else ""


def _within(group: str, place: str, name: str, named: Mapping[str, str]) -> Iterator[tuple[str, str, bool]]:
    for choice in _list_brought(group, name):
        inner = f"{choice.group}@{place}.{choice.place}"
        if choice.place:
            picked = named.get(inner, choice.name)
            yield inner, picked, True
            yield from _within(choice.group, f"{place}.{choice.place}", picked, named)


@cache
def _list_brought(group: str, name: str) -> tuple[Choice, ...]:
    """Return what comes along with a choice; nothing with one that is gone."""
    return tuple(list_choices(group, name)) if name in groups()[group] else ()


def _compare(setting: Setting, running: Sequence[PlannedCell], experiments: Experiments) -> Iterator[Row]:
    here = dict.fromkeys(_here(cell, setting, experiments.get(cell.overrides)) for cell in running)
    if shown := [text for text in here if text]:
        yield setting.name, setting.theirs, "; ".join(shown)


def _here(cell: PlannedCell, setting: Setting, experiment: Experiment | None) -> str:
    """Return ours, where it is not the paper's; "" where it is."""
    now, theirs = (
        override_values(cell.overrides).get(setting.key),
        override_values(cell.published.overrides).get(setting.key),
    )
    if now is not None and now != theirs:
        return f"{setting.key}={now}"
    if setting.ours or now is not None or setting.key in ("", "limit") or experiment is None:
        return setting.ours
    known = {**flatten(experiment.config), **experiment.config["choices"]}
    return f"{setting.key}={_format(known[setting.key])}" if setting.key in known else ""


def _list_overrides(cells: Sequence[PlannedCell], given: Sequence[str], named: set[str]) -> Iterator[Row]:
    for override in given:
        key = override_key(override)
        if key.startswith(TRAINED):
            yield from _list_trained(key, parse_override(override).value)
        elif key not in named:
            theirs = (override_values(cell.published.overrides).get(key, "not named") for cell in cells)
            yield key, "; ".join(dict.fromkeys(theirs)), override


def _list_trained(key: str, given: str) -> Iterator[Row]:
    """Yield what was trained, and which of its settings somebody gave."""
    yield key, artefact(key.removeprefix(TRAINED)).what, given
    if not (Path(given) / MANIFEST).is_file() or (Path(given) / CONFIG).is_file():
        return
    trained = Trained.read(Path(given))
    for name, value, source in trained.settings:
        if source.startswith("given here"):
            yield f"{key}: {name}", source.partition("; ")[2] or "not given", value
    examples = trained.examples
    made_of = f" of {', '.join(examples.made_of)}" if examples.made_of else ""
    yield (
        f"{key}: examples",
        "as above",
        f"{examples.count:,} from {pluralize(examples.questions, 'question')}{made_of}",
    )


def _list_choices(cells: Sequence[PlannedCell], experiments: Experiments, told: set[str]) -> Iterator[Row]:
    """Yield choices that no paper made, and defaults of kgqa's where a cell names none."""
    found: dict[Row, list[str]] = {}
    for cell in cells:
        for place, name, made in parts(experiments[cell.overrides]):
            theirs = of_no_paper(place, name) or ("" if made else "not named")
            if theirs and place not in told:
                default = "" if made or place in override_values(cell.overrides) else ", the default"
                found.setdefault((place, theirs, f"{place}={name}{default}"), []).append(cell.published.row)
    for (place, theirs, ours), rows in found.items():
        yield place, theirs, f"{ours}{_where(rows, cells)}"


def _format_value(cells: Sequence[PlannedCell], experiments: Experiments, told: set[str]) -> Iterator[Row]:
    """Yield values that no paper gives, one row a choice."""
    found: dict[str, dict[str, None]] = {}
    for cell in cells:
        experiment = experiments[cell.overrides]
        flat, named = flatten(experiment.config), override_values(cell.overrides)
        for key, (group, source) in _find_source(experiment).items():
            if NOT_GIVEN.search(source) and not _describe(key, {*named, *told}):
                place = f"{group}={experiment.config['choices'][group]}"
                found.setdefault(place, {})[f"{key}={_format(flat.get(key, flat.get(f'{key}.path')))}"] = None
    for place, values in found.items():
        yield f"values of {place}", "not given", ", ".join(values)


def _find_source(experiment: Experiment) -> dict[str, tuple[str, str]]:
    """Group and comment of each key that an answer depends on; an experiment's comment takes another file's place."""
    said: dict[str, tuple[str, str]] = {}
    listed = sorted(find_sources(experiment.config).items(), key=lambda item: item[0].startswith("experiment."))
    for place, source in listed:
        group = place.partition(".")[0]
        if group in VALUED and group in experiment.choices:
            said[place.removeprefix("experiment.")] = group, source
    return said


def _describe(key: str, told: Iterable[str]) -> bool:
    return any(other == key or other.startswith(f"{key}.") for other in told)


def _where(rows: Iterable[str], cells: Sequence[PlannedCell]) -> str:
    """Return the where of a difference that not all cells have."""
    names, every = dict.fromkeys(rows), dict.fromkeys(cell.published.row for cell in cells)
    return "" if len(names) == len(every) else f" ({', '.join(names)})"


def _format(value: object) -> str:
    return "null" if value is None else str(value)
