"""What a run's report says, whatever it is written as: sections with a table each, and scores with intervals."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgqa.errors import DataError
from kgqa.report.summary import NAMED, SCORES, accuracy_text, summary_rows
from kgqa.types import Json

Setting = tuple[str, str, str]  # key, value, where the value comes from
SETTINGS = "settings.json"


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """What a run's folder holds beside its questions."""

    folder: Path
    choices: Mapping[str, str]  # of the groups the run made use of
    settings: Sequence[Setting]
    manifest: Mapping[str, Json]
    metrics: Mapping[str, Json]

    @classmethod
    def read(cls, folder: Path) -> FinishedRun:
        """
        Raises:
            DataError: not the folder of a run that ended.
        """
        metrics, manifest, chosen = (_read(folder / name) for name in ("metrics.json", "manifest.json", SETTINGS))
        return cls(folder, chosen["choices"], [tuple(each) for each in chosen["settings"]], manifest, metrics)

    @property
    def title(self) -> str:
        named = [self.choices[group] for group in NAMED[2:] if group in self.choices]
        return f"{self.choices['method']} on {self.choices['dataset']}" + (f" with {', '.join(named)}" if named else "")


@dataclass(frozen=True, slots=True)
class Section:
    """`header` is empty for a table of a name and a figure a row; a section without rows is text alone."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    text: tuple[str, ...] = ()
    alarm: str = ""  # what is likely wrong with these figures


@dataclass(frozen=True, slots=True)
class Estimate:
    """A score in percent with the ends of its 95 % bootstrap interval."""

    label: str
    mean: float
    low: float
    high: float
    questions: int


def sections(run: FinishedRun) -> list[Section]:
    """In order of interest; what the run has no figures for is left out."""
    metrics = run.metrics
    cost = metrics["cost"]
    found = [
        _scores(metrics),
        *judge_sections(metrics.get("judge")),
        *breakdown_sections(metrics),
        _retrieval(metrics.get("retrieval")),
        _figures("On the way, per question", metrics["figures"]),
        _figures("Knowledge graph", metrics.get("graph", {})),
        _figures("Reasoning chains", metrics.get("chains", {})),
        _costs(cost["method"]["by_role"]),
        _flags({**cost["extraction_paid"]["by_role"], **cost["method"]["by_role"]}),
        _what_was_run(run.manifest),
        Section("Settings", ("key", "value", "source"), run.settings),
    ]
    return [section for section in found if section.rows]


def estimates(run: FinishedRun) -> list[Estimate]:
    """The scores that are defined for this run, then recall within each budget of passages."""
    scores = [(label, run.metrics["scores"][name]) for name, label in SCORES.items() if name in run.metrics["scores"]]
    recalls = run.metrics.get("retrieval", {}).get("recall", {})
    scores += [(f"recall @{budget}", score) for budget, score in recalls.items()]
    return [Estimate(label, s["mean"], s["low"], s["high"], s["n"]) for label, s in scores if s["mean"] is not None]


def used_settings(config: Mapping[str, Any], choices: Mapping[str, str], sources: Mapping[str, str]) -> list[Setting]:
    """Of the groups this run makes use of."""
    groups = ("method", "kg", "retriever", "ranker", "reranker", "engine", "model", "dataset", "collection")
    return [setting for group in groups if group in choices for setting in _values(group, config[group], sources)]


def figure(value: Json) -> str:
    match value:
        case None:
            return "–"
        case float():
            return f"{value:,.2f}"
        case int():
            return f"{value:,}"
    return str(value)


def _scores(metrics: Mapping[str, Json]) -> Section:
    text = (
        f"Scored by the {metrics['profile']} profile, in percent; brackets: 95 % bootstrap intervals.",
        "Failed questions count as wrong.",
    )
    return Section("Scores", (), summary_rows(metrics), text)


def judge_sections(judged: Mapping[str, Json] | None) -> list[Section]:
    """What the judge found, who it was and what it cost, and how it agrees with exact match; nothing without one."""
    if judged is None:
        return []
    cost, paid = judged["cost"]["method"], judged["cost"]["paid"]
    rows = [
        ("accuracy", accuracy_text(judged)),
        *((label.replace("_", " "), figure(count)) for label, count in judged["verdicts"].items()),
        ("unscored", figure(judged["unscored"])),
        ("exact matches not sent", figure(judged["exact"])),
        *((f"model of {role}", label) for role, label in judged["models"].items()),
        *((f"prompt {template}", digest) for template, digest in judged["prompts"].items()),
        ("calls", f"{cost['calls']:,}, {paid['calls']:,} paid"),
        ("tokens", f"{cost['prompt_tokens']:,} prompt, {cost['output_tokens']:,} generated"),
        ("USD", _dollars(cost["usd"])),
    ]
    warnings = tuple(f"**Warning**: {warning}." for warning in judged["warnings"])
    text = (*warnings, "An answer without a verdict is unscored: neither right nor wrong.")
    shown = Section(f"Judge: {judged['judge']}", (), rows, text)
    return [shown, agreement_section("Judge against exact match", ("judge", "EM"), judged["agreement_with_em"])]


def agreement_section(title: str, names: tuple[str, str], measured: Mapping[str, Json]) -> Section:
    """Percent and kappa as text, the confusion table below; no rows where nothing could be compared."""
    labels = list(measured["confusion"])
    kappa = "not defined" if measured["kappa"] is None else f"{measured['kappa']:.3f}"
    text = (
        f"{figure(measured['percent'])} % of {measured['n']:,} verdicts agree, Cohen's kappa {kappa}; "
        f"{measured['left_out']:,} without a verdict on both sides left out."
    )
    header = (names[0], *(f"{names[1]} {label}" for label in labels))
    rows = [(mine, *(figure(count) for count in counts.values())) for mine, counts in measured["confusion"].items()]
    return Section(title, header, rows, (text,))


def breakdown_sections(metrics: Mapping[str, Json]) -> list[Section]:
    """All scoring profiles side by side, then by hops and by type."""
    return [
        _profiles(metrics["profiles"]),
        _breakdown("hops", metrics["by_hops"]),
        _breakdown("type", metrics["by_type"]),
    ]


def _profiles(profiles: Mapping[str, Json]) -> Section:
    rows = [(profile, figure(score["em"]), figure(score["f1"])) for profile, score in profiles.items()]
    return Section("EM and F1 by scoring profile", ("profile", "EM", "F1"), rows)


def _breakdown(name: str, groups: Mapping[str, Json]) -> Section:
    rows = [(group, str(s["n"]), figure(s["em"]), figure(s["f1"])) for group, s in groups.items()]
    return Section(f"By {name}", (name, "questions", "EM", "F1"), rows if len(rows) > 1 else ())


def _retrieval(measured: Mapping[str, Json] | None) -> Section:
    """Recall within each budget of passages, over all questions and by group; nothing without retrieval."""
    title = "Recall of gold passages"
    if measured is None:
        return Section(title, (), ())
    budgets = list(measured["recall"])
    rows = [("all", figure(measured["n"]), *(figure(score["mean"]) for score in measured["recall"].values()))]
    for groups in (measured["by_hops"], measured["by_type"]):
        rows += [
            (group, figure(scores["n"]), *(figure(scores[budget]) for budget in budgets))
            for group, scores in groups.items()
            if len(groups) > 1
        ]
    header = ("group", "questions", *(f"@{budget}" for budget in budgets))
    return Section(title, header, rows, alarm=measured["alarm"] or "")


def _figures(title: str, figures: Mapping[str, Json]) -> Section:
    return Section(title, (), [(name.replace("_", " "), figure(value)) for name, value in figures.items()])


def _costs(roles: Mapping[str, Json]) -> Section:
    columns = ("calls", "prompt_tokens", "cached_tokens", "output_tokens", "seconds")
    rows = [
        (role, *(figure(cost[column]) for column in columns), _dollars(cost["usd"])) for role, cost in roles.items()
    ]
    header = ("role", *(column.replace("_", " ") for column in columns), "USD")
    text = ("As if nothing had been cached; a cached reply keeps the cost of the call that made it.",)
    return Section("Cost by role", header, rows, text)


def _dollars(usd: float | None) -> str:
    return "–" if usd is None else f"{usd:,.4f}"


def _flags(roles: Mapping[str, Json]) -> Section:
    """What the engines could not do as asked; a flagged reply may rest on less than the method assumes."""
    rows = [
        (role, flag, figure(seen["calls"]), f"{100 * seen['share']:.1f} %")
        for role, cost in roles.items()
        for flag, seen in cost["flags"].items()
    ]
    return Section("Flags of model calls", ("role", "flag", "calls", "share"), rows)


def _what_was_run(manifest: Mapping[str, Json]) -> Section:
    code, dataset = manifest["kgqa"], manifest["dataset"]
    commit = f", commit {code['commit']}" + (" with changes" if code["dirty"] else "") if "commit" in code else ""
    rows = [
        ("command", " ".join(manifest["command"])),
        ("kgqa", f"{code['version']}{commit}"),
        ("questions", f"{dataset['questions']:,} of {dataset['file']}, sha256 {dataset['sha256']}"),
        ("machine", f"{manifest['platform']}, {manifest['cores']} cores, Python {manifest['python']}"),
    ]
    rows += [("documents", dataset["documents"])] if "documents" in dataset else []
    rows += [(f"model of {role}", _identity(identity)) for role, identity in manifest["models"].items()]
    rows += [(part, _identity(manifest[part])) for part in ("ranker", "reranker", "index") if manifest.get(part)]
    return Section("What was run", (), rows)


def _identity(identity: Json) -> str:
    if not isinstance(identity, Mapping):
        return str(identity)
    return ", ".join(f"{key}={value}" for key, value in identity.items() if value not in (None, [], {}))


def _values(key: str, value: Any, sources: Mapping[str, str]) -> Iterator[Setting]:
    if not isinstance(value, Mapping):
        yield key, str(value), sources.get(key, sources.get(key.rpartition(".")[0], ""))
        return
    for name, inner in value.items():
        if name != "_target_":
            yield from _values(f"{key}.{name}", inner, sources)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(
            f"{path}: no such file, so this is not the folder of a run that ended; "
            f"give the folder that kgqa run printed, or run its command again"
        ) from error
    except ValueError as error:
        raise DataError(f"{path}: not readable ({error}); run the same command again to rewrite it") from error
