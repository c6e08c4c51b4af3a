"""`kgqa runs` and `kgqa report`: find runs and write their reports."""

from __future__ import annotations

import shlex
import time
import webbrowser
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from kgqa.artifacts.metrics import Metrics
from kgqa.artifacts.run import (
    SWEEP,
    FinishedRun,
    RunEntry,
    find_run,
    list_runs,
    read_settings,
    run_json,
)
from kgqa.artifacts.sweep import find_missing, select_runs, warn_of_changed
from kgqa.cli.commands import EXPORTS
from kgqa.cli.tables import Cells, style_text
from kgqa.cli.terminal import Terminal
from kgqa.config.building import check_value
from kgqa.config.overrides import override_values
from kgqa.errors import ConfigError, DataError, nearest, note
from kgqa.experiment.significance import check_alpha, read_metrics
from kgqa.report.changes import NamedRun, add_reasons, list_present_prompts
from kgqa.report.columns import find_differing, group_texts, join_names, warn_of_missing
from kgqa.report.exports import write_export, write_report
from kgqa.report.paper import DEFAULT_METRICS, PaperTable, read_entries, table_file
from kgqa.report.section import FILES
from kgqa.report.sweeps import write_sweep_report
from kgqa.report.warnings import warn_of_new_metrics
from kgqa.runtime.monitor import Heartbeat, read_heartbeats
from kgqa.scoring.comparison import ALPHA, HOLM, check_correction
from kgqa.util.fs import replace_file
from kgqa.util.text import duration

RUNS_SHOWN = 20
FILTERS = ("dataset", "method", "model")
RUNNING = ("work", "stage", "done", "failed", "left", "paid", "for")


def runs(args: Namespace, terminal: Terminal) -> None:
    """List runs with their scores, or running work."""
    if args.running:
        _show_running(args, terminal)
        return
    filters = override_values(args.overrides)
    for key, value in filters.items():
        if key not in FILTERS:
            raise ConfigError(f"{key}={value}: not a filter. {nearest(key, FILTERS)}")
    listed = select_runs(*args.positionals, **filters)
    if args.json:
        terminal.json([run_json(run) for run in listed[: args.limit]])
        return
    if not listed:
        start = "Start with: kgqa run method=trace dataset=demo limit=3"
        terminal.line(
            f"no such runs in outputs/. {'List all: kgqa runs' if list_runs() else start}"
        )
        return
    entries = listed[: args.limit or RUNS_SHOWN]
    differing = _list_differing(entries)
    beats = {Path(beat.folder).absolute(): beat for beat in read_heartbeats()}
    work = {run: beat for run in entries if (beat := beats.get(run.folder.absolute()))}
    rows = [
        (run.name, *_scores(run, work.get(run)), differing.get(run), run.when) for run in entries
    ]
    # a narrow terminal omits the last ones first
    header = ("run", "questions", "EM", "F1", "", "differs in", "written")
    # an empty column would cost the others their space
    used = [
        number
        for number, name in enumerate(header)
        if name in ("run", "questions", "EM", "F1") or any(row[number] for row in rows)
    ]
    terminal.table([header[n] for n in used], [[row[n] for n in used] for row in rows])
    terminal.lines(list_present_prompts(text for text in differing.values() if text))
    terminal.lines(
        join_names(
            (run.name, f"not finished. Continue with: {beat.command}")
            for run, beat in work.items()
            if not run.ended and beat.command and not beat.is_running
        )
    )
    if len(listed) > len(entries):
        terminal.line(f"{len(entries)} of {len(listed):,}. All: --limit {len(listed)}")


def _list_differing(runs: Sequence[RunEntry]) -> dict[RunEntry, str]:
    """Return the settings by which finished runs of the same dataset, method and model differ."""
    settings: dict[RunEntry, dict[str, str]] = {}
    for run in runs:
        with suppress(DataError):
            settings[run] = read_settings(run.folder)
    named = []
    groups = group_texts((run, run.parts[:3]) for run in settings)
    for run, own in settings.items():
        alike = [settings[other] for other in groups[run.parts[:3]]]
        values, minor = (
            " ".join(f"{key}={own[key]}" for key in find_differing(alike, is_minor=is_minor))
            for is_minor in (False, True)
        )
        named.append(NamedRun(values, run.parts[1], run.folder, run.parts[:3], minor))
    return dict(zip(settings, add_reasons(named), strict=True))


def _scores(run: RunEntry, beat: Heartbeat | None) -> Cells:
    """Return the number of questions, EM, F1 and a remark. beat: of a run that is in progress, or was stopped."""
    if beat and beat.is_running:
        count = f"{beat.ended:,}" if beat.count is None else f"{beat.ended:,} of {beat.count:,}"
        return None, None, None, f"running: {count} {beat.stage}".rstrip()
    if not run.ended:
        return (
            None,
            None,
            None,
            f"not finished{'' if beat and beat.command else '. Run its command again'}",
        )
    try:
        metrics = Metrics.read(run.folder)
    except DataError:
        return None, None, None, "metrics.json is damaged. Run its command again"
    failed = style_text(f"{metrics.failed:,} failed", "red") if metrics.failed else None
    return metrics.questions, metrics.score("em").mean, metrics.score("f1").mean, failed


def _show_running(args: Namespace, terminal: Terminal) -> None:
    beats = read_heartbeats()
    if args.json:
        terminal.json([beat.json() for beat in beats])
        return
    if beats:
        terminal.table(RUNNING, map(_progress, beats))
    else:
        terminal.line("no running work in outputs/. List finished runs: kgqa runs")
    for beat in (beat for beat in beats if not beat.is_running):
        saved = f"Its answers are saved in {beat.folder} and the call cache"
        hint = f". Continue with: {beat.command}" if beat.command else ""
        terminal.line(f"process {beat.pid} on {beat.host} stopped. {saved}{hint}", alarm=True)


def _progress(beat: Heartbeat) -> Cells:
    count = f"{beat.ended:,}" if beat.count is None else f"{beat.ended:,} of {beat.count:,}"
    return (
        f"{beat.what} {beat.folder}"
        + ("" if beat.describe() == "running" else f"\n{beat.describe()}"),
        beat.stage,
        count if beat.stage else None,
        beat.failed or None,
        None if beat.seconds_left is None else duration(beat.seconds_left),
        f"{beat.tokens:,} tokens" + ("" if beat.usd is None else f", {beat.usd:.4f} USD"),
        duration(time.time() - beat.started),
    )


def report(args: Namespace, terminal: Terminal) -> None:
    """Write the report of a run or sweep, export a run, or open a report."""
    form = args.format or _choose_format(args.out, "latex" if args.table else "html")
    if args.table:
        _write_table(args, form, terminal)
        return
    if args.overrides or len(args.positionals) > 1:
        raise _reject_table(args.positionals, args.overrides)
    is_export = form in EXPORTS
    if is_export and args.out is None:
        raise args.command.missing("--out DIR")
    folder = find_run(args.positionals[0], sweeps=not is_export)
    terminal.warn(warn_of_new_metrics([folder]))
    if args.open:
        page = folder / "report.html"
        if not page.is_file():
            raise DataError(
                f"{page}: no such file. Create it with kgqa report {args.positionals[0]}"
            )
        # does nothing if there is no browser
        webbrowser.open(page.resolve().as_uri())
        terminal.line(page)
    elif is_export:
        terminal.lines(write_export(folder, args.out, form))
        if answered := Metrics.read(folder).answered_text:
            hint = ": failed questions have no line in run.trec" if form == "trec" else ""
            terminal.line(f"{answered}{hint}")
    else:
        is_sweep = (folder / SWEEP).is_file()
        run = None if is_sweep else FinishedRun.read(folder)
        terminal.line(
            write_report(run, form, args.out) if run else write_sweep_report(folder, form, args.out)
        )
        if form == "html" and args.out is None:
            terminal.suggest("report", folder, "--open")


def _choose_format(out: Path | None, default: str) -> str:
    """Return the format of a file with this ending. Raises ConfigError: no format has it."""
    if out is None or not out.suffix:
        return default
    forms = {Path(file).suffix: form for form, file in FILES.items()}
    if out.suffix not in forms:
        *endings, last = forms
        raise ConfigError(
            f"--out {out}: choose a name that ends in {', '.join(endings)} or {last}, or add --format. "
            "Plots are in the HTML report, as SVG"
        )
    return forms[out.suffix]


def _reject_table(names: Sequence[str], keys: Sequence[str]) -> ConfigError:
    """Return the error for several runs, or for keys of a table, without --table. It shows what to write."""
    table = shlex.join(["kgqa", "report", *names, *keys, "--table", "paper"])
    if keys:
        return ConfigError(f"{keys[0]}: works only with --table paper. Write: {table}")
    error = ConfigError(f"{' '.join(names)}: a report is of one run or sweep")
    note(error, f"for a table of all: {table}")
    note(error, f"for paired tests: {shlex.join(['kgqa', 'compare', *names])}")
    return error


def _write_table(args: Namespace, form: str, terminal: Terminal) -> None:
    """Write a table for a paper, by default into the folder of the first run or sweep."""
    values = override_values(args.overrides)
    folders = [find_run(name, sweeps=True) for name in args.positionals]
    metrics = read_metrics(values.get("metrics", "")) or DEFAULT_METRICS
    alpha = check_alpha(values.get("alpha", ALPHA))
    correction = check_correction(values.get("correction", HOLM))
    missing = find_missing(folders)
    terminal.warn([*warn_of_missing(missing), *warn_of_changed(folders)])
    terminal.warn(warn_of_new_metrics(folders, metrics))
    table = PaperTable(
        read_entries(folders),
        metrics,
        alpha=alpha,
        correction=correction,
        intervals=check_value("intervals", values.get("intervals", "false"), bool),
        missing=missing,
    )
    if "baseline" in values:
        table = replace(table, baseline=table.find(values["baseline"]))
    if "rows" in values:
        pairs = (each.partition(":") for each in values["rows"].strip("[]").split(","))
        table = table.choose({row.strip(): name.strip() for row, _, name in pairs})
    terminal.line(replace_file(args.out or folders[0] / table_file(form), table.text(form)))
