"""`kgqa runs`, `kgqa report` and `kgqa view`: find runs, write their reports, and open them in the browser."""

from __future__ import annotations

import time
import webbrowser
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from kgqa.artifacts.metrics import Estimate, Metrics
from kgqa.artifacts.run import SETTINGS, SWEEP, Chosen, RunEntry, find_run, list_runs, matching, run_json
from kgqa.artifacts.schema import read
from kgqa.cli.commands import EXPORTS
from kgqa.cli.terminal import Cells, Terminal, styled
from kgqa.config.overrides import override_values
from kgqa.errors import ConfigError, DataError
from kgqa.report.exports import write_export
from kgqa.report.run_report import write_report
from kgqa.report.sweeps import write_sweep_report
from kgqa.runtime.monitor import Heartbeat, read_heartbeats
from kgqa.util.fs import ensure_dir, outputs
from kgqa.util.text import duration

RUNS_SHOWN = 20
NO_DIFFERENCE = ("run_name", "output_dir")  # settings that describe no run
RUNNING = ("work", "stage", "done", "failed", "left", "paid", "for")


def runs(args: Namespace, terminal: Terminal) -> int:
    """List runs with their scores, or running work."""
    if args.running:
        return _show_running(args, terminal)
    wanted = override_values(args.overrides)
    keys = ("dataset", "method", "model")
    listed = [
        run
        for run in list_runs()
        if all(wanted.get(key) in (None, part) for key, part in zip(keys, run.parts, strict=False))
    ]
    if args.positionals:
        listed = matching(args.positionals[0], listed)
    if args.json:
        terminal.json([run_json(run) for run in listed[: args.limit]])
        return 0
    if not listed:
        terminal.line("no such runs in outputs/. Start with: kgqa run method=trace dataset=demo limit=3")
        return 0
    limit = args.limit or RUNS_SHOWN
    differing = _list_differing(listed[:limit])
    rows: list[Cells] = [
        (f"{datetime.fromtimestamp(run.written):%Y-%m-%d %H:%M}", run.name, differing.get(run, ""), *_scores(run))
        for run in listed[:limit]
    ]
    terminal.table(("written", "run", "differs in", "questions", "EM", "F1", ""), rows, fixed=1)
    if len(listed) > limit:
        terminal.line(f"{limit} of {len(listed):,}. All: --limit {len(listed)}")
    return 0


def _list_differing(runs: Sequence[RunEntry]) -> dict[RunEntry, str]:
    """Return the settings by which finished runs of the same dataset, method and model differ."""
    settings: dict[RunEntry, dict[str, str]] = {}
    for run in runs:
        with suppress(DataError):
            chosen = read(Chosen, run.folder / SETTINGS)
            settings[run] = {**{key: value for key, value, _ in chosen.settings}, **chosen.choices}
    differing = {}
    for run, own in settings.items():
        others = [each for other, each in settings.items() if other.parts[:3] == run.parts[:3]]
        shared = [key for key in own if key not in NO_DIFFERENCE and all(key in each for each in others)]
        keys = [key for key in shared if len({each[key] for each in others}) > 1]
        differing[run] = " ".join(f"{key}={own[key]}" for key in keys)
    return differing


def _scores(run: RunEntry) -> Cells:
    if not run.ended:
        return "", "", "", "not finished. Run its command again"
    try:
        metrics = Metrics.read(run.folder)
    except DataError:
        return "", "", "", "metrics.json is damaged. Run its command again"
    failed = styled(f"{metrics.failed:,} failed", "red") if metrics.failed else ""
    return f"{metrics.questions:,}", _mean(metrics.score("em")), _mean(metrics.score("f1")), failed


def _mean(score: Estimate) -> str:
    return "" if score.mean is None else f"{score.mean:.1f}"


def _show_running(args: Namespace, terminal: Terminal) -> int:
    beats = read_heartbeats()
    if args.json:
        terminal.json([beat.json() for beat in beats])
        return 0
    if beats:
        terminal.table(RUNNING, map(_progress, beats))
    else:
        terminal.line("no running work in outputs/. List finished runs: kgqa runs")
    for beat in beats:
        if not beat.is_running:
            hint = f". Continue with: {beat.command}" if beat.command else ""
            terminal.line(
                f"process {beat.pid} on {beat.host} stopped. Its answers are saved in {beat.folder} and the call "
                f"cache{hint}",
                alarm=True,
            )
    return 0


def _progress(beat: Heartbeat) -> Sequence[str]:
    done = f"{beat.ended:,}" if beat.count is None else f"{beat.ended:,} of {beat.count:,}"
    return (
        f"{beat.what} {beat.folder}" + ("" if beat.describe() == "running" else f"\n{beat.describe()}"),
        beat.stage,
        done if beat.stage else "",
        f"{beat.failed:,}" if beat.failed else "",
        "" if beat.seconds_left is None else duration(beat.seconds_left),
        f"{beat.tokens:,} tokens" + ("" if beat.usd is None else f", {beat.usd:.4f} USD"),
        duration(time.time() - beat.started),
    )


def report(args: Namespace, terminal: Terminal) -> int:
    """Write the report of a run or sweep, export a run, or open a report."""
    form = args.format or "html"
    is_export = form in EXPORTS
    if is_export and args.out is None:
        raise args.command.missing("--out DIR")
    folder = find_run(args.positionals[0], sweeps=not is_export)
    is_sweep = (folder / SWEEP).is_file()
    if args.open:
        files = [folder / "report.html"]
        if not files[0].is_file():
            raise DataError(f"{files[0]}: no such file. Create it with kgqa report {args.positionals[0]}")
        webbrowser.open(files[0].resolve().as_uri())  # does nothing if there is no browser
    elif is_export:
        files = write_export(folder, args.out, form)
    elif is_sweep:
        files = [write_sweep_report(folder, form, args.out)]
    else:
        files = [write_report(folder, form, args.out)]
    terminal.lines(files)
    return 0


def view(args: Namespace, terminal: Terminal) -> int:
    """Serve the local web app until Ctrl-C."""
    from kgqa.viewer.ask_tab import Choices
    from kgqa.viewer.server import PORT, serve

    port = PORT if args.port is None else args.port
    if not 0 <= port < 65536:
        raise ConfigError(f"--port {port}: must be from 0 to 65535")
    folder = Path(args.positionals[0]) if args.positionals else outputs()
    documents = tuple(each.expanduser() for each in args.documents or ())
    if documents and not args.positionals:
        ensure_dir(folder)  # a new user has no runs yet

    def announce(address: str) -> None:
        terminal.line(f"{address}\nreading {folder}. Stop with Ctrl-C")
        if not args.no_browser:
            webbrowser.open(address)

    try:
        serve(Choices(folder, documents, tuple(args.overrides)), port, announce)
    except KeyboardInterrupt:
        terminal.line("")
    return 0
