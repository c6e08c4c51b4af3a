"""A run's report as Markdown: scores, cost, breakdowns, and every setting with the source of its value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kgqa.report.terminal import summary_rows
from kgqa.types import Json


def report(config: Mapping[str, Any], metrics: Mapping[str, Json], sources: Mapping[str, str]) -> str:
    choices = config["choices"]
    parts = [
        f"# {choices['method']} on {choices['dataset']} with {choices['model']} ({choices['engine']})\n",
        f"Scored by the `{metrics['profile']}` profile, in percent; brackets: 95 % bootstrap intervals.\n",
        "Failed questions count as wrong.\n",
        _table(("", ""), summary_rows(metrics)),
        "## EM and F1 by scoring profile\n",
        _table(
            ("profile", "EM", "F1"), [(p, _figure(s["em"]), _figure(s["f1"])) for p, s in metrics["profiles"].items()]
        ),
        *_breakdown("hops", metrics["by_hops"]),
        *_breakdown("type", metrics["by_type"]),
        *_figures("Knowledge graph", metrics.get("graph", {})),
        *_figures("Reasoning chains", metrics.get("chains", {})),
        "## Cost by role\n",
        "As if nothing had been cached; a cached reply keeps the cost of the call that made it.\n",
        _costs(metrics["cost"]["method"]["by_role"]),
        "## Settings\n",
        _table(("key", "value", "source"), _settings(config, sources, with_graph="graph" in metrics)),
    ]
    return "\n".join(parts)


def _breakdown(name: str, groups: Mapping[str, Json]) -> list[str]:
    if len(groups) < 2:
        return []
    rows = [(group, str(s["n"]), _figure(s["em"]), _figure(s["f1"])) for group, s in groups.items()]
    return [f"## By {name}\n", _table((name, "questions", "EM", "F1"), rows)]


def _figures(title: str, figures: Mapping[str, Json]) -> list[str]:
    if not figures:
        return []
    return [f"## {title}\n", _table(("", ""), [(k.replace("_", " "), _figure(v)) for k, v in figures.items()])]


def _costs(roles: Mapping[str, Json]) -> str:
    columns = ("calls", "prompt_tokens", "cached_tokens", "output_tokens", "seconds")
    rows = [(role, *(_figure(cost[column]) for column in columns)) for role, cost in roles.items()]
    return _table(("role", *(column.replace("_", " ") for column in columns)), rows)


def _settings(
    config: Mapping[str, Any], sources: Mapping[str, str], *, with_graph: bool
) -> Iterable[tuple[str, str, str]]:
    for group in ("method", *(("kg", "ranker") if with_graph else ()), "engine", "model", "dataset"):
        for key, value in config[group].items():
            if key != "_target_" and not isinstance(value, Mapping):
                yield f"{group}.{key}", str(value), sources.get(f"{group}.{key}", "")


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |\n" for row in lines
    )


def _figure(value: Json) -> str:
    match value:
        case None:
            return "–"
        case float():
            return f"{value:,.2f}"
        case int():
            return f"{value:,}"
    return str(value)
