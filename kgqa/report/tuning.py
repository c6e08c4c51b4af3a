"""What `kgqa tune` shows: what was tried on dev, and what the choice comes to on test."""

from __future__ import annotations

from collections.abc import Mapping

from kgqa.report.content import Section
from kgqa.report.summary import interval_text
from kgqa.types import Json


def tuning_sections(record: Mapping[str, Json]) -> list[Section]:
    """`record`: what `tune.json` says."""
    tried = [
        (f"{'→ ' if each['cell'] == record['chosen']['cell'] else ''}{each['settings']}", _shown(each))
        for each in record["tried"]
    ]
    counts = f"{record['dev']['questions']:,} dev and {record['test']['questions']:,} test questions, none in both"
    measured = record["result"]
    ended = [(each["settings"], _shown(each)) for each in measured["runs"]]
    if measured["mean"] is not None and measured["std"] is not None:
        ended.append(("mean ± standard deviation", f"{measured['mean']:.1f} ± {measured['std']:.1f}"))
    return [
        Section("Tried on dev", ("settings", record["metric"]), tried, (f"{counts}; their ids are in tune.json.",)),
        Section("On test, with the choice", ("settings", record["metric"]), ended),
    ]


def _shown(outcome: Mapping[str, Json]) -> str:
    return interval_text(outcome["score"]) if outcome["score"] else f"{outcome['status']}: {outcome['error']}"
