"""`kgqa runs`: finished and running work."""

from __future__ import annotations

from argparse import Namespace

from kgqa.cli.parsing import Parser
from kgqa.errors import ConfigError
from kgqa.util.terminal_text import escape_json

NAME = "runs"
SUMMARY = "list the runs in outputs/, newest first, or what is running"
KEYS = ("dataset", "method", "model", "since")
SHOWN = 20  # without --limit


def arguments(parser: Parser) -> None:
    parser.takes_places("NAME", "only runs with a name, or a part of it behind a slash, that starts like this", least=0)
    parser.takes_keys("only runs of dataset=, method=, model=; since=2026-01-31 or 2026-01-31T12:00", KEYS, only=True)
    parser.add_argument("--running", action="store_true", help="show what is running: progress, speed, cost")
    parser.add_argument("--limit", metavar="N", type=int, help=f"maximum number (default: {SHOWN}; with --json: all)")
    parser.add_argument("--json", action="store_true", help="write a JSON list of all of them")
    parser.examples = (
        "kgqa runs",
        "kgqa runs method=trace since=2026-01-31",
        "kgqa runs --running",
        "kgqa runs --json",
    )
    parser.notes = (
        "With --running: runs, sweeps, builds and judges that write into outputs/ of this folder, on any machine.\n"
        "Each of them writes a log.jsonl into its own folder."
    )


def run(given: Namespace) -> int:
    from kgqa.artifacts.runs import list_runs, matching
    from kgqa.config.overrides import override_values

    if given.running:
        return show_running(as_json=given.json)
    if given.limit is not None and given.limit < 1:
        raise ConfigError(f"--limit {given.limit}: must be at least 1")
    wanted = override_values(given.overrides)
    since = _seconds(wanted["since"]) if "since" in wanted else 0.0
    parts = [wanted.get(key) for key in ("dataset", "method", "model")]
    listed = [
        run
        for run in list_runs()
        if run.written >= since and all(want in (None, part) for want, part in zip(parts, run.parts, strict=False))
    ]
    if given.places:
        listed = matching(given.places[0], listed)
    if given.json:
        import json

        from kgqa.artifacts.runs import run_json

        listing = json.dumps([run_json(run) for run in listed[: given.limit]], indent=2, ensure_ascii=False)
        print(escape_json(listing))
    else:
        from kgqa.cli.terminal.console import Terminal
        from kgqa.cli.terminal.runs import show_runs

        show_runs(listed, given.limit or SHOWN, Terminal(width=160))
    return 0


def show_running(*, as_json: bool) -> int:
    """Show running work from its heartbeats."""
    from kgqa.runtime.heartbeat import read_heartbeats

    beats = read_heartbeats()
    if as_json:
        import json

        print(escape_json(json.dumps([beat.json() for beat in beats], indent=2, ensure_ascii=False)))
    else:
        from kgqa.cli.terminal.console import Terminal
        from kgqa.cli.terminal.status import show_status

        show_status(beats, Terminal(width=200))
    return 0


def _seconds(date: str) -> float:
    """Return the seconds since 1970 of a date; one without a time starts at midnight, local time."""
    from datetime import datetime

    try:
        return datetime.fromisoformat(date).timestamp()
    except ValueError as error:
        raise ConfigError(f"since={date}: no date; write 2026-01-31 or 2026-01-31T12:00") from error
